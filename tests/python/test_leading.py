"""Inputs with fewer or more dimensions than four, or with some of 1, as torch's function has it."""

import numpy as np
import pytest

import flashcore as fc
from reference import attention, random


def exact(q, k, v, **how):
    """Of arrays of any number of dimensions that broadcast."""
    shapes = [np.broadcast_shapes(q.shape[:-2], k.shape[:-2], v.shape[:-2])] * 3
    full = [np.broadcast_to(x, (*s, *x.shape[-2:])) for x, s in zip((q, k, v), shapes, strict=True)]
    flat = [x.reshape(1, -1, *x.shape[-2:]) for x in full]
    out, lse = attention(*flat, **how)
    return out.reshape(*shapes[0], *out.shape[2:]), lse.reshape(*shapes[0], lse.shape[-1])


SHAPES = {
    "no batch": ((3, 7, 16), (3, 9, 16), (3, 9, 16)),
    "no heads": ((7, 16), (9, 16), (9, 8)),
    "five": ((2, 3, 2, 7, 16), (2, 3, 2, 9, 16), (2, 3, 2, 9, 16)),
    "six": ((2, 1, 3, 2, 7, 16), (2, 2, 3, 2, 9, 16), (2, 2, 1, 2, 9, 16)),
    "one batch of keys": ((3, 2, 7, 16), (1, 2, 9, 16), (1, 2, 9, 16)),
    "one batch of values": ((3, 2, 7, 16), (3, 2, 9, 16), (1, 2, 9, 16)),
    "one batch of queries": ((1, 2, 7, 16), (3, 2, 9, 16), (3, 2, 9, 16)),
    "one head of keys": ((2, 4, 7, 16), (2, 1, 9, 16), (2, 4, 9, 16)),
    "one head of values": ((2, 4, 7, 16), (2, 4, 9, 16), (2, 1, 9, 16)),
    "one head of both": ((2, 4, 7, 16), (2, 1, 9, 16), (2, 1, 9, 16)),
    "one head of queries": ((2, 1, 7, 16), (2, 4, 9, 16), (2, 4, 9, 16)),
    "fewer dimensions": ((2, 4, 7, 16), (9, 16), (4, 9, 16)),
}


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("function", [fc.sdpa, fc.attention])
def test_dimensions(rng, name, function):
    q, k, v = (random(rng, shape, "bf16") for shape in SHAPES[name])
    expected, expected_lse = exact(q, k, v)
    out = function(q, k, v)
    assert out.shape == expected.shape
    np.testing.assert_allclose(out.astype(float), expected, atol=2e-2)
    if function is fc.sdpa:
        return
    place = np.empty(out.shape, out.dtype)
    made, lse = fc.attention(q, k, v, out=place, return_lse=True)
    assert made is place
    np.testing.assert_allclose(place.astype(float), expected, atol=2e-2)
    np.testing.assert_allclose(lse, expected_lse, atol=1e-4)


def test_batches_in_front_of_other_layouts(rng):
    q, k, v = (random(rng, (2, 3, n, 2, 16), "bf16") for n in (7, 9, 9))
    expected, _ = exact(*(x.swapaxes(-2, -3) for x in (q, k, v)))
    out = fc.attention(q, k, v, layout="bshd")
    np.testing.assert_allclose(out.swapaxes(-2, -3).astype(float), expected, atol=2e-2)
    flat = fc.attention(q[0, 0, :, 0], k[0, 0, :, 0], v[0, 0, :, 0], layout="bshd")
    np.testing.assert_allclose(flat.astype(float), expected[0, 0, 0], atol=2e-2)


@pytest.mark.parametrize("shape", [(7, 9), (2, 7, 9), (3, 1, 7, 9), (2, 1, 2, 7, 9), (1, 1, 7, 9)])
def test_masks_of_batches_in_front(rng, shape):
    q, k, v = (random(rng, (2, 3, 2, n, 16), "bf16") for n in (7, 9, 9))
    kept = rng.random(shape) < 0.7
    kept[..., 0] = True
    out = fc.sdpa(q, k, v, attn_mask=kept)
    scores = q.astype(float) @ k.astype(float).swapaxes(-1, -2) / 4
    probs = np.exp(np.where(kept, scores, -np.inf))
    expected = probs @ v.astype(float) / probs.sum(-1, keepdims=True)
    np.testing.assert_allclose(out.astype(float), expected, atol=2e-2)


@pytest.mark.parametrize("as_bias", [False, True])
def test_a_mask_and_causal_both_hide(rng, as_bias):
    q, k, v = (random(rng, (1, 2, 9, 16), "bf16") for _ in range(3))
    kept = rng.random((9, 9)) < 0.7
    kept[:, 0] = True
    given = np.where(kept, 0, -np.inf).astype(np.float32) if as_bias else kept
    out = fc.sdpa(q, k, v, attn_mask=given, is_causal=True)
    expected, _ = attention(q, k, v, mask=lambda b, h, i, j: kept & (j <= i))
    np.testing.assert_allclose(out.astype(float), expected, atol=2e-2)


@pytest.mark.parametrize(
    ("rank", "shape"), [(4, (1, 2, 1, 5, 7)), (4, (1, 1, 1, 5, 7)), (3, (1, 2, 5, 7))]
)
def test_a_mask_has_no_more_dimensions_than_the_inputs(rng, rank, shape):
    q, k, v = (random(rng, (2,) * (rank - 2) + (n, 16), "f16") for n in (5, 7, 7))
    with pytest.raises(fc.SpecError, match=f"{len(shape)} dimensions, and the inputs have {rank}"):
        fc.sdpa(q, k, v, attn_mask=np.ones(shape, bool))


def test_what_does_not_go_together(rng):
    q, k, v = (random(rng, (2, 4, 9, 16), "bf16") for _ in range(3))
    with pytest.raises(fc.SpecError, match="dimension 0 of k is 3"):
        fc.sdpa(q, np.concatenate([k, k[:1]]), v)
    with pytest.raises(fc.SpecError, match="query has 4 heads and key has 2"):
        fc.sdpa(q, k[:, :2], v[:, :2])
    with pytest.raises(fc.SpecError, match=r"it has no \[length, head_dim\]"):
        fc.sdpa(q, k[0, 0, 0], v)
    with pytest.raises(fc.SpecError, match="batch dimensions that differ"):
        fc.sdpa(q[None], np.stack([k] * 3)[:, :1], np.stack([v] * 2))
    with pytest.raises(fc.SpecError, match="out of shape"):
        fc.attention(q[None], k[None], v[None], out=np.empty((2, 4, 9, 16), q.dtype))


@pytest.mark.parametrize("dtype", [np.float64, np.int32, np.int8, bool])
def test_dtypes_say_which_cast(dtype):
    q = np.zeros((1, 2, 9, 16), dtype)
    with pytest.raises(fc.SpecError) as caught:
        fc.sdpa(q, q, q)
    assert caught.value.what == f"{np.dtype(dtype)} inputs"
    assert "q.astype(numpy.float16)" in caught.value.fix


def test_float32_needs_no_cast(rng):
    q = rng.standard_normal((1, 2, 9, 16)).astype(np.float32)
    assert fc.sdpa(q, q, q).dtype == np.float32


@pytest.mark.parametrize("function", [fc.sdpa, fc.attention])
@pytest.mark.parametrize("wrong", [None, [[1.0]], 3, "q"])
def test_no_arrays(rng, function, wrong):
    q = random(rng, (1, 2, 9, 16), "bf16")
    for arguments in ((wrong, q, q), (q, wrong, q), (q, q, wrong)):
        with pytest.raises(fc.SpecError, match="it is no array") as caught:
            function(*arguments)
        assert caught.value.fix
