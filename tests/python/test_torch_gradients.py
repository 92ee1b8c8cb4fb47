"""Gradients through torch's autograd, beside those of its own function in float64."""

import copy

import numpy as np
import pytest

import flashcore as fc
from flashcore import flash_attn as fa
from flashcore.kernels.attention_backward import AttentionBackward

torch = pytest.importorskip("torch")
DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


@pytest.fixture(params=DEVICES)
def device(request):
    return request.param


def leaves(device, *shapes, dtype=torch.bfloat16):
    torch.manual_seed(0)
    return [torch.randn(s, device=device, dtype=dtype).requires_grad_() for s in shapes]


def theirs(q, k, v, mask=None, is_causal=False, scale=None):
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    return torch.nn.functional.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, is_causal=is_causal, scale=scale
    )


def compare(call, reference, inputs):
    """The gradients of `call` for random gradients of its output: at most three times as far from
    those in float64 as those of torch in the inputs' dtype."""
    out = call(*inputs)
    torch.manual_seed(1)
    dout = torch.randn_like(out)
    found = torch.autograd.grad(out, inputs, dout)
    wide = [x.detach().double().requires_grad_() for x in inputs]
    exact = torch.autograd.grad(reference(*wide), wide, dout.double())
    plain = torch.autograd.grad(reference(*inputs), inputs, dout)
    for name, mine, wanted, rough in zip("qkv", found, exact, plain, strict=True):
        assert mine.dtype == inputs[0].dtype
        error = (mine.double() - wanted).abs().max().item()
        bound = 3 * (rough.double() - wanted).abs().max().item() + 1e-4 * wanted.abs().max().item()
        assert error <= bound, f"d{name}: error {error} over {bound}"


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("kv_heads", [1, 4])
def test_sdpa(device, is_causal, kv_heads):
    inputs = leaves(device, (2, 4, 50, 64), (2, kv_heads, 50, 64), (2, kv_heads, 50, 64))
    compare(
        lambda q, k, v: fc.sdpa(q, k, v, is_causal=is_causal, enable_gqa=True),
        lambda q, k, v: theirs(q, k, v, is_causal=is_causal),
        inputs,
    )


def test_attention_with_a_window(device):
    inputs = leaves(device, *[(1, 2, 70, 64)] * 3)
    at = torch.arange(70, device=device)
    visible = (at[:, None] >= at) & (at[:, None] - at <= 16)
    compare(
        lambda q, k, v: fc.attention(q, k, v, mask=fc.causal() & fc.sliding_window(16), scale=0.2),
        lambda q, k, v: theirs(q, k, v, mask=visible, scale=0.2),
        inputs,
    )


def test_a_kernel(device):
    kernel = fc.jit(fc.AttentionSpec(head_dim=64, layout="bshd"))
    inputs = leaves(device, *[(2, 33, 2, 64)] * 3)

    def reference(q, k, v):
        return theirs(*(x.transpose(1, 2) for x in (q, k, v))).transpose(1, 2)

    compare(kernel, reference, inputs)


def test_packed_sequences(device):
    starts = torch.tensor([0, 21, 21, 53], dtype=torch.int32, device=device)  # 21: odd
    inputs = leaves(device, *[(53, 2, 64)] * 3)

    def reference(q, k, v):
        parts = [
            theirs(*(x[None, a:b].transpose(1, 2) for x in (q, k, v)), is_causal=True)
            for a, b in [(0, 21), (21, 53)]
        ]
        return torch.cat([part.transpose(1, 2)[0] for part in parts])

    compare(
        lambda q, k, v: fc.attention(
            q, k, v, layout="thd", mask=fc.causal(), cu_seqlens_q=starts, max_q_len=32
        ),
        reference,
        inputs,
    )


def test_other_shapes(device):
    """Heads that are padded, dimensions in front, and one head of keys for all."""
    inputs = leaves(device, (2, 3, 2, 20, 40), (2, 3, 2, 20, 40), (2, 3, 2, 20, 40))
    compare(fc.sdpa, torch.nn.functional.scaled_dot_product_attention, inputs)
    inputs = leaves(device, (20, 100), (31, 100), (31, 100))
    compare(fc.sdpa, torch.nn.functional.scaled_dot_product_attention, inputs)


def test_the_gradients_of_some(device):
    q, k, v = leaves(device, *[(1, 2, 20, 64)] * 3)
    with torch.no_grad():
        k = k.clone()
    out = fc.sdpa(q, k, v)
    assert out.requires_grad
    out.sum().backward()  # a gradient of the output without strides
    assert q.grad is not None
    assert v.grad is not None
    assert k.grad is None


def test_a_layer_trains(device):
    torch.manual_seed(0)
    project = torch.nn.Linear(64, 192, device=device)
    x, wanted = torch.randn(2, 16, 64, device=device), torch.randn(2, 16, 64, device=device)

    def steps(layer, attend):
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.5)
        losses = []
        for _ in range(3):
            with torch.autocast(device, dtype=torch.bfloat16):
                q, k, v = (
                    part.unflatten(-1, (2, 32)).transpose(1, 2) for part in layer(x).chunk(3, -1)
                )
                out = attend(q, k, v).transpose(1, 2).flatten(-2)
            loss = torch.nn.functional.mse_loss(out.float(), wanted)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    theirs_of_it = steps(copy.deepcopy(project), torch.nn.functional.scaled_dot_product_attention)
    np.testing.assert_allclose(steps(project, fc.sdpa), theirs_of_it, rtol=5e-3)


def test_the_same_bits_every_time(device):
    inputs = leaves(device, *[(1, 2, 200, 64)] * 3)
    out = fc.sdpa(*inputs, is_causal=True)
    dout = torch.randn_like(out)
    first = torch.autograd.grad(out, inputs, dout, retain_graph=True)
    second = torch.autograd.grad(out, inputs, dout)
    for a, b in zip(first, second, strict=True):
        assert torch.equal(a, b)


@pytest.fixture
def orders(monkeypatch):
    """Of each backward pass, whether it was asked for the same bits at every call."""
    seen = []
    launch = AttentionBackward.__call__

    def recorded(self, *arrays, **options):
        seen.append(self._spec.deterministic)
        return launch(self, *arrays, **options)

    monkeypatch.setattr(AttentionBackward, "__call__", recorded)
    return seen


def attend_in_four_ways(x, **given):
    """Each call with [1, 1, length, 64], and the gradient of its output asked for."""
    turned = x.transpose(1, 2)
    starts = torch.tensor([0, x.shape[2]], dtype=torch.int32, device=x.device)
    rows, length = turned[0], x.shape[2]
    outputs = [
        fc.sdpa(x, x, x, **given),
        fc.attention(x, x, x, **given),
        fa.flash_attn_func(turned, turned, turned, **given),
        fa.flash_attn_varlen_func(*[rows] * 3, *[starts] * 2, *[length] * 2, **given),
    ]
    for out in outputs:
        out.sum().backward()


def test_callers_say_whether_gradients_may_be_added_up_in_any_order(device, orders):
    (x,) = leaves(device, (1, 1, 20, 64))
    attend_in_four_ways(x)
    assert orders == [True, True, False, False]  # the last two as the flash-attn package has it
    for order in (False, True):
        orders.clear()
        attend_in_four_ways(x, deterministic=order)
        parts = torch.nested.nested_tensor([x.detach()[0].transpose(0, 1)] * 2, layout=torch.jagged)
        nested = parts.transpose(1, 2).requires_grad_()
        fc.sdpa(nested, nested, nested, deterministic=order).values().sum().backward()
        fc.jit(fc.AttentionSpec(head_dim=64, deterministic=order))(x, x, x).sum().backward()
        assert orders == [order] * 6
    with pytest.raises(fc.Error, match="deterministic"):
        fc.sdpa(x, x, x, deterministic="no")


@pytest.mark.skipif("cuda" not in DEVICES, reason="needs a GPU")
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("kv_heads", [1, 4])
@pytest.mark.parametrize("head_dim", [56, 64])
def test_gradients_in_any_order_on_a_gpu(is_causal, kv_heads, head_dim):
    length = 4500 if is_causal else 1000
    shapes = [(1, heads, length, head_dim) for heads in (4, kv_heads, kv_heads)]
    mask = fc.causal() if is_causal else None
    compare(
        lambda q, k, v: fc.attention(q, k, v, mask=mask, deterministic=False),
        lambda q, k, v: theirs(q, k, v, is_causal=is_causal),
        leaves("cuda", *shapes),
    )


def refusal(call, kind=fc.Error):
    with pytest.raises(kind) as caught:
        call()
    return str(caught.value)


def test_what_is_refused(device):
    q, k, v = leaves(device, *[(1, 2, 20, 64)] * 3)
    wide = [x.detach().float().requires_grad_() for x in (q, k, v)]
    assert "backward of attention with dtype f32" in refusal(lambda: fc.attention(*wide))
    out, lse = fc.attention(q, k, v, return_lse=True)
    assert "the gradient of attention's log-sum-exp" in refusal(
        lambda: (out.float().sum() + lse.sum()).backward()
    )
    assert "out= while torch records gradients" in refusal(
        lambda: fc.attention(q, k, v, out=torch.empty_like(q))
    )
    slopes = torch.ones(2, device=device, requires_grad=True)
    asked = fc.attention(q, k, v, return_lse=True)[0]
    dout = torch.ones_like(asked, requires_grad=True)
    (twice,) = torch.autograd.grad(asked, q, dout, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        twice.sum().backward()

    def visible(b, h, q_idx, kv_idx):
        return q_idx - kv_idx < slopes[h]

    assert "it requires a gradient, and only those of q, k and v" in refusal(
        lambda: fc.attention(q, k, v, mask=visible)
    )
