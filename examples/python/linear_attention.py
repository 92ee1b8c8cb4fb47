"""Chunked linear attention, from ../cpp/linear_attention.cpp, against NumPy.

On arrays in CPU memory, so in the emulator; with torch tensors on a GPU it runs there, beside
PyTorch in benchmarks/linear_attention.py.
"""

from pathlib import Path

import ml_dtypes
import numpy as np

import flashcore as fc

CHUNK = 64  # positions of a tile, as the program's schedule has them
library = fc.load(Path(__file__).parents[1] / "cpp" / "linear_attention.cpp")
rng = np.random.default_rng(0)


def in_float64(q, k, v):
    q, k, v = (array.astype(np.float64) for array in (q, k, v))
    return np.tril(q @ k.swapaxes(-1, -2)) @ v


def in_chunks(q, k, v):
    """The same mathematics in NumPy: sums in float32, and what is multiplied has 16 bits."""
    dtype = q.dtype
    q, k, v = (array.astype(np.float32) for array in (q, k, v))
    state = np.zeros((*q.shape[:2], q.shape[-1], v.shape[-1]), np.float32)
    parts = []
    for begin in range(0, q.shape[2], CHUNK):
        qc, kc, vc = (array[:, :, begin : begin + CHUNK] for array in (q, k, v))
        scores = np.tril(qc @ kc.swapaxes(-1, -2)).astype(dtype).astype(np.float32)
        parts.append(qc @ state.astype(dtype).astype(np.float32) + scores @ vc)
        state += kc.swapaxes(-1, -2) @ vc
    return np.concatenate(parts, axis=2).astype(dtype)


def linear_attention(q, k, v, segments=1):
    """q, k [B, H, L, D], v [B, H, L, E]; each head in so many segments, side by side."""
    batches, heads, length, dim = q.shape
    value_dim = v.shape[-1]
    how = dict(head_dim=dim, value_dim=value_dim, dtype="f16" if q.dtype == np.float16 else "bf16")
    if segments == 1:
        return fc.jit(library.linear_attention(**how), target="sm_80")(q=q, k=k, v=v)
    positions = -(-length // (segments * CHUNK)) * CHUNK
    sums = np.empty((batches, heads, segments, dim, value_dim), np.float32)
    sum_up = fc.jit(library.linear_attention_sums(**how), target="sm_80")
    sum_up(k=k, v=v, sums=sums, segment_length=positions)
    attend = fc.jit(library.linear_attention(segments=True, **how), target="sm_80")
    states = np.cumsum(sums, axis=2)
    return attend(q=q, k=k, v=v, states=states, segment_length=positions)


for length, dim, value_dim, dtype, segments in (
    (1, 64, 64, ml_dtypes.bfloat16, 1),
    (133, 64, 64, ml_dtypes.bfloat16, 1),
    (200, 128, 128, np.float16, 1),
    (300, 64, 128, ml_dtypes.bfloat16, 3),
    (257, 128, 64, np.float16, 2),
):
    q, k = rng.standard_normal((2, 1, 2, length, dim)) / dim**0.25
    v = rng.standard_normal((1, 2, length, value_dim))
    q, k, v = (array.astype(dtype) for array in (q, k, v))
    exact = in_float64(q, k, v)
    error = np.abs(linear_attention(q, k, v, segments).astype(np.float64) - exact).max()
    plain = np.abs(in_chunks(q, k, v).astype(np.float64) - exact).max()
    print(f"length {length:3}, {dim:3} x {value_dim:3}, {np.dtype(dtype).name:8}, "
          f"segments: {segments}, largest error {error:.1e}, in NumPy {plain:.1e}")  # fmt: skip
    assert error <= 2 * plain + 1e-6
