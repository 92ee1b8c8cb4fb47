"""Call sites and functions written for FlexAttention, beside FlexAttention itself on the CPU."""

import functools

import numpy as np
import pytest

import flashcore as fc

torch = pytest.importorskip("torch")
flex = pytest.importorskip("torch.nn.attention.flex_attention")

B, H, S, D = 2, 4, 64, 16
INF = float("inf")
torch.manual_seed(0)
q, k, v = torch.randn(3, B, H, S, D, dtype=torch.bfloat16)


def exact(score_mod=None, mask_mod=None, q=q, k=k, v=v, **options):
    """What FlexAttention computes in double precision, uncompiled."""
    block_mask = mask_mod
    if callable(mask_mod):
        block_mask = flex.create_block_mask(mask_mod, q.shape[0], q.shape[1], q.shape[2],
                                            k.shape[2], device="cpu")  # fmt: skip
    wide = (x.double() for x in (q, k, v))
    return flex.flex_attention(*wide, score_mod=score_mod, block_mask=block_mask, **options)


def close(out, expected, atol=2e-2):
    torch.testing.assert_close(out.double(), expected.double(), atol=atol, rtol=2e-2)


def visible(condition):
    return lambda score, *at: torch.where(condition(*at), score, -INF)


def causal(b, h, m, n):
    return m >= n


HEADS, BATCHES, POSITIONS = torch.randn(H), torch.randn(B), torch.randn(S)
PAIRS = torch.randn(B, H, S, S, dtype=torch.bfloat16)
RELATIVE = torch.randn(2 * S)
SEQUENCES = torch.arange(S) >= S // 2
DOCUMENTS = torch.arange(S, dtype=torch.int32) // 24
TWO_WAYS = torch.tensor([10, 40], dtype=torch.int32)
ROWS = torch.randn(B, 8)
POINTS = torch.randn(S, 3)
ONE, ZERO = torch.ones((), dtype=torch.int32), torch.tensor(0)
LENGTHS = torch.arange(B, dtype=torch.int32) + 1
SIDE = 8


def all_dimensions(score, b, h, m, n):
    score = score + POSITIONS[m]
    score = score + BATCHES[b]
    return score + HEADS[h]


def neighbours(b, h, m, n):
    near = (m / SIDE - n / SIDE).abs() <= 3
    return near | ((m % SIDE - n % SIDE).abs() <= 3)


def both_ways(b, h, m, n):
    many = TWO_WAYS[b]
    return ((m <= many) & (n <= many)) | (m >= n)


def of_rel_bias(score, b, h, m, n):
    return score + (m - n)


SCORES = {
    "identity": flex._identity,
    "times two": lambda s, b, h, m, n: s * 2,
    "squared": lambda s, b, h, m, n: s * s,
    "causal": visible(causal),
    "inverse causal": visible(lambda b, h, m, n: m <= n),
    "relative bias": of_rel_bias,
    "relative and causal": lambda s, b, h, m, n: torch.where(m >= n, s + (m - n), -INF),
    "alibi": lambda s, b, h, m, n: s + (n - m) * torch.exp2(-((h + 1) * 8.0 / H)),
    "head offset": lambda s, b, h, m, n: s * HEADS[h],
    "documents": visible(lambda b, h, m, n: (m >= n) & (DOCUMENTS[m] == DOCUMENTS[n])),
    "indices one by one": lambda s, b, h, m, n: s + PAIRS[b][h, m][n],
    "a constant index first": lambda s, b, h, m, n: s + PAIRS[0][h, m][n],
    "an index that is a tensor": lambda s, b, h, m, n: s + PAIRS[b][h][ZERO, n],
    "odd keys skipped": visible(lambda b, h, m, n: n % 2 == 0),
    "composed": lambda s, *at: visible(lambda b, h, m, n: m <= n)(of_rel_bias(s, *at), *at),
    "all dimensions": all_dimensions,
    "conditions that are equal": visible(lambda b, h, m, n: SEQUENCES[m] == SEQUENCES[n]),
    "conditions that differ": visible(lambda b, h, m, n: (SEQUENCES[m] != SEQUENCES[n]) | (m == n)),
    "a bias by head": lambda s, b, h, m, n: s + PAIRS[0, h, m, n],
    "a bias of all": lambda s, b, h, m, n: s + PAIRS[b, h, m, n],
    "a table by distance": lambda s, b, h, m, n: s + RELATIVE[(m - n) + S],
    "partly both ways": visible(both_ways),
    "an image": visible(neighbours),
    "floor division": lambda s, b, h, m, n: s - m // (1 + n),
    "silu": lambda s, b, h, m, n: torch.nn.functional.silu(s),
    "by the score": lambda s, b, h, m, n: torch.where(s <= LENGTHS[b], s, -INF),
    "a number": lambda s, b, h, m, n: s + ONE,
    "a sum": lambda s, b, h, m, n: s + ROWS[b].sum(dim=-1),
    "distances": lambda s, b, h, m, n: s - ((POINTS[m] - POINTS[n]) ** 2).sum(),
    "trigonometry": lambda s, b, h, m, n: torch.sin(torch.cos(s)) + torch.tan(b),
    "more trigonometry": lambda s, b, h, m, n: torch.cos(s) * torch.sin(s) + torch.tan(b),
    "functions": lambda s, b, h, m, n: torch.tanh(s / 5) * 5 + torch.sigmoid(s) - torch.relu(s),
}
MASKS = {
    "nothing": flex.noop_mask,
    "causal": causal,
    "inverse causal": lambda b, h, m, n: m <= n,
    "window": flex.and_masks(causal, lambda b, h, m, n: m - n <= 9),
    "either": flex.or_masks(causal, lambda b, h, m, n: n < TWO_WAYS[b]),
    "both ways": both_ways,
    "image": neighbours,
    "documents": lambda b, h, m, n: DOCUMENTS[m] == DOCUMENTS[n],
}


@pytest.mark.parametrize("name", SCORES)
def test_scores(name):
    score = SCORES[name]
    out = fc.flex_attention(q, k, v, score)
    assert out.dtype == q.dtype
    close(out, exact(score), 6e-2 if name == "squared" else 2e-2)


@pytest.mark.parametrize("name", MASKS)
def test_masks_and_block_masks(name):
    mask = MASKS[name]
    expected = exact(mask_mod=mask)
    blocks = flex.create_block_mask(mask, B, H, S, S, device="cpu", BLOCK_SIZE=16)
    for given in (mask, blocks):
        close(fc.flex_attention(q, k, v, block_mask=given), expected)
        close(fc.attention(q, k, v, mask=given), expected)
    assert fc.AttentionSpec(head_dim=D, mask=blocks) == fc.AttentionSpec(head_dim=D, mask=mask)


def test_block_masks_combine():
    blocks = flex.create_block_mask(causal, None, None, S, S, device="cpu")
    window = fc.sliding_window(9, None, "top_left")
    expected = exact(mask_mod=MASKS["window"])
    for mask in (window & blocks, blocks & window):
        close(fc.attention(q, k, v, mask=mask), expected)
    assert (fc.full() | blocks).text == "true"


def test_block_masks_that_have_no_function_are_refused():
    blocks = flex.create_block_mask(causal, None, None, S, S, device="cpu", BLOCK_SIZE=16)
    with pytest.raises(fc.SpecError, match="part of another BlockMask"):
        fc.flex_attention(q, k, v, block_mask=blocks[:, :, 0])
    alone = flex.BlockMask.from_kv_blocks(
        blocks.kv_num_blocks, blocks.kv_indices, BLOCK_SIZE=16, seq_lengths=(S, S)
    )
    with pytest.raises(fc.SpecError, match="its blocks hide keys"):
        fc.flex_attention(q, k, v, block_mask=alone)
    with pytest.raises(fc.SpecError, match="score=BlockMask"):
        fc.attention(q, k, v, score=blocks)
    with pytest.raises(fc.SpecError, match="sink=BlockMask"):
        fc.attention(q, k, v, sink=blocks)


def test_the_other_arguments():
    few = k[:, :2], v[:, :2]
    options = {"scale": 0.3, "enable_gqa": True}
    expected, lse = exact(SCORES["alibi"], causal, q, *few, return_lse=True, **options)
    blocks = flex.create_block_mask(causal, None, None, S, S, device="cpu")
    out, found = fc.flex_attention(
        q, *few, SCORES["alibi"], blocks, 0.3, True, True, {"BLOCK_M": 64, "num_stages": 2}
    )
    close(out, expected)
    close(found, lse)
    out, aux = fc.flex_attention(
        q, *few, SCORES["alibi"], blocks, **options, return_aux=flex.AuxRequest(lse=True)
    )
    assert isinstance(aux, flex.AuxOutput)
    assert aux.max_scores is None
    close(aux.lse, lse)
    _, aux = fc.flex_attention(q, k, v, return_aux=flex.AuxRequest())
    assert aux == flex.AuxOutput()
    for message, given in {
        "has 4 heads and key has 2": {"key": few[0], "value": few[1]},
        "max_scores=True": {"return_aux": flex.AuxRequest(max_scores=True)},
        "torch takes one of them": {"return_aux": flex.AuxRequest(lse=True), "return_lse": True},
        "options are a dictionary": {"kernel_options": ["BLOCK_M"]},
    }.items():
        with pytest.raises(fc.SpecError, match=message):
            fc.flex_attention(**({"query": q, "key": k, "value": v} | given))


def test_rows_that_see_nothing():
    def none_early(b, h, m, n):
        return (m >= 5) & (m >= n)

    out, lse = fc.flex_attention(q, k, v, block_mask=none_early, return_lse=True)
    expected, expected_lse = exact(mask_mod=none_early, return_lse=True)
    close(out, expected)
    close(lse, expected_lse)


def test_layers_objects_and_partials():
    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("slopes", torch.randn(H))

        def forward(self, score, b, h, m, n):
            return score * self.slopes[h]

    layer = Layer()
    close(fc.flex_attention(q, k, v, layer), exact(layer.forward))
    close(fc.flex_attention(q, k, v, layer.forward), exact(layer.forward))
    scaled = functools.partial(lambda factor, s, b, h, m, n: s * factor, 0.25)
    close(fc.flex_attention(q, k, v, scaled), exact(scaled))
    parameter = torch.nn.Parameter(torch.randn(H))
    with torch.no_grad():
        mod = lambda s, b, h, m, n: s * parameter[h]  # noqa: E731
        close(fc.flex_attention(q, k, v, mod), exact(mod))


def test_composed_scores():
    slopes = np.linspace(0.1, 0.4, H).astype(np.float32)

    def capped_bias(s, b, h, m, n):
        return 3 * torch.tanh((s + (n - m) * torch.from_numpy(slopes)[h]) / 3)

    expected = exact(capped_bias)
    alibi, softcap = fc.alibi(slopes), fc.softcap(3)

    def cap(s, b, h, m, n):
        return 3 * torch.tanh(s / 3)

    def shift(s, b, h, m, n):
        d = n - m
        return s + d * slopes[h]

    for score in (softcap @ alibi, [alibi, softcap], (shift, cap), cap @ alibi, softcap @ shift):
        close(fc.attention(q, k, v, score=score), expected)
    assert fc.AttentionSpec(head_dim=D, score=[alibi, softcap]).score == softcap @ alibi
    names = fc.Score("t0 = score * 2; t0 + t0 * t0") @ fc.Score("t0 = score + 1; t0 * t0")
    halved = [names, fc.Score("score / 40")]
    close(
        fc.attention(q, k, v, score=halved),
        exact(lambda s, b, h, m, n: (2 * (s + 1) ** 2 + (2 * (s + 1) ** 2) ** 2) / 40),
        5e-2,
    )
    assert fc.AttentionSpec(head_dim=D, score=names @ names @ names).why_not("sm_80") == []
    one, other = (np.linspace(0, x, H) for x in (1, 2))
    twice = fc.bias(one[:, None, None]) @ fc.bias(other[:, None, None])
    assert [tensor.name for tensor in twice.tensors] == ["bias", "bias_2"]
    assert (fc.attention(q, k, v, score=twice) == fc.attention(q, k, v)).float().mean() > 0.9


def test_windows_of_flash_attn():
    assert fc.sliding_window(-1, -1).text == "true"
    assert fc.sliding_window(8, -1) == fc.sliding_window(8, None)
    assert fc.sliding_window(-1, 0) == fc.sliding_window(None, 0)
    with pytest.raises(fc.SpecError, match="left of a sliding window = -2"):
        fc.sliding_window(-2)


def test_rows_of_captured_arrays():
    table = np.arange(12, dtype=np.float32).reshape(4, 3)
    weights = np.array([1.0, 2.0, 3.0])
    flags = table > 5

    def text(function):
        return fc.AttentionSpec(head_dim=D, score=function).score.text

    assert text(lambda s, b, h, m, n: s + table[h, :].sum()) == (
        "score + (table[h, 0] + table[h, 1] + table[h, 2])"
    )
    assert text(lambda s, b, h, m, n: s + table[h].mean()).endswith("/ 3")
    assert "max(max(" in text(lambda s, b, h, m, n: s + np.max(table[h]))
    assert "weights[2]" in text(lambda s, b, h, m, n: s + (table[h] * weights).sum())
    assert "weights[2]" in text(lambda s, b, h, m, n: s + table[h] @ weights)
    some = fc.AttentionSpec(
        head_dim=D, mask=lambda b, h, m, n: flags[m].any() & (table[n] < 9).all()
    )
    assert some.mask.text.count("flags[") == 3
    assert text(lambda s, b, h, m, n: s + sum(table[h])).count("table[") == 3
    wide = np.zeros((4, 65))
    with pytest.raises(fc.SpecError, match="a row of 65 elements"):
        text(lambda s, b, h, m, n: s + wide[h].sum())
    with pytest.raises(fc.SpecError, match="still an array of 1 dimensions"):
        text(lambda s, b, h, m, n: s + table[h])
    with pytest.raises(fc.SpecError, match="rows of 2 and 3 elements"):
        text(lambda s, b, h, m, n: s + (table[h] * table[h][:2]).sum())


def test_an_exception_of_the_function_itself():
    def broken(b, h, m, n):
        raise KeyError("no such layer")

    with pytest.raises(fc.SpecError) as error:
        fc.flex_attention(q, k, v, block_mask=broken)
    assert error.value.what == "the mask broken"
    assert error.value.why == "KeyError: 'no such layer'"
    assert error.value.file == __file__
    assert isinstance(error.value.__cause__, KeyError)
    assert not isinstance(error.value, fc.InternalError)
    for wrong in ([causal], 3, "causal"):
        with pytest.raises(fc.SpecError, match="it is no Mask and no function"):
            fc.attention(q, k, v, mask=wrong)
