"""float32 arrays, multiplied as tf32 and in the accuracy of f32."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

import flashcore as fc


def exact(q, k, v, causal=False):
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    scores = q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1])
    if causal:
        rows, cols = scores.shape[-2:]
        scores = np.where(np.tril(np.ones((rows, cols), bool), cols - rows), scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v


def as_tf32(x):
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32) + np.uint32(0x1000)
    return (bits & ~np.uint32(0x1FFF)).view(np.float32)


def draw(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize(("head_dim", "length"), [(64, 70), (40, 33), (128, 50)])
def test_within_twice_what_rounding_the_operands_costs(head_dim, length):
    q, k, v = draw(head_dim, 3, 1, 2, length, head_dim)
    right = exact(q, k, v, causal=True)
    plain = exact(as_tf32(q), as_tf32(k), as_tf32(v), causal=True)
    out = fc.attention(q, k, v, mask=fc.causal(), products="tf32")
    assert out.dtype == np.float32
    # The weights are rounded as well: half a unit in the eleventh place of what they add up to.
    allowed = 2 * np.abs(plain - right).max() + 2.0**-11 * np.abs(v).max()
    assert np.abs(out - right).max() <= allowed
    # It is no 16-bit product: those are off by four times as much at the least.
    halves = exact(*(x.astype(ml_dtypes.bfloat16) for x in (q, k, v)), causal=True)
    assert np.abs(out - right).max() < np.abs(halves - right).max() / 2


def in_f32(q, k, v, visible):
    """As numpy evaluates it in float32."""
    scores = q @ k.swapaxes(-1, -2) * np.float32(1 / math.sqrt(q.shape[-1]))
    scores = np.where(visible, scores, np.float32(-np.inf))
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights @ v / weights.sum(-1, keepdims=True)


@pytest.mark.parametrize("mask", ["full", "causal", "window"])
@pytest.mark.parametrize(
    ("head_dim", "rows", "keys"), [(64, 70, 200), (40, 33, 90), (128, 20, 300), (256, 17, 130)]
)
def test_full_accuracy_is_that_of_float32(head_dim, rows, keys, mask):
    q = draw(head_dim, 1, 2, rows, head_dim)
    k, v = draw(head_dim + 1, 2, 1, 2, keys, head_dim)
    i, j = np.arange(rows)[:, None] + keys - rows, np.arange(keys)
    visible = {"full": j >= 0, "causal": j <= i, "window": (j <= i) & (j > i - 20)}[mask]
    masks = {"full": fc.full(), "causal": fc.causal(), "window": fc.sliding_window(19)}
    out = fc.attention(q, k, v, mask=masks[mask])
    assert out.dtype == np.float32
    scores = q.astype(float) @ k.astype(float).swapaxes(-1, -2) / math.sqrt(head_dim)
    weights = np.exp(np.where(visible, scores, -np.inf))
    right = weights / weights.sum(-1, keepdims=True) @ v
    plain = np.abs(in_f32(q, k, v, visible) - right).max()
    assert np.abs(out - right).max() <= 2 * plain + np.finfo(np.float32).eps


def test_full_accuracy_has_a_limit_with_a_reason():
    spec = fc.AttentionSpec(head_dim=320, dtype="f32")
    assert spec.why_not("sm_90") == [
        "products = full with dtype = f32 and head_dim = 320: every f32 is split in three parts, "
        "for which there is room up to 256; products = tf32"
    ]


def test_16_bit_arrays_are_not_rounded_to_tf32():
    q = draw(2, 1, 1, 20, 32).astype(ml_dtypes.bfloat16)
    with pytest.raises(fc.SpecError, match="products = tf32 with dtype = bf16"):
        fc.attention(q, q, q, products="tf32")


def test_a_misspelt_choice_is_told_of_the_right_ones():
    with pytest.raises(fc.SpecError, match='"full", "tf32"'):
        fc.AttentionSpec(head_dim=64, dtype="f32", products="tf23")


def test_specs_are_saved_with_their_products():
    spec = fc.AttentionSpec(head_dim=64, dtype="f32", products="tf32")
    assert fc.AttentionSpec.from_json(spec.to_json()) == spec
    assert spec.why_not("sm_80") == []
    assert any("tf32" in reason for reason in spec.why_not("sm_75"))


def test_packed_sequences_groups_and_the_log_sum_exp():
    lengths = [13, 0, 40]
    starts = np.array([0, 13, 13, 53], np.int32)
    q, k, v = draw(3, 53, 4, 32), draw(4, 53, 2, 32), draw(5, 53, 2, 32)
    out, lse = fc.attention(
        q, k, v, layout="thd", cu_seqlens_q=starts, cu_seqlens_k=starts, max_q_len=max(lengths),
        mask=fc.causal(), products="tf32", return_lse=True,
    )  # fmt: skip
    assert lse.shape == (4, 53)
    for first, last in zip(starts, starts[1:], strict=False):
        for head in range(4):
            part = slice(first, last)
            if first == last:
                continue
            right = exact(q[part, head], k[part, head // 2], v[part, head // 2], causal=True)
            assert np.abs(out[part, head] - right).max() < 5e-3


def test_sdpa_does_as_torch_is_told():
    torch = pytest.importorskip("torch")
    q, k, v = (torch.from_numpy(draw(seed, 1, 2, 30, 64)) for seed in (6, 7, 8))
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("high")
        out = fc.sdpa(q, k, v)
        torch.set_float32_matmul_precision("highest")
        in_full = fc.sdpa(q, k, v)
    finally:
        torch.set_float32_matmul_precision(before)
    right = torch.nn.functional.scaled_dot_product_attention(q, k, v)
    assert out.dtype == torch.float32
    assert (out - right).abs().max() < 5e-3
    assert (in_full - right).abs().max() < 5e-6
