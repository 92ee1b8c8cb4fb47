"""Searches for the ordering of blocks under which the compiler makes the fastest kernel.

    python benchmarks/orderings.py --kinds softcap,positions
    python benchmarks/orderings.py --head-dims 64,128 --rounds 1 --out new.json

From the ordering that templates/schedules/measured_orderings.json has for a family of blocks, a
kind of spec and a head_dim, one field at a time is changed; the kernels are timed by turns, at 1024
and at 4096 keys, and the best change is kept, until none gains a per cent. A loop of its own for
masked tiles, with which a kernel takes a third longer to compile, goes unless it gains half a per
cent. An ordering counts only if the compiler takes it without spilling, with an LSE and without.
Head dims that were not measured keep what they have. The table goes to --out; the build reads it at
its place in templates/.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flex_peer import variant
from gpu_timing import Timer, machine, require_gpu
from options import numbers, words

SHIPPED = Path(__file__).parents[1] / "templates/schedules/measured_orderings.json"
STEP, WIDEST = 16, 256
HEAD_DIMS = [32, 64, 80, 96, 112, 128, 144, 160, 176, 192, 208, 224, 240, 256]
FLAGS = [
    "peel_masks",
    "descending",
    "staged_stores",
    "lazy_scaling",
    "rescale_before_wait",
    "rescale_before_product",
    "sums_by_products",
]
EARLY = ["lazy_scaling", "rescale_before_wait", "rescale_before_product"]
LEAST_GAIN = 1.01
LEAST_GAINS = {"peel_masks=False": 1 / 1.005}
"""Of changes by which a kernel compiles faster: they may cost half a per cent of its speed."""
LONGEST = 4096
MASKS = {
    "full": ("full", 0),
    "causal": ("causal", 0),
    "window": ("window", 512),
    "scan": ("prefix_causal", 1024),
}
SCORES = {  # with the size that variants have
    "softcap": ("softcap_causal", 30),
    "softcap_with_maximum": ("softcap_causal", 30),
    "positions": ("alibi_causal", 0),
    "lookups": ("relative_bias_causal", 0),
    "loads": ("dense_bias", 0),
}
WORDS = [
    ["64/no_producer", "128", "128/ping_pong", "128/multicast", "192"],
    ["full", "causal", "window", "scan"],
    ["plain", "softcap", "softcap_with_maximum", "positions", "lookups", "loads"],
    ["open", "ragged"],
]
PING_PONG = {"128": "128/ping_pong", "128/ping_pong": "128"}
"""Families of the same tiles with ping-pong and without."""
Fields = dict[str, Any]
Table = dict[str, list[Fields | None]]
"""By the kind, for each 16 columns of head_dim."""


@dataclass
class Cell:
    """A family of blocks for a kind of spec at a head_dim, and the fastest schedule so far."""

    kind: str
    head_dim: int
    spec: Any
    with_lse: Any
    heads: int
    schedule: Fields
    is_alone: bool
    """Whether blocks of as many rows are offered in ping-pong or without, not both."""
    changed: Fields = field(default_factory=dict)
    """What of it differs from the schedule that the table gives."""
    gain: float = 1.0
    moves: bool = True
    kernels: dict[str, Any] = field(default_factory=dict)
    gains: dict[str, float] = field(default_factory=dict)

    @property
    def title(self) -> str:
        return f"{self.kind} {self.head_dim}"


def arguments_of(fc: Any, torch: Any, mask: str, score: str, heads: int) -> dict[str, Any]:
    """Of the spec that is measured for such masks and scores."""
    arguments: dict[str, Any] = dict(variant(fc, torch, *MASKS[mask], LONGEST, heads).arguments)
    if score in SCORES:
        scored = variant(fc, torch, *SCORES[score], LONGEST, heads)
        arguments["score"] = scored.arguments["score"]
    return arguments


def cell_of(fc: Any, torch: Any, table: Table, kind: str, head_dim: int) -> Cell | None:
    """None where there is nothing to measure: sequences that differ in length, or no candidate."""
    from flashcore import _core

    family, mask, score, lengths = kind.split()
    heads = max(1, 2048 // head_dim)
    if lengths != "open":
        return None
    arguments = arguments_of(fc, torch, mask, score, heads)
    dtype = "f16" if score == "softcap_with_maximum" else "bf16"
    with_lse = fc.AttentionSpec(head_dim=head_dim, dtype=dtype, lse=True, **arguments)
    spec = fc.AttentionSpec(head_dim=head_dim, dtype=dtype, **arguments)
    own = [
        json.loads(text)
        for text in _core.candidate_schedules(spec.to_json())
        if _core.cost_family(text) == family
    ]
    # With the dynamic scheduler, where there is one, and with the most key columns.
    own.sort(key=lambda s: (s["grid_order"] != "grouped", -s["tiles"]["cols"]))
    other = table.get(in_the_other_family(kind), [])
    may_have_ping_pong = family == "192" or family in PING_PONG
    is_alone = may_have_ping_pong and (not other or other[head_dim // STEP - 1] is None)
    return Cell(kind, head_dim, spec, with_lse, heads, own[0], is_alone) if own else None


def in_the_other_family(kind: str) -> str:
    """The kind of the same specs for blocks of 128 rows in ping-pong, or without; "" of others."""
    family, rest = kind.split(" ", 1)
    return f"{PING_PONG[family]} {rest}" if family in PING_PONG else ""


def changes(cell: Cell) -> dict[str, Fields]:
    """The schedule with one field changed, or all that rescale early; ping-pong only where no
    other family has what comes of it."""
    schedule = cell.schedule
    found = {f"{flag}={not schedule[flag]}": schedule | {flag: not schedule[flag]}
             for flag in FLAGS}  # fmt: skip
    for name in ("outer_stages", "reduction_chains"):
        other = 3 - min(2, schedule[name])
        found[f"{name}={other}"] = schedule | {name: other}
    early = not any(schedule[flag] for flag in EARLY)
    found[f"early={early}"] = schedule | dict.fromkeys(EARLY, early)
    if cell.is_alone:
        ping_pong = not schedule["ping_pong"]
        found[f"ping_pong={ping_pong}"] = schedule | {"ping_pong": ping_pong}
    return found


def built(fc: Any, spec: Any, fields: Fields) -> Any:
    """A kernel; None where the schedule is refused, or what it generates spills."""
    try:
        kernel = fc.jit(spec, schedule=fc.Schedule(**fields))
        kernel.compile()
    except fc.Error:
        return None
    return kernel


def time_cell(torch: Any, timer: Timer, cell: Cell, schedules: dict[str, Fields]) -> list[str]:
    """The names of the changes that gain enough, the fastest first."""
    dtype = torch.float16 if cell.spec.dtype == "f16" else torch.bfloat16
    names = [name for name in schedules if cell.kernels[name] is not None]
    if len(names) < 2 or names[0] != "now":
        return []
    ratios = [1.0] * len(names)
    lengths = [LONGEST] if " loads " in cell.kind else [1024, LONGEST]
    for length in lengths:
        shape = (4 * LONGEST // length, cell.heads, length, cell.head_dim)
        inputs = [torch.randn(shape, device="cuda", dtype=dtype) for _ in range(3)]
        out = torch.empty_like(inputs[0])
        runs = [
            lambda _, kernel=cell.kernels[name]: kernel(*inputs, out=out)  # noqa: B023
            for name in names
        ]
        budget_ms = 10 * sum(timer.once(run) for run in runs)
        times = timer.interleaved(runs, budget_ms)
        ratios = [r * (times[0] / ms) ** (1 / len(lengths))
                  for r, ms in zip(ratios, times, strict=True)]  # fmt: skip
    ranked = sorted(zip(ratios, names, strict=True), reverse=True)
    cell.gains = {name: ratio for ratio, name in ranked}
    return [name for ratio, name in ranked if ratio > LEAST_GAINS.get(name, LEAST_GAIN)]


def climb(fc: Any, torch: Any, cells: Sequence[Cell]) -> None:
    """One round: of each cell that still moves, the best change."""
    timer, start = Timer(torch), time.monotonic()
    moving = [cell for cell in cells if cell.moves]
    tried = {cell.title: {"now": cell.schedule} | changes(cell) for cell in moving}
    with ThreadPoolExecutor() as pool:
        wanted = [(cell, name) for cell in moving for name in tried[cell.title]]
        kernels = pool.map(
            lambda each: built(fc, each[0].spec, tried[each[0].title][each[1]]), wanted
        )
        for (cell, name), kernel in zip(wanted, kernels, strict=True):
            cell.kernels[name] = kernel
        print(f"{len(wanted)} kernels in {time.monotonic() - start:.0f} s", flush=True)
        better = [time_cell(torch, timer, cell, tried[cell.title]) for cell in moving]

        def first_that_compiles(each: tuple[Cell, list[str]]) -> str | None:
            cell, names = each
            return next((n for n in names if built(fc, cell.with_lse, tried[cell.title][n])), None)

        chosen = pool.map(first_that_compiles, zip(moving, better, strict=True))
        for cell, name in zip(moving, chosen, strict=True):
            cell.moves = name is not None
            if name is not None:
                best = tried[cell.title][name]
                cell.changed |= {f: v for f, v in best.items() if v != cell.schedule[f]}
                cell.schedule = best
                cell.gain *= cell.gains[name]
                print(f"{cell.title}: {name}, {cell.gains[name]:.3f}")
            cell.kernels.clear()
    print(f"a round of {len(moving)} in {time.monotonic() - start:.0f} s", flush=True)


def read_table(file: Path) -> Table:
    table = json.loads(file.read_text())
    return {
        kind: [table["orderings"].get(number) for number in text.split()]
        for kind, text in table["measured"].items()
    }


def written(table: Table) -> str:
    """The text of the table, in which orderings are numbered by how often they are used."""
    from flashcore.cache.table_text import table_text

    used = Counter(json.dumps(f) for of_dims in table.values() for f in of_dims if f is not None)
    ranked = sorted(used, key=lambda text: (-used[text], text))
    number_of = {text: str(number) for number, text in enumerate(ranked)}
    orderings = {number: json.loads(text) for text, number in number_of.items()}
    measured = {
        kind: " ".join("-" if f is None else number_of[json.dumps(f)] for f in table[kind])
        for kind in sorted(table, key=rank)
    }
    return table_text({"orderings": orderings, "measured": measured}) + "\n"


def rank(kind: str) -> list[int]:
    return [order.index(word) for order, word in zip(WORDS, kind.split(), strict=True)]


def put(cell: Cell, table: Table) -> None:
    """What was found into the table: with ping-pong, or without it from now on, into the row of
    the other family."""
    at = cell.head_dim // STEP - 1
    fields = (table[cell.kind][at] or {}) | cell.changed
    if "ping_pong" in cell.changed and not cell.kind.startswith("192"):
        table[cell.kind][at] = None
        cell.kind = in_the_other_family(cell.kind)
        fields.pop("ping_pong")
    table.setdefault(cell.kind, [None] * (WIDEST // STEP))[at] = without_defaults(fields)
    cell.changed = {}


def without_defaults(fields: Fields) -> Fields:
    from flashcore import _core

    plain = json.loads(_core.normal_schedule('{"tiles": {}}'))
    return {name: fields[name] for name in plain if name in fields and fields[name] != plain[name]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--kinds", type=words, default=[], help="only kinds with one of these words"
    )
    parser.add_argument("--head-dims", type=numbers, default=HEAD_DIMS)
    parser.add_argument("--rounds", type=int, default=4, help="at most")
    parser.add_argument("--table", type=Path, default=SHIPPED, help="the one to begin with")
    parser.add_argument("--out", type=Path, default=Path("measured_orderings.json"))
    options = parser.parse_args()
    torch = require_gpu()
    import flashcore as fc

    print(machine(torch))
    table = read_table(options.table)
    cells = []
    for kind, of_dims in table.items():
        if options.kinds and not set(options.kinds) & set(kind.split()):
            continue
        for head_dim in options.head_dims:
            if of_dims[head_dim // STEP - 1] is not None:
                cell = cell_of(fc, torch, table, kind, head_dim)
                cells += [cell] if cell else []
    for _ in range(options.rounds):
        climb(fc, torch, cells)
        for cell in cells:
            put(cell, table)
        options.out.write_text(written(table))
        if not any(cell.moves for cell in cells):
            break
    found = [cell for cell in cells if cell.gain > 1]
    mean = math.exp(sum(math.log(cell.gain) for cell in cells) / max(1, len(cells)))
    for cell in sorted(found, key=lambda cell: -cell.gain):
        print(f"{cell.gain:.3f} {cell.title}")
    print(f"{len(found)} of {len(cells)} gain, {mean:.3f} in the mean of all")


if __name__ == "__main__":
    main()
