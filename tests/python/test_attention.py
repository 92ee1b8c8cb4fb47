"""The values that kernels compute, in the emulator, for every shape that can go wrong."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import flashcore as fc
from reference import assert_close, random

MASKS = {
    "full": fc.full(),
    "causal(bottom_right)": fc.causal(),
    "causal(top_left)": fc.causal(align="top_left"),
}
_kernels = {}


def kernel_for(**spec):
    key = tuple(sorted(spec.items()))
    if key not in _kernels:
        mask = MASKS[spec.pop("mask")]
        _kernels[key] = fc.jit(fc.AttentionSpec(mask=mask, **spec))
    return _kernels[key]


def run(
    rng,
    *,
    batch=1,
    heads=2,
    kv_heads=None,
    q_len,
    kv_len,
    head_dim=64,
    head_dim_v=None,
    mask="full",
    dtype="bf16",
    layout="bhsd",
    scale=None,
):
    def array(heads, length, dim):
        shape = (batch, heads, length, dim) if layout == "bhsd" else (batch, length, heads, dim)
        return random(rng, shape, dtype)

    q = array(heads, q_len, head_dim)
    k = array(kv_heads or heads, kv_len, head_dim)
    v = array(kv_heads or heads, kv_len, head_dim_v or head_dim)
    kernel = kernel_for(
        head_dim=head_dim,
        head_dim_v=head_dim_v,
        mask=mask,
        dtype=dtype,
        layout=layout,
        heads=heads if kv_heads else None,
        kv_heads=kv_heads,
    )
    out, lse = kernel(q, k, v, scale=scale, return_lse=True)
    assert out.dtype == q.dtype
    assert lse.dtype == np.float32
    assert_close(out, lse, q, k, v, scale=scale, mask=mask, layout=layout)


@given(
    q_len=st.integers(0, 200),
    kv_len=st.integers(0, 300),
    mask=st.sampled_from(sorted(MASKS)),
    dtype=st.sampled_from(["f16", "bf16"]),
)
@example(q_len=1, kv_len=1, mask="causal(bottom_right)", dtype="bf16")
@example(q_len=130, kv_len=3, mask="causal(bottom_right)", dtype="bf16")  # rows that see nothing
@example(q_len=3, kv_len=0, mask="full", dtype="f16")
def test_any_length(q_len, kv_len, mask, dtype):
    run(np.random.default_rng(1), q_len=q_len, kv_len=kv_len, mask=mask, dtype=dtype)


@pytest.mark.parametrize("head_dim", [8, 64, 96, 128, 256])
def test_head_dims(rng, head_dim):
    run(rng, q_len=70, kv_len=90, head_dim=head_dim, mask="causal(bottom_right)")


def test_values_narrower_than_keys(rng):
    run(rng, q_len=40, kv_len=70, head_dim=96, head_dim_v=64)


@pytest.mark.parametrize("layout", ["bhsd", "bshd"])
def test_grouped_heads_in_both_layouts(rng, layout):
    run(rng, batch=2, heads=4, kv_heads=2, q_len=33, kv_len=65, layout=layout)


def test_a_given_scale(rng):
    run(rng, q_len=20, kv_len=20, scale=0.5)


def test_strided_views(rng):
    # q, k and v as slices of one projection, the usual case in a model.
    packed = random(rng, (2, 50, 3, 4, 64), "bf16")
    q, k, v = (packed[:, :, i] for i in range(3))
    out = kernel_for(
        head_dim=64,
        head_dim_v=None,
        mask="full",
        dtype="bf16",
        layout="bshd",
        heads=None,
        kv_heads=None,
    )(q, k, v)
    assert_close(out, None, q, k, v, layout="bshd")
