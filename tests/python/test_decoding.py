"""Calls with few query rows over many keys: which take the split, and that it is right."""

import numpy as np
import pytest

import flashcore as fc
from flashcore import _core
from flashcore.kernels.decode_kernels import DecodeKernels
from reference import assert_close, random

pytestmark = pytest.mark.usefixtures("emulated_only")

H200 = 132  # multiprocessors


def shipped(target="sm_80", **fields):
    return fc.AttentionKernel.shipped(fc.AttentionSpec(**fields), target, compiled=False)


def launch(kernel, blocks, every, with_lse, **scalars):
    """What a call on a GPU launches whose keys are split in such blocks, in the emulator."""
    names = kernel._captured.arrays
    kernels, order = DecodeKernels(kernel.spec, kernel.target, names).built(
        blocks, with_lse, compiled=False
    )
    own = tuple(scalars[name] for name, *_ in kernels.scalars)
    kernel._launches.launch_module(kernels, every, own, None, order)


def split_call(kernel, q, k, v, *, with_lse=True, lengths=(), multiprocessors=H200):
    out = np.full((*q.shape[:3], v.shape[-1]), np.nan, q.dtype)
    at = 2 if kernel.spec.layout == "bhsd" else 1
    lse = np.full((q.shape[0], q.shape[3 - at], q.shape[at]), np.nan, np.float32)
    every = (q, k, v, out, *([lse] if with_lse else []), *lengths)
    numbers = q.shape[0], q.shape[3 - at], q.shape[at], k.shape[at]
    chooser = _core.DecodeChooser(kernel.spec.to_json(), kernel.target)
    blocks = chooser.blocks(*numbers, multiprocessors)
    launch(kernel, blocks, every, with_lse, scale=q.shape[-1] ** -0.5)
    return out, lse if with_lse else None


@pytest.mark.parametrize("layout", ["bhsd", "bshd"])
@pytest.mark.parametrize(("heads", "kv_heads"), [(2, 2), (8, 2), (4, 1)])
@pytest.mark.parametrize("q_len", [1, 3])
def test_it_is_right(rng, layout, heads, kv_heads, q_len):
    grouped = {"heads": heads, "kv_heads": kv_heads} if heads != kv_heads else {}
    kernel = shipped(head_dim=64, layout=layout, mask=fc.causal(), **grouped)

    def array(count, length):
        shape = (2, count, length, 64) if layout == "bhsd" else (2, length, count, 64)
        return random(rng, shape, "bf16")

    q, k, v = array(heads, q_len), array(kv_heads, 700), array(kv_heads, 700)
    out, lse = split_call(kernel, q, k, v)
    assert_close(out, lse, q, k, v, mask="causal(bottom_right)", layout=layout)


@pytest.mark.parametrize("q_len", [1, 16, 17, 40, 64])
def test_rows_that_fill_tiles_of_every_size(rng, q_len):
    kernel = shipped(head_dim=64)
    q = random(rng, (1, 1, q_len, 64), "bf16")
    k, v = random(rng, (1, 1, 530, 64), "bf16"), random(rng, (1, 1, 530, 64), "bf16")
    out, _ = split_call(kernel, q, k, v, with_lse=False)
    assert_close(out, None, q, k, v)


@pytest.mark.parametrize(("heads", "kv_heads"), [(2, 2), (4, 1), (8, 1)])
@pytest.mark.parametrize("q_len", [33, 64, 130, 200])
def test_chunks(rng, heads, kv_heads, q_len):
    """Tiles of many rows by warpgroups; few multiprocessors, so that tiles are combined as well."""
    grouped = {"heads": heads, "kv_heads": kv_heads} if heads != kv_heads else {}
    kernel = shipped("sm_90a", head_dim=64, mask=fc.causal(), **grouped)
    q = random(rng, (1, heads, q_len, 64), "bf16")
    k, v = random(rng, (1, kv_heads, 700, 64), "bf16"), random(rng, (1, kv_heads, 700, 64), "bf16")
    for multiprocessors in (4, H200):
        out, lse = split_call(kernel, q, k, v, multiprocessors=multiprocessors)
        assert_close(out, lse, q, k, v, mask="causal(bottom_right)")


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize(("heads", "kv_heads"), [(2, 2), (8, 2)])
@pytest.mark.parametrize("q_lens", [(1, 1, 1), (3, 0, 2), (70, 200, 1)])
@pytest.mark.parametrize("page_size", [None, 16])
def test_packed_sequences(rng, target, heads, kv_heads, q_lens, page_size):
    kv_lens = (700, 5, 150)
    grouped = {"heads": heads, "kv_heads": kv_heads} if heads != kv_heads else {}
    kernel = shipped(
        target, head_dim=64, layout="thd", mask=fc.causal(), page_size=page_size,
        kv_lens=page_size is not None, **grouped,
    )  # fmt: skip
    starts, keys = (np.cumsum([0, *lens]).astype(np.int32) for lens in (q_lens, kv_lens))
    # Rows that belong to no sequence are left as they are.
    q = random(rng, (starts[-1] + 2, heads, 64), "bf16")
    k, v = (random(rng, (keys[-1] + 3, kv_heads, 64), "bf16") for _ in range(2))
    out, lse = np.full_like(q, 7), np.full((heads, q.shape[0]), 7, np.float32)
    mean = -(-q.shape[0] // 3)
    of_keys = k, v, (keys,)
    if page_size:
        pages, table = packed_pages(rng, keys, page_size, k, v)
        of_keys = *pages, (np.array(kv_lens, np.int32),)
    for blocks in _core.DecodeChooser(kernel.spec.to_json(), target).reachable(mean, mean):
        k_given, v_given, lengths = of_keys
        tables = [table] if page_size else []
        every = q, k_given, v_given, out, lse, *tables, starts, *lengths
        launch(kernel, blocks, every, True, scale=64**-0.5, max_q_len=max(q_lens))
        for i in range(3):
            rows, cols = slice(*starts[i : i + 2]), slice(*keys[i : i + 2])
            if q_lens[i]:
                one = (x.swapaxes(0, 1)[None] for x in (out[rows], q[rows], k[cols], v[cols]))
                own, *inputs = one
                assert_close(own, lse[None, :, rows], *inputs, mask="causal(bottom_right)")
        assert (out[starts[-1] :] == 7).all()
        assert (lse[:, starts[-1] :] == 7).all()


def test_rows_before_all_keys_and_windows(rng):
    def near(b, h, q_idx, kv_idx):
        return (kv_idx <= q_idx + length - 140) & (kv_idx >= q_idx + length - 240)

    kernel = shipped("sm_90a", head_dim=64, mask=fc.sliding_window(100, 0))
    q = random(rng, (1, 1, 140, 64), "bf16")
    for length in (90, 1000):
        k, v = random(rng, (1, 1, length, 64), "bf16"), random(rng, (1, 1, length, 64), "bf16")
        out, lse = split_call(kernel, q, k, v)
        assert_close(out, lse, q, k, v, mask=near)


def test_arrays_by_head_and_row(rng):
    """Heads of a group are rows of one tile: an expression sees each with its own number."""
    slopes = rng.standard_normal(8).astype(np.float32)
    seen = rng.random((2, 8, 3, 600)) < 0.7

    def score(s, b, h, q_idx, kv_idx):
        return s + slopes[h] * (kv_idx - q_idx) / 100

    def mask(b, h, q_idx, kv_idx):
        return seen[b, h, q_idx, kv_idx]

    kernel = shipped(head_dim=64, heads=8, kv_heads=2, mask=mask, score=score)
    q = random(rng, (2, 8, 3, 64), "bf16")
    k, v = random(rng, (2, 2, 600, 64), "bf16"), random(rng, (2, 2, 600, 64), "bf16")
    arrays, _ = kernel._given
    out, lse = split_call(kernel, q, k, v, lengths=arrays)
    assert_close(out, lse, q, k, v, mask=mask, score=score)


def test_heads_that_are_padded_and_lengths(rng):
    kernel = shipped(head_dim=100, kv_lens=True)
    q, k, v = (random(rng, (2, 2, n, 100), "bf16") for n in (1, 600, 600))
    k[1, :, 70:] = v[1, :, 70:] = np.nan
    out, lse = split_call(kernel, q, k, v, lengths=[np.array([600, 70], np.int32)])
    for b, n in enumerate((600, 70)):
        one = slice(b, b + 1)
        assert_close(out[one], lse[one], q[one], k[one, :, :n], v[one, :, :n])


def wanted(kernel, *problem):
    """The alternative that a call on a GPU wants."""
    return kernel._dispatch(False).core.alternative(problem, H200)


def test_which_calls_take_it():
    """More of it: tests/templates/attention_chooser_test.cpp."""
    kernel = shipped(head_dim=64, heads=8, kv_heads=2)
    assert wanted(kernel, 1, 8, 1, 4096) == 0  # the smallest tiles
    assert wanted(kernel, 1, 8, 16, 4096) == 2  # the rows of a group fill the largest
    assert wanted(kernel, 1, 8, 1, 500) is None
    assert wanted(kernel, 64, 8, 4096, 4096) is None


def test_specs_that_are_never_split():
    for fields in ({"dtype": "f32"}, {"head_dim": 512}):
        assert wanted(shipped(**{"head_dim": 64, **fields}), 1, 1, 1, 65536) is None
    chosen = fc.jit(fc.AttentionSpec(head_dim=64), target="sm_80", schedule={})
    assert not chosen._dispatch(False).core.dispatches  # the one that is asked for runs


def test_what_can_be_compiled_ahead():
    def reachable(target, q_lens, kv_lens):
        spec = fc.AttentionSpec(head_dim=64, heads=8, kv_heads=2)
        ranges = [(1, 1), (8, 8), q_lens, kv_lens]
        modules = _core.reachable_alternatives(spec.to_json(), target, ranges)
        assert all(module.name == "attention_decode" for module, _ in modules)
        return len(modules)

    # Chunks: rows of a head in two tiles, and packed rows, both combined in tiles or not.
    packed, chunks = 3, 6
    assert reachable("sm_80", (1, 4096), (1, 8192)) == packed
    assert reachable("sm_90a", (1, 4096), (1, 8192)) == packed + chunks
    assert reachable("sm_80", (5, 7), (512, 512)) == 1
    assert reachable("sm_90a", (1, 4096), (1, 511)) == 0


def pages_of(rng, array, page_size):
    """The keys of [batch, heads, length, dim] scattered over pages, and their table. What no
    sequence has is NaN."""
    batch, heads, length, dim = array.shape
    each = -(-length // page_size)
    table = rng.permutation(batch * each + 3)[: batch * each].reshape(batch, each).astype(np.int32)
    pages = np.full((batch * each + 3, page_size, heads, dim), np.nan, array.dtype)
    for b in range(batch):
        for at in range(length):
            pages[table[b, at // page_size], at % page_size] = array[b, :, at]
    return pages, table


@pytest.mark.parametrize(("starts", "longest"), [((0, 3, 4), 1), ((2, 3, 9), 4), ((0, 4, 2), 4)])
def test_wrong_starts_of_packed_rows_read_nothing_outside(rng, starts, longest):
    """As a GPU has them, which nobody checks; the emulator says where an access lies outside."""
    kernel = shipped(head_dim=64, heads=2, kv_heads=1, layout="thd", mask=fc.causal())
    q, k = random(rng, (6, 2, 64), "bf16"), random(rng, (300, 1, 64), "bf16")
    keys = np.array([0, 200, 300], np.int32)
    every = q, k, k, np.zeros_like(q), np.array(starts, np.int32), keys
    numbers = {"scale": 0.125, "max_q_len": longest}
    launch(kernel, ("packed", 16, False, True, False), every, False, **numbers)


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("page_size", [None, 12, 16])
def test_sequences_of_which_some_are_long(rng, target, page_size):
    """Those of few query rows have their keys split, and another kernel computes the others."""
    q_lens, kv_lens = (1, 150, 4, 0, 5, 3, 64), (700, 300, 20, 9, 150, 1, 64)
    kernel = shipped(
        target, head_dim=64, heads=4, kv_heads=1, layout="thd", mask=fc.causal(),
        page_size=page_size, kv_lens=page_size is not None,
    )  # fmt: skip
    starts, keys = (np.cumsum([0, *lens]).astype(np.int32) for lens in (q_lens, kv_lens))
    q = random(rng, (starts[-1] + 2, 4, 64), "bf16")
    k, v = (random(rng, (keys[-1], 1, 64), "bf16") for _ in range(2))
    of_keys = k, v, keys
    tables = []
    if page_size:
        (k_pages, v_pages), table = packed_pages(rng, keys, page_size, k, v)
        of_keys, tables = (k_pages, v_pages, np.array(kv_lens, np.int32)), [table]
    out, lse = np.full_like(q, 7), np.full((4, q.shape[0]), 7, np.float32)
    every = q, *of_keys[:2], out, lse, *tables, starts, of_keys[2]
    blocks = _core.DecodeChooser(kernel.spec.to_json(), target).reachable(150, 150)
    mixed = next(one for one in blocks if one[4])
    launch(kernel, mixed, every, True, scale=64**-0.5, max_q_len=170)
    for i, n in enumerate(q_lens):
        rows, cols = slice(*starts[i : i + 2]), slice(*keys[i : i + 2])
        if n:
            own = out[rows], lse[:, rows], q[rows], k[cols], v[cols]
            own = [np.moveaxis(x, 0, -2)[None] if x.ndim == 3 else x[None] for x in own]
            assert_close(*own, mask="causal(bottom_right)")
    assert (out[starts[-1] :] == 7).all()
    assert (lse[:, starts[-1] :] == 7).all()


def packed_pages(rng, starts, page_size, *arrays):
    """The same of packed sequences [total, heads, dim], and one table for all arrays."""
    counts = -(-np.diff(starts) // page_size)
    order = rng.permutation(counts.sum() + 3).astype(np.int32)
    table = np.full((len(counts), counts.max() + 1), 1 << 30, np.int32)
    every = [np.full((len(order), page_size, *x.shape[1:]), np.nan, x.dtype) for x in arrays]
    for b, first in enumerate(np.cumsum([0, *counts[:-1]])):
        table[b, : counts[b]] = order[first : first + counts[b]]
        for at in range(starts[b + 1] - starts[b]):
            for pages, array in zip(every, arrays, strict=True):
                pages[table[b, at // page_size], at % page_size] = array[starts[b] + at]
    return every, table


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("q_len", [1, 5])
def test_sequences_of_different_lengths(rng, target, q_len):
    """Longer ones have more splits; what lies behind a sequence is NaN."""
    kernel = shipped(
        target, head_dim=64, heads=4, kv_heads=2, kv_lens=True, mask=fc.sliding_window(900, 0)
    )
    lens = np.array([1500, 1, 300, 0, 128, 5, 70, 40], np.int32)
    q = random(rng, (8, 4, q_len, 64), "bf16")
    k, v = (random(rng, (8, 2, 1500, 64), "bf16") for _ in range(2))
    for b, n in enumerate(lens):
        k[b, :, n:] = v[b, :, n:] = np.nan
    chooser = _core.DecodeChooser(kernel.spec.to_json(), target)
    blocks = chooser.blocks(8, 4, q_len, 1500, H200)
    assert blocks == ("packed", 16, False, True, False)
    out, lse = np.full(q.shape, np.nan, q.dtype), np.full(q.shape[:3], np.nan, np.float32)
    launch(kernel, blocks, (q, k, v, out, lse, lens), True, scale=64**-0.5)
    for b, n in enumerate(lens):
        one = slice(b, b + 1)

        def near(_b, _h, q_idx, kv_idx, n=n):
            return (kv_idx <= q_idx + n - q_len) & (kv_idx >= q_idx + n - q_len - 900)

        assert_close(out[one], lse[one], q[one], k[one, :, :n], v[one, :, :n], mask=near)


def test_a_plan_is_a_program_like_any_other():
    """Its outputs, which a call makes, have an element more than there are sequences."""
    spec = fc.AttentionSpec(head_dim=64, kv_lens=True)
    core, texts = _core.attention_decode(
        spec.to_json(), "sm_90a", ("packed", 16, False, True, False)
    )
    program = fc.Module._of(core).programs[0]
    plan = fc.jit(program, schedule=fc.Schedule.from_json(texts[0][0]), target="sm_90a")
    lens = np.array([0, 300, 5000], np.int32)
    numbers = {"most_rows": 1, "most_keys": 5000, "row_tiles": 1, "head_blocks": 8}
    first, keys = plan(kv_lens=lens, block_slots=264, splits=60, **numbers)
    assert first.shape == keys.shape == (4,)
    assert first[0] == 0 < first[1] < first[2] < first[3] <= 60
    assert (keys[:3] * np.diff(first) >= lens).all()
    with pytest.raises(fc.DeviceError) as caught:
        plan(kv_lens=lens)
    assert "first_split: i32[B + 1] (output)" in caught.value.fix


@pytest.mark.parametrize("page_size", [1, 16, 64])
@pytest.mark.parametrize("layout", ["bhsd", "bshd"])
def test_keys_in_pages(rng, page_size, layout):
    q = random(rng, (2, 4, 3, 64), "bf16")
    k, v = random(rng, (2, 2, 150, 64), "bf16"), random(rng, (2, 2, 150, 64), "bf16")
    k_pages, table = pages_of(rng, k, page_size)
    v_pages = np.full_like(k_pages, np.nan)
    for b, at in np.ndindex(2, 150):
        v_pages[table[b, at // page_size], at % page_size] = v[b, :, at]
    lens = np.array([150, 41], np.int32)
    out, lse = fc.attention(
        q if layout == "bhsd" else q.swapaxes(1, 2), k_pages, v_pages, page_table=table,
        kv_lens=lens, mask=fc.causal(), layout=layout, return_lse=True,
    )  # fmt: skip
    out = out if layout == "bhsd" else out.swapaxes(1, 2)
    for b, n in enumerate(lens):
        one = slice(b, b + 1)
        assert_close(out[one], lse[one], q[one], k[one, :, :n], v[one, :, :n],
                     mask="causal(bottom_right)")  # fmt: skip


@pytest.mark.parametrize("max_q_len", [None, 90])
def test_packed_rows_over_pages(rng, max_q_len):
    """Prefill, decoding and a sequence without rows in one call."""
    starts, keys = (np.cumsum([0, *n]).astype(np.int32) for n in ((90, 1, 0, 3), (130, 40, 7, 3)))
    q = random(rng, (starts[-1] + 2, 4, 64), "bf16")
    k, v = (random(rng, (keys[-1], 2, 64), "bf16") for _ in range(2))
    pages, table = packed_pages(rng, keys, 16, k, v)
    out = np.full_like(q, 7)
    _, lse = fc.attention(
        q, *pages, page_table=table, kv_lens=np.diff(keys), cu_seqlens_q=starts, layout="thd",
        max_q_len=max_q_len, max_kv_len=130, mask=fc.causal(), out=out, return_lse=True,
    )  # fmt: skip
    for i in range(4):
        rows, cols = slice(*starts[i : i + 2]), slice(*keys[i : i + 2])
        if rows.start < rows.stop:
            own, *inputs = (x.swapaxes(0, 1)[None] for x in (out[rows], q[rows], k[cols], v[cols]))
            assert_close(own, lse[None, :, rows], *inputs, mask="causal(bottom_right)")
    assert (out[starts[-1] :] == 7).all()


def test_more_rows_than_a_tile_over_pages(rng):
    q, k = random(rng, (1, 2, 100, 40), "f16"), random(rng, (1, 2, 130, 40), "f16")
    pages, table = pages_of(rng, k, 16)
    lens = np.array([130], np.int32)
    out = fc.attention(q, pages, pages, page_table=table, kv_lens=lens, scale=-0.3)
    assert_close(out, None, q, k, k, scale=-0.3)


def test_what_pages_need_is_said(rng):
    q, pages = random(rng, (1, 2, 1, 64), "bf16"), random(rng, (3, 16, 2, 64), "bf16")
    table, lens = np.zeros((1, 2), np.int32), np.array([20], np.int32)

    def refusal(**given):
        with pytest.raises(fc.Error) as caught:
            fc.attention(q, pages, pages, **{"page_table": table, "kv_lens": lens, **given})
        return f"{caught.value.what}: {caught.value.why}"

    assert refusal(kv_lens=None) == (
        "attention with page_table and without kv_lens: a table of pages does not say where a "
        "sequence ends"
    )
    assert refusal(cu_seqlens_q=lens).startswith(
        "calling attention_forward: cu_seqlens_q was given"
    )
    assert "sequence 0 has length 20, and what page_table has room for is 16" in refusal(
        max_kv_len=16
    )
    assert "page_table has shape (1, 2, 1), which is not 2" in refusal(page_table=table[..., None])
    for few in (pages[0], pages[0, 0, 0]):
        with pytest.raises(fc.SpecError, match="k has shape .*, which is not 4 dimensions"):
            fc.attention(q, few, few, page_table=table, kv_lens=lens)
    assert "page_table" in refusal(page_table=table.astype(np.float32))
    assert "kv_lens" in refusal(kv_lens=np.array([33], np.int32))
    with pytest.raises(fc.SpecError, match="page_size = 16 without kv_lens"):
        fc.jit(fc.AttentionSpec(head_dim=64, page_size=16))
    kernel = fc.jit(fc.AttentionSpec(head_dim=64, page_size=16, kv_lens=True))
    with pytest.raises(fc.SpecError, match="it needs page_table"):
        kernel(q, pages, pages, kv_lens=lens)
    other = fc.jit(fc.AttentionSpec(head_dim=64, kv_lens=True))
    with pytest.raises(fc.SpecError) as caught:
        other(q, pages, pages, kv_lens=lens, page_table=table)
    assert caught.value.fix == "a spec with page_size = the rows of a page, and kv_lens = True"
    with pytest.raises(fc.SpecError, match="the backward of attention over pages"):
        kernel.backward(q, pages, pages, q, q, q, kv_lens=lens)
