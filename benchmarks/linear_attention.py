"""The linear attention of examples/cpp/linear_attention.cpp beside the same written in PyTorch.

    python benchmarks/linear_attention.py
    python benchmarks/linear_attention.py --lengths 4096 --dims 128 --json results.json

PyTorch computes all chunks at once, with as many states: their sums are one cumsum. It is compiled
with chunks of 64, 128 and 256 positions, and the fastest counts. bf16, one process, the same data,
a cold L2 cache, contenders taking turns (gpu_timing.py). The error of every result, against float64
on one head, may be twice that of PyTorch's at most.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gpu_timing import Timer, machine, require_gpu

PROGRAM = Path(__file__).parents[1] / "examples" / "cpp" / "linear_attention.cpp"
CHUNKS = (64, 128, 256)
TILE = 64  # positions, and columns of v, of the program's schedule


def in_chunks(chunk: int) -> Callable[[Any, Any, Any], Any]:
    """Chunked linear attention in PyTorch; the length is a multiple of the chunk."""

    def run(q: Any, k: Any, v: Any) -> Any:
        qc, kc, vc = (x.unflatten(2, (-1, chunk)) for x in (q, k, v))
        sums = kc.transpose(-1, -2) @ vc
        sums = sums.float() if sums.itemsize == 2 else sums
        states = (sums.cumsum(2) - sums).to(q.dtype)
        scores = (qc @ kc.transpose(-1, -2)).tril()
        return (scores @ vc + qc @ states).flatten(2, 3)

    return run


class Ours:
    """The kernels for one shape; few heads are cut into segments that fill the GPU."""

    def __init__(self, torch: Any, fc: Any, shape: tuple[int, int, int, int]):
        batches, heads, length, dim = shape
        self._torch = torch
        processors = torch.cuda.get_device_properties(0).multi_processor_count
        blocks = batches * heads * -(-dim // TILE)
        # Two blocks a multiprocessor run at a time; a few more would take as long again.
        self.segments = max(1, min(2 * processors // blocks, length // (4 * TILE)))
        library = fc.load(PROGRAM)
        self._attend = fc.jit(library.linear_attention(head_dim=dim, segments=self.segments > 1))
        if self.segments == 1:
            return
        self._sum_up = fc.jit(library.linear_attention_sums(head_dim=dim))
        self._positions = -(-length // (self.segments * TILE)) * TILE
        sums = (batches, heads, self.segments, dim, dim)
        self._sums = torch.empty(sums, device="cuda")
        self._states = torch.empty(sums, device="cuda")

    def __call__(self, q: Any, k: Any, v: Any, o: Any) -> None:
        if self.segments == 1:
            self._attend(q=q, k=k, v=v, o=o)
            return
        self._sum_up(k=k, v=v, sums=self._sums, segment_length=self._positions)
        self._torch.cumsum(self._sums, 2, out=self._states)
        self._attend(q=q, k=k, v=v, o=o, states=self._states, segment_length=self._positions)


def measure(torch: Any, fc: Any, timer: Timer, shape: tuple[int, int, int, int],
            budget_ms: float) -> dict[str, Any]:  # fmt: skip
    batches, heads, length, dim = shape
    ours = Ours(torch, fc, shape)
    sets = timer.sets(4 * 2 * math.prod(shape))

    def random(scale: float) -> Any:
        return (torch.randn(shape, device="cuda") * scale).bfloat16()

    inputs = [(random(dim**-0.25), random(dim**-0.25), random(1)) for _ in range(sets)]
    outputs = [torch.empty_like(q) for q, _, _ in inputs]
    torch._dynamo.reset()
    compiled = [torch.compile(in_chunks(chunk), dynamic=False) for chunk in CHUNKS]
    eager = in_chunks(CHUNKS[1])

    exact = in_chunks(CHUNKS[0])(*(x[:1, :1].double() for x in inputs[0]))[0, 0]

    def error(out: Any) -> float:
        return ((out[0, 0].double() - exact).abs().max() / exact.abs().max()).item()

    outputs[0].fill_(math.nan)
    ours(*inputs[0], outputs[0])
    found, allowed = error(outputs[0]), error(eager(*inputs[0]))
    if not found <= 2 * allowed:
        sys.exit(f"{shape}: off by {found} of the largest value, PyTorch by {allowed}")
    runs = [lambda i: ours(*inputs[i], outputs[i])]
    runs += [lambda i, run=run: run(*inputs[i]) for run in (*compiled, eager)]
    times = timer.interleaved(runs, budget_ms, sets)
    best = min(times[1:-1])
    return {
        "shape": list(shape),
        "segments": ours.segments,
        "ms": times[0],
        "compiled_ms": best,
        "chunk": CHUNKS[times[1:-1].index(best)],
        "eager_ms": times[-1],
        "terabytes_per_s": 4 * 2 * math.prod(shape) / times[0] / 1e9,
        "ratio": best / times[0],
        "eager_ratio": times[-1] / times[0],
        "error": found,
        "pytorch_error": allowed,
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--heads", type=int, nargs="+", default=[8, 32])
    parser.add_argument(
        "--lengths", type=int, nargs="+", default=[2048, 16384], help="multiples of 256"
    )
    parser.add_argument("--dims", type=int, nargs="+", default=[64, 128])
    parser.add_argument("--budget-ms", type=float, default=1500, help="of each row")
    parser.add_argument("--json", type=Path, help="write the figures there")
    options = parser.parse_args()
    torch = require_gpu()
    import flashcore as fc

    print(machine(torch))
    timer = Timer(torch)
    rows = []
    print("  B   H      L    D  segments       ms   TB/s  compiled ms  (chunk)  eager ms"
          "   ratio  to eager")  # fmt: skip
    shapes = itertools.product(options.batches, options.heads, options.lengths, options.dims)
    for shape in shapes:
        row = measure(torch, fc, timer, shape, options.budget_ms)
        rows.append(row)
        batches, heads, length, dim = shape
        print(f"{batches:3} {heads:3} {length:6} {dim:4} {row['segments']:9} {row['ms']:8.4f} "
              f"{row['terabytes_per_s']:6.2f} {row['compiled_ms']:12.4f} {row['chunk']:8} "
              f"{row['eager_ms']:9.4f} {row['ratio']:7.2f} {row['eager_ratio']:9.2f}")  # fmt: skip
    for name, words in (("ratio", "compiled"), ("eager_ratio", "eager")):
        mean = math.exp(sum(math.log(row[name]) for row in rows) / len(rows))
        print(f"geometric mean of the speed beside {words} PyTorch: {mean:.2f}")
    if options.json:
        options.json.write_text(json.dumps({"machine": machine(torch), "rows": rows}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
