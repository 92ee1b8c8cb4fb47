"""How many key columns blocks of Hopper have registers for, and with how many they are fastest.

    python benchmarks/columns.py --head-dims 64,128,256 --kinds documents,softcap --out columns.json
    python benchmarks/columns.py --time --kinds bf16 --blocks 128,128/ping_pong,192

templates/schedules/measured_columns.json limits the key columns of tiles: with more the compiler
spills, or the kernel is no faster. For specs of every kind of mask, score and lengths, each block
that attention chooses among is compiled as it is, then with fewer key columns until it fits, or,
where the table limits it, with more as long as it does. With --time, on a GPU, those that compile
and those with 16 and 32 fewer are timed by turns, without an LSE and with sequences of one length.
What does not fit is printed, and where another number is 2 % faster. The second line takes four and
a half minutes on 16 cores for ten head dims.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from gpu_timing import Timer, machine, require_gpu
from options import numbers, words

TARGET = "sm_90a"
STEP, MOST, LEAST = 16, 128, 48
LEAST_GAIN = 1.02
LENGTH, BATCH, SPAN = 4096, 4, 512


@dataclass
class Block:
    """A kind of block for a spec, and with how many key columns the compiler takes it."""

    kind: str
    head_dim: int
    block: str
    columns: int
    """Of the candidate."""
    limit: int
    """By the table."""
    fits: int
    """The most that were compiled without spilling, up to the candidate's or where the table limits
    it; 0 for none."""
    ms: dict[int, float] = field(default_factory=dict)
    """With each number of key columns that was timed."""

    def faster(self) -> str:
        """Which number of key columns is faster than the candidate's, and by what; or nothing."""
        if self.columns not in self.ms:
            return ""
        best = min(self.ms, key=lambda columns: self.ms[columns])
        gain = self.ms[self.columns] / self.ms[best]
        return f"; {best} are faster, {gain:.3f}" if gain > LEAST_GAIN else ""


Arrays = Callable[[Any], Any]
"""What makes an array of the kind that the kernels are called with of one of NumPy."""


def masks(fc: Any, array: Arrays) -> dict[str, Any]:
    # Borders of documents and of chunks lie at no multiple of a tile.
    borders = np.sort(np.random.default_rng(0).integers(0, LENGTH, LENGTH // SPAN))
    ids = array(np.searchsorted(borders, np.arange(LENGTH)).astype(np.int32))
    return {
        "full": fc.full(),
        "causal": fc.causal(),
        "window": fc.sliding_window(SPAN),
        "prefix_causal": fc.prefix(SPAN) | fc.causal(),
        "chunked": fc.chunked(SPAN - 12),
        "documents": fc.documents(ids),
        "causal_documents": fc.documents(ids) & fc.causal(),
        "dense_mask": fc.dense_mask(array(np.ones((LENGTH, LENGTH), bool))),
    }


def scores(fc: Any, array: Arrays, heads: int) -> dict[str, Any]:
    return {
        "plain": None,
        "softcap": fc.softcap(30),
        "alibi": fc.alibi(array(np.full(heads, 0.01, np.float32))),
        "relative_bias": fc.relative_bias(array(np.zeros((heads, 2 * LENGTH + 1), np.float32))),
        "dense_bias": fc.bias(array(np.zeros((LENGTH, LENGTH), np.float16))),
    }


LENGTHS: dict[str, dict[str, Any]] = {
    "open": {},
    "packed": {"layout": "thd"},
    "padded": {"q_lens": True, "kv_lens": True},
}


def heads_of(head_dim: int) -> int:
    return max(1, 2048 // head_dim)


def specs(
    fc: Any, array: Arrays, head_dims: list[int], kinds: list[str]
) -> Iterator[tuple[str, Any]]:
    """Every spec with its kind in words."""
    of_masks = masks(fc, array)
    for head_dim in head_dims:
        of_scores = scores(fc, array, heads_of(head_dim))
        for mask, score, lengths, lse, dtype in itertools.product(
            of_masks, of_scores, LENGTHS, (False, True), ("bf16", "f16")
        ):
            named = [mask, score, lengths, dtype, "lse" if lse else "no_lse"]
            if not set(kinds) <= set(named):
                continue
            arguments = {"mask": of_masks[mask], "score": of_scores[score], "dtype": dtype}
            arguments |= {"head_dim": head_dim, "lse": lse} | LENGTHS[lengths]
            yield " ".join(named), fc.AttentionSpec(**arguments)


def blocks_of(spec: Any) -> dict[str, dict[str, Any]]:
    """One candidate for each kind of block whose registers differ, by its kind in words."""
    from flashcore import _core

    found: dict[str, dict[str, Any]] = {}
    for text in _core.candidate_schedules(spec.to_json()):
        schedule = json.loads(text)
        name = [_core.cost_family(text), str(schedule["blocks_per_processor"])]
        name += [schedule["tile_scheduler"]] * schedule["persistent"]
        name += ["two_heads"] * (schedule["positions_per_block"] == 2)
        name += ["few_columns"] * (schedule["tiles"]["cols"] <= 64)
        found.setdefault(" ".join(name), schedule)
    return found


def built(fc: Any, spec: Any, schedule: dict[str, Any], columns: int) -> Any:
    """A kernel; None where the schedule is refused, or what it generates spills."""
    tiles = schedule["tiles"] | {"cols": columns}
    try:
        kernel = fc.jit(spec, TARGET, fc.Schedule(**schedule | {"tiles": tiles}))
        kernel.compile()
    except fc.Error:
        return None
    return kernel


def measure(
    fc: Any, kind: str, spec: Any, name: str, schedule: dict[str, Any], timed: bool
) -> tuple[Block, dict[int, Any]]:
    """The block, and the kernels that were compiled, by their key columns."""
    from flashcore import _core

    own = schedule["tiles"]["cols"]
    limit = min(MOST, _core.most_columns(spec.to_json(), json.dumps(schedule)))
    kernels: dict[int, Any] = {}

    def fits(columns: int) -> bool:
        kernel = built(fc, spec, schedule, columns)
        if kernel is not None:
            kernels[columns] = kernel
        return kernel is not None

    most = own
    while most > 0 and not fits(most):
        most -= STEP
    if timed:
        for fewer in (most - STEP, most - 2 * STEP):
            if fewer >= LEAST:
                fits(fewer)
    limited = most == own == limit
    while limited and most < MOST and fits(most + STEP):
        most += STEP
    return Block(kind, spec.head_dim, name, own, limit, most), kernels


def time_columns(torch: Any, timer: Any, block: Block, kernels: dict[int, Any]) -> None:
    dtype = torch.float16 if "f16" in block.kind.split() else torch.bfloat16
    shape = (BATCH, heads_of(block.head_dim), LENGTH, block.head_dim)
    inputs = [torch.randn(shape, device="cuda", dtype=dtype) for _ in range(3)]
    out = torch.empty_like(inputs[0])
    runs = [
        lambda _, kernel=kernel: kernel(*inputs, out=out)  # noqa: B023
        for kernel in kernels.values()
    ]
    times = timer.interleaved(runs, 10 * sum(timer.once(run) for run in runs))
    block.ms = dict(zip(kernels, times, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--kinds", type=words, default=[], help="only specs that have all of these words"
    )
    parser.add_argument("--blocks", type=words, default=[], help="only these, as 192")
    parser.add_argument("--head-dims", type=numbers, default=list(range(16, 257, STEP)))
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--time", action="store_true", help="what compiles, on a GPU")
    parser.add_argument("--out", type=Path, default=Path("columns.json"))
    options = parser.parse_args()
    torch = require_gpu() if options.time else None
    import flashcore as fc

    array: Arrays = (lambda a: torch.from_numpy(a).cuda()) if torch else (lambda a: a)
    kinds = options.kinds + (["open", "no_lse"] if torch else [])
    wanted = [
        (kind, spec, name, schedule)
        for kind, spec in specs(fc, array, options.head_dims, kinds)
        for name, schedule in blocks_of(spec).items()
        if not options.blocks or set(options.blocks) & set(name.split())
    ]
    if torch:
        print(machine(torch))
    print(f"{len(wanted)} blocks", flush=True)
    with ThreadPoolExecutor(options.jobs) as pool:
        measured = list(pool.map(lambda each: measure(fc, *each, options.time), wanted))
    timer = Timer(torch) if torch else None
    for block, kernels in measured:
        if timer and len(kernels) > 1:
            time_columns(torch, timer, block, kernels)
        if block.fits != block.columns or block.faster():
            print(
                f"{block.kind}, head_dim {block.head_dim}, {block.block}: {block.columns} key "
                f"columns, {block.fits} fit{block.faster()}"
            )
    crowded = sum(block.fits < block.columns for block, _ in measured)
    print(f"{crowded} of {len(measured)} do not fit")
    options.out.write_text(json.dumps([asdict(block) for block, _ in measured], indent=1) + "\n")


if __name__ == "__main__":
    main()
