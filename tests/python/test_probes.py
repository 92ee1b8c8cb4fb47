"""Probes: what they return, that they change nothing, and what they refuse."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import flashcore as fc


def arrays(q_len=70, kv_len=90, heads=2, kv_heads=2, dim=32):
    rng = np.random.default_rng(3)
    q = rng.standard_normal((2, heads, q_len, dim)).astype(ml_dtypes.bfloat16)
    k, v = rng.standard_normal((2, 2, kv_heads, kv_len, dim)).astype(ml_dtypes.bfloat16)
    return q, k, v


def base2_scores(q, k, causal):
    group = q.shape[1] // k.shape[1]
    k = np.repeat(k.astype(float), group, axis=1)
    scores = q.astype(float) @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]) * np.log2(np.e)
    if causal:
        rows, cols = scores.shape[-2:]
        scores = np.where(np.tri(rows, cols, cols - rows, dtype=bool), scores, -np.inf)
    return scores


@pytest.mark.parametrize("causal", [False, True])
def test_scores_and_probs(causal):
    q, k, v = arrays(heads=4)
    mask = fc.causal() if causal else fc.full()
    spec = fc.AttentionSpec(head_dim=32, heads=4, kv_heads=2, mask=mask)
    out, seen = fc.jit(spec, probe=["scores", "probs"])(q, k, v)
    assert list(seen) == ["scores", "probs"]
    expected = base2_scores(q, k, causal)
    assert seen["scores"].dtype == np.float32
    np.testing.assert_allclose(seen["scores"], expected, atol=2e-5)
    # Relative to the maximum so far, which is at most that of the row.
    final = np.exp2(expected - expected.max(-1, keepdims=True))
    assert (seen["probs"] >= final - 1e-5).all()
    assert (seen["probs"] <= 1 + 1e-6).all()
    assert (seen["probs"][np.isinf(expected)] == 0).all()
    assert (out == fc.jit(spec)(q, k, v)).all()


def test_layout_bshd_keeps_batch_and_head_first():
    q, k, v = arrays()
    spec = fc.AttentionSpec(head_dim=32, layout="bshd")
    swapped = [x.swapaxes(1, 2).copy() for x in (q, k, v)]
    _, seen = fc.jit(spec, probe=["scores"])(*swapped)
    np.testing.assert_allclose(seen["scores"], base2_scores(q, k, False), atol=2e-5)


def test_with_lse():
    q, k, v = arrays()
    kernel = fc.jit(fc.AttentionSpec(head_dim=32), probe=["row_max", "row_sum"])
    out, lse, seen = kernel(q, k, v, return_lse=True)
    expected = (seen["row_max"] + np.log2(seen["row_sum"])) * np.log(2)
    np.testing.assert_allclose(lse, expected, atol=1e-6)
    spec = fc.AttentionSpec(head_dim=32, lse=True)
    assert len(fc.jit(spec, probe=["probs"])(q, k, v)) == 2


TWICE = """
program twice
axis rows: parallel_tiles R
axis cols: whole 8
input x: f32 [R, 8]
output y: f32 [R, 8]
{
  %x = load x[rows, cols] : f32[rows, cols]
  %double = add %x, %x : f32[rows, cols]
  %y = add %double, %x : f32[rows, cols]
  store y[rows, cols], %y
}
"""


def test_of_a_program():
    kernel = fc.jit(fc.Program(TWICE), schedule=fc.Schedule(tiles={"rows": 16}), probe="double")
    x = np.arange(24, dtype=np.float32).reshape(3, 8)
    y, seen = kernel(x=x)
    assert (y == 3 * x).all()
    assert (seen["double"] == 2 * x).all()


def test_refusals():
    with pytest.raises(fc.SpecError) as refusal:
        fc.jit(fc.AttentionSpec(head_dim=32), probe=["score"])
    assert refusal.value.what == 'a probe of "score"'
    assert refusal.value.why == "program attention_forward names no value so"
    assert "scores, probs" in refusal.value.fix
    q, k, v = arrays()
    kernel = fc.jit(fc.AttentionSpec(head_dim=32), probe=["scores"])
    with pytest.raises(fc.DeviceError) as refusal:
        kernel(q, k, v, stream=0)
    assert refusal.value.what == "a launch of attention_forward with probes on a given stream"


@pytest.mark.parametrize(
    "schedule",
    [
        {},
        {"softmax": "shared"},
        {"instruction": "wmma", "softmax": "shared"},
        {"warps_n": 2, "warps_m": 2, "tiles": {"rows": 64, "cols": 32}},
        {"peel_masks": True, "tiles": {"rows": 64, "cols": 32}},
    ],
)
def test_of_captured_tensors_under_every_kind_of_schedule(schedule):
    length = 150
    q, k, v = arrays(length, length)
    slopes = np.array([0.5, 0.25], np.float32)
    doc = (np.arange(length) // 40).astype(np.int32)

    spec = fc.AttentionSpec(
        head_dim=32,
        mask=lambda b, h, q_idx, kv_idx: doc[q_idx] == doc[kv_idx],
        score=lambda score, b, h, q_idx, kv_idx: score + slopes[h] * (kv_idx - q_idx),
    )
    kernel = fc.jit(spec, schedule=schedule, probe=["scores", "probs", "modified"])
    out, seen = kernel(q, k, v)
    at = np.arange(length)
    modified = base2_scores(q, k, False) / np.log2(np.e)
    modified = modified + slopes[:, None, None] * (at - at[:, None])
    scores = np.where(doc == doc[:, None], modified * np.log2(np.e), -np.inf)
    np.testing.assert_allclose(seen["scores"], scores, atol=2e-4)
    assert (seen["probs"][np.isinf(scores)] == 0).all()
    visited = ~np.isnan(seen["modified"])
    assert visited[np.isfinite(scores)].all()
    np.testing.assert_allclose(seen["modified"][visited], modified[visited], atol=2e-4)
    assert (out == fc.jit(spec, schedule=schedule)(q, k, v)).all()
