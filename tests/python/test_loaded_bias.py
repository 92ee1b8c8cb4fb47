"""A dense bias whose rows begin at multiples of 16 bytes: the copy engine brings its tiles, and what
it gives is what each lookup alone would."""

import ml_dtypes
import numpy as np
import pytest

import flashcore as fc
import reference

rng = np.random.default_rng(11)
D = 32


def arrays(batch, heads, q_len, kv_len, dtype=ml_dtypes.bfloat16):
    shapes = ((batch, heads, q_len, D), (batch, heads, kv_len, D), (batch, heads, kv_len, D))
    return [rng.standard_normal(shape).astype(dtype) for shape in shapes]


def table(*shape, dtype=ml_dtypes.bfloat16):
    return (2 * rng.standard_normal(shape)).astype(dtype)


def check(spec, q, k, v, **exact):
    """Against the reference; the kernel, of which tests then ask how it reads the bias."""
    kernel = fc.jit(spec, target="sm_90a")
    full, _ = reference.attention(q, k, v, **exact)
    low, _ = reference.attention(q, k, v, low_precision=True, **exact)
    out = kernel(q, k, v).astype(float)
    assert np.abs(out - full).max() < 2 * np.abs(low - full).max() + 1e-3
    return kernel


def is_loaded(kernel):
    return "p.bias_tiles" in kernel.source


@pytest.mark.parametrize(("q_len", "kv_len"), [(2, 8), (70, 136), (130, 200), (200, 64), (65, 1000)])
def test_lengths_off_the_tiles(q_len, kv_len):
    q, k, v = arrays(1, 2, q_len, kv_len)
    b = table(q_len, kv_len)
    spec = fc.AttentionSpec(head_dim=D, score=fc.bias(b))
    kernel = check(spec, q, k, v, score=lambda s, *at: s + b.astype(float)[at[2], at[3]])
    assert is_loaded(kernel)


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16])
@pytest.mark.parametrize("shape", [(2, 3), (1, 3), (2, 1), (3,)])
def test_batches_and_heads_and_what_is_shared_by_all(shape, dtype):
    q, k, v = arrays(2, 3, 90, 104, dtype)
    b = table(*shape, 90, 104, dtype=dtype)
    name = "f16" if dtype is np.float16 else "bf16"
    spec = fc.AttentionSpec(head_dim=D, dtype=name, score=fc.bias(b), mask=fc.causal())
    whole = np.broadcast_to(b.astype(float), (2, 3, 90, 104))
    kernel = check(
        spec,
        q,
        k,
        v,
        score=lambda s, *at: s + whole[at],
        mask=lambda b, h, q_idx, kv_idx: q_idx + 14 >= kv_idx,
    )
    assert is_loaded(kernel)


def test_masks_that_are_scanned_and_an_lse():
    q, k, v = arrays(1, 2, 160, 160)
    b, ids = table(160, 160), np.repeat(np.arange(5, dtype=np.int32), 32)
    spec = fc.AttentionSpec(head_dim=D, score=fc.bias(b), mask=fc.documents(ids), lse=True)
    kernel = fc.jit(spec, target="sm_90a")
    out, lse = kernel(q, k, v, return_lse=True)
    options = {
        "score": lambda s, *at: s + b.astype(float)[at[2], at[3]],
        "mask": lambda b, h, q_idx, kv_idx: ids[q_idx] == ids[kv_idx],
    }
    full, exact_lse = reference.attention(q, k, v, **options)
    low, _ = reference.attention(q, k, v, low_precision=True, **options)
    assert np.abs(out.astype(float) - full).max() < 2 * np.abs(low - full).max() + 1e-3
    np.testing.assert_allclose(lse, exact_lse, atol=1e-3)
    assert is_loaded(kernel)


def test_an_array_that_is_too_small_reads_zero_beyond_its_ends():
    q, k, v = arrays(1, 1, 100, 150)
    b = table(72, 96)

    def shifted(s, batch, h, q_idx, kv_idx):
        return s + b[q_idx + 20, kv_idx + 5]

    def exact(s, batch, h, q_idx, kv_idx):
        inside = (q_idx + 20 < 72) & (kv_idx + 5 < 96)
        at = np.minimum(q_idx + 20, 71), np.minimum(kv_idx + 5, 95)
        return s + np.where(inside, b.astype(float)[at], 0)

    kernel = check(fc.AttentionSpec(head_dim=D, score=shifted), q, k, v, score=exact)
    assert "fc::load_box" in kernel.source and "fc::gather" not in kernel.source


def test_rows_of_a_larger_array():
    q, k, v = arrays(1, 1, 100, 96)
    b = table(100, 160)[:, 32:128]
    spec = fc.AttentionSpec(head_dim=D, score=fc.bias(b))
    kernel = check(spec, q, k, v, score=lambda s, *at: s + b.astype(float)[at[2], at[3]])
    assert is_loaded(kernel)


@pytest.mark.parametrize(
    "view",
    [
        lambda: table(100, 97),  # rows of 194 bytes
        lambda: table(100, 161)[:, 1:97],
        lambda: np.broadcast_to(table(1, 96), (100, 96)),  # the same row for all
        lambda: table(96, 100).T,
    ],
)
def test_other_arrays_are_looked_up_by_threads(view):
    b = view()
    q, k, v = arrays(1, 1, 100, b.shape[1])
    spec = fc.AttentionSpec(head_dim=D, score=fc.bias(b))
    kernel = check(spec, q, k, v, score=lambda s, *at: s + b.astype(float)[at[2], at[3]])
    assert not is_loaded(kernel)


def test_a_call_with_unaligned_rows_copies_them():
    q, k, v = arrays(1, 1, 40, 48)
    kernel = fc.jit(fc.AttentionSpec(head_dim=D, score=fc.bias(table(40, 48))), target="sm_90a")
    odd = table(40, 55)[:, 3:51]
    same = kernel(q, k, v, captured={"bias": np.ascontiguousarray(odd)})
    assert np.array_equal(kernel(q, k, v, captured={"bias": odd}), same)


def test_two_arrays_and_one_that_threads_look_up():
    q, k, v = arrays(1, 2, 80, 72)
    near, far = table(80, 72), table(2, 80, 72)
    slopes = rng.standard_normal((2, 160)).astype(np.float32)

    def score(s, b, h, q_idx, kv_idx):
        return s + near[q_idx, kv_idx] - far[h, q_idx, kv_idx] + slopes[h, q_idx - kv_idx + 75]

    def exact(s, b, h, q_idx, kv_idx):
        both = near.astype(float)[q_idx, kv_idx] - far.astype(float)[h, q_idx, kv_idx]
        return s + both + slopes[h, q_idx - kv_idx + 75]

    kernel = check(fc.AttentionSpec(head_dim=D, score=score), q, k, v, score=exact)
    assert kernel.source.count("fc::load_shared_halves") >= 2 and "fc::gather" in kernel.source


def test_promises_follow_from_the_array():
    def promise(array):
        return fc.bias(array).tensors[0].aligned_rows

    assert promise(table(4, 8)) and promise(table(2, 3, 16))
    assert not promise(table(4, 9))
    assert not promise(table(4, 8).astype(np.float32))  # no kernel asks for that
