"""Nested tensors of torch are the packed sequences that they hold."""

import pytest

import flashcore as fc

torch = pytest.importorskip("torch")

theirs = torch.nn.functional.scaled_dot_product_attention
pytestmark = pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")


def sequences(lengths, heads=2, dim=64, seed=0):
    numbers = torch.Generator().manual_seed(seed)
    return [torch.randn(n, heads, dim, generator=numbers).bfloat16() for n in lengths]


def nested(parts):
    """[batch, heads, j, dim]"""
    return torch.nested.nested_tensor(parts, layout=torch.jagged).transpose(1, 2)


def assert_each(out, qs, ks, vs, **options):
    assert out.is_nested
    assert out.layout == torch.jagged
    for one, q, k, v in zip(out.unbind(), qs, ks, vs, strict=True):
        exact = theirs(*(x.transpose(0, 1).double() for x in (q, k, v)), **options)
        assert one.shape == exact.shape
        if one.numel():
            assert (one.double() - exact).abs().max() < 0.02


@pytest.mark.parametrize("is_causal", [False, True])
def test_sdpa(is_causal):
    parts = sequences([5, 1, 90])
    q = nested(parts)
    out = fc.sdpa(q, q, q, is_causal=is_causal)
    assert out.shape == q.shape  # with the very same j
    assert_each(out, parts, parts, parts, is_causal=is_causal)


def test_keys_of_other_lengths_and_grouped_heads():
    qs, ks = sequences([5, 0, 9], heads=4), sequences([7, 3, 20], seed=1)
    vs = sequences([7, 3, 20], dim=32, seed=2)
    q, k, v = nested(qs), nested(ks), nested(vs)
    out = fc.sdpa(q, k, v, enable_gqa=True, scale=0.3)
    assert_each(out, qs, ks, vs, enable_gqa=True, scale=0.3)
    with pytest.raises(fc.SpecError, match="query has 4 heads and key has 2"):
        fc.sdpa(q, k, v)


@pytest.mark.parametrize("layout", ["bhsd", "bshd"])
def test_attention(layout):
    parts = sequences([5, 1, 90])
    q = nested(parts) if layout == "bhsd" else nested(parts).transpose(1, 2)
    out, lse = fc.attention(q, q, q, mask=fc.causal(), layout=layout, return_lse=True)
    assert out.shape == q.shape
    if layout == "bshd":
        out = out.transpose(1, 2)
    assert_each(out, parts, parts, parts, is_causal=True)
    assert lse.dtype == torch.float32
    for one, part in zip(lse.unbind(), parts, strict=True):
        _, exact = fc.attention(*(part[None],) * 3, mask=fc.causal(), layout="bshd",
                                return_lse=True)  # fmt: skip
        assert torch.equal(one, exact[0])


def test_parts_of_a_buffer():
    buffer = torch.randn(3, 10, 2, 64).bfloat16()
    starts, lengths = torch.tensor([0, 1, 2]), torch.tensor([3, 4, 5])
    q = torch.nested.narrow(buffer, 1, starts, lengths, layout=torch.jagged).transpose(1, 2)
    parts = [buffer[i, i : 2 * i + 3] for i in range(3)]
    assert_each(fc.sdpa(q, q, q), parts, parts, parts)


def test_a_projection_split_into_heads():
    flat = [part.flatten(1) for part in sequences([5, 9])]
    x = torch.nested.nested_tensor(flat, layout=torch.jagged)
    q = x.unflatten(-1, [2, 64]).transpose(1, 2)
    parts = sequences([5, 9])
    assert_each(fc.sdpa(q, q, q), parts, parts, parts)


def test_dense_lengths_of_nested_batches():
    parts = [torch.randn(n, 6, 64).bfloat16() for n in (2, 3)]  # j of [6, 64] each
    q = torch.nested.nested_tensor(parts, layout=torch.jagged)
    out = fc.sdpa(q, q, q)
    assert out.shape == q.shape
    for one, part in zip(out.unbind(), parts, strict=True):
        assert (one.double() - theirs(*(part.double(),) * 3)).abs().max() < 0.02


def test_autocast_and_gradients():
    parts = [part.float() for part in sequences([5, 9])]
    q = nested(parts)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = fc.sdpa(q, q, q)
    assert out.dtype == torch.bfloat16
    assert_each(out, parts, parts, parts)
    leaves = [part.requires_grad_() for part in sequences([5, 9])]
    wanted = torch.nested.as_nested_tensor(leaves, layout=torch.jagged).transpose(1, 2)
    found = torch.autograd.grad(fc.sdpa(wanted, wanted, wanted).values().sum(), leaves)
    for leaf, mine in zip(leaves, found, strict=True):
        one = leaf.detach().transpose(0, 1)[None].double().requires_grad_()
        (exact,) = torch.autograd.grad(theirs(one, one, one).sum(), one)
        assert (mine.double() - exact[0].transpose(0, 1)).abs().max() < 0.05


def test_a_compiled_call_runs():
    parts = sequences([5, 9])
    q = nested(parts)
    torch._dynamo.reset()
    compiled = torch.compile(lambda q: fc.sdpa(q, q, q), backend="eager")
    assert_each(compiled(q), parts, parts, parts)


def test_refusals():
    parts = sequences([5, 9])
    q, dense = nested(parts), torch.randn(2, 2, 9, 64).bfloat16()

    def why(call):
        with pytest.raises(fc.Error) as caught:
            call()
        assert caught.value.fix
        return caught.value.why

    assert why(lambda: fc.sdpa(q, dense, q)) == "k is not nested, and others are nested"
    assert "one array cannot say" in why(lambda: fc.sdpa(q, q, q, attn_mask=torch.ones(9, 9)))
    other = nested(sequences([9, 5]))
    assert why(lambda: fc.sdpa(q, q, other)) == "k and v have sequences of different lengths"
    assert why(lambda: fc.attention(q, q, q, layout="bshd")) == (
        "q has shape [2, 2, j, 64], with sequences of lengths j"
    )
    assert why(lambda: fc.attention(q, q, q, max_q_len=9)).startswith("max_q_len was given")
    kernel = fc.jit(fc.AttentionSpec(head_dim=64))
    assert why(lambda: kernel(q, q, q)) == "q is a nested tensor, and a kernel takes arrays"
