"""Arrays that no kernel takes as they lie: the numbers are those of copies made by hand."""

import sys
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest

import flashcore as fc
from flashcore.kernels import copies
from reference import assert_close, random

pytestmark = pytest.mark.usefixtures("emulated_only")

TARGETS = {"sm_75": "f16", "sm_80": "bf16", "sm_90a": "bf16"}
_kernels = {}


def kernel_for(target, **spec):
    key = (target, *spec.items())
    if key not in _kernels:
        described = fc.AttentionSpec(dtype=TARGETS[target], **spec)
        _kernels[key] = fc.AttentionKernel.shipped(described, target)
    return _kernels[key]


def inputs(rng, target, head_dim, head_dim_v=None, *, heads=2, q_len=20, kv_len=35):
    dtype = TARGETS[target]
    shapes = ((q_len, head_dim), (kv_len, head_dim), (kv_len, head_dim_v or head_dim))
    return [random(rng, (1, heads, *shape), dtype) for shape in shapes]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("head_dim", "head_dim_v"), [(1, None), (20, 33), (100, 100), (64, 7)])
def test_any_head_dim(rng, target, head_dim, head_dim_v):
    q, k, v = inputs(rng, target, head_dim, head_dim_v)
    kernel = kernel_for(target, head_dim=head_dim, head_dim_v=head_dim_v)
    out, lse = kernel(q, k, v, return_lse=True)
    assert out.shape == (1, 2, 20, head_dim_v or head_dim)
    assert_close(out, lse, q, k, v)
    place = np.full_like(out, 5)
    assert kernel(q, k, v, out=place) is place
    assert_close(place, None, q, k, v)


def test_head_dims_of_packed_sequences_and_groups(rng):
    q = random(rng, (30, 4, 12), "bf16")
    k, v = (random(rng, (30, 2, 12), "bf16") for _ in range(2))
    starts = np.array([0, 10, 30], np.int32)
    out = fc.attention(q, k, v, layout="thd", cu_seqlens_q=starts, mask=fc.causal())
    for first, last in ((0, 10), (10, 30)):
        part = [x[None, first:last] for x in (q, k, v)]
        alone = fc.attention(*part, layout="bshd", mask=fc.causal())
        np.testing.assert_array_equal(out[first:last], alone[0])


@pytest.mark.parametrize("head_dim", [12, 16])
def test_rows_of_no_sequence_stay_as_they_are(rng, head_dim):
    q, k, v = (random(rng, (30, 2, head_dim), "bf16") for _ in range(3))
    starts = np.array([0, 10, 25], np.int32)
    place = np.full((30, 2, head_dim + 1), 5, q.dtype)[..., 1:]  # to be copied: 2 bytes off
    kernel = fc.jit(fc.AttentionSpec(head_dim=head_dim, layout="thd"), target="sm_80")
    kernel(q, k, v, out=place, cu_seqlens_q=starts, cu_seqlens_k=starts, max_q_len=15)
    assert (place[25:] == 5).all()
    assert not (place[:25] == 5).any()


def test_the_last_dimension_has_to_be_the_true_one(rng):
    kernel = kernel_for("sm_80", head_dim=20)
    q, k, v = inputs(rng, "sm_80", 24)
    with pytest.raises(fc.SpecError, match="the last dimension of q is 24"):
        kernel(q, k, v)
    q, k, v = inputs(rng, "sm_80", 20)
    with pytest.raises(fc.SpecError, match="o has the wrong element type"):
        kernel(q, k, v, out=np.empty(q.shape, np.float32))


def odd_start(x):
    wide = np.zeros((*x.shape[:-1], x.shape[-1] + 1), x.dtype)
    wide[..., 1:] = x
    return wide[..., 1:]


def transposed(x):
    return np.ascontiguousarray(x.swapaxes(-1, -2)).swapaxes(-1, -2)


def every_second(x):
    wide = np.zeros((*x.shape[:-1], 2 * x.shape[-1]), x.dtype)
    wide[..., ::2] = x
    return wide[..., ::2]


def backwards(x):
    return np.ascontiguousarray(x[..., ::-1])[..., ::-1]


def rows_backwards(x):
    return np.ascontiguousarray(x[..., ::-1, :])[..., ::-1, :]


LAYOUTS = [odd_start, transposed, every_second, backwards, rows_backwards]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("lay", LAYOUTS)
def test_any_strides(rng, target, lay):
    q, k, v = inputs(rng, target, 16)
    kernel = kernel_for(target, head_dim=16)
    expected, expected_lse = kernel(q, k, v, return_lse=True)
    out, lse = kernel(lay(q), lay(k), lay(v), return_lse=True)
    np.testing.assert_array_equal(out, expected)
    np.testing.assert_array_equal(lse, expected_lse)
    place = lay(np.zeros_like(q))
    assert kernel(q, k, v, out=place) is place
    np.testing.assert_array_equal(place, kernel(q, k, v))


@pytest.mark.parametrize("target", TARGETS)
def test_rows_repeated_by_a_stride_of_zero(rng, target):
    q, k, v = inputs(rng, target, 16)
    one = np.broadcast_to(k[:, :, :, :1], k.shape)
    kernel = kernel_for(target, head_dim=16)
    np.testing.assert_array_equal(kernel(q, one, v), kernel(q, one.copy(), v))


def test_outputs_lie_as_q_does(rng):
    q, k, v = (random(rng, (2, 20, 4, 16), "bf16").swapaxes(1, 2) for _ in range(3))
    out = fc.attention(q, k, v)
    assert out.shape == (2, 4, 20, 16)
    assert out.swapaxes(1, 2).flags.c_contiguous
    values = np.ascontiguousarray(v[..., :8])
    assert fc.attention(q, k, values).swapaxes(1, 2).flags.c_contiguous
    np.testing.assert_array_equal(out, fc.attention(*map(np.ascontiguousarray, (q, k, v))))
    assert fc.attention(np.ascontiguousarray(q), k, v).flags.c_contiguous


@pytest.mark.parametrize("shape", [(0, 2, 5, 12), (2, 0, 5, 12), (2, 2, 0, 12)])
def test_nothing_to_compute(shape):
    q = np.zeros(shape, ml_dtypes.bfloat16)
    assert fc.sdpa(q, q, q).shape == shape


@pytest.mark.parametrize("scale", [-0.5, 0, 0.0, 1e-50, np.float32(0.25), 2])
@pytest.mark.parametrize("target", TARGETS)
def test_any_finite_scale(rng, target, scale):
    q, k, v = inputs(rng, target, 16)
    out, lse = kernel_for(target, head_dim=16)(q, k, v, scale=scale, return_lse=True)
    assert_close(out, lse, q, k, v, scale=float(scale))


@pytest.mark.parametrize("scale", [float("nan"), float("inf"), 1e39, "a", [1.0]])
def test_scales_that_are_no_number(rng, scale):
    with pytest.raises(fc.SpecError, match="scale") as caught:
        fc.sdpa(*inputs(rng, "sm_80", 16), scale=scale)
    assert caught.value.fix


class OnGpu:
    """What a copy is made of where it lies on a GPU: an array of CuPy."""


OnGpu.__module__ = "cupy"


def test_copies_are_queued_on_streams_and_on_nothing_else(monkeypatch):
    queued = []
    cuda = SimpleNamespace(ExternalStream=queued.append)
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=cuda))

    class Described:
        def __cuda_stream__(self):
            return 0, 7

    streams = [5, SimpleNamespace(cuda_stream=3), SimpleNamespace(ptr=4), Described()]
    for stream in streams:
        copies.on_stream(OnGpu(), stream)
    assert queued == [5, 3, 4, 7]

    class Wrong:
        def __cuda_stream__(self):
            return 7

    for stream in ["fast", 7.5, True, -1, 2**64, object(), [], "5", Wrong()]:
        with pytest.raises(fc.DeviceError, match="is no CUDA stream") as caught:
            copies.on_stream(OnGpu(), stream)
        assert "its handle as an int" in caught.value.fix


@pytest.mark.parametrize("scale", [np.inf, -np.inf, np.nan, 1e39, -1e300])
def test_a_scale_that_loses_every_score_says_so(rng, scale):
    q, k, v = inputs(rng, "sm_80", 64)
    with pytest.raises(fc.SpecError, match="scale = .*") as caught:
        kernel_for("sm_80", head_dim=64)(q, k, v, scale=scale)
    assert caught.value.why.endswith(", and every score would be infinite or NaN")
