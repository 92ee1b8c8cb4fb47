"""How a program is mapped to a GPU, as data."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args, get_origin, get_type_hints

from .. import _core, arguments
from ..errors import ScheduleError


@arguments.fields_by_name("a schedule", ScheduleError)
@dataclass(frozen=True, kw_only=True)
class Schedule:
    """It may change speed and rounding, never meaning. ``dataclasses.replace`` makes a variant.

    The fields are those of ``flashcore::Schedule`` in dsl/schedule.h, which says what each does.
    """

    # Mapping: which warps, blocks and instructions compute what.
    tiles: Mapping[str, int] = field(default_factory=dict)
    """Elements of a tile, by axis name; one entry for every tiled axis of the program."""
    warps_m: int = 4
    warps_n: int = 1
    instruction: Literal["mma_m16n8k16", "wmma", "wgmma", "mma_m16n8k8_tf32"] = "mma_m16n8k16"
    copy: Literal["cp_async", "vector", "tma"] = "cp_async"
    softmax: Literal["registers", "shared"] = "registers"
    keep_operands: bool = False
    load_vectors: bool = False
    staged_stores: bool = True
    keep_addresses: bool = True
    last_tiles_first: bool = False
    end_aligned_tiles: bool = False
    grid_order: Literal["tiles_first", "tiles_last", "grouped"] = "tiles_first"
    flat_grid: bool = False
    persistent: bool = False
    tile_scheduler: Literal["serpentine", "dynamic"] = "serpentine"
    positions_per_block: int = 1
    multicast_blocks: int = 1
    producer: bool = True
    producer_warps: int = 1
    blocks_per_processor: int = 1

    # Ordering: what is issued when. Results stay the same.
    stages: int = 2
    outer_stages: int = 1
    peel_masks: bool = False
    overlap_products: bool = True
    late_products: bool = False
    rescale_before_product: bool = False
    rescale_before_wait: bool = False
    lazy_scaling: bool = False
    reduction_chains: int = 1
    ping_pong: bool = False

    # Numerics: what sums are made of, and so how results are rounded.
    descending: bool = True
    product_split: Literal["terms", "columns"] = "terms"
    cluster_splits: int = 1
    sums_by_products: bool = False

    def __post_init__(self) -> None:
        for entry in dataclasses.fields(self):
            object.__setattr__(self, entry.name, _checked(entry, getattr(self, entry.name)))

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=2)

    @classmethod
    def from_json(cls, text: str) -> Schedule:
        """Reads what :meth:`to_json` wrote; raises ScheduleError with every field that is wrong."""
        if not arguments.is_text(text):
            fix = "the text that to_json() wrote"
            raise arguments.refusal("the schedule", text, "it is no text", fix, ScheduleError)
        return cls(**json.loads(_core.normal_schedule(text)))


def _checked(entry: dataclasses.Field[Any], value: Any) -> Any:
    """The value of a field, of its own type."""
    name = f"{entry.name} of a schedule"
    if entry.name == "tiles":
        if not isinstance(value, Mapping) or not all(isinstance(axis, str) for axis in value):
            fix = 'tiles={"rows": 128, "cols": 64}'
            raise arguments.refusal(name, value, "it has no sizes by axis", fix, ScheduleError)
        fix = "a number of elements, as 64"
        return {
            axis: arguments.whole(f"the tile along {axis}", size, fix, ScheduleError)
            for axis, size in value.items()
        }
    if isinstance(entry.default, bool):
        return arguments.flag(name, value, ScheduleError)
    if isinstance(entry.default, int):
        fix = f"a whole number; {entry.default} unless given"
        return arguments.whole(name, value, fix, ScheduleError)
    return arguments.one_of(name, value, _choices()[entry.name], ScheduleError)


@functools.cache
def _choices() -> dict[str, tuple[str, ...]]:
    """The texts that each field with texts takes: those of its type."""
    types = get_type_hints(Schedule)
    return {name: get_args(of) for name, of in types.items() if get_origin(of) is Literal}


def merge(base: Schedule, changes: Mapping[str, Any]) -> Schedule:
    """The schedule with some fields changed; tiles are merged by axis."""
    if not isinstance(changes, Mapping):
        fix = 'the fields to change, as {"stages": 3}, or a flashcore.Schedule'
        raise arguments.refusal(
            "schedule", changes, "it is no schedule and names no fields", fix, ScheduleError
        )
    known = [f.name for f in dataclasses.fields(Schedule)]
    unknown = [str(name) for name in changes if name not in known]
    if unknown:
        why, fix = arguments.unknown(unknown[0], known, "there is no such field")
        raise ScheduleError(
            f'the field "{unknown[0]}" of a schedule',
            why,
            f"{fix}the fields are {', '.join(known)}",
        )
    changes = dict(changes)
    if "tiles" in changes:
        tiles = changes["tiles"]
        changes["tiles"] = {**base.tiles, **tiles} if isinstance(tiles, Mapping) else tiles
    return dataclasses.replace(base, **changes)
