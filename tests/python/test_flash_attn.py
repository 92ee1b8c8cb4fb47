"""The functions of the flash-attn package, at call sites as its users write them."""

import itertools

import ml_dtypes
import numpy as np
import pytest

import flashcore as fc
from flashcore import flash_attn as fa
from reference import assert_close

BATCH, Q, K, DIM = 2, 33, 50, 32


def drawn(rng, heads=4, kv_heads=2, q_len=Q, kv_len=K):
    shapes = ((q_len, heads), (kv_len, kv_heads), (kv_len, kv_heads))
    return [
        rng.standard_normal((BATCH, *shape, DIM)).astype(ml_dtypes.bfloat16) for shape in shapes
    ]


def window(left, right):
    def mask(b, h, i, j):
        diagonal = i + K - Q
        return ((left < 0) | (j >= diagonal - left)) & ((right < 0) | (j <= diagonal + right))

    return mask


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("size", [(-1, -1), (7, 0), (5, 9), (-1, 3), (6, -1), (0, 0)])
def test_windows_and_causal_masks_end_in_the_bottom_right(rng, causal, size):
    q, k, v = drawn(rng)
    out, lse, none = fa.flash_attn_func(
        q, k, v, causal=causal, window_size=size, return_attn_probs=True
    )
    assert none is None
    right = 0 if causal else size[1]
    assert_close(out, lse, q, k, v, mask=window(size[0], right), layout="bshd")


@pytest.mark.parametrize(
    ("causal", "of_batch", "cap"), list(itertools.product(*[[False, True]] * 3))
)
def test_a_cap_comes_before_the_slopes(rng, causal, of_batch, cap):
    q, k, v = drawn(rng)
    slopes = rng.random((BATCH, 4) if of_batch else 4).astype(np.float32)
    options = {"softcap": 2.0 if cap else 0.0, "alibi_slopes": slopes, "softmax_scale": 0.5}
    out = fa.flash_attn_func(q, k, v, causal=causal, **options)

    def score(s, b, h, i, j):
        s = 2 * np.tanh(s / 2) if cap else s
        slope = slopes[b, h] if of_batch else slopes[h]
        return s - slope * np.abs(i + K - Q - j)

    mask = window(-1, 0 if causal else -1)
    assert_close(out, None, q, k, v, mask=mask, score=score, scale=0.5, layout="bshd")


def test_packed_arrays_are_read_where_they_lie(rng):
    qkv = rng.standard_normal((BATCH, Q, 3, 4, DIM)).astype(ml_dtypes.bfloat16)
    q, k, v = (qkv[:, :, i] for i in range(3))
    expected = fa.flash_attn_func(q, k, v, 0.0, None, True)
    assert (fa.flash_attn_qkvpacked_func(qkv, 0.0, None, True) == expected).all()
    assert (fa.flash_attn_kvpacked_func(q, qkv[:, :, 1:], causal=True) == expected).all()


@pytest.mark.parametrize("packed", ["none", "kv", "qkv"])
def test_sequences_of_different_lengths(rng, packed):
    qkv = rng.standard_normal((70, 3, 4, DIM)).astype(ml_dtypes.bfloat16)
    starts = np.array([0, 40, 40, 70], np.int32)
    options = {"causal": True, "window_size": (9, 0), "return_attn_probs": True}
    if packed == "qkv":
        made = fa.flash_attn_varlen_qkvpacked_func(qkv, starts, 40, **options)
    elif packed == "kv":
        made = fa.flash_attn_varlen_kvpacked_func(
            qkv[:, 0], qkv[:, 1:], starts, starts, 40, 40, **options
        )
    else:
        made = fa.flash_attn_varlen_func(
            *(qkv[:, i] for i in range(3)), starts, starts, 40, 40, **options
        )
    out, lse, _ = made
    for begin, end in itertools.pairwise(starts):
        q, k, v = (qkv[None, begin:end, i] for i in range(3))
        if begin == end:
            continue
        assert_close(
            out[None, begin:end], lse[None, :, begin:end], q, k, v, layout="bshd",
            mask=lambda b, h, i, j: (j <= i) & (j >= i - 9),
        )  # fmt: skip


@pytest.mark.parametrize("new", [0, 1, 3])
def test_a_cache_takes_new_rows_behind_its_end(rng, new):
    q, k_cache, v_cache = drawn(rng, q_len=max(new, 1))
    _, k, v = drawn(rng, kv_len=max(new, 1))
    held = np.array([20, 41], np.int32)
    filled = [cache.copy() for cache in (k_cache, v_cache)]
    for b, cache, rows in itertools.product(range(BATCH), (0, 1), range(new)):
        filled[cache][b, held[b] + rows] = (k, v)[cache][b, rows]
    given = {"k": k, "v": v} if new else {}
    out, lse = fa.flash_attn_with_kvcache(
        q, k_cache, v_cache, cache_seqlens=held, causal=True, return_softmax_lse=True, **given
    )
    for before, after in zip(filled, (k_cache, v_cache), strict=True):
        assert (before == after).all()
    for b in range(BATCH):
        end = held[b] + new
        assert_close(
            out[b : b + 1], lse[b : b + 1], q[b : b + 1], filled[0][b : b + 1, :end],
            filled[1][b : b + 1, :end], mask="causal(bottom_right)", layout="bshd",
        )  # fmt: skip


def test_one_number_says_how_much_every_cache_holds_and_padding_on_the_left_is_hidden(rng):
    q, k, v = drawn(rng, q_len=1)
    pads = np.array([3, 0], np.int32)
    out = fa.flash_attn_with_kvcache(q, k, v, cache_seqlens=30, cache_leftpad=pads)
    seen = lambda b, h, i, j: j >= pads[b] + 0 * i  # noqa: E731
    assert_close(out, None, q, k[:, :30], v[:, :30], layout="bshd", mask=seen)


def in_pages(rng, *arrays, size=16):
    """The rows of each array in pages, in no order, and the table of all of them."""
    each = -(-arrays[0].shape[1] // size)
    table = rng.permutation(BATCH * each).reshape(BATCH, each).astype(np.int32)
    caches = [np.zeros((BATCH * each, size, *x.shape[2:]), x.dtype) for x in arrays]
    for cache, array in zip(caches, arrays, strict=True):
        for b, at in np.ndindex(array.shape[:2]):
            cache[table[b, at // size], at % size] = array[b, at]
    return caches, table


def test_a_cache_in_pages(rng):
    q, k, v = drawn(rng, q_len=1)
    caches, table = in_pages(rng, k, v)
    lens = np.full(BATCH, 20, np.int32)
    out = fa.flash_attn_with_kvcache(q, *caches, cache_seqlens=lens, block_table=table)
    assert_close(out, None, q, k[:, :20], v[:, :20], layout="bshd")
    more = drawn(rng, kv_len=3)[1:]
    out = fa.flash_attn_with_kvcache(q, *caches, *more, cache_seqlens=lens, block_table=table)
    grown = [np.concatenate([x[:, :20], new], axis=1) for x, new in zip((k, v), more, strict=True)]
    assert_close(out, None, q, *grown, layout="bshd")
    with pytest.raises(fc.SpecError, match="a table of pages does not say where a sequence ends"):
        fa.flash_attn_with_kvcache(q, *caches, block_table=table)


def test_packed_rows_over_a_cache_in_pages(rng):
    """As servers call it: rows of prefill and of decoding packed, keys in pages."""
    q, k, v = drawn(rng, q_len=5)
    caches, table = in_pages(rng, k, v)
    rows, lens = np.array([5, 1]), np.array([k.shape[1], 20], np.int32)
    packed = np.concatenate([q[b, : rows[b]] for b in range(BATCH)])
    starts, ends = (np.cumsum([0, *n]).astype(np.int32) for n in (rows, lens))
    given = (packed, *caches, starts)
    by_used = fa.flash_attn_varlen_func(
        *given, None, 5, int(lens.max()), causal=True, block_table=table, seqused_k=lens
    )
    by_starts = fa.flash_attn_varlen_func(
        *given, ends, 5, int(lens.max()), causal=True, block_table=table
    )
    assert (by_used == by_starts).all()
    for b in range(BATCH):
        own = by_used[None, starts[b] : starts[b + 1]]
        inputs = q[b : b + 1, : rows[b]], k[b : b + 1, : lens[b]], v[b : b + 1, : lens[b]]
        assert_close(own, None, *inputs, mask="causal(bottom_right)", layout="bshd")
    with pytest.raises(fc.SpecError, match="block_table without seqused_k and cu_seqlens_k"):
        fa.flash_attn_varlen_func(*given, None, 5, 41, block_table=table)
    with pytest.raises(fc.SpecError, match="seqused_k"):
        fa.flash_attn_varlen_func(packed, packed, packed, starts, starts, 5, 5, seqused_k=lens)


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"dropout_p": 0.1}, "dropout_p = 0.1"),
        ({"alibi_slopes": np.ones(3, np.float32)}, "alibi_slopes"),
        ({"alibi_slopes": [1.0, 2.0]}, "alibi_slopes"),
    ],
)
def test_what_is_not_computed_is_named(rng, given, named):
    with pytest.raises(fc.SpecError) as caught:
        fa.flash_attn_func(*drawn(rng), **given)
    assert caught.value.what == named
    assert caught.value.fix


def test_caches_that_cannot_be_read_are_named(rng):
    q, k, v = drawn(rng, q_len=1)
    for name in ("rotary_cos", "cache_batch_idx"):
        with pytest.raises(fc.SpecError) as caught:
            fa.flash_attn_with_kvcache(q, k, v, **{name: np.zeros((BATCH, 1), np.int32)})
        assert name in caught.value.what
    with pytest.raises(fc.SpecError, match="cache_seqlens"):
        fa.flash_attn_with_kvcache(q, k, v, k[:, :1], v[:, :1])
