"""Dense biases and masks, of which the copy engine brings tiles: they give what each lookup
alone would."""

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


@pytest.mark.parametrize(
    ("q_len", "kv_len"), [(2, 8), (70, 136), (130, 200), (200, 64), (65, 1000)]
)
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


@pytest.mark.parametrize(("shift", "loaded"), [(16, True), (5, False)])
def test_an_array_that_is_too_small_reads_zero_beyond_its_ends(shift, loaded):
    """The copy engine takes no rows that begin within 16 bytes."""
    q, k, v = arrays(1, 1, 100, 150)
    b = table(72, 96)

    def shifted(s, batch, h, q_idx, kv_idx):
        return s + b[q_idx + 20, kv_idx + shift]

    def exact(s, batch, h, q_idx, kv_idx):
        inside = (q_idx + 20 < 72) & (kv_idx + shift < 96)
        at = np.minimum(q_idx + 20, 71), np.minimum(kv_idx + shift, 95)
        return s + np.where(inside, b.astype(float)[at], 0)

    kernel = check(fc.AttentionSpec(head_dim=D, score=shifted), q, k, v, score=exact)
    assert ("fc::load_shared_halves" in kernel.source) == loaded
    assert ("fc::gather" not in kernel.source) == loaded


def test_rows_of_a_larger_array():
    q, k, v = arrays(1, 1, 100, 96)
    b = table(100, 160)[:, 32:128]
    spec = fc.AttentionSpec(head_dim=D, score=fc.bias(b))
    kernel = check(spec, q, k, v, score=lambda s, *at: s + b.astype(float)[at[2], at[3]])
    assert is_loaded(kernel)


@pytest.mark.parametrize("view", [lambda: table(100, 97), lambda: table(100, 161)[:, 1:97]])
def test_rows_that_begin_anywhere_are_copied(view):
    b = view()
    q, k, v = arrays(1, 1, 100, b.shape[1])
    spec = fc.AttentionSpec(head_dim=D, score=fc.bias(b))
    kernel = check(spec, q, k, v, score=lambda s, *at: s + b.astype(float)[at[2], at[3]])
    assert is_loaded(kernel)


@pytest.mark.parametrize(
    "view", [lambda: np.broadcast_to(table(1, 96), (100, 96)), lambda: table(96, 100).T]
)
def test_rows_in_one_place_and_columns_apart_are_looked_up_by_threads(view):
    b = view()
    q, k, v = arrays(1, 1, 100, b.shape[1])
    spec = fc.AttentionSpec(head_dim=D, score=fc.bias(b))
    kernel = check(spec, q, k, v, score=lambda s, *at: s + b.astype(float)[at[2], at[3]])
    assert not is_loaded(kernel)


def test_a_length_that_is_no_multiple_of_eight_needs_no_other_kernel():
    kernel = fc.jit(fc.AttentionSpec(head_dim=D, score=fc.bias(table(40, 48))), target="sm_90a")
    for length in (48, 51):
        q, k, v = arrays(1, 1, 40, length)
        b = table(40, length)
        full, _ = reference.attention(
            q, k, v, score=lambda s, *at, b=b: s + b.astype(float)[at[2], at[3]]
        )
        assert np.abs(kernel(q, k, v, captured={"bias": b}).astype(float) - full).max() < 0.02


@pytest.mark.parametrize("cols", [32, 64, 96, 128, 160])
def test_conditions_in_panels_of_all_widths(cols):
    q, k, v = arrays(1, 1, 70, 333)
    seen = rng.random((70, 333)) < 0.7
    spec = fc.AttentionSpec(head_dim=D, mask=fc.dense_mask(seen))
    schedule = {"tiles": {"rows": 64, "cols": cols}, "warps_m": 4, "instruction": "wgmma",
                "copy": "tma", "blocks_per_processor": 1}  # fmt: skip
    kernel = fc.jit(spec, target="sm_90a", schedule=schedule)
    full, _ = reference.attention(q, k, v, mask=lambda b, h, i, j: seen[i, j])
    assert np.abs(kernel(q, k, v).astype(float) - full).max() < 0.02
    assert "p.visible_tiles" in kernel.source


@pytest.mark.parametrize("kv_len", [96, 200, 203])
def test_conditions(kv_len):
    q, k, v = arrays(2, 2, 130, kv_len)
    seen = rng.random((2, 1, 130, kv_len)) < 0.7
    seen[:, :, 7] = False  # a row without a key
    kernel = check(
        fc.AttentionSpec(head_dim=D, mask=fc.dense_mask(seen)),
        q,
        k,
        v,
        mask=lambda b, h, q_idx, kv_idx: seen[b, 0, q_idx, kv_idx],
    )
    assert "p.visible_tiles" in kernel.source
    assert "fc::note_tiles" not in kernel.source  # nothing tells which tiles could be left out


def test_conditions_beside_other_masks_and_a_bias():
    q, k, v = arrays(1, 2, 150, 150)
    seen, b = rng.random((150, 150)) < 0.7, table(150, 150)
    ids = np.repeat(np.arange(3, dtype=np.int32), 50)
    for mask, exact in (
        (fc.causal(), lambda b_, h, i, j: i >= j),
        (fc.documents(ids), lambda b_, h, i, j: ids[i] == ids[j]),
        (~fc.dense_mask(seen[::-1].copy()), lambda b_, h, i, j: ~seen[::-1][i, j]),
    ):
        kernel = check(
            fc.AttentionSpec(head_dim=D, mask=fc.dense_mask(seen) & mask, score=fc.bias(b)),
            q,
            k,
            v,
            mask=lambda b_, h, i, j, exact=exact: seen[i, j] & exact(b_, h, i, j),
            score=lambda s, b_, h, i, j: s + b.astype(float)[i, j],
        )
        assert "condition_tile" in kernel.source
        assert is_loaded(kernel)


def test_a_mask_of_sdpa_that_is_expanded_is_read_once():
    q, k, v = arrays(2, 3, 64, 80)
    seen = np.broadcast_to(rng.random((2, 1, 1, 80)) < 0.7, (2, 3, 64, 80))
    out = fc.sdpa(q, k, v, attn_mask=seen)
    whole, _ = reference.attention(q, k, v, mask=lambda b, h, i, j: seen[b, h, i, j])
    assert np.abs(out.astype(float) - whole).max() < 0.02


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
    assert kernel.source.count("fc::load_shared_halves") >= 2
    assert "fc::gather" in kernel.source


def test_promises_follow_from_the_array():
    def promise(array):
        return fc.bias(array).tensors[0].aligned_rows

    assert promise(table(4, 8))
    assert promise(table(2, 3, 9))
    assert not promise(np.broadcast_to(table(8), (4, 8)))
    assert not promise(table(4, 8).astype(np.float32))  # no kernel asks for that
    assert fc.dense_mask(np.ones((4, 5), bool)).tensors[0].aligned_rows
