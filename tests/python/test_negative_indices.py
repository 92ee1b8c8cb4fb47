"""Computed indices that are negative count from the end, as NumPy's and torch's do."""

import ml_dtypes
import numpy as np
import pytest

import flashcore as fc
import reference
from flashcore.arrays import Captured
from flashcore.specs.expression import Score

rng = np.random.default_rng(0)
B, H, Q, K, D = 2, 2, 50, 70, 64
TARGETS = ["sm_80", "sm_90a"]

table = rng.standard_normal((H, 96)).astype(np.float32)
steps = rng.integers(-2, 3, 24).astype(np.int32)
ids = rng.integers(0, 3, K).astype(np.int64)
pages = rng.integers(-8, 8, K).astype(np.int64)
cube = rng.standard_normal((B, 12, 10)).astype(np.float64)


def by_distance(score, b, h, q_idx, kv_idx):
    return score + table[h, q_idx - kv_idx]


def by_block(score, b, h, q_idx, kv_idx):
    return score * 0.5 + table[:, 3:40][h, (kv_idx - q_idx) // 4]


def by_page(score, b, h, q_idx, kv_idx):
    return score + table[h, pages[kv_idx]]


def of_two(score, b, h, q_idx, kv_idx):
    return score + cube[b, q_idx % 12 - 12, 4 - kv_idx % 10]


def the_last(score, b, h, q_idx, kv_idx):
    return score + table[h, -1] * (q_idx - kv_idx)


def seen_by_distance(b, h, q_idx, kv_idx):
    return steps[(q_idx - kv_idx) // 8] >= 0


def seen_by_rows(b, h, q_idx, kv_idx):
    return ids[q_idx - 5] == ids[kv_idx - 9]


def seen_by_rows_and_order(b, h, q_idx, kv_idx):
    return (ids[q_idx - 30] == ids[kv_idx]) & (q_idx >= kv_idx) | (kv_idx < 2)


SCORES = [by_distance, by_block, by_page, of_two, the_last]
MASKS = [seen_by_distance, seen_by_rows, seen_by_rows_and_order]


def inputs(dtype):
    return [rng.standard_normal((B, H, n, D)).astype(reference.DTYPES[dtype]) for n in (Q, K, K)]


def hold(out, exact, low):
    bound = 2 * np.abs(low - exact).max() + 1e-3
    assert np.abs(out.astype(float) - exact).max() < bound


@pytest.mark.parametrize(
    ("part", "target"),
    [*((part, target) for part in SCORES + MASKS for target in TARGETS), (by_distance, "sm_75")],
)
def test_they_count_from_the_end(part, target):
    dtype = "f16" if target == "sm_75" else "bf16"
    role = "score" if part in SCORES else "mask"
    q, k, v = inputs(dtype)
    kernel = fc.jit(fc.AttentionSpec(head_dim=D, dtype=dtype, **{role: part}), target=target)
    exact, _ = reference.attention(q, k, v, **{role: part})
    low, _ = reference.attention(q, k, v, **{role: part}, low_precision=True)
    hold(kernel(q, k, v), exact, low)
    np.testing.assert_array_equal(kernel(q, k, v, checked=True), kernel(q, k, v))


def test_as_torch_computes_them():
    torch = pytest.importorskip("torch")
    bias = torch.randn(H, 96, dtype=torch.float64, generator=torch.manual_seed(0))

    def score(score, b, h, q_idx, kv_idx):
        return score + bias[h, torch.div(q_idx - kv_idx, 2, rounding_mode="floor")]

    q, k, v = (torch.randn(B, H, n, D).bfloat16() for n in (Q, K, K))
    exact = q.double() @ k.double().transpose(-1, -2) / D**0.5
    at = torch.meshgrid(*map(torch.arange, exact.shape), indexing="ij")
    exact = score(exact, *at).softmax(-1) @ v.double()
    assert (fc.attention(q, k, v, score=score).double() - exact).abs().max() < 2e-2


def test_one_that_leaves_at_the_beginning_reads_zero_and_is_found():
    short = np.arange(1.0, 11.0)

    def score(score, b, h, q_idx, kv_idx):
        return score + short[q_idx - kv_idx - 3]

    q = rng.standard_normal((1, 1, 12, D)).astype(ml_dtypes.bfloat16)

    def of_numpy(score, b, h, q_idx, kv_idx):
        at = q_idx - kv_idx - 3
        return score + np.where(at >= -10, short[np.clip(at, -10, 9)], 0)

    exact, _ = reference.attention(q, q, q, score=of_numpy)
    low, _ = reference.attention(q, q, q, score=of_numpy, low_precision=True)
    hold(fc.attention(q, q, q, score=score), exact, low)
    with pytest.raises(fc.SpecError) as error:
        fc.attention(q, q, q, score=score, checked=True)
    assert "q_idx - kv_idx - 3, is -11 at b = 0, h = 0, q_idx = 0, kv_idx = 8" in error.value.why
    assert "an index from -10 to 9" in error.value.fix


def test_an_array_of_another_length_counts_from_its_own_end():
    kernel = fc.jit(fc.AttentionSpec(head_dim=D, score=the_last))
    q, k, v = inputs("bf16")
    longer = np.concatenate([table, table[:, :7]], axis=1)

    def score(score, b, h, q_idx, kv_idx):
        return score + longer[h, -1] * (q_idx - kv_idx)

    out = kernel(q, k, v, captured={"table": longer})
    np.testing.assert_array_equal(out, fc.attention(q, k, v, score=score))


@pytest.mark.parametrize(
    ("index", "text"),
    [
        (lambda b, h, i, j: i, "q_idx"),
        (lambda b, h, i, j: i + j * 2, "q_idx + kv_idx * 2"),
        (lambda b, h, i, j: (i + 3) // 16, "(q_idx + 3) // 16"),
        (lambda b, h, i, j: (i - j) % 8, "(q_idx - kv_idx) % 8"),
        (lambda b, h, i, j: abs(i - j), "abs(q_idx - kv_idx)"),
        (lambda b, h, i, j: fc.maximum(i - j, 0), "max(q_idx - kv_idx, 0)"),
        (lambda b, h, i, j: fc.minimum(fc.maximum(i - j, 0), 9), "min(max(q_idx - kv_idx, 0), 9)"),
        (lambda b, h, i, j: np.clip(i - j, 0, 9), "min(max(q_idx - kv_idx, 0), 9)"),
        (lambda b, h, i, j: fc.where(i > j, i, j), "where(q_idx > kv_idx, q_idx, kv_idx)"),
        (lambda b, h, i, j: fc.sqrt(i).int(), "int(sqrt(q_idx))"),
        (lambda b, h, i, j: (i > j).int(), "int(q_idx > kv_idx)"),
        (lambda b, h, i, j: i - j, "wrap(q_idx - kv_idx)"),
        (lambda b, h, i, j: i - 1, "wrap(q_idx - 1)"),
        (lambda b, h, i, j: i + -1, "wrap(q_idx + (-1))"),
        (lambda b, h, i, j: -i, "wrap(-q_idx)"),
        (lambda b, h, i, j: (i - j) // 2, "wrap((q_idx - kv_idx) // 2)"),
        (lambda b, h, i, j: i % -4, "wrap(q_idx % (-4))"),
        (lambda b, h, i, j: fc.minimum(i - j, 9), "wrap(min(q_idx - kv_idx, 9))"),
        (lambda b, h, i, j: pages[i], "wrap(pages[q_idx])"),
        (lambda b, h, i, j: fc.where(i > j, i, -1), "wrap(where(q_idx > kv_idx, q_idx, -1))"),
    ],
)
def test_one_that_cannot_be_negative_costs_nothing(index, text):
    spec = fc.AttentionSpec(
        head_dim=D, score=lambda s, b, h, q_idx, kv_idx: s + steps[index(b, h, q_idx, kv_idx)]
    )
    assert spec.score.text == f"score + steps[{text}]"


def test_masks_that_are_joined_keep_it():
    joined = fc.AttentionSpec(head_dim=D, mask=fc.causal() & seen_by_rows).mask
    assert "ids[wrap(q_idx - 5)] == ids[wrap(kv_idx - 9)]" in joined.text
    q, k, v = inputs("bf16")

    def both(b, h, q_idx, kv_idx):
        return (kv_idx <= q_idx + K - Q) & seen_by_rows(b, h, q_idx, kv_idx)

    exact, _ = reference.attention(q, k, v, mask=both)
    low, _ = reference.attention(q, k, v, mask=both, low_precision=True)
    hold(fc.attention(q, k, v, mask=joined), exact, low)


def test_in_a_text_it_stands_around_an_index():
    tensor = Captured("steps", "i32", 1)
    written = Score("score + steps[wrap(q_idx - kv_idx)] + steps[kv_idx - 3]", [tensor], [steps])
    q, k, v = ((x[:, :, :20]) for x in inputs("bf16"))

    def as_documented(score, b, h, q_idx, kv_idx):
        zero_outside = np.where(kv_idx >= 3, steps[np.maximum(kv_idx - 3, 0)], 0)
        return score + steps[q_idx - kv_idx] + zero_outside

    exact, _ = reference.attention(q, k, v, score=as_documented)
    low, _ = reference.attention(q, k, v, score=as_documented, low_precision=True)
    hold(fc.attention(q, k, v, score=written), exact, low)
    with pytest.raises(fc.SpecError, match="wrap outside of an index"):
        fc.jit(fc.AttentionSpec(head_dim=D, score=Score("score + wrap(q_idx)")))
