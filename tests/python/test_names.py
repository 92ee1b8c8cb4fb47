"""Names that mean something in C++, CUDA or the generated kernel."""

import ml_dtypes
import numpy as np

import flashcore as fc
from flashcore.arrays import Captured

TEXT = """program double
axis int: parallel_tiles N
axis threadIdx: whole 32
parameter min: f32
input NULL: f32 [N, 32]
output NULL_stride_0: f32 [N, 32]
{
  %min = parameter min : f32
  %x = load NULL[int, threadIdx] : f32[int, threadIdx]
  %float = mul %x, %min : f32[int, threadIdx]
  store NULL_stride_0[int, threadIdx], %float
}
"""


def test_a_program_keeps_its_names(rng):
    kernel = fc.jit(fc.Program(TEXT), schedule=fc.Schedule(tiles={"int": 32}))
    assert kernel.name == "double"
    x = rng.standard_normal((70, 32)).astype(np.float32)
    out = kernel(**{"NULL": x, "min": 0.5})
    np.testing.assert_array_equal(out, x * np.float32(0.5))
    assert "axis int: parallel_tiles N" in kernel.ir("built")


def test_captured_arrays_keep_their_names(rng):
    q, k, v = rng.standard_normal((3, 1, 2, 40, 32)).astype(ml_dtypes.bfloat16)
    bitand, NULL, half = rng.standard_normal((3, 40)).astype(np.float32)

    def score(score, b, h, q_idx, kv_idx):
        return score + bitand[kv_idx] * NULL[q_idx] - half[kv_idx]

    out = fc.attention(q, k, v, score=score)
    q64, k64, v64 = (x.astype(np.float64) for x in (q, k, v))
    scores = q64 @ k64.swapaxes(-1, -2) / np.sqrt(32) + NULL[:, None] * bitand - half
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    expected = weights @ v64 / weights.sum(-1, keepdims=True)
    np.testing.assert_allclose(out.astype(np.float64), expected, atol=0.03)


def test_texts_name_captured_arrays_as_they_like(rng):
    q, k, v = rng.standard_normal((3, 1, 2, 40, 32)).astype(ml_dtypes.bfloat16)
    name = "threadIdx"
    slopes = np.array([1, 2], np.float32)
    score = fc.Score(f"score + {name}[h]", [Captured(name, "f32", 1)], [slopes])
    out = fc.attention(q, k, v, score=score)  # the same for all keys of a head
    assert fc.AttentionSpec(head_dim=32, score=score).score.text == f"score + {name}[h]"
    np.testing.assert_allclose(
        out.astype(np.float32), fc.attention(q, k, v).astype(np.float32), atol=0.03
    )


def test_arrays_that_are_looked_up_for_whole_tiles_keep_their_names(rng):
    """By distance: where a tile lies inside the array, nothing looks whether an index does."""
    q, k, v = rng.standard_normal((3, 1, 2, 200, 32)).astype(ml_dtypes.bfloat16)
    short = rng.standard_normal((2, 401)).astype(np.float32)

    def score(score, b, h, q_idx, kv_idx):
        return score + short[h, q_idx - kv_idx + 200]

    out = fc.attention(q, k, v, score=score)
    expected = fc.attention(q, k, v, score=fc.relative_bias(short[:, ::-1]))
    np.testing.assert_allclose(out.astype(np.float32), expected.astype(np.float32), atol=0.03)
