"""Caps of any size: a tanh that is right to 2e-7 of 1 loses scores far below a large one."""

import ml_dtypes
import numpy as np
import pytest

import flashcore as fc
from flashcore.arrays import Captured
from reference import attention

SHAPE, SCALE = (1, 2, 70, 64), 128.0
KINDS = [("f16", "sm_80"), ("bf16", "sm_80"), ("f16", "sm_90a"), ("bf16", "sm_90a")]
NUMPY = {"f16": np.float16, "bf16": ml_dtypes.bfloat16}


def arrays(dtype, cap):
    """Ordinary scores, and in the rows of one warp with them some that the cap bends."""
    rng = np.random.default_rng(5)
    q, k, v = rng.standard_normal((3, *SHAPE))
    q /= 1024
    most = 6e3 if dtype == "f16" else 1e33
    q[:, :, [7, 41]] *= min(0.3 * cap, 1024 * most)
    return [x.astype(NUMPY[dtype]) for x in (q, k, v)]


def capped(cap):
    return lambda score, b, h, i, j: np.tanh(score / cap) * cap


def assert_right(kernel, q, k, v, cap, mask="full"):
    out, lse = kernel(q, k, v, scale=SCALE, return_lse=True)
    expected, expected_lse = attention(q, k, v, scale=SCALE, score=capped(cap), mask=mask)
    assert np.abs(out.astype(np.float64) - expected).max() < 0.02
    assert (np.abs(lse - expected_lse) <= 2e-3 + 3e-6 * np.abs(expected_lse)).all()


@pytest.mark.usefixtures("emulated_only")
@pytest.mark.parametrize(("dtype", "target"), KINDS)
@pytest.mark.parametrize("cap", [30.0, 1e3, 1e6, 1e7, 1e8, 1e12, 1e20, 1e30, 3e38])
def test_a_cap_of_any_size(dtype, target, cap):
    spec = fc.AttentionSpec(
        head_dim=64, dtype=dtype, score=fc.softcap(cap), lse=True, large_scores=cap > 1e8
    )
    assert_right(fc.jit(spec, target=target), *arrays(dtype, cap), cap)


@pytest.mark.parametrize(("dtype", "target"), KINDS)
def test_with_a_mask(dtype, target):
    cap = 3e7
    spec = fc.AttentionSpec(
        head_dim=64, dtype=dtype, score=fc.softcap(cap), lse=True, mask=fc.causal()
    )
    assert_right(fc.jit(spec, target=target), *arrays(dtype, cap), cap, mask="causal(bottom_right)")


@pytest.mark.parametrize("cap", [30.0, 1e9])
def test_a_cap_that_calls_give(cap):
    score = fc.Score("tanh(score / cap) * cap", [Captured("cap", "f32", 0)], [cap])
    spec = fc.AttentionSpec(head_dim=64, dtype="bf16", score=score, lse=True, large_scores=True)
    assert_right(fc.jit(spec, target="sm_80"), *arrays("bf16", cap), cap)


def test_ordinary_caps_cost_what_they_did():
    kernels = {
        cap: fc.jit(fc.AttentionSpec(head_dim=64, score=fc.softcap(cap)), target="sm_80").source
        for cap in (50.0, 1e3, 1e4)
    }
    assert ["precise_tanh" in source for source in kernels.values()] == [False, False, True]


@pytest.mark.parametrize("cap", [1e39, 1e-39, 0, -3])
def test_what_no_cap_can_be(cap):
    with pytest.raises(fc.SpecError, match="a softcap") as caught:
        fc.softcap(cap)
    assert "up to 3.4e38" in caught.value.fix
