"""A matrix product with an epilogue, from ../cpp/matmul.cpp: every way round, against NumPy.

On arrays in CPU memory, so in the emulator; with torch tensors on a GPU it runs there, beside
cuBLAS in benchmarks/matmul.py.
"""

import itertools
from pathlib import Path

import ml_dtypes
import numpy as np

import flashcore as fc

library = fc.load(Path(__file__).parents[1] / "cpp" / "matmul.cpp")
rng = np.random.default_rng(0)


def erf(x):
    # Abramowitz and Stegun 7.1.26: within 1.5e-7, which rounding to 16 bits hides.
    t = 1 / (1 + 0.3275911 * np.abs(x))
    terms = (0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429)
    series = sum(term * t ** (i + 1) for i, term in enumerate(terms))
    return np.sign(x) * (1 - series * np.exp(-x * x))


def random(*shape, dtype):
    return rng.standard_normal(shape).astype(dtype)


for x_transposed, w_transposed in itertools.product((False, True), repeat=2):
    dtype = np.float16 if x_transposed else ml_dtypes.bfloat16
    program = library.matmul(
        dtype="f16" if x_transposed else "bf16",
        x_transposed=x_transposed,
        w_transposed=w_transposed,
        row_scale=True,
        bias=True,
        gelu=True,
        residual=True,
    )
    kernel = fc.jit(program, target="sm_80")
    batches, m, n, k = 2, 72, 136, 40
    x, w = random(batches, m, k, dtype=dtype), random(batches, k, n, dtype=dtype)
    scale, bias = random(m, dtype=np.float32), random(n, dtype=dtype)
    residual = random(batches, m, n, dtype=dtype)
    y = kernel(
        x=np.ascontiguousarray(x.swapaxes(1, 2)) if x_transposed else x,
        w=np.ascontiguousarray(w.swapaxes(1, 2)) if w_transposed else w,
        row_scale=scale,
        bias=bias,
        residual=residual,
    )
    out = (x.astype(float) @ w.astype(float)) * scale[:, None] + bias.astype(float)
    out = out * 0.5 * (1 + erf(out / 2**0.5)) + residual.astype(float)
    error = np.abs(y.astype(float) - out).max() / np.abs(out).max()
    layout = f"x{'^T' if x_transposed else ''} w{'^T' if w_transposed else ''}"
    print(f"{layout:8} {np.dtype(dtype).name:8} largest error {error:.1e} of the largest value")
    assert error < 4e-3
