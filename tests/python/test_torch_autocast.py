"""Under autocast calls cast as torch's own function does."""

import pytest

import flashcore as fc

torch = pytest.importorskip("torch")

theirs = torch.nn.functional.scaled_dot_product_attention


def random(*shape, dtype=torch.float32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(dtype)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("given", [torch.float32, torch.bfloat16, torch.float16])
def test_inputs_are_cast(given, dtype):
    q = random(1, 2, 20, 64, dtype=given)
    with torch.autocast("cpu", dtype=dtype):
        expected = theirs(q, q, q)
        for out in (fc.sdpa(q, q, q), fc.attention(q, q, q)):
            assert out.dtype == expected.dtype == dtype
            assert (out.float() - expected.float()).abs().max() < 0.02


def test_mixed_inputs_and_a_mask_are_cast():
    q, v = random(1, 2, 20, 64), random(1, 2, 20, 64, dtype=torch.bfloat16)
    mask = random(20, 20)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = fc.sdpa(q, q, v, attn_mask=mask)
        assert (out.float() - theirs(q, q, v, attn_mask=mask).float()).abs().max() < 0.02
        seen = fc.sdpa(q, q, v, attn_mask=mask > 0)
        assert (seen.float() - theirs(q, q, v, attn_mask=mask > 0).float()).abs().max() < 0.02
        assert torch.equal(fc.sdpa(q, q, v, attn_mask=(mask > 0).numpy()), seen)


def test_of_another_device_or_off_it_casts_nothing():
    q = random(1, 2, 20, 64)
    with torch.autocast("cpu", enabled=False):
        assert fc.sdpa(q, q, q).dtype == torch.float32
    half = q.half()
    torch.set_autocast_enabled("cuda", True)  # torch.autocast asks for a GPU first
    try:
        assert fc.sdpa(half, half, half).dtype == torch.float16
    finally:
        torch.set_autocast_enabled("cuda", False)


def test_an_output_and_options_are_taken():
    q = random(1, 2, 20, 64)
    out = torch.empty(1, 2, 20, 64, dtype=torch.bfloat16)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        given, lse = fc.attention(q, q, q, mask=fc.causal(), out=out, return_lse=True)
    assert given is out
    expected = fc.attention(*(q.bfloat16(),) * 3, mask=fc.causal(), return_lse=True)
    assert torch.equal(out, expected[0])
    assert torch.equal(lse, expected[1])


def test_a_kernel_has_its_dtype():
    q = random(1, 2, 20, 64)
    kernel = fc.jit(fc.AttentionSpec(head_dim=64))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        with pytest.raises(fc.SpecError, match="it holds f32, the kernel was compiled for bf16"):
            kernel(q, q, q)
        kernel(*(q.bfloat16(),) * 3)


def test_in_a_compiled_graph():
    q = random(1, 2, 20, 64)
    compiled = torch.compile(lambda q: fc.sdpa(q, q, q), backend="aot_eager", fullgraph=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(compiled(q), fc.sdpa(q, q, q))
