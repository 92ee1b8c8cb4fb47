"""Decoding beside torch's attention: a few query rows over many keys, contiguous and in pages.

    python benchmarks/decoding.py              # every row of the table in docs/decoding.md
    python benchmarks/decoding.py --quick      # four of them

bf16, 32 heads of queries and 8 of keys, one query row. All contenders run in one process, by turns,
inside CUDA graphs whose calls walk through several sets of inputs, so that L2 holds none of them
(gpu_timing.py). FlashCore's time is that of both its kernels.
"""

from __future__ import annotations

import argparse
import functools
from typing import Any

from gpu_timing import Timer, machine, require_gpu

HEADS, KV_HEADS = 32, 8
# head_dim, batch, keys
ROWS = [
    (64, 1, 4096), (64, 1, 32768), (64, 1, 131072), (64, 16, 4096), (64, 16, 16384),
    (64, 64, 8192), (64, 128, 2048), (128, 1, 4096), (128, 1, 32768), (128, 1, 131072),
    (128, 16, 4096), (128, 16, 16384), (128, 64, 8192), (128, 128, 2048),
]  # fmt: skip
QUICK = [(64, 1, 32768), (128, 1, 4096), (128, 1, 32768), (128, 64, 8192)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="four rows")
    parser.add_argument("--budget", type=float, default=200.0, help="milliseconds a row")
    given = parser.parse_args()
    torch = require_gpu()
    timer = Timer(torch)
    print(machine(torch))
    print("| head_dim, batch, keys | FlashCore | cuDNN | FlashAttention 2 | over cuDNN "
          "| pages of 16 | of 64 |")  # fmt: skip
    print("|---|---|---|---|---|---|---|")
    for head_dim, batch, keys in QUICK if given.quick else ROWS:
        times = [1000 * t for t in row(torch, timer, head_dim, batch, keys, given.budget)]
        mine, cudnn, flash, pages_16, pages_64 = times
        cells = [f"{mine:.1f}", f"{cudnn:.1f}", f"{flash:.1f}", f"{cudnn / mine:.2f}",
                 f"{pages_16:.1f}", f"{pages_64:.1f}"]  # fmt: skip
        print(f"| {head_dim}, {batch}, {keys} | {' | '.join(cells)} |", flush=True)


def row(
    torch: Any, timer: Timer, head_dim: int, batch: int, keys: int, budget: float
) -> list[float]:
    """Milliseconds of FlashCore, of torch by cuDNN and by FlashAttention 2, and over pages."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    import flashcore as fc

    theirs = torch.nn.functional.scaled_dot_product_attention
    random = functools.partial(torch.randn, device="cuda", dtype=torch.bfloat16)
    set_bytes = 2 * 2 * batch * KV_HEADS * keys * head_dim
    sets = timer.sets(set_bytes)
    inputs = [
        (random(batch, HEADS, 1, head_dim), *(random(batch, KV_HEADS, keys, head_dim)
                                              for _ in range(2)))
        for _ in range(sets)
    ]  # fmt: skip
    lens = torch.full((batch,), keys, device="cuda", dtype=torch.int32)

    def of_torch(backend: Any) -> Any:
        def run(which: int) -> Any:
            with sdpa_kernel(backend):
                return theirs(*inputs[which], enable_gqa=True)

        return run

    def over_pages(size: int) -> Any:
        count = batch * keys // size
        table = torch.randperm(count, device="cuda").int().reshape(batch, -1)
        # The memory of contiguous keys, read as pages in an order by chance.
        paged = [(q, *(x.reshape(count, size, KV_HEADS, head_dim) for x in (k, v)))
                 for q, k, v in inputs]  # fmt: skip
        return lambda which: fc.attention(*paged[which], page_table=table, kv_lens=lens)

    runs = [
        lambda which: fc.sdpa(*inputs[which], enable_gqa=True),
        of_torch(SDPBackend.CUDNN_ATTENTION),
        of_torch(SDPBackend.FLASH_ATTENTION),
        over_pages(16),
        over_pages(64),
    ]
    with torch.no_grad():
        return timer.interleaved(runs, budget, sets)


if __name__ == "__main__":
    main()
