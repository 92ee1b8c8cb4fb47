"""Tensors of torch that are more than memory: taken for what they are, or refused in words."""

import threading

import numpy as np
import pytest

import flashcore as fc

torch = pytest.importorskip("torch")


@pytest.fixture(scope="module")
def kernel():
    return fc.jit(fc.AttentionSpec(head_dim=64))


@pytest.fixture
def q():
    torch.manual_seed(0)
    return torch.randn(1, 2, 20, 64).bfloat16()


def refusal(call):
    with pytest.raises((fc.DeviceError, fc.SpecError)) as caught:
        call()
    assert caught.value.fix
    return f"{caught.value.what}: {caught.value.why}"


def test_a_shape_without_memory_gives_one(kernel, q):
    meta = q.to("meta")
    value = torch.empty(1, 2, 30, 64, dtype=torch.bfloat16, device="meta")
    out, lse = kernel(meta, value, value, return_lse=True)
    assert out.device.type == lse.device.type == "meta"
    assert (out.shape, out.dtype) == ((1, 2, 20, 64), torch.bfloat16)
    assert (lse.shape, lse.dtype) == ((1, 2, 20), torch.float32)
    masked = fc.sdpa(meta, value, value, attn_mask=torch.ones(20, 30, device="meta"))
    assert masked.shape == (1, 2, 20, 64)


def test_shapes_without_memory_are_checked(kernel, q):
    meta = q.to("meta")
    assert "dimension 1 of k is 1" in refusal(lambda: kernel(meta, meta[:, :1], meta))
    assert "k is on no device (it has a shape and no memory)" in refusal(
        lambda: kernel(q, meta, meta)
    )


def test_a_lazy_negation_is_not_read_past(q):
    why = "it is negated lazily: its memory holds the opposite numbers"
    kernel, half = fc.jit(fc.AttentionSpec(head_dim=64, dtype="f16")), q.half()
    imaginary = torch.zeros(half.shape, dtype=torch.complex32).conj().imag
    for _ in range(2):  # the second time past Python, were it not negated
        kernel(half, half, half)
        assert refusal(lambda: kernel(half, imaginary, half)) == f"array k: {why}"
    # Nobody asks tensors of bfloat16: torch has no complex numbers of which they are parts.
    assert torch.bfloat16.to_complex().to_real() is not torch.bfloat16
    mask = torch.randn(20, 20, dtype=torch.complex64).conj().imag
    assert refusal(lambda: fc.sdpa(q, q, q, attn_mask=mask)) == f"array bias: {why}"
    fc.sdpa(q, q, q, attn_mask=mask.resolve_neg())


def test_what_shows_no_memory_says_what_it_is(kernel, q):
    batch = torch.stack([q, q])
    assert "array q: torch.func.vmap batches it" in refusal(
        lambda: torch.func.vmap(lambda x: kernel(x, x, x))(batch)
    )
    assert "array k: its layout is torch.sparse_coo" in refusal(lambda: kernel(q, q.to_sparse(), q))


def test_gradients_are_not_lost_in_silence(kernel, q):
    wanted = q.clone().requires_grad_()
    for call in (lambda: kernel(q, wanted, q), lambda: fc.sdpa(q, wanted, q)):
        assert torch.autograd.grad(call().float().sum(), wanted)[0].shape == q.shape
    assert "array q: a transform of torch.func has wrapped it" in refusal(
        lambda: torch.func.grad(lambda x: kernel(x, x, x).float().sum())(q)
    )
    lens = torch.tensor([3.0, 4.0], requires_grad=True)
    with_bias = fc.AttentionSpec(head_dim=64, mask=lambda b, h, q_idx, kv_idx: lens[h] > kv_idx)
    assert "it requires a gradient, and this kernel computes none for it" in refusal(
        lambda: fc.jit(with_bias)(q, q, q)
    )
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            assert torch.equal(kernel(q, wanted, q), kernel(q, q, q))


def test_parameters_and_tensors_of_inference_mode(kernel, q):
    parameter = torch.nn.Parameter(q, requires_grad=False)
    with torch.inference_mode():
        made = q.clone()
    assert torch.equal(kernel(parameter, made, made), kernel(q, q, q))


def test_threads_call_one_kernel(kernel, q):
    expected, results = kernel(q, q, q), []
    threads = [threading.Thread(target=lambda: results.append(kernel(q, q, q))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 4
    assert all(torch.equal(one, expected) for one in results)


def test_numpy_and_torch_mix(kernel, q):
    half = fc.jit(fc.AttentionSpec(head_dim=64, dtype="f16"))
    out = half(q.half(), q.half().numpy(), q.half().numpy())
    assert torch.equal(out, half(q.half(), q.half(), q.half()))
    assert isinstance(half(q.half().numpy(), q.half(), q.half()), np.ndarray)
