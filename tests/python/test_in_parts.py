"""f32 in full accuracy on wgmma: calls whose operands are split by kernels in front."""

import dataclasses

import numpy as np
import pytest

import flashcore as fc
from flashcore import _core
from flashcore.kernels.module_kernel import ModuleKernel
from flashcore.specs.module import Module
from flashcore.specs.schedule import Schedule
from reference import attention

TARGET = "sm_90a"


def shipped(target=TARGET, **fields):
    spec = fc.AttentionSpec(**{"dtype": "f32", **fields})
    return fc.AttentionKernel.shipped(spec, target, compiled=False)


def draw(rng, *shape):
    return rng.standard_normal(shape).astype(np.float32)


def call(kernel, q, k, v, lengths=(), scalars=()):
    """What a call on a GPU launches, in the emulator."""
    out = np.full((*q.shape[:-1], v.shape[-1]), np.nan, np.float32)
    *batch, a, b, _ = q.shape
    rows = (a, b) if kernel.spec.layout == "bhsd" else (b, a)
    lse = np.full((*batch, *rows), np.nan, np.float32)
    with_lse = dataclasses.replace(kernel.spec, lse=True).to_json()
    module, lists = _core.attention_in_parts(with_lse, kernel.target)
    schedules = [[Schedule.from_json(text) for text in texts] for texts in lists]
    kernels = ModuleKernel.first_fitting(
        Module._of(module), schedules, kernel.target, compiled=False
    )
    names = "q", "k", "v", "o", "lse", "cu_seqlens_q", "cu_seqlens_k", "kv_lens"
    given = [name for name in names if name in {tensor[0] for tensor in kernels.tensors}]
    every = dict(zip(given, (q, k, v, out, lse, *lengths), strict=True))
    kernels.launch(
        tuple(every[name] for name, *_ in kernels.tensors), (q.shape[-1] ** -0.5, *scalars), None
    )
    return out, lse


def as_numpy_sums(q, k, v, mask, layout="bhsd"):
    """The same in float32, without a softmax that is better than ours."""
    if layout == "bshd":
        q, k, v = (x.swapaxes(1, 2) for x in (q, k, v))
    group = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, group, axis=1), np.repeat(v, group, axis=1)
    scores = q @ k.swapaxes(-1, -2) * np.float32(q.shape[-1] ** -0.5)
    rows, cols = np.ogrid[: scores.shape[2], : scores.shape[3]]
    keep = mask(0, 0, rows, cols) if mask else np.full(scores.shape[2:], True)
    scores = np.where(keep, scores, np.float32(-np.inf))
    top = scores.max(-1, keepdims=True)
    weights = np.exp(scores - np.where(np.isfinite(top), top, np.float32(0)))
    total = weights.sum(-1, keepdims=True)
    out = np.where(total > 0, weights @ v / np.where(total > 0, total, np.float32(1)), 0)
    return out.swapaxes(1, 2) if layout == "bshd" else out


def check(out, lse, q, k, v, mask=None, layout="bhsd"):
    """An error of at most twice that of sums in float32."""
    right, right_lse = attention(q, k, v, mask=mask or "full", layout=layout)
    plain = np.abs(as_numpy_sums(q, k, v, mask, layout) - right).max()
    assert np.abs(out - right).max() <= 2 * plain + np.finfo(np.float32).eps * np.abs(v).max()
    seen = np.isfinite(right_lse)
    assert (np.isfinite(lse) == seen).all()
    np.testing.assert_allclose(lse[seen], right_lse[seen], rtol=0, atol=2e-6)


@pytest.mark.parametrize(
    ("head_dim", "value_dim"), [(64, 64), (40, 40), (128, 64), (160, 160), (200, 136), (256, 256)]
)
@pytest.mark.parametrize("mask", ["full", "causal", "window"])
def test_it_is_as_accurate_as_sums_of_float32(rng, head_dim, value_dim, mask):
    rows, keys = 75, 150
    masks = {
        "full": (fc.full(), None),
        "causal": (fc.causal(), lambda b, h, i, j: j <= i + keys - rows),
        # The first rows see nothing.
        "window": (
            fc.Mask("(kv_idx <= q_idx - 9) & (kv_idx > q_idx - 40)"),
            lambda b, h, i, j: (j <= i - 9) & (j > i - 40),
        ),
    }
    kernel = shipped(head_dim=head_dim, head_dim_v=value_dim, mask=masks[mask][0])
    q, k = draw(rng, 1, 2, rows, head_dim), draw(rng, 1, 2, keys, head_dim)
    v = draw(rng, 1, 2, keys, value_dim)
    check(*call(kernel, q, k, v), q, k, v, masks[mask][1])


@pytest.mark.parametrize("layout", ["bhsd", "bshd"])
def test_groups_and_layouts(rng, layout):
    kernel = shipped(head_dim=64, layout=layout, heads=4, kv_heads=2, score=fc.softcap(9.0))

    def array(count, length):
        shape = (2, count, length, 64) if layout == "bhsd" else (2, length, count, 64)
        return draw(rng, *shape)

    q, k, v = array(4, 33), array(2, 70), array(2, 70)
    out, _ = call(kernel, q, k, v)
    right, _ = attention(q, k, v, layout=layout, score=lambda s, b, h, i, j: 9 * np.tanh(s / 9))
    assert np.abs(out - right).max() < 3e-6


def test_packed_sequences(rng):
    kernel = shipped(head_dim=64, layout="thd", mask=fc.causal())
    q_lens, kv_lens = (130, 0, 70), (200, 5, 70)
    starts, keys = (np.cumsum([0, *lens]).astype(np.int32) for lens in (q_lens, kv_lens))
    q = draw(rng, starts[-1], 2, 64)
    k, v = draw(rng, 2, keys[-1] + 3, 2, 64)
    v[keys[-1] :] = np.nan  # what belongs to no sequence
    out, lse = call(kernel, q, k, v, (starts, keys), [max(q_lens)])
    for i, (own, all_keys) in enumerate(zip(q_lens, kv_lens, strict=True)):
        if not own:
            continue
        rows, cols = slice(*starts[i : i + 2]), slice(*keys[i : i + 2])
        one = [x.swapaxes(0, 1)[None] for x in (out[rows], q[rows], k[cols], v[cols])]
        ahead = all_keys - own
        check(one[0], lse[None, :, rows], *one[1:], lambda b, h, i, j, ahead=ahead: j <= i + ahead)


def test_sequences_shorter_than_their_tensors(rng):
    kernel = shipped(head_dim=64, kv_lens=True)
    q, k, v = (draw(rng, 2, 1, length, 64) for length in (40, 90, 90))
    lens = np.array([90, 33], np.int32)
    out, lse = call(kernel, q, k, v, [lens])
    for i in range(2):
        own = slice(i, i + 1), slice(None), slice(lens[i])
        check(out[i : i + 1], lse[i : i + 1], q[i : i + 1], k[own], v[own])


def test_which_calls_take_it():
    """More of it: tests/templates/attention_chooser_test.cpp."""

    def wanted(kernel, *problem):
        return kernel._dispatch(False).core.alternative(problem, 132)

    kernel = shipped(head_dim=64)
    assert wanted(kernel, 1, 2, 4096, 130) == 0
    assert wanted(kernel, 1, 2, 16, 4096) is None
    for other in ({"target": "sm_90"}, {"products": "tf32"}):
        assert wanted(shipped(head_dim=64, **other), 1, 2, 4096, 130) is None


def test_what_can_be_compiled_ahead():
    def reachable(rows, keys):
        ranges = [(1, 1), (2, 2), (1, rows), (1, keys)]
        return _core.reachable_alternatives(shipped(head_dim=64).spec.to_json(), TARGET, ranges)

    [(module, schedules)] = reachable(4096, 4096)
    assert [program.name for program in module.kernels] == [
        "split_q", "split_k", "split_v", "attention_forward_in_parts"
    ]  # fmt: skip
    assert Schedule.from_json(schedules[-1][0]).instruction == "wgmma"
    assert reachable(100, 4096) == reachable(4096, 100) == []
