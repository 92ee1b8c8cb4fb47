"""Attention on random problems beside its peers: tables have round lengths, users do not.

    python benchmarks/random_problems.py
    python benchmarks/random_problems.py --problems 240 --seed 2 --out random.json

bf16, head_dim 64 to 256, full and causal masks in halves; batch 1 to 16, 1 to 40 heads, lengths 64
to 19000 on a logarithmic scale, four of ten of them multiples of 128. Contenders take turns on a
cold L2 cache; outputs are compared before they are timed. Each problem counts by the time of the
fastest peer over ours, above 1 where FlashCore is faster than all of them.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

from contest import measure, spec_of
from fa3_peer import find_fa3
from gpu_timing import Timer, hear_warnings, machine, require_gpu
from report import TITLES, Row, mean_and_least

HEAD_DIMS = (64, 64, 96, 128, 128, 128, 256)  # as often as they are used
MASKS = ("full", "causal")
MOST_OPERATIONS = 1.2e12  # of a full mask: a few milliseconds
MOST_ELEMENTS = 1 << 28
SLOWER = 0.97  # problems below are listed


def draw(rng: random.Random, count: int) -> list[Row]:
    rows: list[Row] = []
    while len(rows) < count:
        length = round(2 ** rng.uniform(6, 14.2))
        if rng.random() < 0.4:
            length = max(128, length // 128 * 128)
        row = Row("bf16", rng.choice(HEAD_DIMS), rng.choice(MASKS), length, math.nan,
                  batch=round(2 ** rng.uniform(0, 4)), heads=rng.randint(1, 40))  # fmt: skip
        elements = row.batch * row.heads * length * row.head_dim
        if 4 * elements * length <= MOST_OPERATIONS and elements <= MOST_ELEMENTS:
            rows.append(row)
    return rows


def compile_all(torch: Any, kernels: dict[tuple[int, str], Any], rows: Sequence[Row]) -> None:
    """What the problems launch, on all cores."""

    def build(row: Row) -> None:
        shape = (row.batch, row.heads, row.length, row.head_dim)
        array = torch.empty(shape, device="cuda", dtype=torch.bfloat16)
        kernels[row.head_dim, row.mask].variant(array, array)

    with ThreadPoolExecutor() as pool:
        list(pool.map(build, rows))


def title(row: Row) -> str:
    shape = f"B{row.batch} H{row.heads} S{row.length} D{row.head_dim}"
    speeds = {TITLES[name]: speed for name, speed in row.peers.items()}
    told = ", ".join(f"{name} {speed:.0f}" for name, speed in speeds.items())
    return f"{shape} {row.mask}: {row.ratio('best'):.3f}, TFLOP/s {row.ours:.0f}, {told}"


def summary(rows: Sequence[Row], peer: str) -> str:
    ratios = [ratio for row in rows if (ratio := row.ratio(peer))]
    found = mean_and_least(ratios)
    if found is None:
        return "no problems"
    below = ", ".join(f"{sum(r < bound for r in ratios)} below {bound}" for bound in (1, SLOWER))
    return f"{found[0]:.3f} in the mean, {found[1]:.3f} at least, {below} of {len(ratios)}"


def report(rows: Sequence[Row]) -> list[str]:
    lines = [f"{TITLES[peer]} / ours: {summary(rows, peer)}" for peer in TITLES]
    for head_dim in sorted(set(HEAD_DIMS)):
        for mask in MASKS:
            part = [row for row in rows if (row.head_dim, row.mask) == (head_dim, mask)]
            lines.append(f"  head_dim {head_dim} {mask}: {summary(part, 'best')}")
    timed = sorted((row for row in rows if row.peers), key=lambda row: row.ratio("best") or 0)
    return lines + [f"  {title(row)}" for row in timed if (row.ratio("best") or 0) < SLOWER]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--problems", type=int, default=240)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--budget-ms", type=float, default=25, help="of each contender")
    parser.add_argument("--out", type=Path, help="all rows, as JSON")
    options = parser.parse_args()
    torch = require_gpu()
    import flashcore as fc

    fc.set_compile_mode("eager")  # no kernel for other lengths serves meanwhile
    problems = hear_warnings(fc)
    print(machine(torch))
    rows = draw(random.Random(options.seed), options.problems)
    kinds = {(row.head_dim, row.mask) for row in rows}
    kernels = {kind: fc.jit(spec_of(fc, "bf16", *kind)) for kind in sorted(kinds)}
    compile_all(torch, kernels, rows)
    timer, fa3, peers = Timer(torch), find_fa3(torch), ["cudnn", "flash"]
    for row in rows:
        budget = options.budget_ms * (len(peers) + 1 + bool(fa3))
        kernel = kernels[row.head_dim, row.mask]
        problems += measure(torch, timer, kernel, row, peers, budget, fa3)
        if options.out:
            options.out.write_text(json.dumps([asdict(each) for each in rows], indent=1))
    print("\n".join(report(rows)))
    for problem in problems:
        print(f"! {problem}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
