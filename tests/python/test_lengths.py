"""Packed and padded batches against NumPy in fp64. What belongs to no sequence stays NaN."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flashcore as fc
from flashcore.kernels import lengths, lengths_check
from reference import DTYPES, assert_close, random

MASKS = {
    "full": fc.full(),
    "causal(bottom_right)": fc.causal(),
    "causal(top_left)": fc.causal("top_left"),
}
LENGTHS = st.lists(st.tuples(st.integers(0, 150), st.integers(0, 150)), min_size=1, max_size=4)


def starts(lengths):
    return np.cumsum([0, *lengths]).astype(np.int32)


def packed(rng, pairs, *, heads=2, kv_heads=2, head_dim=64, head_dim_v=None, mask="full", beyond=5):
    cu_q, cu_k = (starts([pair[i] for pair in pairs]) for i in (0, 1))
    dim_v = head_dim_v or head_dim
    q = random(rng, (cu_q[-1] + beyond, heads, head_dim), "bf16")
    k = random(rng, (cu_k[-1] + beyond, kv_heads, head_dim), "bf16")
    v = random(rng, (cu_k[-1] + beyond, kv_heads, dim_v), "bf16")
    for array, end in ((q, cu_q[-1]), (k, cu_k[-1]), (v, cu_k[-1])):
        array[end:] = np.nan
    out = np.full((len(q), heads, dim_v), np.nan, DTYPES["bf16"])
    longest = max(pair[0] for pair in pairs)
    _, lse = fc.attention(
        q,
        k,
        v,
        mask=MASKS[mask],
        layout="thd",
        out=out,
        return_lse=True,
        cu_seqlens_q=cu_q,
        cu_seqlens_k=cu_k,
        max_q_len=longest,
    )
    for i in range(len(pairs)):
        rows, keys = slice(cu_q[i], cu_q[i + 1]), slice(cu_k[i], cu_k[i + 1])
        one = (out[None, rows], lse[None, :, rows], q[None, rows], k[None, keys], v[None, keys])
        assert_close(*one, mask=mask, layout="bshd")
    assert np.isnan(out[cu_q[-1] :].astype(np.float32)).all()  # nobody wrote there


@settings(max_examples=15, deadline=None)
@given(pairs=LENGTHS, mask=st.sampled_from(sorted(MASKS)))
def test_packed_sequences_of_any_lengths(pairs, mask):
    packed(np.random.default_rng(2), pairs, mask=mask)


@pytest.mark.parametrize(("head_dim", "head_dim_v"), [(40, None), (128, None), (192, 128)])
def test_packed_sequences_with_grouped_heads(rng, head_dim, head_dim_v):
    packed(rng, [(70, 90), (0, 3), (1, 1)], heads=6, kv_heads=2, head_dim=head_dim,
           head_dim_v=head_dim_v, mask="causal(bottom_right)")  # fmt: skip


@settings(max_examples=15, deadline=None)
@given(
    pairs=LENGTHS, mask=st.sampled_from(sorted(MASKS)), which=st.sampled_from(["q", "kv", "both"])
)
def test_padded_sequences_of_any_lengths(pairs, mask, which):
    rng = np.random.default_rng(3)
    q = random(rng, (len(pairs), 2, 150, 64), "bf16")
    k, v = (random(rng, (len(pairs), 2, 150, 64), "bf16") for _ in range(2))
    q_lens = np.array([pair[0] if which != "kv" else 150 for pair in pairs], np.int32)
    kv_lens = np.array([pair[1] if which != "q" else 150 for pair in pairs], np.int32)
    for i in range(len(pairs)):
        q[i, :, q_lens[i] :] = k[i, :, kv_lens[i] :] = v[i, :, kv_lens[i] :] = np.nan
    given_lens = {} if which == "kv" else {"q_lens": q_lens}
    given_lens |= {} if which == "q" else {"kv_lens": kv_lens}
    out, lse = fc.attention(q, k, v, mask=MASKS[mask], return_lse=True, **given_lens)
    for i, (rows, keys) in enumerate(zip(q_lens, kv_lens, strict=True)):
        one = (x[i : i + 1] for x in (out[:, :, :rows], lse[:, :, :rows], q[:, :, :rows]))
        assert_close(*one, k[i : i + 1, :, :keys], v[i : i + 1, :, :keys], mask=mask)
        assert (out[i, :, rows:] == 0).all()
        assert np.isneginf(lse[i, :, rows:]).all()


@pytest.mark.parametrize("cu", [[0, 2**31 - 1, 30], [-(2**31), 50, 9], [20, 10, 0], [40, 41, 99]])
def test_wrong_numbers_reach_nothing_outside(rng, cu, monkeypatch):
    # The emulator refuses any access outside the arrays. In CPU memory wrong numbers are told, on a
    # GPU they reach the kernel.
    monkeypatch.setattr(lengths_check, "numbers", lambda array: None)
    q = random(rng, (30, 1, 64), "bf16")
    cu = np.array(cu, np.int32)
    fc.attention(q, q, q, layout="thd", cu_seqlens_q=cu, max_q_len=30)
    batch = random(rng, (3, 1, 30, 64), "bf16")
    fc.attention(batch, batch, batch, q_lens=cu, kv_lens=cu)


def refusal(**arguments):
    q = np.zeros((8, 1, 64), DTYPES["bf16"])
    with pytest.raises(fc.Error) as caught:
        fc.attention(q, q, q, layout="thd", **arguments)
    return str(caught.value)


def test_refusals():
    cu = np.array([0, 8], np.int32)
    assert refusal() == (
        "calling attention_forward\n"
        "  why: it needs cu_seqlens_q\n"
        "  try: cu_seqlens_q=, an int32 array on the device of q"
    )
    assert refusal(cu_seqlens_q=cu.astype(np.int64)) == (
        "calling attention_forward\n"
        "  why: cu_seqlens_q is int64, and kernels read lengths as int32\n"
        "  try: cast cu_seqlens_q to int32"
    )
    assert refusal(cu_seqlens_q=cu, q_lens=cu) == (
        "calling attention_forward\n"
        '  why: q_lens was given, and the spec has layout = "thd", q_lens = False, '
        "kv_lens = False, page_size = None\n"
        "  try: leave it out: cu_seqlens_q and cu_seqlens_k say the lengths"
    )
    assert refusal(cu_seqlens_q=cu, max_q_len=-1) == (
        "attention_forward: max_q_len is -1\n"
        "  why: it says how long the longest segment of an axis is, and sizes the grid\n"
        "  try: a length of 0 or more"
    )
    assert refusal(cu_seqlens_q=cu, cu_seqlens_k=cu[:1]) == (
        "attention_forward: dimension 0 of cu_seqlens_k is 1\n"
        "  why: it is [1], the kernel expects [B + 1 = 2]\n"
        "  try: pass tensors whose shapes agree"
    )
    assert refusal(cu_seqlens_q=cu[:0]) == (
        "attention_forward: dimension 0 of cu_seqlens_q is 0\n"
        "  why: it is [0], the kernel expects [B + 1]\n"
        "  try: a length of at least 1"
    )


@pytest.mark.parametrize(
    ("cu", "why"),
    [
        ([1, 8], "cu_seqlens_q\n  why: it begins with 1"),
        ([0, 5, 4, 8], "cu_seqlens_q\n  why: it falls from 5 to 4 at index 2"),
        ([0, 9], "cu_seqlens_q\n  why: it ends with 9, and q has 8 rows"),
    ],
)
def test_starts_in_cpu_memory_have_to_be_starts(cu, why):
    assert why in refusal(cu_seqlens_q=np.array(cu, np.int32))
    good = np.array([0, 8], np.int32)
    why = why.replace("cu_seqlens_q", "cu_seqlens_k").replace(" q ", " k ")
    assert why in refusal(cu_seqlens_q=good, cu_seqlens_k=np.array(cu, np.int32))


@pytest.mark.parametrize("longest", [6, 2**31 - 1, 2**40])
def test_a_bound_on_lengths_may_be_any_larger_number(rng, longest):
    q, k, v = (random(rng, (5, 2, 16), "f16") for _ in range(3))
    how = {"layout": "thd", "cu_seqlens_q": np.array([0, 2, 5], np.int32)}
    out = fc.attention(q, k, v, max_q_len=longest, **how)
    assert (out == fc.attention(q, k, v, max_q_len=3, **how)).all()


def test_no_row_is_left_out():
    cu = np.array([0, 3, 8], np.int32)
    assert refusal(cu_seqlens_q=cu, max_q_len=4) == (
        "calling attention_forward: max_q_len = 4\n"
        "  why: sequence 1 has 5 rows, and those beyond would not be computed\n"
        "  try: 5 or more, or leave it out"
    )


def test_no_key_is_left_out():
    cu, keys = np.array([0, 3, 8], np.int32), np.array([0, 6, 8], np.int32)
    assert refusal(cu_seqlens_q=cu, cu_seqlens_k=keys, max_kv_len=5) == (
        "calling attention_forward: max_kv_len = 5\n"
        "  why: sequence 0 has 6 rows, and those beyond would not be computed\n"
        "  try: 6 or more, or leave it out"
    )


def test_keys_are_as_long_as_queries_where_one_array_has_the_starts_of_both():
    spec = fc.AttentionSpec(head_dim=64, layout="thd")
    q = np.zeros((8, 1, 64), DTYPES["bf16"])
    both, keys = np.array([0, 3, 8], np.int32), np.array([0, 2, 8], np.int32)

    def longest(starts, bound=None):
        return lengths.lengths(spec, q, q, both, starts, 5, None, None, bound).longest_keys

    assert longest(None) == longest(both) == longest(both[:]) == 5
    assert longest(keys) == 8
    assert longest(keys, 6) == 6
    assert longest(keys, 2**40) == 8


def test_a_bound_on_keys_is_for_packed_sequences():
    q = np.zeros((1, 1, 8, 64), DTYPES["bf16"])
    with pytest.raises(fc.SpecError) as caught:
        fc.attention(q, q, q, max_kv_len=8)
    assert caught.value.why.startswith('max_kv_len was given, and the spec has layout = "bhsd"')


@pytest.mark.parametrize("name", ["q_lens", "kv_lens"])
@pytest.mark.parametrize("length", [-1, 9])
def test_lengths_in_cpu_memory_fit_the_padding(name, length):
    q = np.zeros((2, 1, 8, 64), DTYPES["bf16"])
    with pytest.raises(fc.SpecError) as caught:
        fc.attention(q, q, q, **{name: np.array([8, length], np.int32)})
    assert caught.value.what == f"calling attention_forward: {name}"
    assert caught.value.why == f"sequence 1 has length {length}, and the length of {name[0]} is 8"


def test_a_spec_that_names_lengths_twice():
    with pytest.raises(fc.SpecError) as caught:
        fc.jit(fc.AttentionSpec(head_dim=64, layout="thd", kv_len=5, kv_lens=True))
    assert "kv_len = 5 with layout thd: packed sequences have lengths of their own" in str(
        caught.value
    )
    assert "kv_lens with layout thd: cu_seqlens_q and cu_seqlens_k say the lengths" in str(
        caught.value
    )
