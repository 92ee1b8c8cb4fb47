"""Every way in which an array can reach a kernel."""

import sys

import numpy as np
import pytest

import fake_framework
import flashcore as fc
from reference import assert_close, random


@pytest.fixture(scope="module")
def kernel():
    return fc.jit(fc.AttentionSpec(head_dim=64, dtype="f16"))


@pytest.fixture
def qkv(rng):
    return [random(rng, (1, 2, 40, 64), "f16") for _ in range(3)]


@pytest.mark.parametrize("kind", ["Exchange", "FutureExchange", "Dlpack", "OldDlpack"])
def test_wrapped_arrays(kernel, qkv, kind):
    wrap = getattr(fake_framework, kind)
    out = np.zeros_like(qkv[0])
    wrapped = [wrap(x) for x in (*qkv, out)]
    references = [sys.getrefcount(x) for x in (*qkv, out)]
    kernel(*wrapped[:3], out=wrapped[3])
    assert_close(out, None, *qkv)
    assert [w.calls for w in wrapped] == [1, 1, 1, 1]
    assert [sys.getrefcount(x) for x in (*qkv, out)] == references  # nothing is kept


def test_frameworks_mix(kernel, qkv):
    q, k, v = qkv
    out = kernel(q, fake_framework.Exchange(k), fake_framework.Dlpack(v))
    assert isinstance(out, np.ndarray)
    assert_close(out, None, *qkv)


def test_strides_cross(kernel, rng):
    packed = random(rng, (2, 1, 3, 30, 64), "f16")
    q, k, v = (packed[:, :, i] for i in range(3))
    out = np.zeros(q.shape, q.dtype)
    kernel(*(fake_framework.Exchange(x) for x in (q, k, v)), out=out)
    assert_close(out, None, q, k, v)


def test_other_devices_are_refused(kernel, qkv):
    class Elsewhere(fake_framework.Exchange):
        device_type = 4

    with pytest.raises(fc.DeviceError, match="array k\n  why: it lies on a device of DLPack"):
        kernel(qkv[0], Elsewhere(qkv[1]), qkv[2])


def test_an_exporters_own_error_is_shown(kernel, qkv):
    with pytest.raises(BufferError, match="not exported"):
        kernel(qkv[0], fake_framework.OpenCl(qkv[1]), qkv[2])


def test_an_output_for_an_unknown_framework_has_to_be_given(kernel, qkv):
    with pytest.raises(fc.DeviceError, match="cannot allocate the output") as caught:
        kernel(fake_framework.Dlpack(qkv[0]), qkv[1], qkv[2])
    assert caught.value.fix == "pass out="


def test_an_output_has_memory_of_its_own(kernel, qkv):
    q, k, v = qkv
    with pytest.raises(fc.DeviceError) as caught:
        kernel(q, k, v, out=k)
    assert caught.value.what == "attention_forward: o shares memory with k"
    assert caught.value.why == "blocks write o while others still read k"
    together = np.zeros((1, 2, 80, 64), np.float16)
    with pytest.raises(fc.DeviceError, match="o shares memory with q"):
        kernel(together[:, :, :40], k, v, out=together[:, :, 39:79])
    together[:, :, :40] = q
    assert_close(kernel(together[:, :, :40], k, v, out=together[:, :, 40:]), None, q, k, v)


def test_an_output_may_lie_between_the_inputs(kernel, rng):
    packed = random(rng, (1, 40, 4, 2, 64), "f16").transpose(2, 0, 3, 1, 4)
    q, k, v = packed[:3].copy()
    assert_close(kernel(*packed[:3], out=packed[3]), None, q, k, v)
    assert (packed[:3] == (q, k, v)).all()


class TestTorch:
    @pytest.fixture
    def torch(self):
        return pytest.importorskip("torch")

    def tensors(self, torch, qkv):
        return [torch.from_numpy(x) for x in qkv]

    def test_on_the_cpu(self, torch, kernel, qkv):
        out, lse = kernel(*self.tensors(torch, qkv), return_lse=True)
        assert out.dtype == torch.float16
        assert lse.dtype == torch.float32
        assert_close(out.numpy(), lse.numpy(), *qkv)

    def test_bf16(self, torch, rng):
        tensors = [torch.randn(1, 1, 30, 64).bfloat16() for _ in range(3)]
        out = fc.attention(*tensors, mask=fc.causal("top_left"))
        expected = torch.nn.functional.scaled_dot_product_attention(
            *(x.double() for x in tensors), is_causal=True
        )
        assert out.dtype == torch.bfloat16
        assert (out.double() - expected).abs().max() < 0.02

    def test_sdpa_is_torchs(self, torch, rng):
        q = torch.randn(2, 4, 9, 64).half()
        k, v = torch.randn(2, 2, 2, 33, 64).half()
        for causal in (False, True):
            ours = fc.sdpa(q, k, v, is_causal=causal, enable_gqa=True)
            theirs = torch.nn.functional.scaled_dot_product_attention(
                q.double(), k.double(), v.double(), is_causal=causal, enable_gqa=True
            )
            assert (ours.double() - theirs).abs().max() < 0.005

    def test_a_gradient_is_not_lost_in_silence(self, torch, kernel, qkv):
        q, k, v = self.tensors(torch, qkv)
        q.requires_grad_()
        assert kernel(q, k, v).requires_grad
        with torch.no_grad():
            assert_close(kernel(q, k, v).numpy(), None, *qkv)
