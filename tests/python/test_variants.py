"""Every mask, score and sink against its definition in NumPy, in the emulator."""

import ml_dtypes
import numpy as np
import pytest

import flashcore as fc
from flashcore.interfaces import functional
from reference import assert_close, random

BATCH, HEADS, Q, K = 2, 4, 70, 100
MORE = K - Q  # from a row to its diagonal

rng = np.random.default_rng(5)
DOCS = np.sort(rng.integers(0, 5, (BATCH, K)), axis=1)
SLOPES = (2.0 ** -np.arange(1, HEADS + 1)).astype(np.float32)
TABLE = rng.standard_normal((HEADS, 41)).astype(ml_dtypes.bfloat16)
BIAS = rng.standard_normal((BATCH, HEADS, Q, K)).astype(np.float16)
LOGITS = rng.standard_normal(HEADS)
LENGTHS = np.array([3, 60], np.int32)
VISIBLE = rng.random((BATCH, 1, Q, K)) < 0.3


def take(table, h, at):
    """Zero outside the table, as kernels read."""
    inside = (at >= 0) & (at < table.shape[-1])
    return np.where(inside, table.astype(float)[h, np.clip(at, 0, table.shape[-1] - 1)], 0)


MASKS = {
    "full": (fc.full(), lambda b, h, i, j: i == i),
    "causal": (fc.causal(), lambda b, h, i, j: j <= i + MORE),
    "top left": (fc.causal("top_left"), lambda b, h, i, j: j <= i),
    "window": (
        fc.sliding_window(20, 5),
        lambda b, h, i, j: (j >= i + MORE - 20) & (j <= i + MORE + 5),
    ),
    "window to the left": (
        fc.sliding_window(20),
        lambda b, h, i, j: (j >= i + MORE - 20) & (j <= i + MORE),
    ),
    "window to the right": (
        fc.sliding_window(None, 3, "top_left"),
        lambda b, h, i, j: j <= i + 3,
    ),
    # Positions this far away would leave i32 if a key's were subtracted from them.
    "window to the far left": (
        fc.sliding_window(2**31 - 1),
        lambda b, h, i, j: j <= i + MORE,
    ),
    "keys behind the least number": (
        fc.Mask("kv_idx >= q_idx - 2147483647"),
        lambda b, h, i, j: i == i,
    ),
    "prefix": (fc.prefix(17) | fc.causal(), lambda b, h, i, j: (j < 17) | (j <= i + MORE)),
    "prefixes": (
        fc.prefix(LENGTHS) | fc.causal("top_left"),
        lambda b, h, i, j: (j < LENGTHS[b]) | (j <= i),
    ),
    "documents": (fc.documents(DOCS), lambda b, h, i, j: DOCS[b, i] == DOCS[b, j]),
    "documents of one sequence": (
        fc.documents(DOCS[0]) & fc.causal("top_left"),
        lambda b, h, i, j: (DOCS[0][i] == DOCS[0][j]) & (j <= i),
    ),
    "documents of rows and keys": (
        fc.documents(DOCS[:, MORE:].astype(np.int16), DOCS.astype(np.int16)) & fc.causal(),
        lambda b, h, i, j: (DOCS[b, i + MORE] == DOCS[b, j]) & (j <= i + MORE),
    ),
    "chunked": (fc.chunked(16), lambda b, h, i, j: i // 16 == j // 16),
    "dilated": (
        fc.dilated(3) & fc.causal("top_left"),
        lambda b, h, i, j: ((i - j) % 3 == 0) & (j <= i),
    ),
    "dense": (fc.dense_mask(VISIBLE), lambda b, h, i, j: VISIBLE[b, 0, i, j]),
    "not": (~fc.causal(), lambda b, h, i, j: j > i + MORE),
    "with a function": (
        fc.causal() & (lambda b, h, q, k: (q + k) % (h + 2) != 0),
        lambda b, h, i, j: (j <= i + MORE) & ((i + j) % (h + 2) != 0),
    ),
    "a function with": (
        (lambda b, h, q, k: DOCS[b, k] == 1) | fc.chunked(8),
        lambda b, h, i, j: (DOCS[b, j] == 1) | (i // 8 == j // 8),
    ),
    "nothing": (lambda b, h, q, k: False, lambda b, h, i, j: i < 0),
}

SCORES = {
    "alibi": (fc.alibi(SLOPES), lambda s, b, h, i, j: s + SLOPES[h] * (j - i - MORE)),
    "alibi, top left": (
        fc.alibi(SLOPES, "top_left"),
        lambda s, b, h, i, j: s + SLOPES[h] * (j - i),
    ),
    "softcap": (fc.softcap(2.5), lambda s, b, h, i, j: 2.5 * np.tanh(s / 2.5)),
    "relative bias": (
        fc.relative_bias(TABLE),
        lambda s, b, h, i, j: s + take(TABLE, h, j - i + 20),
    ),
    "bias": (fc.bias(BIAS), lambda s, b, h, i, j: s + BIAS.astype(float)),
    "bias of heads": (
        fc.bias(BIAS[0]),
        lambda s, b, h, i, j: s + BIAS[0].astype(float),
    ),
    "bias of keys": (
        fc.bias(BIAS[:, :1, :1]),
        lambda s, b, h, i, j: s + BIAS[:, :1, :1].astype(float),
    ),
    "function": (
        lambda s, b, h, q, k: fc.where(q > k, s * SLOPES[h], s - DOCS[b][k]),
        lambda s, b, h, i, j: np.where(i > j, s * SLOPES[h], s - DOCS[b, j]),
    ),
}


def check(*, mask=None, score=None, sink=None, heads=HEADS, kv_heads=HEADS, **how):
    """Each of the three is what kernels compute and its definition."""
    q = random(np.random.default_rng(1), (BATCH, heads, Q, 64), "bf16")
    k, v = random(np.random.default_rng(2), (2, BATCH, kv_heads, K, 64), "bf16")
    parts = {"mask": mask, "score": score, "sink": sink}
    ours = {name: part[0] for name, part in parts.items() if part}
    defined = {name: part[1] for name, part in parts.items() if part}
    if how.get("layout") == "bshd":
        q, k, v = (np.ascontiguousarray(x.swapaxes(1, 2)) for x in (q, k, v))
    out, lse = fc.attention(q, k, v, return_lse=True, **ours, **how)
    assert_close(out, lse, q, k, v, **defined, **how)


@pytest.mark.parametrize("name", MASKS)
def test_masks(name):
    check(mask=MASKS[name])


@pytest.mark.parametrize("name", SCORES)
def test_scores(name):
    check(score=SCORES[name])


@pytest.mark.parametrize("peel_masks", [False, True])
def test_scores_of_some_heads(peel_masks):
    """A condition on the head alone is no guard of the mask, whose tiles get loops of their own."""
    mask, causal = MASKS["causal"]
    score = fc.Score("where((b + h) % 2 == 0, score * 0.5, where(h == 1, -1e4, score))")
    kernel = fc.jit(
        fc.AttentionSpec(head_dim=64, dtype="bf16", mask=mask, score=score),
        schedule={"tiles": {"rows": 64, "cols": 16}, "warps_m": 4, "peel_masks": peel_masks},
    )
    q = random(np.random.default_rng(1), (BATCH, HEADS, Q, 64), "bf16")
    k, v = random(np.random.default_rng(2), (2, BATCH, HEADS, K, 64), "bf16")
    out, lse = kernel(q, k, v, return_lse=True)

    def by_head(s, b, h, i, j):
        return np.where((b + h) % 2 == 0, s * 0.5, np.where(h == 1, -1e4, s))

    assert_close(out, lse, q, k, v, mask=causal, score=by_head)


SINK = (fc.sinks(LOGITS), lambda b, h, i: LOGITS[h])


def test_sinks():
    check(sink=SINK)
    # A row without a key still has its sink: its output is 0, and its log-sum-exp the sink.
    check(sink=SINK, mask=MASKS["nothing"])
    function = lambda b, h, q: fc.where(q > 9, SLOPES[h], 0.5)  # noqa: E731
    check(sink=(function, lambda b, h, i: np.where(i > 9, SLOPES[h], 0.5)), mask=MASKS["window"])


@pytest.mark.parametrize("layout", ["bhsd", "bshd"])
def test_all_three_with_grouped_heads(layout):
    check(
        mask=MASKS["documents of rows and keys"],
        score=SCORES["relative bias"],
        sink=SINK,
        kv_heads=2,
        layout=layout,
    )


def test_order():
    # First the scale, then the score, then the mask.
    check(score=(lambda s, *_: s + 1, lambda s, *_: s + 1), mask=MASKS["causal"], scale=0.5)
    hidden = (lambda s, b, h, q, k: fc.where(q > k, np.inf, s),
              lambda s, b, h, i, j: s)  # fmt: skip
    check(score=hidden, mask=(lambda b, h, q, k: q <= k, lambda b, h, i, j: i <= j))


DTYPES = ["f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "?", ml_dtypes.bfloat16]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_dtypes_of_captured_arrays(dtype):
    table = (np.arange(BATCH * K).reshape(BATCH, K) % 3 - (dtype not in ("u1", "?"))).astype(dtype)
    plain = table.astype(float)
    if dtype == "?":
        score = lambda s, b, h, q, k: fc.where(table[b, k], s, s * 2)  # noqa: E731
        check(score=(score, lambda s, b, h, i, j: np.where(table[b, j], s, s * 2)))
    else:
        score = lambda s, b, h, q, k: s + table[b, k]  # noqa: E731
        check(score=(score, lambda s, b, h, i, j: s + plain[b, j]))


def test_strided_arrays():
    big = rng.standard_normal((2 * K, 3, BATCH)).astype(np.float32)
    part = big[::-2, 1, :]  # backwards, and the last dimension is not dense
    check(score=(lambda s, b, h, q, k: s + part[k, b], lambda s, b, h, i, j: s + part[j, b]))


def test_an_index_into_an_index():
    page = rng.permutation(K)
    check(
        mask=(
            lambda b, h, q, k: DOCS[b, page[q]] == DOCS[b, page[k]],
            lambda b, h, i, j: DOCS[b, page[i]] == DOCS[b, page[j]],
        )
    )


def test_outside_of_an_array_is_zero():
    short = np.full(30, 2.0)
    check(
        score=(
            lambda s, b, h, q, k: s + short[k - q],
            lambda s, b, h, i, j: s + 2.0 * ((j - i >= -30) & (j - i < 30)),
        )
    )


def test_equal_names_of_different_arrays():
    def shifted(ids):
        return lambda s, b, h, q, k: s + ids[k]

    one, other = np.arange(K) % 3, np.arange(K) % 5
    check(
        mask=(fc.documents(one) & fc.documents(other), lambda b, h, i, j: (one[i] == one[j]) & (other[i] == other[j])),  # noqa: E501
        score=(shifted(LOGITS_OF_KEYS), lambda s, b, h, i, j: s + LOGITS_OF_KEYS[j]),
    )  # fmt: skip


LOGITS_OF_KEYS = rng.standard_normal(K)


class TestKernels:
    @pytest.fixture
    def qkv(self):
        return random(np.random.default_rng(3), (3, BATCH, HEADS, K, 64), "bf16")

    def test_arrays_are_read_at_the_call(self, qkv):
        ids = np.zeros((BATCH, K), np.int64)
        kernel = fc.jit(fc.AttentionSpec(head_dim=64, mask=fc.documents(ids)))
        assert_close(kernel(*qkv), None, *qkv)
        ids[:] = DOCS
        assert_close(kernel(*qkv), None, *qkv, mask=MASKS["documents"][1])
        other = DOCS[::-1]
        assert_close(
            kernel(*qkv, captured={"ids": other}),
            None,
            *qkv,
            mask=lambda b, h, i, j: other[b, i] == other[b, j],
        )

    def test_strides_of_arrays(self, qkv):
        """Neighbours in memory are read as such; any others as what they are."""
        apart = np.repeat(DOCS, 3, axis=1)[:, ::3]
        for ids, unit_stride in ((DOCS, True), (apart, False)):
            mask = fc.documents(ids)
            assert [tensor.unit_stride for tensor in mask.tensors] == [unit_stride]
            kernel = fc.jit(fc.AttentionSpec(head_dim=64, mask=mask))
            assert_close(kernel(*qkv), None, *qkv, mask=MASKS["documents"][1])
        kernel = fc.jit(fc.AttentionSpec(head_dim=64, mask=fc.documents(DOCS)))
        with pytest.raises(fc.DeviceError) as caught:
            kernel(*qkv, captured={"ids": apart})
        assert str(caught.value) == (
            "attention_forward: the last dimension of ids is not the dense one\n"
            "  why: its stride there is 3 elements, the kernel reads and writes with 1\n"
            "  try: a contiguous copy, or a transpose that leaves the last dimension in place"
        )

    def test_a_saved_spec_is_given_its_arrays(self, qkv, tmp_path):
        spec = fc.AttentionSpec(head_dim=64, mask=fc.documents(DOCS), score=fc.alibi(SLOPES))
        (tmp_path / "spec.json").write_text(spec.to_json())
        kernel = fc.jit(tmp_path / "spec.json")
        captured = {"ids": DOCS, "slopes": SLOPES}
        assert (kernel(*qkv, captured=captured) == fc.jit(spec)(*qkv)).all()
        with pytest.raises(fc.SpecError) as caught:
            kernel(*qkv, captured={"ids": DOCS})
        assert caught.value.why == "it needs slopes"
        assert caught.value.fix == (
            "captured={...} with ids: i64 with 2 dimensions, slopes: f32 with 1 dimensions"
        )
        with pytest.raises(fc.SpecError, match="it captures no slope\n"):
            kernel(*qkv, captured=captured | {"slope": SLOPES})
        with pytest.raises(fc.SpecError, match="ids has the wrong element type"):
            kernel(*qkv, captured=captured | {"ids": DOCS.astype(np.int32)})

    def test_one_kernel_serves_all_arrays(self, qkv):
        functional.clear()
        for ids in (DOCS, DOCS[::-1].copy()):
            fc.attention(
                *qkv, mask=fc.documents(ids), score=lambda s, b, h, q, k, a=ids: s + a[b, k]
            )
        assert len(functional._kernels) == 1

    def test_probes_come_beside_captured_arrays(self, qkv):
        spec = fc.AttentionSpec(head_dim=64, score=fc.bias(np.zeros((K, K))))
        out, seen = fc.jit(spec, probe=["scores"])(*qkv)
        assert_close(out, None, *qkv)
        assert seen["scores"].shape == (BATCH, HEADS, K, K)


@pytest.mark.parametrize(
    ("make", "what", "why"),
    [
        (lambda: fc.causal("middle"), "align of a causal mask = 'middle'", "there is no such"),
        (lambda: fc.sliding_window(-3), "left of a sliding window = -3", "it is below 0"),
        (lambda: fc.chunked(0), "a chunked mask", "its chunks have 0 positions"),
        (lambda: fc.dilated(-1), "a dilated mask", "its step is -1"),
        (lambda: fc.softcap(0), "a softcap", "its limit is 0"),
        (lambda: fc.alibi([1.0]), "slopes = a list of 1", "it is no array"),
        (lambda: fc.alibi(BIAS), "slopes with 4 dimensions", "it is [heads] or [batch, heads]"),
        (lambda: fc.documents(BIAS), "ids with 4 dimensions", "it is [length] or [batch, length]"),
        (lambda: fc.bias(VISIBLE), "a bias", "its dtype is bool"),
        (lambda: fc.bias(BIAS[None]), "bias", "it has 5 dimensions"),
        (lambda: fc.dense_mask(BIAS), "a dense mask", "its dtype is f16"),
    ],
)  # fmt: skip
def test_refusals(make, what, why):
    with pytest.raises(fc.SpecError) as caught:
        make()
    assert caught.value.what == what
    assert caught.value.why.startswith(why)


@pytest.mark.parametrize("score", [None, *SCORES])
@pytest.mark.parametrize("mask", ["causal", "window", "documents", "chunked", "a function with"])
def test_scores_do_not_keep_masks_from_shaping_the_loop(mask, score):
    spec = fc.AttentionSpec(
        head_dim=64, mask=MASKS[mask][0], score=score and SCORES[score][0], sink=SINK[0]
    )
    words = fc.jit(spec).explain()
    assert "empty tiles are not visited" in words
    assert "not analysed" not in words


@pytest.mark.parametrize(
    "score", [fc.softcap(30.0), fc.softcap(60.0), fc.alibi(np.full(2, 0.5, np.float32))]
)
def test_nan_in_a_score_stays_one(score):
    rng = np.random.default_rng(5)
    q, k, v = rng.standard_normal((3, 1, 2, 70, 32)).astype(ml_dtypes.bfloat16)
    q[0, 1, 20, 3] = np.nan
    kernel = fc.jit(fc.AttentionSpec(head_dim=32, mask=fc.causal(), score=score))
    out = kernel(q, k, v).astype(float)
    assert np.isnan(out[0, 1, 20]).all()
    assert np.isfinite(out[0, 0]).all()
    assert np.isfinite(np.delete(out[0, 1], 20, axis=0)).all()


@pytest.mark.parametrize("lse", [False, True])
@pytest.mark.parametrize("size", [0.02, 0.1, 3.0])
def test_caps_of_small_and_moderate_and_any_scores(size, lse):
    """Each has its branch. The mask cuts two tiles of a row, of which the loop visits one; that
    takes the branch of any score, whatever its scores are."""
    rng = np.random.default_rng(7)
    q, k, v = random(rng, (3, 1, 2, 300, 80), "bf16")
    q = (size * 20 * q.astype(float)[:, :, :210]).astype(q.dtype)
    spec = fc.AttentionSpec(head_dim=80, mask=fc.causal(), score=fc.softcap(20.0), lse=lse)
    kernel = fc.jit(spec, "sm_90a")
    assert "? limit_2 : -1.f" in kernel.source
    assert kernel.source.count("fc::all_lanes(within") == 3
    result = kernel(q, k, v, return_lse=lse)
    assert_close(
        *(result if lse else (result, None)), q, k, v,
        mask=lambda b, h, i, j: j <= i + 90,
        score=lambda s, b, h, i, j: 20 * np.tanh(s / 20),
    )  # fmt: skip


@pytest.mark.parametrize("lse", [False, True])
@pytest.mark.parametrize(
    ("target", "dtype", "score"),
    [
        ("sm_80", "bf16", fc.softcap(20.0)),
        ("sm_90a", "bf16", fc.softcap(20.0)),
        ("sm_75", "f16", fc.Score("min(max(score, -4), 2.5)")),
        ("sm_90a", "f16", fc.Score("min(max(score, -4), 2.5)")),
    ],
)
def test_a_row_of_one_key_is_that_keys_values(target, dtype, score, lse):
    """Its weight is no 1: of such scores a constant is subtracted instead of a maximum."""
    rng = np.random.default_rng(6)
    made = ml_dtypes.bfloat16 if dtype == "bf16" else np.float16
    q, k, v = rng.standard_normal((3, 1, 2, 150, 64)).astype(made)
    mask = fc.sliding_window(0, 0)
    kernel = fc.jit(fc.AttentionSpec(head_dim=64, dtype=dtype, mask=mask, score=score), target)
    result = kernel(q, k, v, return_lse=lse)
    assert np.array_equal(result[0] if lse else result, v)
    if lse:
        raw = (q.astype(float) * k.astype(float)).sum(-1) / 8
        exact = 20 * np.tanh(raw / 20) if dtype == "bf16" else raw.clip(-4, 2.5)
        assert np.abs(result[1] - exact).max() < 2e-5
