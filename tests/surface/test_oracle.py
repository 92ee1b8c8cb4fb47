"""The oracle itself, where a right result could look wrong to it."""

import numpy as np
import oracle
import pytest


def drawn(*shape):
    return np.random.default_rng(3).standard_normal(shape).astype(np.float16)


@pytest.mark.parametrize("order", "<>")
def test_a_result_is_as_coarse_as_its_dtype_in_any_byte_order(order):
    exact = np.linspace(-1, 1, 50)
    dtype = np.dtype(np.float16).newbyteorder(order)
    assert oracle.close(exact.astype(dtype), exact, dtype, 1.0) is None
    assert "off by" in oracle.close((exact + 0.1).astype(dtype), exact, dtype, 1.0)


def test_starts_may_be_a_masked_array_of_which_nothing_is_masked():
    starts = np.array([0, 2, 5], np.int32)
    given = {name: drawn(5, 2, 16) for name in "qkv"} | {"layout": "thd", "max_q_len": 3}
    plain, masked = (
        oracle.attention_call(given | {"cu_seqlens_q": own}, {})["out"]
        for own in (starts, np.ma.masked_array(starts, mask=False))
    )
    assert (plain == masked).all()


def test_sequences_are_batches_that_count_from_the_first():
    starts = np.array([0, 2, 5], np.int32)
    seen = []

    def mask(b, h, i, j):
        seen.append(int(b.ravel()[0]))
        return i >= 0

    packed = {name: drawn(5, 2, 16) for name in "qkv"} | {"layout": "thd", "cu_seqlens_q": starts}
    oracle.attention_call(packed | {"mask": mask}, {})
    padded = {name: drawn(2, 2, 5, 16) for name in "qkv"}
    oracle.attention_call(padded | {"mask": mask, "kv_lens": np.array([3, 5])}, {})
    assert seen == [0, 1, 0, 1]


def test_one_head_of_padded_sequences_stands_for_those_of_the_keys():
    q, k, v = drawn(2, 1, 5, 16), drawn(2, 2, 7, 16), drawn(2, 2, 7, 16)
    lengths = np.array([7, 7])
    given = oracle.attention_call({"q": q, "k": k, "v": v, "kv_lens": lengths}, {})
    assert given["out"].shape == (2, 2, 5, 16)
    assert np.allclose(given["out"], oracle.attention_call({"q": q, "k": k, "v": v}, {})["out"])


@pytest.mark.parametrize("left", [0.5, np.inf, np.nan])
def test_rows_of_no_sequence_may_hold_anything(left):
    given = {name: drawn(5, 2, 16) for name in "qkv"}
    given |= {"layout": "thd", "cu_seqlens_q": np.array([0, 2, 4], np.int32)}
    expected = oracle.attention_call(given, {})
    found = expected["out"].astype(np.float16)
    found[4] = left
    assert oracle.close(found, expected["out"], np.dtype(np.float16), expected["largest"]) is None
    found[3] = left
    assert "off by" in oracle.close(found, expected["out"], np.dtype(np.float16), 1.0)
