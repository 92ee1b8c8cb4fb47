"""float32 attention beside PyTorch's: its memory-efficient and its math backend.

    python benchmarks/float32.py
    python benchmarks/float32.py --lengths 4096 --dims 128 --masks causal --json results.json

Each way of forming products that FlashCore has is a contender: rounded to tf32, and in full
accuracy. PyTorch's memory-efficient backend takes float32 as it is; its math backend rounds to tf32
where torch.backends.cuda.matmul.allow_tf32 says so, and is timed both ways. One process, the same
data, a cold L2 cache, contenders taking turns (gpu_timing.py). The error of every result of ours,
against float64 on one head, may be twice that of the math backend at the same accuracy at most.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gpu_timing import Timer, machine, require_gpu

SLACK = 1e-7  # of the largest value: below that an error says nothing
COLUMNS = ("tf32", "full", "efficient", "math", "math_tf32")


@contextlib.contextmanager
def rounding_to_tf32(torch: Any, allowed: bool) -> Iterator[None]:
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = allowed
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def flops(shape: tuple[int, int, int, int], causal: bool) -> float:
    batches, heads, length, dim = shape
    seen = length * (length + 1) / 2 if causal else length * length
    return 4 * batches * heads * seen * dim


def exact_head(torch: Any, q: Any, k: Any, v: Any, causal: bool) -> Any:
    """The first head in float64."""
    q, k, v = (x[0, 0].double() for x in (q, k, v))
    scores = q @ k.T / math.sqrt(q.shape[-1])
    if causal:
        hidden = torch.ones_like(scores, dtype=torch.bool).triu(1)
        scores.masked_fill_(hidden, -math.inf)
    return scores.softmax(-1) @ v


def error(out: Any, exact: Any) -> float:
    """Of the first head, as a part of the largest value."""
    return float((out[0, 0].double() - exact).abs().max() / exact.abs().max())


def our_kernels(fc: Any, dim: int, causal: bool) -> dict[str, Any]:
    """By how they form products; what this build has none of is left out."""
    mask = fc.causal("top_left") if causal else fc.full()
    kernels = {}
    for products in ("tf32", "full"):
        spec = fc.AttentionSpec(head_dim=dim, dtype="f32", products=products, mask=mask)
        with contextlib.suppress(fc.SpecError):
            kernels[products] = fc.jit(spec)
    return kernels


def measure(torch: Any, fc: Any, timer: Timer, shape: tuple[int, int, int, int], causal: bool,
            budget_ms: float) -> dict[str, Any]:  # fmt: skip
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention

    sets = timer.sets(4 * 4 * math.prod(shape))
    inputs = [[torch.randn(shape, device="cuda") for _ in range(3)] for _ in range(sets)]
    outputs = [torch.empty(shape, device="cuda") for _ in range(sets)]

    def theirs(backend: Any, tf32: bool = False) -> Any:
        def run(i: int) -> Any:
            with sdpa_kernel(backend), rounding_to_tf32(torch, tf32):
                return scaled_dot_product_attention(*inputs[i], is_causal=causal)

        return run

    kernels = our_kernels(fc, shape[-1], causal)
    runs = {
        name: lambda i, kernel=kernel: kernel(*inputs[i], out=outputs[i])
        for name, kernel in kernels.items()
    }
    runs["efficient"] = theirs(SDPBackend.EFFICIENT_ATTENTION)
    scores_bytes = 4 * shape[0] * shape[1] * shape[2] ** 2
    if 4 * scores_bytes < torch.cuda.get_device_properties(0).total_memory:
        runs["math"] = theirs(SDPBackend.MATH)
        runs["math_tf32"] = theirs(SDPBackend.MATH, tf32=True)

    head = [x[:1, :1] for x in inputs[0]]
    exact = exact_head(torch, *head, causal)
    errors = {}
    for name, allow_tf32 in (("tf32", True), ("full", False)):
        if name not in kernels:
            continue
        outputs[0].fill_(math.nan)
        runs[name](0)
        with sdpa_kernel(SDPBackend.MATH), rounding_to_tf32(torch, allow_tf32):
            peer = scaled_dot_product_attention(*head, is_causal=causal)
        errors[name] = error(outputs[0], exact)
        allowed = error(peer, exact)
        errors[f"{name}_allowed"] = allowed
        if not errors[name] <= 2 * allowed + SLACK:
            sys.exit(f"{shape} {name}: off by {errors[name]} of the largest value, "
                     f"PyTorch by {allowed}")  # fmt: skip

    times = timer.interleaved(list(runs.values()), budget_ms, sets)
    row: dict[str, Any] = {"shape": list(shape), "causal": causal, "errors": errors}
    row["ms"] = dict(zip(runs, times, strict=True))
    row["tflops"] = {name: flops(shape, causal) / ms / 1e9 for name, ms in row["ms"].items()}
    return row


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--batches", type=int, nargs="+", default=[2])
    parser.add_argument("--heads", type=int, nargs="+", default=[16])
    parser.add_argument("--lengths", type=int, nargs="+", default=[1024, 4096, 8192])
    parser.add_argument("--dims", type=int, nargs="+", default=[64, 128, 256])
    parser.add_argument("--masks", nargs="+", default=["full", "causal"])
    parser.add_argument("--budget-ms", type=float, default=1500, help="of each row")
    parser.add_argument("--json", type=Path, help="write the figures there")
    options = parser.parse_args()
    torch = require_gpu()
    import flashcore as fc

    fc.set_compile_mode("eager")  # no kernel for other lengths serves meanwhile
    print(machine(torch))
    timer = Timer(torch)
    rows = []
    print("TFLOPS of 4 L^2 D a head, half of it where a causal mask hides the rest")
    print("  B   H      L    D    mask" + "".join(f"{name:>11}" for name in COLUMNS)
          + "  tf32/efficient  full/efficient")  # fmt: skip
    sizes = itertools.product(options.batches, options.heads, options.lengths, options.dims)
    for shape, mask in itertools.product(sizes, options.masks):
        row = measure(torch, fc, timer, shape, mask == "causal", options.budget_ms)
        rows.append(row)
        batches, heads, length, dim = shape
        figures = "".join(
            f"{row['tflops'][name]:11.1f}" if name in row["tflops"] else f"{'-':>11}"
            for name in COLUMNS
        )
        ratios = "".join(
            f"{row['ms']['efficient'] / row['ms'][name]:16.2f}" if name in row["ms"]
            else f"{'-':>16}"
            for name in ("tf32", "full")
        )  # fmt: skip
        print(f"{batches:3} {heads:3} {length:6} {dim:4} {mask:>7}{figures}{ratios}")
    for name in ("tf32", "full"):
        ratios = [row["ms"]["efficient"] / row["ms"][name] for row in rows if name in row["ms"]]
        if ratios:
            mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
            print(f"geometric mean of the speed of {name} beside the memory-efficient backend: "
                  f"{mean:.2f}")  # fmt: skip
    if options.json:
        options.json.write_text(json.dumps({"machine": machine(torch), "rows": rows}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
