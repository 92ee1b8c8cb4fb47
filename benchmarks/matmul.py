"""The matrix product of examples/cpp/matmul.cpp beside cuBLAS, as torch calls it.

    python benchmarks/matmul.py
    python benchmarks/matmul.py --layouts x_w x_wt --json results.json

One process, the same data, a cold L2 cache, contenders taking turns (gpu_timing.py). Every result
is held against cuBLAS's before it is timed.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path
from typing import Any

from gpu_timing import Timer, machine, require_gpu

PROGRAM = Path(__file__).parents[1] / "examples" / "cpp" / "matmul.cpp"
SHAPES = [
    (4096, 4096, 4096),
    (8192, 8192, 8192),
    (8192, 1024, 8192),
    (1024, 8192, 4096),
    (16, 4096, 4096),
]
LAYOUTS = {
    "x_w": (False, False),
    "x_wt": (False, True),
    "xt_w": (True, False),
    "xt_wt": (True, True),
}
FEW_ROWS = 16


def measure(torch: Any, fc: Any, timer: Timer, shape: tuple[int, int, int], layout: str,
            budget_ms: float) -> dict[str, Any]:  # fmt: skip
    m, n, k = shape
    transposed = LAYOUTS[layout]
    program = fc.load(PROGRAM).matmul(
        x_transposed=transposed[0], w_transposed=transposed[1], few_rows=m <= FEW_ROWS
    )
    kernel = fc.jit(program)
    sets = timer.sets(2 * (m * k + k * n + m * n))

    def tensor(rows: int, columns: int, turned: bool) -> Any:
        shape = (1, columns, rows) if turned else (1, rows, columns)
        return torch.randn(shape, device="cuda").bfloat16()

    xs = [tensor(m, k, transposed[0]) for _ in range(sets)]
    ws = [tensor(k, n, transposed[1]) for _ in range(sets)]
    ys = [torch.empty(1, m, n, device="cuda", dtype=torch.bfloat16) for _ in range(sets)]

    def seen(array: Any, turned: bool) -> Any:
        return array[0].T if turned else array[0]

    def ours(i: int) -> None:
        kernel(x=xs[i], w=ws[i], y=ys[i])

    def cublas(i: int) -> None:
        torch.mm(seen(xs[i], transposed[0]), seen(ws[i], transposed[1]), out=ys[i][0])

    cublas(0)
    expected = ys[0].float()
    ys[0].fill_(math.nan)
    ours(0)
    error = (ys[0].float() - expected).abs().max().item() / expected.abs().max().item()
    if not error < 0.01:
        sys.exit(f"{shape} {layout}: off by {error} of the largest value")
    times = timer.interleaved([ours, cublas], budget_ms, sets)
    return {
        "shape": list(shape),
        "layout": layout,
        "ms": times[0],
        "cublas_ms": times[1],
        "teraflops": 2 * m * n * k / times[0] / 1e9,
        "ratio": times[1] / times[0],
        "error": error,
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--layouts", nargs="+", choices=LAYOUTS, default=list(LAYOUTS))
    parser.add_argument("--budget-ms", type=float, default=1500, help="of each row")
    parser.add_argument("--json", type=Path, help="write the figures there")
    options = parser.parse_args()
    torch = require_gpu()
    import flashcore as fc

    print(machine(torch))
    timer = Timer(torch)
    rows = []
    print("M x N x K              layout   TFLOPS   ms       cuBLAS ms  speed beside cuBLAS")
    for layout in options.layouts:
        for shape in SHAPES:
            row = measure(torch, fc, timer, shape, layout, options.budget_ms)
            rows.append(row)
            name = " x ".join(str(length) for length in shape)
            print(f"{name:22} {layout:8} {row['teraflops']:6.0f} {row['ms']:8.4f} "
                  f"{row['cublas_ms']:10.4f} {row['ratio']:9.3f}")  # fmt: skip
        mean = math.exp(
            sum(math.log(r["ratio"]) for r in rows if r["layout"] == layout) / len(SHAPES)
        )
        print(f"geometric mean of {layout}: {mean:.3f}")
    if options.json:
        options.json.write_text(json.dumps({"machine": machine(torch), "rows": rows}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
