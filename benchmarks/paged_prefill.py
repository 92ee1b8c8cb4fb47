"""Prefill and mixed batches over pages, as a server has them.

    python benchmarks/paged_prefill.py            # the table in docs/decoding.md
    python benchmarks/paged_prefill.py --quick    # two batches of it

bf16, head_dim 128, causal, query rows packed: whole prompts, chunks of long prompts behind keys
that are there, and batches in which one sequence has a chunk of its prompt and the others decode.
All contenders run in one process, by turns, over several sets of inputs, in CUDA graphs where they
are short (gpu_timing.py): FlashCore over pages, FlashCore over the same keys packed one behind the
other (layout "thd"), and FlashInfer if its package is there, the faster of its two backends. What
FlashInfer plans on the host for each set of lengths is not timed. Outputs are compared before.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import math
from typing import Any

from flashinfer_peer import FlashInfer, find_flashinfer
from gpu_timing import Timer, machine, require_gpu
from options import numbers
from report import mean_and_least

HEAD_DIM, TOLERANCE = 128, 2e-2
HEADS = [(32, 8), (8, 1), (16, 16)]
# Query rows and keys of each sequence.
Batch = list[tuple[int, int]]
BATCHES: dict[str, Batch] = {
    "prompt of 512": [(512, 512)],
    "prompt of 4096": [(4096, 4096)],
    "8 prompts of 1024": [(1024, 1024)] * 8,
    "32 prompts of 300": [(300, 300)] * 32,
    "chunk of 2048 on 16k": [(2048, 16384)],
    "4 chunks of 512 on 8k": [(512, 8192)] * 4,
    "16 chunks of 64 on 4k": [(64, 4096)] * 16,
    "8 rows each, 16 on 4k": [(8, 4096)] * 16,
    "chunk of 512 and 31 that decode on 4k": [(512, 4096)] + [(1, 4096)] * 31,
    "chunk of 2048 and 63 that decode on 2k": [(2048, 2048)] + [(1, 2048)] * 63,
}
QUICK = ("8 prompts of 1024", "chunk of 512 and 31 that decode on 4k")


class Inputs:
    """One set of inputs of a batch, and calls on them."""

    def __init__(self, torch: Any, heads: int, kv_heads: int, batch: Batch, page_size: int):
        make = functools.partial(torch.randn, device="cuda", dtype=torch.bfloat16)
        self._torch = torch
        self.rows, self.lens = [q for q, _ in batch], [k for _, k in batch]
        self._q = make(sum(self.rows), heads, HEAD_DIM)
        self._k, self._v = (make(sum(self.lens), kv_heads, HEAD_DIM) for _ in range(2))
        self._starts, self._key_starts = (
            torch.tensor([0, *itertools.accumulate(n)], device="cuda", dtype=torch.int32)
            for n in (self.rows, self.lens)
        )
        self._kv_lens = torch.tensor(self.lens, device="cuda", dtype=torch.int32)
        counts = [-(-n // page_size) for n in self.lens]
        order = torch.randperm(sum(counts), device="cuda").int()
        self._table = torch.zeros(len(batch), max(counts), device="cuda", dtype=torch.int32)
        self._pages = [make(sum(counts), page_size, kv_heads, HEAD_DIM) for _ in range(2)]
        for b, own in enumerate(torch.split(order, counts)):
            self._table[b, : counts[b]] = own
            first = int(self._key_starts[b])
            for pages, keys in zip(self._pages, (self._k, self._v), strict=True):
                room = make(counts[b] * page_size, kv_heads, HEAD_DIM)
                room[: self.lens[b]] = keys[first : first + self.lens[b]]
                pages[own.long()] = room.view(counts[b], page_size, kv_heads, HEAD_DIM)
        self._out = torch.empty_like(self._q)

    def over_pages(self) -> Any:
        import flashcore as fc

        return fc.attention(
            self._q, *self._pages, page_table=self._table, kv_lens=self._kv_lens, layout="thd",
            cu_seqlens_q=self._starts, max_q_len=max(self.rows), mask=fc.causal(), out=self._out,
        )  # fmt: skip

    def packed(self) -> Any:
        import flashcore as fc

        return fc.attention(
            self._q, self._k, self._v, layout="thd", cu_seqlens_q=self._starts,
            cu_seqlens_k=self._key_starts, max_q_len=max(self.rows), max_kv_len=max(self.lens),
            mask=fc.causal(), out=self._out,
        )  # fmt: skip

    def of_peer(self, peer: FlashInfer, backend: str) -> Any:
        out = self._torch.empty_like(self._q)
        return peer.prefill(self._q, *self._pages, self._table, self.rows, self.lens, backend, out)

    @property
    def bytes(self) -> int:
        return 4 * HEAD_DIM * sum(self.lens) * self._k.shape[1]


def products(heads: int, batch: Batch) -> float:
    """How many, of a causal mask that ends in the bottom right corner."""
    scores = sum(q * k - q * (q - 1) // 2 for q, k in batch)
    return 4.0 * heads * HEAD_DIM * scores


def times(
    torch: Any, timer: Timer, peer: FlashInfer | None, heads: int, kv_heads: int, batch: Batch,
    page_size: int,
) -> tuple[float, float, float]:  # fmt: skip
    """Microseconds over pages, of packed keys, and of FlashInfer."""
    first = Inputs(torch, heads, kv_heads, batch, page_size)
    sets = [first, *(Inputs(torch, heads, kv_heads, batch, page_size)
                     for _ in range(max(2, timer.sets(first.bytes)) - 1))]  # fmt: skip
    runs: list[list[Any]] = [[s.over_pages for s in sets], [s.packed for s in sets]]
    if peer:
        runs += [[s.of_peer(peer, backend) for s in sets] for backend in ("fa2", "fa3")]
    with torch.no_grad():
        wanted = sets[0].packed().clone().float()
        for own in runs:
            off = (own[0]().float() - wanted).abs().max().item()
            if not off <= TOLERANCE:
                raise SystemExit(f"{heads}/{kv_heads}, {batch[0]}: outputs differ by {off:.3g}")
        timer.warm_up()
        contenders = [(lambda which, own=own: own[which]()) for own in runs]
        found = [1000 * t for t in timer.interleaved(contenders, 60, len(sets))]
    return found[0], found[1], min(found[2:], default=math.nan)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="two batches")
    parser.add_argument("--pages", type=numbers, default=[16, 64], help="sizes of pages")
    given = parser.parse_args()
    torch = require_gpu()
    import flashcore as fc

    fc.set_compile_mode("eager")
    timer, peer = Timer(torch), find_flashinfer(torch)
    print(machine(torch))
    print("| heads | batch | pages of | FlashCore, us | TFLOPS | packed keys, us "
          "| FlashInfer, us | ratio |")  # fmt: skip
    print("|---|---|---:|---:|---:|---:|---:|---:|")
    ratios = []
    for heads, kv_heads in HEADS[:1] if given.quick else HEADS:
        for name, batch in BATCHES.items():
            if given.quick and name not in QUICK:
                continue
            for size in given.pages:
                mine, dense, theirs = times(torch, timer, peer, heads, kv_heads, batch, size)
                speed = products(heads, batch) / mine / 1e6
                ratios.append(theirs / mine)
                cells = [f"{heads}/{kv_heads}", name, f"{size}", f"{mine:.1f}", f"{speed:.0f}",
                         f"{dense:.1f}", f"{theirs:.1f}", f"{theirs / mine:.2f}"]  # fmt: skip
                print(f"| {' | '.join(cells)} |", flush=True)
                torch.cuda.empty_cache()
    if peer and (found := mean_and_least(ratios)):
        print("FlashInfer over FlashCore: {:.2f} in the mean, {:.2f} at the least".format(*found))


if __name__ == "__main__":
    main()
