"""How a program is mapped to a GPU, as data."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from . import _core
from .errors import ScheduleError


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """It may change speed, never meaning. ``dataclasses.replace`` makes a variant of one.

    The fields are those of ``flashcore::Schedule`` in dsl/schedule.h, which says what each does.
    """

    tiles: Mapping[str, int] = field(default_factory=dict)
    """Elements of a tile, by axis name; one entry for every tiled axis of the program."""
    warps_m: int = 4
    warps_n: int = 1
    stages: int = 2
    instruction: Literal["mma_m16n8k16", "wmma", "wgmma"] = "mma_m16n8k16"
    copy: Literal["cp_async", "vector", "tma"] = "cp_async"
    softmax: Literal["registers", "shared"] = "registers"
    keep_operands: bool = False
    staged_stores: bool = True
    peel_masks: bool = False
    descending: bool = True
    last_tiles_first: bool = False
    grid_order: Literal["tiles_first", "tiles_last", "sections"] = "tiles_first"
    fixed_maximum: bool = True
    softmax_columns: int = 0
    softmax_distance: int = 0
    overlap_products: bool = True
    scale_late: bool = False
    wait_late: bool = False
    lazy_scaling: bool = False
    reduction_chains: int = 1
    polynomial_exponentials: int = 0
    sums_by_products: bool = False
    alternate: bool = False
    turns: Literal["products", "scores"] = "products"
    persistent: bool = False
    tile_order: Literal["rounds", "counter"] = "rounds"
    positions_per_block: int = 1
    outer_stages: int = 1
    loop_blocks: int = 1
    producer: bool = True
    producer_registers: int = 0
    consumer_registers: int = 0
    blocks_per_processor: int = 1
    register_limit: int = 255
    shared_limit: int = 0

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=2)

    @classmethod
    def from_json(cls, text: str) -> Schedule:
        """Reads what :meth:`to_json` wrote; raises ScheduleError with every field that is wrong."""
        return cls(**json.loads(_core.normal_schedule(text)))


def merge(base: Schedule, changes: Mapping[str, Any]) -> Schedule:
    """The schedule with some fields changed; tiles are merged by axis."""
    known = [f.name for f in dataclasses.fields(Schedule)]
    unknown = [name for name in changes if name not in known]
    if unknown:
        raise ScheduleError(
            "cannot change the schedule",
            f"no such field: {', '.join(unknown)}",
            f"the fields are {', '.join(known)}",
        )
    changes = dict(changes)
    if "tiles" in changes:
        changes["tiles"] = {**base.tiles, **changes["tiles"]}
    return dataclasses.replace(base, **changes)
