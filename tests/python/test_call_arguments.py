"""Arguments of a call that Python would stumble over, or take without a word."""

import numpy as np
import pytest

import flashcore as fc
from reference import assert_close, random


@pytest.fixture
def qkv(rng):
    return [random(rng, (1, 2, length, 16), "f16") for length in (9, 12, 12)]


@pytest.fixture(scope="module")
def kernel():
    return fc.jit(fc.AttentionSpec(head_dim=16, dtype="f16"))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("scale", "0.5"), ("scale", "x"), ("scale", [0.5]), ("scale", np.ones(2)),
        ("return_lse", "yes"), ("return_lse", 1), ("return_lse", np.ones(2)),
        ("q_lens", [3]), ("kv_lens", "all"), ("max_q_len", "long"),
        ("cu_seqlens_q", [0, 3]), ("layout", ["bhsd"]), ("layout", np.ones(2)),
    ],
)  # fmt: skip
def test_a_call_says_which_argument(qkv, name, value):
    with pytest.raises(fc.Error) as caught:
        fc.attention(*qkv, **{name: value})
    assert name in str(caught.value)
    assert caught.value.why
    assert caught.value.fix
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize("wrong", [None, [[1.0]], 3, "q", np.float16(1), np.ones(4, np.float16)])
@pytest.mark.parametrize("at", [0, 1, 2])
def test_a_kernel_says_which_array(qkv, kernel, wrong, at):
    qkv[at] = wrong
    with pytest.raises(fc.Error) as caught:
        kernel(*qkv)
    assert "qkv"[at] in str(caught.value)
    assert caught.value.fix


def test_an_output_is_an_array(qkv, kernel):
    with pytest.raises(fc.SpecError, match="array o = a list of 1"):
        kernel(*qkv, out=[[1.0]])


@pytest.mark.parametrize("captured", [3, [1.0], {"slopes": 2.0}, {"slopes": [1.0, 2.0]}, 0, ""])
def test_what_a_kernel_captures(qkv, captured):
    kernel = fc.jit(fc.AttentionSpec(head_dim=16, dtype="f16", score=fc.alibi(np.ones(2, "f"))))
    with pytest.raises(fc.SpecError, match="captured") as caught:
        kernel(*qkv, captured=captured)
    assert caught.value.fix


@pytest.mark.parametrize("stream", ["fast", 7.5, True, -1, 2**64, object(), []])
def test_a_stream_is_one(qkv, kernel, stream):
    with pytest.raises(fc.DeviceError, match="is no CUDA stream"):
        kernel(*qkv, stream=stream)


def test_a_stream_means_nothing_in_cpu_memory(qkv, kernel):
    np.testing.assert_array_equal(kernel(*qkv, stream=0), kernel(*qkv))


@pytest.mark.parametrize("name", ["is_causal", "enable_gqa"])
@pytest.mark.parametrize("value", ["yes", 1, None, 0.0])
def test_flags_are_true_or_false(qkv, name, value):
    with pytest.raises(fc.SpecError, match=name):
        fc.sdpa(*qkv, **{name: value})
    assert fc.sdpa(*qkv, **{name: np.bool_(True)}).shape == qkv[0].shape


@pytest.mark.parametrize("dtype", ["int64", "int32", "int16", "int8", "uint8"])
def test_a_mask_of_whole_numbers_is_none(qkv, dtype):
    with pytest.raises(fc.SpecError, match="neither conditions nor") as caught:
        fc.sdpa(*qkv, attn_mask=np.ones((9, 12), dtype))
    assert "astype(bool)" in caught.value.fix


def test_bytes_of_another_machine_are_copied(qkv):
    q, k, v = qkv
    foreign = [x.astype(x.dtype.newbyteorder(">")) for x in qkv]
    out, lse = fc.attention(*foreign, return_lse=True)
    assert out.dtype == np.float16
    assert_close(out, lse, q, k, v)
    place = np.zeros(q.shape, ">f2")
    assert fc.attention(q, k, v, out=place) is place
    np.testing.assert_array_equal(place, out)


def test_captured_bytes_of_another_machine_are_refused(qkv):
    with pytest.raises(fc.LayoutError, match="order of another kind of machine"):
        fc.attention(*qkv, score=fc.alibi(np.ones(2, ">f4")))


def test_strides_of_no_whole_elements_are_copied(qkv):
    q, k, v = qkv
    records = np.zeros(q.shape, [("x", np.float16), ("pad", np.uint8)])
    records["x"] = q
    assert records["x"].strides[-1] == 3
    out, lse = fc.attention(records["x"], k, v, return_lse=True)
    assert_close(out, lse, q, k, v)


@pytest.mark.parametrize("function", [fc.exp, fc.sqrt, fc.erf, fc.atan, fc.floor])
@pytest.mark.parametrize("value", ["x", 1j, [1.0], None, 10**30])
def test_functions_take_numbers(function, value):
    with pytest.raises(fc.SpecError, match="it is not a number"):
        function(value)


class TestBiasOfTorch:
    """torch.nn.attention.bias: their memory holds nothing."""

    @pytest.fixture
    def torch(self):
        return pytest.importorskip("torch")

    @pytest.fixture
    def tensors(self, torch, qkv):
        return [torch.from_numpy(x) for x in qkv]

    @pytest.mark.parametrize("corner", ["upper_left", "lower_right"])
    def test_its_corner_counts(self, torch, tensors, corner):
        from torch.nn.attention import bias

        mask = getattr(bias, f"causal_{corner}")(9, 12)
        align = "top_left" if corner == "upper_left" else "bottom_right"
        expected = fc.attention(*tensors, mask=fc.causal(align))
        assert torch.equal(fc.sdpa(*tensors, attn_mask=mask), expected)

    def test_refusals(self, tensors):
        from torch.nn.attention import bias

        with pytest.raises(fc.SpecError, match="it is for lengths of"):
            fc.sdpa(*tensors, attn_mask=bias.causal_lower_right(9, 13))
        with pytest.raises(fc.SpecError, match="it is a causal mask itself"):
            fc.sdpa(*tensors, attn_mask=bias.causal_upper_left(9, 12), is_causal=True)
