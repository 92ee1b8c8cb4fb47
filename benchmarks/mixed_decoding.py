"""Decoding of sequences of different lengths, as a server has them.

    python benchmarks/mixed_decoding.py            # the table in docs/decoding.md
    python benchmarks/mixed_decoding.py --quick    # two batches of it

bf16, head_dim 128, one query row each, keys in pages of 64. For each batch, lengths that are all
the same; between 1 and twice the mean; by a lognormal distribution of sigma 1, up to eight times
the mean; and one that is as long as all others together. All contenders run in one process, by
turns, in CUDA graphs whose calls walk through several sets of inputs (gpu_timing.py). FlashInfer is
there if its package is; what it plans on the host for each set of lengths is not timed, what
FlashCore plans on the GPU is.
"""

from __future__ import annotations

import argparse
import functools
import math
import random
from typing import Any

from flashinfer_peer import FlashInfer, find_flashinfer
from gpu_timing import Timer, machine, require_gpu
from report import mean_and_least

HEAD_DIM, PAGE = 128, 64
# heads, kv_heads, batch, keys in the mean
BATCHES = [
    (32, 8, 2, 4096), (32, 8, 4, 4096), (32, 8, 8, 2048), (32, 8, 16, 2048), (32, 8, 32, 4096),
    (32, 8, 64, 1024), (32, 8, 64, 4096), (32, 8, 128, 1024), (32, 8, 256, 512), (64, 8, 16, 4096),
    (16, 2, 16, 8192), (8, 1, 32, 4096), (32, 32, 8, 2048),
]  # fmt: skip
QUICK = [(32, 8, 4, 4096), (32, 8, 64, 4096)]
KINDS = ("equal", "uniform", "lognormal", "one long")


def lengths_of(kind: str, batch: int, mean: int) -> list[int]:
    rng = random.Random(batch)
    if kind == "uniform":
        return [rng.randint(1, 2 * mean) for _ in range(batch)]
    if kind == "lognormal":
        drawn = [int(mean * rng.lognormvariate(-0.5, 1)) for _ in range(batch)]
        return [max(1, min(8 * mean, length)) for length in drawn]
    if kind == "one long":
        return [mean // 2] * (batch - 1) + [mean // 2 * (batch - 1)]
    return [mean] * batch


def times(
    torch: Any, timer: Timer, peer: FlashInfer | None, heads: int, kv_heads: int, lens: list[int]
) -> list[float]:
    """Microseconds of FlashCore, and of FlashInfer if it is there."""
    import flashcore as fc

    batch = len(lens)
    make = functools.partial(torch.randn, device="cuda", dtype=torch.bfloat16)
    counts = [-(-length // PAGE) for length in lens]
    pages = sum(counts)
    kv_lens = torch.tensor(lens, device="cuda", dtype=torch.int32)
    sets = max(2, timer.sets(4 * sum(lens) * kv_heads * HEAD_DIM))
    runs: list[list[Any]] = [[], []]
    for _ in range(sets):
        q = make(batch, heads, 1, HEAD_DIM)
        k, v = (make(pages, PAGE, kv_heads, HEAD_DIM) for _ in range(2))
        order = torch.randperm(pages, device="cuda").int()
        table = torch.zeros(batch, max(counts), device="cuda", dtype=torch.int32)
        for b, own in enumerate(torch.split(order, counts)):
            table[b, : counts[b]] = own
        runs[0].append(functools.partial(fc.attention, q, k, v, page_table=table, kv_lens=kv_lens))
        if peer:
            runs[1].append(peer.call(q, k, v, table, lens))
    contenders = [(lambda which, own=own: own[which]()) for own in runs if own]
    timer.warm_up()
    with torch.no_grad():
        return [1000 * t for t in timer.interleaved(contenders, 100, sets)]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="two batches")
    given = parser.parse_args()
    torch = require_gpu()
    import flashcore as fc

    fc.set_compile_mode("eager")  # the kernel that leaves keys whole does not serve meanwhile
    timer, peer = Timer(torch), find_flashinfer(torch)
    print(machine(torch))
    print(
        "| heads, batch, mean | lengths | longest | FlashCore, us | TB/s | FlashInfer, us | ratio |"
    )
    print("|---|---|---:|---:|---:|---:|---:|")
    ratios: list[float] = []
    for heads, kv_heads, batch, mean in QUICK if given.quick else BATCHES:
        for kind in KINDS:
            lens = lengths_of(kind, batch, mean)
            mine, *theirs = times(torch, timer, peer, heads, kv_heads, lens)
            speed = 4 * sum(lens) * kv_heads * HEAD_DIM / mine / 1e6
            cells = [f"{heads}/{kv_heads}, {batch}, {mean}", kind, f"{max(lens)}", f"{mine:.1f}",
                     f"{speed:.2f}", *(f"{t:.1f}" for t in theirs or [math.nan]),
                     *(f"{t / mine:.2f}" for t in theirs or [math.nan])]  # fmt: skip
            ratios += [t / mine for t in theirs]
            print(f"| {' | '.join(cells)} |", flush=True)
            torch.cuda.empty_cache()
    if found := mean_and_least(ratios):
        print("FlashInfer over FlashCore: {:.2f} in the mean, {:.2f} at the least".format(*found))


if __name__ == "__main__":
    main()
