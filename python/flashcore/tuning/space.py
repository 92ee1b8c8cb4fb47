"""The search space: one table of the fields of a schedule and the values that a search tries.

A new field of :class:`Schedule` gets a row in a family here, or a reason in `NOT_SEARCHED`; a test
demands one of the two.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .. import _core
from ..errors import ScheduleError
from ..specs.schedule import Schedule
from ..specs.spec import AttentionSpec

Genes = dict[str, Any]
"""A schedule, flat: its fields, with "tiles.rows" and "tiles.cols" in place of `tiles`."""

_DEFAULTS = Schedule()
_BOOL = (False, True)

NOT_SEARCHED = {
    "instruction": "each family has its own",
    "copy": "each family has its own",
    "flat_grid": "a call asks for it where its grid is too large for another",
    "load_vectors": "no loop of forward attention loads a vector",
    "late_products": "the last product of forward attention is late in any case",
    "keep_addresses": "the registers of forward attention have room for those of its output",
}
"""Fields that no family lists, and why."""


def _masked(genes: Genes, spec: AttentionSpec) -> bool:
    return spec.expressions[0].text != "true"


@dataclass(frozen=True)
class Choice:
    """The values of one field. Where `matters` says no, the field keeps its default: two schedules
    that differ there only are one kernel."""

    values: Sequence[Any]
    matters: Callable[[Genes, AttentionSpec], bool] = lambda genes, spec: True


@dataclass(frozen=True)
class Family:
    """Schedules of one kind of product and copy."""

    name: str
    fixed: Mapping[str, Any]
    choices: Mapping[str, Choice]
    runs_on: Callable[[Mapping[str, int]], bool]
    """Whether a target of these facts has the instructions."""
    rows_per_warp: Sequence[int]
    """What of a tile a warp may own; `tiles.rows` follows the nearest of them."""
    products: Sequence[tuple[str, str]] = (("f16", "full"), ("bf16", "full"))
    """The dtypes it multiplies, and how."""


_ORDER = {
    "descending": Choice(_BOOL),
    "last_tiles_first": Choice(_BOOL, _masked),
    "grid_order": Choice(("tiles_first", "tiles_last")),
    "peel_masks": Choice(_BOOL),  # without a mask it parts the tile that ends beyond the keys
    "staged_stores": Choice(_BOOL),
}

_MMA = {
    "tiles.rows": Choice((16, 32, 64, 128, 192, 256)),
    "tiles.cols": Choice(range(16, 161, 16)),
    "warps_m": Choice((1, 2, 4, 8)),
    "warps_n": Choice((1, 2, 4)),
    "product_split": Choice(
        ("terms", "columns"),
        lambda genes, spec: genes["warps_n"] > 1 and genes["softmax"] == "registers",
    ),
    "stages": Choice((1, 2, 3, 4)),
    **_ORDER,
    "keep_operands": Choice(_BOOL),
    "reduction_chains": Choice((1, 2, 4)),
    "softmax": Choice(("registers", "shared")),
    "blocks_per_processor": Choice((1, 2, 3)),
}

FAMILIES = (
    Family(
        "wgmma",
        {"instruction": "wgmma", "copy": "tma"},
        {
            "tiles.rows": Choice((64, 128, 192)),
            "tiles.cols": Choice(range(32, 257, 16)),
            "warps_m": Choice((4, 8, 12)),
            "warps_n": Choice((1, 2, 3), lambda genes, spec: genes["warps_m"] == 4),
            "product_split": Choice(("columns",), lambda genes, spec: genes["warps_n"] > 1),
            "stages": Choice((1, 2, 3, 4)),
            **_ORDER,
            "grid_order": Choice(("tiles_first", "tiles_last", "grouped")),
            "overlap_products": Choice(_BOOL),
            "rescale_before_product": Choice(_BOOL, lambda genes, spec: genes["overlap_products"]),
            "rescale_before_wait": Choice(
                _BOOL, lambda genes, spec: genes["rescale_before_product"]
            ),
            "lazy_scaling": Choice(_BOOL, lambda genes, spec: genes["overlap_products"]),
            "reduction_chains": Choice((1, 2, 4)),
            "sums_by_products": Choice(_BOOL),
            "ping_pong": Choice(_BOOL, lambda genes, spec: genes["warps_m"] > 4),
            "persistent": Choice(_BOOL),
            "tile_scheduler": Choice(
                ("serpentine", "dynamic"), lambda genes, spec: genes["persistent"]
            ),
            "positions_per_block": Choice(
                (1, 2, 4, 8), lambda genes, spec: not genes["persistent"]
            ),
            "multicast_blocks": Choice((1, 2), lambda genes, spec: genes["persistent"]),
            "end_aligned_tiles": Choice(
                _BOOL, lambda genes, spec: _masked(genes, spec) and genes["multicast_blocks"] == 1
            ),
            "outer_stages": Choice(
                (1, 2), lambda genes, spec: genes["persistent"] or genes["positions_per_block"] > 1
            ),
            "cluster_splits": Choice(
                (1, 2, 4),
                lambda genes, spec: not genes["persistent"] and genes["positions_per_block"] == 1,
            ),
            "producer": Choice(_BOOL, lambda genes, spec: genes["warps_m"] == 4),
            "producer_warps": Choice(
                (1, 2), lambda genes, spec: genes["producer"] and genes["multicast_blocks"] == 1
            ),
            "keep_operands": Choice(_BOOL),
            "blocks_per_processor": Choice((1, 2, 3)),
        },
        lambda facts: bool(facts["wgmma"] and facts["tma"]),
        rows_per_warp=(16,),
    ),
    Family(
        "mma",
        {"instruction": "mma_m16n8k16", "copy": "cp_async"},
        _MMA,
        lambda facts: bool(facts["mma_m16n8k16"] and facts["async_copy"]),
        rows_per_warp=(16, 32),
    ),
    Family(
        "mma_tf32",
        {"instruction": "mma_m16n8k8_tf32", "copy": "cp_async", "softmax": "registers"},
        {name: choice for name, choice in _MMA.items() if name != "softmax"},
        lambda facts: bool(facts["tf32"] and facts["async_copy"]),
        rows_per_warp=(16, 32),
        products=(("f32", "tf32"),),
    ),
    Family(
        "wmma",
        {"instruction": "wmma", "copy": "vector", "softmax": "shared"},
        {
            "tiles.rows": Choice((16, 32, 64, 128)),
            "tiles.cols": Choice((16, 32, 48, 64, 96, 128)),
            "warps_m": Choice((1, 2, 4, 8)),
            "warps_n": Choice((1, 2, 4)),
            "stages": Choice((1, 2)),
            **_ORDER,
            "blocks_per_processor": Choice((1, 2)),
        },
        # Where there is mma.sync, opaque blocks have never been the faster ones.
        lambda facts: not facts["mma_m16n8k16"],
        rows_per_warp=(16, 32),
    ),
)


def searched_fields() -> set[str]:
    """The fields of a schedule that some family lists."""
    return {name.partition(".")[0] for family in FAMILIES for name in family.choices}


def flat(schedule: Schedule) -> Genes:
    genes = dataclasses.asdict(schedule)
    for axis, size in genes.pop("tiles").items():
        genes[f"tiles.{axis}"] = size
    return genes


def unflat(genes: Mapping[str, Any]) -> Schedule:
    fields = {name: value for name, value in genes.items() if "." not in name}
    tiles = {name.partition(".")[2]: genes[name] for name in sorted(genes) if "." in name}
    return Schedule(tiles=tiles, **fields)


class Space:
    """The schedules of a spec on a target. Draws from it need `rng` only, so that a seed repeats
    them."""

    def __init__(self, spec: AttentionSpec, target: str):
        self.spec = spec
        self.target = target
        self._program = _core.attention_program(spec.to_json())
        facts = _core.target_facts(target)
        multiplied = spec.dtype, spec.products
        self.families = tuple(
            family for family in FAMILIES if family.runs_on(facts) and multiplied in family.products
        )
        if not self.families:
            raise ScheduleError(
                f"a search for {target}",
                "no family of schedules has instructions that it runs",
                "a family in flashcore/tuning/space.py",
            )

    def family_of(self, schedule: Schedule) -> Family | None:
        for family in self.families:
            if schedule.instruction == family.fixed["instruction"]:
                return family
        return None

    def text(self, schedule: Schedule) -> str | None:
        """The kernel's source, equal for schedules that are one kernel; None for one that the
        resource model refuses. Nothing is compiled.

        The verdict is that of :meth:`AttentionSpec.why_not` but for the registers that a loop
        needs, which a compile finds out. why_not takes ten times as long: it also looks for
        everything that stands in the way, and for what would work.
        """
        try:
            return _core.Kernel(self._program, schedule.to_json(), self.target).source
        except ScheduleError:
            return None

    def normal(self, schedule: Schedule) -> Schedule:
        """The same kernel, with fields that make no difference at their defaults."""
        family = self.family_of(schedule)
        return self._finished(flat(schedule), family) if family else schedule

    def drawn(self, rng: random.Random) -> Schedule:
        family = rng.choice(self.families)
        genes = flat(_DEFAULTS)
        for name, choice in family.choices.items():
            genes[name] = rng.choice(choice.values)
        return self._finished(genes, family)

    def mutated(self, schedule: Schedule, rng: random.Random) -> Schedule:
        """One or two fields changed; ordered values mostly by a step."""
        family = self.family_of(schedule)
        if family is None:
            return self.drawn(rng)
        genes = flat(schedule)
        names = [n for n, c in family.choices.items()
                 if len(c.values) > 1 and c.matters(genes, self.spec)]  # fmt: skip
        for name in rng.sample(names, rng.choice((1, 1, 2))):
            values = family.choices[name].values
            genes[name] = _another(values, genes.get(name), rng)
        return self._finished(genes, family)

    def crossed(self, a: Schedule, b: Schedule, rng: random.Random) -> Schedule:
        """Each field from one of the two; of families that do not mix, a mutation of the first."""
        family = self.family_of(a)
        if family is None or family is not self.family_of(b):
            return self.mutated(a, rng)
        mine, other = flat(a), flat(b)
        genes = {name: rng.choice((value, other.get(name, value))) for name, value in mine.items()}
        return self._finished(genes, family)

    def _finished(self, genes: Genes, family: Family) -> Schedule:
        genes = genes | dict(family.fixed)
        unit = 16 * genes["warps_m"]
        if "tiles.rows" in genes:
            shares = [16 * genes["warps_m"] * rows // 16 for rows in family.rows_per_warp]
            genes["tiles.rows"] = min(shares, key=lambda rows: abs(rows - genes["tiles.rows"]))
            assert genes["tiles.rows"] % unit == 0
        defaults = flat(_DEFAULTS)
        listed = {*family.choices, *family.fixed, *NOT_SEARCHED}
        for name in genes:
            if name not in listed and name in defaults:
                genes[name] = defaults[name]
        for name, choice in family.choices.items():
            if not choice.matters(genes, self.spec):
                genes[name] = defaults[name]
        return unflat(genes)


def _another(values: Sequence[Any], value: Any, rng: random.Random) -> Any:
    others = [v for v in values if v != value]
    ordered = not isinstance(value, (bool, str)) and value in values
    if ordered and rng.random() < 0.6:
        at = list(values).index(value)
        return rng.choice([values[i] for i in (at - 1, at + 1) if 0 <= i < len(values)])
    return rng.choice(others)


__all__ = ["FAMILIES", "NOT_SEARCHED", "Choice", "Family", "Space", "searched_fields"]
