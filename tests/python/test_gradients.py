"""The gradients of attention against NumPy in fp64, in the emulator."""

import dataclasses
import itertools

import numpy as np
import pytest

import flashcore as fc
from flashcore.kernels.attention_backward import AttentionBackward
from flashcore.kernels.backward_choice import BackwardChoice, length_bounds
from flashcore.kernels.module_kernel import ModuleKernel
from reference import DTYPES, assert_gradients, random


def both_ways(rng, *, batch=1, heads=2, kv_heads=2, q_len=37, kv_len=53, head_dim=64,
              head_dim_v=None, dtype="bf16", layout="bhsd", target="sm_80", scale=None,
              expected="full", score_and_slope=(None, None), **spec):  # fmt: skip
    grouped = heads != kv_heads
    kernel = fc.jit(
        fc.AttentionSpec(
            head_dim=head_dim,
            head_dim_v=head_dim_v,
            heads=heads if grouped else None,
            kv_heads=kv_heads if grouped else None,
            dtype=dtype,
            layout=layout,
            **spec,
        ),
        target=target,
        schedule={},
    )
    dim_v = head_dim_v or head_dim
    q = random(rng, (batch, heads, q_len, head_dim), dtype)
    k = random(rng, (batch, kv_heads, kv_len, head_dim), dtype)
    v = random(rng, (batch, kv_heads, kv_len, dim_v), dtype)
    dout = random(rng, (batch, heads, q_len, dim_v), dtype)
    turned = [x.swapaxes(1, 2) if layout == "bshd" else x for x in (q, k, v, dout)]
    out, lse = kernel(*turned[:3], scale=scale, return_lse=True)
    found = kernel.backward(*turned[:3], out, lse, turned[3], scale=scale)
    for gradient, array in zip(found, turned[:3], strict=True):
        assert gradient.shape == array.shape
        assert gradient.dtype == array.dtype
    found = [x.swapaxes(1, 2) if layout == "bshd" else x for x in found]
    score, slope = score_and_slope
    assert_gradients(found, q, k, v, dout, scale=scale, mask=expected, score=score, slope=slope)


@pytest.mark.parametrize("mask", ["full", "causal(bottom_right)", "causal(top_left)"])
def test_masks(rng, mask):
    masks = {
        "full": None,
        "causal(bottom_right)": fc.causal(),
        "causal(top_left)": fc.causal("top_left"),
    }
    both_ways(rng, mask=masks[mask], expected=mask)


@pytest.mark.parametrize("lengths", [(1, 1), (1, 70), (70, 1), (130, 66)])
def test_lengths(rng, lengths):
    both_ways(rng, q_len=lengths[0], kv_len=lengths[1])


@pytest.mark.parametrize("kv_heads", [1, 2])
def test_groups(rng, kv_heads):
    both_ways(rng, heads=4, kv_heads=kv_heads, mask=fc.causal(), expected="causal(bottom_right)")


def test_rows_without_keys_have_no_gradients(rng):
    both_ways(rng, q_len=60, kv_len=20, mask=fc.causal(), expected="causal(bottom_right)")


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("head_dim", [20, 100])
def test_heads_that_are_padded(rng, head_dim, target):
    both_ways(rng, head_dim=head_dim, target=target)


def test_values_of_another_width(rng):
    both_ways(rng, head_dim=96, head_dim_v=40)


@pytest.mark.parametrize("layout", ["bhsd", "bshd"])
@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_layouts_and_dtypes(rng, layout, dtype):
    both_ways(rng, batch=2, layout=layout, dtype=dtype)


@pytest.mark.parametrize("scale", [0.0, -0.2, 1.5])
def test_scales(rng, scale):
    both_ways(rng, scale=scale)


def test_windows_with_arrays(rng):
    width = np.array([5, 20], np.int32)

    def visible(b, h, q_idx, kv_idx):
        return abs(q_idx - kv_idx) < width[h]

    both_ways(rng, mask=visible, expected=visible)


def capped(score, b, h, q_idx, kv_idx):
    return 5 * np.tanh(score / 5)


def slope_of_capped(score, b, h, q_idx, kv_idx):
    return 1 - np.tanh(score / 5) ** 2


def bent(score, b, h, q_idx, kv_idx):
    return np.where(score > 0, score, 0.25 * score) + 0.1 * (kv_idx - q_idx) * (h + 1)


def slope_of_bent(score, b, h, q_idx, kv_idx):
    return np.where(score > 0, 1.0, 0.25)


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize(
    ("score", "functions"),
    [(fc.softcap(5), (capped, slope_of_capped)), (bent, (bent, slope_of_bent))],
    ids=["capped", "bent"],
)
def test_scores(rng, target, score, functions):
    both_ways(rng, score=score, score_and_slope=functions, target=target)
    both_ways(rng, score=score, score_and_slope=functions, target=target, mask=fc.causal(),
              expected="causal(bottom_right)", q_len=70, kv_len=66)  # fmt: skip


def test_a_score_without_a_slope_at_hidden_keys(rng):
    def roots(score, b, h, q_idx, kv_idx):
        return score * fc.sqrt(fc.maximum(0, q_idx - kv_idx))

    def their_roots(score, b, h, q_idx, kv_idx):
        return score * np.sqrt(np.maximum(0, q_idx - kv_idx))

    def slope(score, b, h, q_idx, kv_idx):
        return np.sqrt(np.maximum(0, q_idx - kv_idx)) + 0 * score

    both_ways(rng, score=roots, score_and_slope=(their_roots, slope), mask=fc.causal("top_left"),
              expected="causal(top_left)", q_len=20, kv_len=20)  # fmt: skip


def test_hopper(rng):
    both_ways(rng, q_len=150, kv_len=140, target="sm_90a", mask=fc.causal(),
              expected="causal(bottom_right)")  # fmt: skip


def test_packed_sequences(rng):
    pairs = [(20, 30), (0, 5), (33, 33), (7, 0)]
    starts = [np.cumsum([0, *(p[i] for p in pairs)]).astype(np.int32) for i in (0, 1)]
    q = random(rng, (starts[0][-1] + 3, 2, 64), "bf16")
    k = random(rng, (starts[1][-1] + 3, 2, 64), "bf16")
    v = random(rng, (starts[1][-1] + 3, 2, 64), "bf16")
    dout = random(rng, q.shape, "bf16")
    kernel = fc.jit(fc.AttentionSpec(head_dim=64, mask=fc.causal(), layout="thd"), schedule={})
    lengths = {"cu_seqlens_q": starts[0], "cu_seqlens_k": starts[1]}
    out, lse = kernel(q, k, v, return_lse=True, **lengths)
    dq, dk, dv = kernel.backward(q, k, v, out, lse, dout, **lengths)
    again = kernel.backward(q, k, v, out, lse, dout, max_q_len=33, max_kv_len=33, **lengths)
    assert all((a == b).all() for a, b in zip(again, (dq, dk, dv), strict=True))
    for i in range(len(pairs)):
        rows, keys = (slice(s[i], s[i + 1]) for s in starts)
        if rows.start == rows.stop or keys.start == keys.stop:
            continue
        one = [
            x[r].swapaxes(0, 1)[None]
            for x, r in (
                (dq, rows),
                (dk, keys),
                (dv, keys),
                (q, rows),
                (k, keys),
                (v, keys),
                (dout, rows),
            )
        ]
        assert_gradients(one[:3], *one[3:], mask="causal(bottom_right)")
    for gradient, end in ((dq, starts[0][-1]), (dk, starts[1][-1]), (dv, starts[1][-1])):
        assert not gradient[end:].any()


def test_padded_batches(rng):
    q_lens, kv_lens = np.array([20, 0, 37], np.int32), np.array([30, 10, 53], np.int32)
    q, dout = random(rng, (3, 2, 37, 64), "bf16"), random(rng, (3, 2, 37, 64), "bf16")
    k, v = random(rng, (3, 2, 53, 64), "bf16"), random(rng, (3, 2, 53, 64), "bf16")
    for b, (rows, keys) in enumerate(zip(q_lens, kv_lens, strict=True)):
        q[b, :, rows:] = k[b, :, keys:] = v[b, :, keys:] = dout[b, :, rows:] = np.nan
    kernel = fc.jit(fc.AttentionSpec(head_dim=64, q_lens=True, kv_lens=True), schedule={})
    lengths = {"q_lens": q_lens, "kv_lens": kv_lens}
    out, lse = kernel(q, k, v, return_lse=True, **lengths)
    dq, dk, dv = kernel.backward(q, k, v, out, lse, dout, **lengths)
    for b, (rows, keys) in enumerate(zip(q_lens, kv_lens, strict=True)):
        one = slice(b, b + 1)
        if rows:
            assert_gradients(
                (dq[one, :, :rows], dk[one, :, :keys], dv[one, :, :keys]),
                q[one, :, :rows], k[one, :, :keys], v[one, :, :keys], dout[one, :, :rows],
            )  # fmt: skip
        assert not dq[b, :, rows:].any()
        assert not dk[b, :, keys:].any()
        assert not dv[b, :, keys:].any()


def test_arrays_that_lie_elsewhere_are_copied(rng):
    q, k, v, dout = (random(rng, (1, 2, 40, 64), "bf16") for _ in range(4))
    kernel = fc.jit(fc.AttentionSpec(head_dim=64), schedule={})
    out, lse = kernel(q, k, v, return_lse=True)
    reversed_rows = np.ascontiguousarray(dout[..., ::-1])[..., ::-1]
    repeated = np.broadcast_to(dout[:, :1], dout.shape)
    assert_gradients(kernel.backward(q, k, v, out, lse, reversed_rows), q, k, v, dout)
    found = kernel.backward(q, k, v, out, lse, repeated)
    assert_gradients(found, q, k, v, np.ascontiguousarray(repeated))


def test_what_has_no_derivative_is_refused_by_name():
    q = np.zeros((1, 2, 8, 64), DTYPES["bf16"])
    lse = np.zeros((1, 2, 8), np.float32)
    kernel = fc.jit(fc.AttentionSpec(head_dim=64, dtype="f32"), schedule={})
    with pytest.raises(fc.SpecError, match="backward of attention with dtype f32"):
        kernel.backward(*[q.astype(np.float32)] * 4, lse, q.astype(np.float32))
    kernel = fc.jit(fc.AttentionSpec(head_dim=64), schedule={})
    with pytest.raises(fc.SpecError, match="dout"):
        kernel.backward(q, q, q, q, lse, q[:, :, :7])
    with pytest.raises(fc.SpecError, match="lse"):
        kernel.backward(q, q, q, q, lse[..., :7], q)
    wide = np.zeros((1, 2, 8, 72), DTYPES["bf16"])
    with pytest.raises(fc.SpecError, match="the last dimension of dout is 72"):
        kernel.backward(q, q, q, q, lse, wide)


def test_short_and_long_sequences_have_kernels_of_their_own():
    backward = AttentionBackward(fc.AttentionSpec(head_dim=64), "sm_90a")
    brief, long = (backward.kernels(False, length) for length in (512, 16384))
    assert backward.kernels(False, 4096) is brief is not long
    wide = AttentionBackward(fc.AttentionSpec(head_dim=256), "sm_90a")
    assert wide.kernels(False, 512) is wide.kernels(False, 16384)


@pytest.mark.parametrize(
    ("layout", "shape", "length"),
    [("bhsd", (1, 2, 70, 64), 70), ("bshd", (1, 70, 2, 64), 70), ("thd", (70, 2, 64), 24)],
)
def test_kernels_go_by_the_length_of_sequences_in_the_mean(layout, shape, length):
    seen = []

    class Recording(AttentionBackward):
        def kernels(self, compiled, length, keys):
            seen.append((length, keys))
            return super().kernels(compiled, length, keys)

    spec = fc.AttentionSpec(head_dim=64, layout=layout)
    x = np.zeros(shape, DTYPES["bf16"])
    starts = {"cu_seqlens_q": np.array([0, 1, 69, 70], np.int32)} if layout == "thd" else {}
    out, lse = fc.jit(spec, target="sm_80")(x, x, x, return_lse=True, **starts)
    Recording(spec, "sm_80")(x, x, x, out, lse, x, scale=0.1, compiled=False, **starts)
    assert seen == [(length, length)]


def test_bounds_of_lengths_stand_for_all_between():
    bounds = length_bounds()
    assert length_bounds(0, 0) == length_bounds(1, bounds[0]) == bounds[:1]
    assert length_bounds(bounds[0] + 1, bounds[1]) == [bounds[1]]
    assert length_bounds(bounds[0], bounds[0] + 1) == bounds[:2]
    assert length_bounds(bounds[1] + 1) == bounds[2:]


IN_ANY_ORDER = fc.AttentionSpec(head_dim=64, deterministic=False)


@pytest.mark.parametrize("mask", ["full", "causal(bottom_right)"])
def test_gradients_that_are_added_up_in_any_order(rng, mask):
    masks = {"full": None, "causal(bottom_right)": fc.causal()}
    spec = dataclasses.replace(IN_ANY_ORDER, mask=masks[mask])
    q, k, v, dout = (random(rng, (1, 1, n, 64), "bf16") for n in (600, 530, 530, 600))
    out, lse = fc.jit(spec, target="sm_90a", schedule={})(q, k, v, return_lse=True)
    backward = AttentionBackward(spec, "sm_90a", adding=None if mask == "full" else True)
    assert backward.kernels(False, 600, 530).name == "attention_backward_adding"
    found = backward(q, k, v, out, lse, dout, scale=0.125, compiled=False)
    assert_gradients(found, q, k, v, dout, mask=mask)


def chosen(spec, length, keys, target="sm_90a"):
    """How many products of scores the gradients of such a problem take."""
    return 5 if BackwardChoice(spec, target).kind(length, keys).adding else 7


def test_five_products_are_chosen_where_they_are_faster():
    assert chosen(IN_ANY_ORDER, 512, 512) == 7
    assert chosen(IN_ANY_ORDER, 513, 512) == 5
    assert chosen(IN_ANY_ORDER, 16384, 128) == 7  # whose dQ is added up from few blocks of keys
    causal = dataclasses.replace(IN_ANY_ORDER, mask=fc.causal())
    assert chosen(causal, 4096, 4096) == 7
    assert chosen(causal, 4097, 4097) == 5


@pytest.mark.parametrize(
    "changes",
    [
        {"deterministic": True},
        {"head_dim": 48},
        {"head_dim": 128},
        {"layout": "thd"},
        {"kv_lens": True},
        {"mask": fc.sliding_window(100, 0)},
    ],
    ids=str,
)
def test_seven_products_are_chosen_elsewhere(changes):
    spec = dataclasses.replace(IN_ANY_ORDER, **changes)
    assert chosen(spec, 16384, 16384) == 7
    assert not any(kind.adding for kind in BackwardChoice(spec, "sm_90a").reachable(*[ANY] * 2))


def test_other_targets_have_seven_products():
    assert chosen(IN_ANY_ORDER, 16384, 16384, target="sm_80") == 7


ANY = (1, 2**31 - 1)


@pytest.mark.parametrize("mask", [None, fc.causal()], ids=["full", "causal"])
def test_what_ranges_reach_is_what_their_problems_are_of(rng, mask):
    choice = BackwardChoice(dataclasses.replace(IN_ANY_ORDER, mask=mask), "sm_90a")
    ends = [1, 511, 512, 513, 4096, 4097, 8192, 8193, 20000]
    for _ in range(100):
        rows, keys = (tuple(sorted(int(x) for x in rng.choice(ends, 2))) for _ in range(2))
        reached = choice.reachable(rows, keys)
        assert len(set(reached)) == len(reached)
        inside = [[n for n in ends if least <= n <= most] for least, most in (rows, keys)]
        problems = itertools.product(*inside)
        assert {choice.kind(max(problem), problem[1]) for problem in problems} <= set(reached)
        if rows[0] == rows[1] and keys[0] == keys[1]:
            assert len(reached) == 1


def test_where_the_compiler_refuses_five_products_seven_serve(monkeypatch):
    fitting, seen = ModuleKernel.first_fitting, []

    def refusing(module, schedules, target, compiled):
        if module.name == "attention_backward_adding":
            seen.append([len(own) for own in schedules])
            raise fc.CompileError("attention_backward_adding_keys", "it spills", "fewer registers")
        return fitting(module, schedules, target, compiled)

    monkeypatch.setattr(ModuleKernel, "first_fitting", refusing)
    backward = AttentionBackward(IN_ANY_ORDER, "sm_90a")
    assert backward.kernels(False, 16384).name == "attention_backward"
    assert seen == [[1, 1, 1]]  # the schedules behind the first ones are slower
    assert backward.reachable(False, (8193, 9000), (8193, 9000)) == [backward.kernels(False, 8193)]
    with pytest.raises(fc.CompileError, match="it spills"):
        AttentionBackward(IN_ANY_ORDER, "sm_90a", adding=True).kernels(False, 16384)


def test_what_is_planned_holds_both_ways():
    def programs(**ranges):
        planned = fc.plan_bundle(IN_ANY_ORDER, "sm_90a", batch=1, gradients=True, **ranges)
        return {kernel.program for kernel in planned}

    assert "attention_backward_adding_keys" not in programs(lengths=(1, 512))
    assert programs(lengths=4096) >= {"attention_backward_keys", "attention_backward_adding_keys"}
