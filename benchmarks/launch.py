"""What a call costs the host: FlashCore beside PyTorch's attention, in microseconds.

    python benchmarks/launch.py

The problem is tiny, so that the GPU is always waiting and the host's time is all there is. Calls
come in batches short enough that the launch queue never fills; the median of many batches counts,
and the contenders take turns.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gpu_timing import machine, require_gpu


def contenders(torch: Any, fc: Any) -> dict[str, tuple[Any, Callable[[], Any]]]:
    """Name, the context its calls run in, and one call."""
    from contextlib import nullcontext

    from torch.nn.attention import SDPBackend, sdpa_kernel

    q, k, v = (torch.randn(1, 1, 64, 64, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    out = torch.empty_like(q)
    kernel = fc.jit(fc.AttentionSpec(head_dim=64))
    kernel.prepare(lengths=64, batch=1, heads=1, lse=False)
    sdpa = torch.nn.functional.scaled_dot_product_attention
    found = {
        "kernel(q, k, v, out=out)": (nullcontext, lambda: kernel(q, k, v, out=out)),
        "kernel(q, k, v)": (nullcontext, lambda: kernel(q, k, v)),
        "flashcore.attention(q, k, v)": (nullcontext, lambda: fc.attention(q, k, v)),
        "torch.add(q, k, out=out)": (nullcontext, lambda: torch.add(q, k, out=out)),
    }
    for title, name in (("FlashAttention 2", "FLASH_ATTENTION"), ("cuDNN", "CUDNN_ATTENTION")):
        backend = getattr(SDPBackend, name)
        found[f"torch SDPA, {title}"] = (lambda b=backend: sdpa_kernel(b), lambda: sdpa(q, k, v))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--batches", type=int, default=200)
    parser.add_argument("--calls", type=int, default=100, help="in one batch")
    parser.add_argument("--json", type=Path, help="write the figures there")
    options = parser.parse_args()
    torch = require_gpu()
    import flashcore as fc

    print(machine(torch))
    runs = contenders(torch, fc)
    samples: dict[str, list[float]] = {name: [] for name in runs}
    order = list(runs)
    with torch.no_grad():
        for batch in range(options.batches + 2):
            for name in list(order):
                context, call = runs[name]
                try:
                    with context():
                        torch.cuda.synchronize()
                        start = time.perf_counter()
                        for _ in range(options.calls):
                            call()
                        elapsed = time.perf_counter() - start
                except RuntimeError as error:
                    print(f"! {name}: {str(error).splitlines()[0]}", file=sys.stderr)
                    order.remove(name)
                    continue
                if batch >= 2:  # the first two are the warm-up
                    samples[name].append(elapsed / options.calls * 1e6)
            order.reverse()
    torch.cuda.synchronize()

    figures = {
        name: {"median_us": statistics.median(times), "least_us": min(times)}
        for name, times in samples.items()
        if times
    }
    print(f"{'call':<32} {'median us':>10} {'least us':>10}")
    for name, figure in figures.items():
        print(f"{name:<32} {figure['median_us']:>10.2f} {figure['least_us']:>10.2f}")
    if options.json:
        options.json.write_text(json.dumps({"machine": machine(torch), "calls": figures}, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
