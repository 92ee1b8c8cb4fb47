"""Calls that need nothing but a launch go past Python; all others are left to it."""

import gc
import weakref

import numpy as np
import pytest

import fake_framework
import flashcore as fc
from reference import assert_close, random

# cu_seqlens_q, cu_seqlens_k, max_q_len, q_lens, kv_lens, page_table, max_kv_len
NO_LENGTHS = (None,) * 7
NO_LSE = False
BIAS = np.linspace(-1, 1, 40, dtype=np.float32)


def biased(limit):
    return lambda score, b, h, i, j: score + BIAS[j] * limit


def made(spec, arrays):
    """A kernel that has been called once, which is how it learns what calls of it need."""
    kernel = fc.jit(spec)
    kernel(*arrays[:3], out=arrays[3])
    return kernel


@pytest.fixture
def arrays(rng):
    return [fake_framework.Exchange(random(rng, (1, 2, 40, 64), "f16")) for _ in range(4)]


def quickly(kernel, arrays, scale=None, stream=None):
    q, k, v, out = arrays
    return kernel._quick(q, k, v, out, scale, stream, *NO_LENGTHS, NO_LSE)


def test_it_computes_what_the_call_does(arrays):
    kernel = made(fc.AttentionSpec(head_dim=64, dtype="f16"), arrays)
    q, k, v, out = arrays
    out.array[...] = np.nan
    assert quickly(kernel, arrays) is out
    assert_close(out.array, None, q.array, k.array, v.array)
    assert quickly(kernel, arrays, scale=0.5) is out
    assert_close(out.array, None, q.array, k.array, v.array, scale=0.5)


@pytest.mark.parametrize("layout", ["bhsd", "bshd"])
def test_the_log_sum_exp(arrays, monkeypatch, layout):
    """Where no call asked for it before, Python makes the kernel that writes it."""
    from flashcore import arrays as making

    def empty(like, shape, dtype):  # these arrays come from no framework that makes others
        assert dtype == "f32"
        return fake_framework.Exchange(np.full(shape, np.nan, np.float32))

    kernel = made(fc.AttentionSpec(head_dim=64, dtype="f16", layout=layout), arrays)
    q, k, v, out = arrays
    asked = *arrays, None, None, *NO_LENGTHS, True
    assert kernel._quick(*asked) is None
    kernel._dispatch(True)
    monkeypatch.setattr(making, "empty", empty)
    out.array[...] = np.nan
    own, lse = kernel._quick(*asked)
    assert own is out
    assert_close(out.array, lse.array, q.array, k.array, v.array, layout=layout)
    assert quickly(kernel, arrays) is out
    flat = [fake_framework.Exchange(x.array[0, 0]) for x in arrays]
    assert kernel._quick(*flat, None, None, *NO_LENGTHS, True) is None


def test_captured_arrays_and_numbers_are_read_as_by_the_call(arrays):
    for limit in (1.0, 2.0, 3.0):  # which the third makes an argument of the kernel
        kernel = fc.jit(fc.AttentionSpec(head_dim=64, dtype="f16", score=biased(limit)))
    q, k, v, out = arrays
    kernel(q, k, v, out=out)
    expected = out.array.copy()
    out.array[...] = np.nan
    assert quickly(kernel, arrays) is None  # NumPy's arrays are read in another way
    wrapped = tuple(fake_framework.Exchange(x) for x in kernel._given[0])
    kernel._given = wrapped, kernel._given[1]
    kernel._quick = kernel._quick_call()
    assert quickly(kernel, arrays) is out
    assert kernel._given[1] == (3.0,)
    np.testing.assert_array_equal(out.array, expected)


@pytest.mark.parametrize("scale", [-0.1, 0.0, 1e300, float("nan"), 1])
def test_an_unusual_scale_is_left_to_the_call(arrays, scale):
    kernel = made(fc.AttentionSpec(head_dim=64, dtype="f16"), arrays)
    arrays[3].array[...] = 7
    assert quickly(kernel, arrays, scale=scale) is None
    assert (arrays[3].array == 7).all()


@pytest.mark.parametrize("at", range(4))
def test_an_array_of_another_kind_is_left_to_the_call(arrays, at):
    kernel = made(fc.AttentionSpec(head_dim=64, dtype="f16"), arrays)
    arrays[3].array[...] = 7
    for kind in (lambda x: x.array, lambda x: fake_framework.Dlpack(x.array)):
        mixed = [kind(x) if i == at else x for i, x in enumerate(arrays)]
        assert quickly(kernel, mixed) is None
    assert (arrays[3].array == 7).all()


def test_an_array_that_needs_a_copy_is_left_to_the_call(arrays, rng):
    kernel = made(fc.AttentionSpec(head_dim=64, dtype="f16"), arrays)
    q = random(rng, (1, 2, 64, 40), "f16").transpose(0, 1, 3, 2)
    assert quickly(kernel, [fake_framework.Exchange(q), *arrays[1:]]) is None


def test_what_is_wrong_is_said_as_ever(arrays):
    kernel = made(fc.AttentionSpec(head_dim=64, dtype="f16"), arrays)
    q, k, v, out = arrays
    short = fake_framework.Exchange(k.array[:, :, :7])
    with pytest.raises(fc.SpecError, match="dimension 2 of v is 40"):
        kernel(q, short, v, out=out)
    with pytest.raises(fc.DeviceError, match="'fast' is no CUDA stream"):
        kernel(q, k, v, out=out, stream="fast")


def test_specs_whose_calls_need_more_have_none():
    kernel = fc.jit(fc.AttentionSpec(head_dim=60, dtype="f16"))
    kernel._dispatch(False)
    assert kernel._quick is None


LENGTHS = fake_framework.Exchange(np.array([30], np.int32))


@pytest.mark.parametrize(
    ("fields", "lengths"),
    [
        # Its numbers are checked first.
        ({"kv_lens": True}, [None, None, None, None, LENGTHS, None, None]),
        ({"kv_lens": True}, NO_LENGTHS),
        ({"kv_lens": True}, [None, None, None, LENGTHS, LENGTHS, None, None]),
        ({"kv_lens": True}, [None, None, None, None, LENGTHS, LENGTHS, None]),
        ({}, [LENGTHS, None, None, None, None, None, None]),
        ({}, [None, None, 30, None, None, None, None]),
        ({}, [None, None, None, None, None, None, 30]),
    ],
)
def test_lengths_that_the_call_has_to_look_at(arrays, fields, lengths):
    kernel = fc.jit(fc.AttentionSpec(head_dim=64, dtype="f16", **fields))
    kernel._dispatch(False)
    assert kernel._quick(*arrays, None, None, *lengths, NO_LSE) is None


NOTHING = {"captured": None, "cu_seqlens_q": None, "max_q_len": None, "kv_lens": None,
           "max_kv_len": None}  # fmt: skip
NONE = (*(None,) * 10, NO_LSE)


@pytest.fixture
def noted(arrays):
    """A kernel, and what its calls hand to what goes past Python."""
    kernel, calls = made(fc.AttentionSpec(head_dim=64, dtype="f16"), arrays), []

    def note(*arguments):
        calls.append(arguments)
        return "past Python"

    kernel._quick = note
    return kernel, calls


def test_calls_that_ask_for_no_more_go_past_python(arrays, noted):
    (kernel, calls), (q, k, v, out) = noted, arrays
    assert kernel(q, k, v) == "past Python"
    assert kernel(q, k, v, stream=7, out=out, scale=0.5) == "past Python"
    assert kernel(*arrays[:3], **NOTHING, return_lse=False, checked=False) == "past Python"
    assert kernel(q, k, v, checked=None) == "past Python"
    assert kernel(q, k, v, return_lse=True) == "past Python"
    assert kernel(q, k, v, kv_lens=1, q_lens=2, cu_seqlens_k=3, cu_seqlens_q=4, max_q_len=5)
    assert kernel(q, k, v, cu_seqlens_q=4, max_kv_len=5, page_table=6)
    assert calls == [
        (q, k, v, *NONE),
        (q, k, v, out, 0.5, 7, *NO_LENGTHS, NO_LSE),
        (q, k, v, *NONE),
        (q, k, v, *NONE),
        (q, k, v, *NONE[:-1], True),
        (q, k, v, None, None, None, 4, 3, 5, 2, 1, None, None, NO_LSE),
        (q, k, v, None, None, None, 4, None, None, None, None, 6, 5, NO_LSE),
    ]


def test_calls_that_ask_for_more_are_pythons(arrays, noted):
    (kernel, calls), (q, k, v, out) = noted, arrays
    assert kernel(q, k, v=v, out=out) is out
    assert kernel(q, k, v, out=out, checked=True) is out
    with pytest.raises(TypeError, match="unexpected keyword argument 'scales'"):
        kernel(q, k, v, scales=None)
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'v'"):
        kernel(q, k)
    with pytest.raises(fc.SpecError, match="return_lse"):
        kernel(q, k, v, out=out, return_lse=None)
    assert type(kernel).__call__(kernel, q, k, v, out=out) is out
    assert not calls


def test_python_does_what_is_left_to_it(arrays, noted):
    (kernel, _), (q, k, v, out) = noted, arrays
    for nobody in (None, lambda *arguments: None):
        kernel._quick = nobody
        assert kernel(q, k, v, out=out) is out
    del kernel._quick
    assert kernel._quick is None
    assert kernel(q, k, v, out=out) is out


def test_an_error_past_python_is_the_calls(arrays, noted):
    kernel, _ = noted

    def fail(*arguments):
        raise ValueError("a full queue")

    kernel._quick = fail
    with pytest.raises(ValueError, match="a full queue"):
        kernel(*arrays[:3])


def test_a_class_below_calls_as_it_says(arrays, noted):
    class Own(type(noted[0])):
        def __call__(self, *arguments):
            return "its own"

    kernel = Own.shipped(fc.AttentionSpec(head_dim=64, dtype="f16"), "sm_80", compiled=False)
    kernel._quick = lambda *arguments: "past Python"
    assert kernel(*arrays[:3]) == "its own"


def test_a_kernel_that_nobody_has_is_gone(arrays):
    kernel = made(fc.AttentionSpec(head_dim=64, dtype="f16"), arrays)
    assert kernel._quick is not None
    seen = weakref.ref(kernel)
    del kernel
    gc.collect()
    assert seen() is None
