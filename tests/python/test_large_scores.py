"""Scores of any finite size, and infinite ones: softmax depends on differences alone."""

import ml_dtypes
import numpy as np
import pytest

import flashcore as fc
from reference import attention

BF16 = np.dtype(ml_dtypes.bfloat16)
SHAPE = (1, 2, 70, 64)

# One of each family: products, copies, where the softmax happens, how a row is shared out.
FAMILIES = {
    "wmma, softmax in shared memory": ("sm_75", None),
    "mma": ("sm_80", None),
    "wgmma": ("sm_90a", None),
    "two warps along the keys": ("sm_80", {"tiles": {"rows": 32, "cols": 64},
                                           "warps_m": 2, "warps_n": 2}),
    "blocks that share keys": ("sm_90a", {"tiles": {"rows": 64, "cols": 32}, "instruction": "wgmma",
                                          "copy": "tma", "stages": 2, "cluster_splits": 2}),
}  # fmt: skip


def arrays(dtype, size, seed=0):
    rng = np.random.default_rng(seed)
    q, k = ((rng.standard_normal(SHAPE) * size).astype(dtype) for _ in range(2))
    return q, k, rng.standard_normal(SHAPE).astype(dtype)


def run(family, q, k, v, large_scores=True, **spec):
    target, schedule = FAMILIES[family]
    dtype = "f16" if q.dtype == np.float16 else "bf16"
    kernel = fc.jit(
        fc.AttentionSpec(head_dim=64, dtype=dtype, large_scores=large_scores, **spec),
        target=target,
        schedule=schedule,
    )
    return kernel(q, k, v)


def dtype_of(family):
    return np.dtype(np.float16) if FAMILIES[family][0] == "sm_75" else BF16


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("size", [1, 30, 300, 6e4, 1e15])
def test_differences_decide(family, size):
    dtype = dtype_of(family)
    if dtype == np.float16 and size > 6e4:
        pytest.skip("not finite in f16")
    q, k, v = arrays(dtype, min(size, 1e4) if dtype == np.float16 else size)
    expected, _ = attention(q, k, v, mask="causal(bottom_right)")
    out = run(family, q, k, v, mask=fc.causal())
    assert np.abs(out.astype(np.float64) - expected).max() < 0.02


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("size", [300, 2000])
def test_scores_up_to_a_hundred_million_need_no_word(family, size):
    q, k, v = arrays(dtype_of(family), size)
    expected, _ = attention(q, k, v, mask="causal(bottom_right)")
    out = run(family, q, k, v, large_scores=False, mask=fc.causal())
    assert np.abs(out.astype(np.float64) - expected).max() < 0.02


def test_a_call_may_ask_for_it():
    q, k = (np.full(SHAPE, 133120.0, BF16) for _ in range(2))
    v = arrays(BF16, 1)[2]
    out = fc.attention(q, k, v, large_scores=True).astype(np.float64)
    assert np.abs(out - v.astype(np.float64).mean(2, keepdims=True)).max() < 0.01


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("value", [133120.0, -3e17])
def test_equal_scores_share_their_row(family, value):
    """torch's own regression test: a row of equal scores is the mean of the values."""
    dtype = dtype_of(family)
    value = 6e4 if dtype == np.float16 else value
    q, k = (np.full(SHAPE, x, dtype) for x in (abs(value), value))
    v = arrays(dtype, 1)[2]
    out = run(family, q, k, v).astype(np.float64)
    assert np.abs(out - v.astype(np.float64).mean(2, keepdims=True)).max() < 0.01


@pytest.mark.parametrize("dtype", [np.float32, BF16])
def test_a_row_hidden_by_the_least_number_sees_all_alike(dtype):
    q, k, v = arrays(BF16, 1)
    mask = np.zeros((70, 70), dtype)
    mask[3] = ml_dtypes.finfo(dtype).min
    mask[5, 7:] = ml_dtypes.finfo(dtype).min
    out = fc.sdpa(q, k, v, attn_mask=mask).astype(np.float64)
    added = mask.astype(np.float64)

    def score(s, b, h, i, j):
        return np.float32(s) + np.float32(added[i, j])

    expected, _ = attention(q, k, v, score=score)
    assert np.abs(out - expected).max() < 0.02
    assert np.abs(out[:, :, 3] - v.astype(np.float64).mean(2)).max() < 0.01


@pytest.mark.parametrize("family", FAMILIES)
def test_a_score_of_any_size(family):
    q, k, v = arrays(dtype_of(family), 1)
    expected, _ = attention(
        q, k, v, score=lambda s, b, h, i, j: s + 1e9 * (j == 5) - 1e20 * (j > 40)
    )
    out = run(
        family,
        q,
        k,
        v,
        score=lambda s, b, h, i, j: s + fc.where(j == 5, 1e9, fc.where(j > 40, -1e20, 0.0)),
    )
    assert np.abs(out.astype(np.float64) - expected).max() < 0.02


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_an_infinite_score_makes_its_lse_infinite(target):
    q, k, v = arrays(BF16, 1)
    spec = fc.AttentionSpec(
        head_dim=64,
        score=lambda s, b, h, i, j: fc.where((i == 2) & (j == 3), float("inf"), s),
    )
    out, lse = fc.jit(spec, target=target)(q, k, v, return_lse=True)
    assert np.isnan(out[:, :, 2].astype(np.float32)).all()
    assert (lse[:, :, 2] == np.inf).all()
    rest = np.delete(lse, 2, axis=2)
    assert np.isfinite(rest).all()


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("size", [1, 1e4])
def test_a_score_that_ends_in_a_product(family, size):
    """What is subtracted is the largest product, rounded, and so is every other."""
    q, k, v = arrays(dtype_of(family), size)
    expected, _ = attention(q, k, v, score=lambda s, b, h, i, j: s * 1000.7)
    out = run(family, q, k, v, score=lambda s, b, h, i, j: s * 1000.7)
    assert np.abs(out.astype(np.float64) - expected).max() < 0.02


def test_flex_attention_hides_by_large_numbers():
    q, k, v = arrays(BF16, 1)

    def score(s, b, h, i, j):
        return np.float32(s) - np.float32(1e9) * (j > i - 9 * (i == 4))

    expected, _ = attention(q, k, v, score=score)
    out = fc.flex_attention(
        q, k, v, score_mod=lambda s, b, h, i, j: s - 1e9 * (j > i - 9 * (i == 4))
    )
    assert np.abs(out.astype(np.float64) - expected).max() < 0.02
