"""Decoding beside torch's attention: a few query rows over many keys, contiguous and in pages.

    python benchmarks/decoding.py              # one query row: the first table in docs/decoding.md
    python benchmarks/decoding.py --chunks     # chunks of query rows: the second
    python benchmarks/decoding.py --quick      # four rows of either

bf16. One query row has 32 heads of queries and 8 of keys; chunks have a head_dim of 128 and a
causal mask, in which the last row sees all keys. All contenders run in one process, by turns, in
CUDA graphs whose calls walk through several sets of inputs, so that L2 holds none of them
(gpu_timing.py). FlashCore's time is that of both its kernels. torch's cuDNN knows no causal mask
that ends at the last key, so it has all keys for all rows, which is nearly as much.
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
# heads, kv_heads, query rows, keys
CHUNKS = [
    (8, 1, 16, 32768), (8, 1, 16, 131072), (8, 1, 64, 32768), (8, 1, 128, 4096), (8, 1, 128, 32768),
    (8, 1, 512, 8192), (8, 1, 512, 65536), (8, 1, 2048, 65536), (32, 8, 16, 32768),
    (32, 8, 32, 32768), (32, 8, 64, 4096), (32, 8, 64, 32768), (32, 8, 128, 8192),
    (32, 8, 128, 131072), (32, 8, 256, 4096), (32, 8, 256, 32768), (32, 8, 512, 4096),
    (32, 8, 512, 65536), (32, 8, 2048, 16384), (32, 32, 16, 32768), (32, 32, 64, 32768),
    (32, 32, 128, 8192), (32, 32, 256, 32768), (32, 32, 512, 65536),
]  # fmt: skip
QUICK_CHUNKS = [(8, 1, 512, 65536), (32, 8, 32, 32768), (32, 8, 256, 4096), (32, 32, 256, 32768)]
QUICK = [(64, 1, 32768), (128, 1, 4096), (128, 1, 32768), (128, 64, 8192)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--chunks", action="store_true", help="chunks of query rows")
    parser.add_argument("--quick", action="store_true", help="four rows")
    parser.add_argument("--budget", type=float, default=200.0, help="milliseconds a row")
    given = parser.parse_args()
    torch = require_gpu()
    import flashcore as fc

    fc.set_compile_mode("eager")  # the kernel that leaves keys whole does not serve meanwhile
    timer = Timer(torch)
    print(machine(torch))
    if given.chunks:
        print_chunks(torch, timer, QUICK_CHUNKS if given.quick else CHUNKS, given.budget)
        return
    print("| head_dim, batch, keys | FlashCore | cuDNN | FlashAttention 2 | over cuDNN "
          "| pages of 16 | of 64 |")  # fmt: skip
    print("|---|---|---|---|---|---|---|")
    for head_dim, batch, keys in QUICK if given.quick else ROWS:
        times = [1000 * t for t in row(torch, timer, head_dim, batch, keys, given.budget)]
        mine, cudnn, flash, pages_16, pages_64 = times
        cells = [f"{mine:.1f}", f"{cudnn:.1f}", f"{flash:.1f}", f"{cudnn / mine:.2f}",
                 f"{pages_16:.1f}", f"{pages_64:.1f}"]  # fmt: skip
        print(f"| {head_dim}, {batch}, {keys} | {' | '.join(cells)} |", flush=True)


def print_chunks(torch: Any, timer: Timer, rows: list[Any], budget: float) -> None:
    print("| heads, rows, keys | FlashCore | keys whole | cuDNN, full mask | FlashAttention 2 "
          "| over cuDNN | over whole |")  # fmt: skip
    print("|---|---|---|---|---|---|---|")
    for heads, kv_heads, q_len, keys in rows:
        times = [1000 * t for t in chunk(torch, timer, heads, kv_heads, q_len, keys, budget)]
        mine, whole, cudnn, flash = times
        cells = [f"{mine:.1f}", f"{whole:.1f}", f"{cudnn:.1f}", f"{flash:.1f}",
                 f"{cudnn / mine:.2f}", f"{whole / mine:.2f}"]  # fmt: skip
        print(f"| {heads}/{kv_heads}, {q_len}, {keys} | {' | '.join(cells)} |", flush=True)


def chunk(
    torch: Any, timer: Timer, heads: int, kv_heads: int, q_len: int, keys: int, budget: float
) -> list[float]:
    """Milliseconds of FlashCore, of its kernel that leaves keys whole, of torch by cuDNN with all
    keys for all rows, and of torch by FlashAttention 2."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    import flashcore as fc

    head_dim = 128
    random = functools.partial(torch.randn, device="cuda", dtype=torch.bfloat16)
    sets = timer.sets(2 * 2 * kv_heads * keys * head_dim)
    inputs = [
        (random(1, heads, q_len, head_dim), *(random(1, kv_heads, keys, head_dim)
                                              for _ in range(2)))
        for _ in range(sets)
    ]  # fmt: skip
    grouped = {"heads": heads, "kv_heads": kv_heads} if heads != kv_heads else {}
    spec = fc.AttentionSpec(head_dim=head_dim, mask=fc.causal(), **grouped)
    kernel = fc.jit(spec)
    kernel.prepare(lengths=keys, q_lengths=q_len, batch=1, heads=heads, lse=False)
    # Under a schedule of its own a kernel leaves keys whole.
    whole = fc.jit(spec, schedule=kernel.variant(*inputs[0][:2]).schedule)

    def cudnn(which: int) -> Any:
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            return torch.nn.functional.scaled_dot_product_attention(*inputs[which], enable_gqa=True)

    def flash(which: int) -> Any:
        q, k, v = (x.transpose(1, 2) for x in inputs[which])
        return torch.ops.aten._flash_attention_forward(
            q, k, v, None, None, q_len, keys, 0.0, True, False
        )[0]

    runs = [lambda which: kernel(*inputs[which]), lambda which: whole(*inputs[which]), cudnn, flash]
    with torch.no_grad():
        return timer.interleaved(runs, budget, sets)


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
