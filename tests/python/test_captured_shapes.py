"""Arrays of ready-made parts that do not fit a call, and indices that leave an array."""

import ml_dtypes
import numpy as np
import pytest

import flashcore

rng = np.random.default_rng(0)
B, H, Q, K, D = 2, 4, 16, 32, 16


def rows(*shape):
    return rng.standard_normal(shape).astype(ml_dtypes.bfloat16)


q, k, v = rows(B, H, Q, D), rows(B, H, K, D), rows(B, H, K, D)


def floats(*shape):
    return rng.standard_normal(shape).astype(np.float32)


def dense(array):
    return {"mask": flashcore.dense_mask(array)}


def bias(array):
    return {"score": flashcore.bias(array)}


def alibi(array):
    return {"score": flashcore.alibi(array)}


def sinks(array):
    return {"sink": flashcore.sinks(array)}


def prefix(array):
    return {"mask": flashcore.prefix(array)}


def relative(array):
    return {"score": flashcore.relative_bias(array)}


def apart(q_ids, kv_ids):
    return {"mask": flashcore.documents(q_ids, kv_ids)}


def ints(*shape):
    return np.zeros(shape, np.int32)


@pytest.mark.parametrize(("part", "wrong"), [
    *((dense, np.ones(shape, bool)) for shape in
      [(Q - 1, K), (Q + 1, K), (Q, K - 1), (Q, K + 1), (3, Q, K), (5, Q, K), (3, H, Q, K)]),
    *((bias, floats(*shape)) for shape in
      [(Q - 1, K), (Q + 1, K), (1, K + 1), (H - 1, 1, 1), (B + 1, 1, 1, K), (Q - 1, 1)]),
    *((alibi, floats(*shape)) for shape in [(H - 1,), (H + 1,), (1,), (B - 1, H), (B, H + 1)]),
    *((sinks, floats(*shape)) for shape in [(H - 1,), (H + 1,)]),
    *((prefix, ints(*shape)) for shape in [(B - 1,), (B + 1,)]),
    *((relative, floats(*shape)) for shape in [(H - 1, 7), (H + 1, 7), (1, 7)]),
])  # fmt: skip
def test_arrays_that_do_not_fit_are_refused(part, wrong):
    with pytest.raises(flashcore.SpecError) as error:
        flashcore.attention(q, k, v, **part(wrong))
    assert str(wrong.shape) in error.value.what
    assert error.value.why
    assert error.value.fix


@pytest.mark.parametrize(("q_ids", "kv_ids"), [
    ((Q - 1,), (K,)), ((Q,), (K + 1,)), ((B, Q), (B, K - 1)), ((B + 1, Q), (K,)),
])  # fmt: skip
def test_ids_that_do_not_fit_are_refused(q_ids, kv_ids):
    with pytest.raises(flashcore.SpecError, match="dimension"):
        flashcore.attention(q, k, v, **apart(ints(*q_ids), ints(*kv_ids)))


def test_one_array_of_ids_is_for_rows_and_keys():
    for ids in (ints(K), ints(1, K), ints(B, K)):
        flashcore.attention(k, k, v, mask=flashcore.documents(ids))
        flashcore.attention(q, k, v, mask=flashcore.documents(ids))  # rows are the first of them
    for wrong in (ints(K + 1), ints(Q), ints(B + 1, K)):
        with pytest.raises(flashcore.SpecError, match="dimension"):
            flashcore.attention(q, k, v, mask=flashcore.documents(wrong))


@pytest.mark.parametrize("shape", [
    (K,), (1, K), (Q, 1), (Q, K), (1, Q, K), (H, 1, K), (H, Q, K), (1, 1, Q, K), (B, 1, 1, K),
    (B, H, Q, K),
])  # fmt: skip
def test_what_broadcasts_is_taken(shape):
    array = floats(*shape)
    added = flashcore.attention(q, k, v, score=flashcore.bias(array)).astype(float)
    whole = np.ascontiguousarray(np.broadcast_to(array, (B, H, Q, K)))
    np.testing.assert_array_equal(
        added, flashcore.attention(q, k, v, score=flashcore.bias(whole)).astype(float)
    )


def test_sdpa_refuses_masks_of_another_shape():
    flashcore.sdpa(q, k, v, np.ones((Q, K), bool))
    for shape in [(Q - 1, K), (Q + 1, K), (H - 1, Q, K)]:
        with pytest.raises(flashcore.SpecError, match="array visible of shape"):
            flashcore.sdpa(q, k, v, np.ones(shape, bool))
        with pytest.raises(flashcore.SpecError, match="array bias of shape"):
            flashcore.sdpa(q, k, v, floats(*shape))


def test_slopes_of_every_batch():
    slopes = floats(B, H)
    out = flashcore.attention(q, k, v, score=flashcore.alibi(slopes)).astype(float)
    for b in range(B):
        part = q[b : b + 1], k[b : b + 1], v[b : b + 1]
        alone = flashcore.attention(*part, score=flashcore.alibi(slopes[b])).astype(float)
        np.testing.assert_allclose(out[b : b + 1], alone, atol=1e-2)


def test_a_table_without_a_middle_is_refused():
    with pytest.raises(flashcore.SpecError, match="8 columns"):
        flashcore.relative_bias(floats(H, 8))


def test_arrays_of_a_call_are_checked_and_those_of_a_saved_spec():
    spec = flashcore.AttentionSpec(
        head_dim=D, mask=flashcore.prefix(ints(B)) | flashcore.causal(),
        score=flashcore.bias(floats(H, 1, K)), sink=flashcore.sinks(floats(H)),
    )  # fmt: skip
    arrays = {"lengths": ints(B), "bias": floats(H, 1, K), "logits": floats(H)}
    for made in (spec, flashcore.AttentionSpec.from_json(spec.to_json())):
        assert made.score.tensors[0].fits == ("heads", 1, "kv_len")
        kernel = flashcore.jit(made)
        kernel(q, k, v, captured=arrays)
        for name, wrong in [("lengths", ints(B + 1)), ("bias", floats(H, Q, K)),
                            ("bias", floats(H, 1, K + 1)), ("logits", floats(H - 1))]:  # fmt: skip
            with pytest.raises(flashcore.SpecError, match=f"array {name} of shape"):
                kernel(q, k, v, captured=arrays | {name: wrong})


def test_other_shapes_of_q_and_k_are_checked_again():
    kernel = flashcore.jit(flashcore.AttentionSpec(head_dim=D, mask=flashcore.documents(ints(K))))
    kernel(k, k, v)
    with pytest.raises(flashcore.SpecError, match="ids"):
        kernel(k[:, :, :-8], k[:, :, :-8], v[:, :, :-8])


def test_padded_and_packed_sequences():
    kernel = flashcore.jit(
        flashcore.AttentionSpec(head_dim=D, mask=flashcore.documents(ints(K)), kv_lens=True)
    )
    lengths = np.array([K, 3], np.int32)
    kernel(k, k, v, kv_lens=lengths)
    with pytest.raises(flashcore.SpecError, match="ids"):
        kernel(q, q, q, kv_lens=np.minimum(lengths, Q))

    packed = flashcore.AttentionSpec(
        head_dim=D, layout="thd", mask=flashcore.documents(ints(2, 8)),
        score=flashcore.alibi(floats(H)),
    )  # fmt: skip
    kernel = flashcore.jit(packed)
    x, starts = rows(12, H, D), np.array([0, 8, 12], np.int32)
    kernel(x, x, x, cu_seqlens_q=starts, max_q_len=8)
    kernel(x, x, x, cu_seqlens_q=starts)
    kernel(x, x, x, cu_seqlens_q=starts, max_q_len=8, captured={"ids": ints(2, 20)})
    for wrong in (ints(2, 7), ints(1, 8), ints(3, 8)):
        with pytest.raises(flashcore.SpecError, match="ids"):
            kernel(x, x, x, cu_seqlens_q=starts, max_q_len=8, captured={"ids": wrong})
    with pytest.raises(flashcore.SpecError, match="heads is 4"):
        kernel(x, x, x, cu_seqlens_q=starts, max_q_len=8, captured={"slopes": floats(3)})


def test_a_users_own_expression_reads_zero_outside_unless_it_is_checked():
    table = floats(10)

    def lookup(score, b, h, q_idx, kv_idx):
        return score + table[kv_idx]

    zeros = np.zeros(K, np.float32)
    zeros[:10] = table
    outside = flashcore.attention(q, k, v, score=lookup).astype(float)
    np.testing.assert_array_equal(
        outside, flashcore.attention(q, k, v, score=flashcore.bias(zeros)).astype(float)
    )
    kernel = flashcore.jit(flashcore.AttentionSpec(head_dim=D, score=lookup), checked=True)
    for call in (
        lambda: flashcore.attention(q, k, v, score=lookup, checked=True),
        lambda: kernel(q, k, v),
    ):
        with pytest.raises(flashcore.SpecError) as error:
            call()
        assert "score + table[kv_idx]" in error.value.what
        assert "index 0 of table, kv_idx, is 10 at b = 0, h = 0, q_idx = 0, kv_idx = 10" in str(
            error.value.why
        )
        assert "length of table there is 10" in error.value.why
    kernel(q, k, v, checked=False)
    kernel(q, k, v, captured={"table": floats(K)})


def test_checked_indices_through_arrays_and_conditions():
    pages = np.full(K, 3, np.int64)
    table = floats(B, 4)

    def paged(b, h, q_idx, kv_idx):
        far = abs(q_idx - kv_idx) > 4
        return far | (table[b, pages[kv_idx]] > 0) & (q_idx >= kv_idx)

    flashcore.attention(q, k, v, mask=paged, checked=True)
    pages[7] = 4
    with pytest.raises(flashcore.SpecError, match=r"index 1 of table, pages\[kv_idx\], is 4 at b"):
        flashcore.attention(q, k, v, mask=paged, checked=True)

    # A condition beside it does not keep a kernel from reading.
    def beside(b, h, q_idx, kv_idx):
        return (kv_idx < 4) & (table[b, kv_idx] > 0)

    with pytest.raises(flashcore.SpecError, match="a condition beside it does not"):
        flashcore.attention(q, k, v, mask=beside, checked=True)

    def within(b, h, q_idx, kv_idx):
        return (kv_idx < 4) & (table[b, flashcore.minimum(kv_idx, 3)] > 0)

    flashcore.attention(q, k, v, mask=within, checked=True)


def test_checked_indices_of_sequences_are_within_each():
    ids = ints(8)
    packed = flashcore.AttentionSpec(
        head_dim=D, layout="thd", mask=lambda b, h, q_idx, kv_idx: ids[q_idx] == ids[kv_idx]
    )
    kernel, x = flashcore.jit(packed, checked=True), rows(12, H, D)
    kernel(x, x, x, cu_seqlens_q=np.array([0, 8, 12], np.int32))
    with pytest.raises(flashcore.SpecError, match="b = 1, h = 0, q_idx = 8"):
        kernel(x, x, x, cu_seqlens_q=np.array([0, 3, 12], np.int32))
    padded = flashcore.AttentionSpec(head_dim=D, mask=packed.mask, q_lens=True, kv_lens=True)
    kernel = flashcore.jit(padded, checked=True)
    eight, nine = np.array([8, 2], np.int32), np.array([8, 9], np.int32)
    kernel(q, k, v, q_lens=eight, kv_lens=eight)
    with pytest.raises(flashcore.SpecError, match="b = 1"):
        kernel(q, k, v, q_lens=eight, kv_lens=nine)


def test_what_cannot_be_checked_is_said():
    table = floats(8)
    spec = flashcore.AttentionSpec(
        head_dim=D, score=lambda score, b, h, q_idx, kv_idx: score + table[score.int()]
    )
    with pytest.raises(flashcore.SpecError, match="depends on the score"):
        flashcore.jit(spec)(q, k, v, checked=True)
    with pytest.raises(flashcore.SpecError, match="checked=True"):
        flashcore.jit(flashcore.jit(spec).program, checked=True)


def test_shapes_are_checked_once(monkeypatch):
    kernel = flashcore.jit(flashcore.AttentionSpec(head_dim=D, score=flashcore.alibi(floats(H))))
    asked = []
    check = kernel._fitting.check
    monkeypatch.setattr(kernel._fitting, "check", lambda *args: asked.append(check(*args)))
    for _ in range(3):
        kernel(q, k, v)
        kernel(q, k, v, captured={"slopes": floats(H)})
    assert len(asked) == 1
