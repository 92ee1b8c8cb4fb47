"""torch's function, with torch's meaning."""

import inspect

import numpy as np
import pytest

import flashcore as fc
from reference import assert_close, random


def test_causal_is_top_left(rng):
    q = random(rng, (1, 2, 20, 64), "f16")
    k, v = (random(rng, (1, 2, 50, 64), "f16") for _ in range(2))
    assert_close(fc.sdpa(q, k, v, is_causal=True), None, q, k, v, mask="causal(top_left)")


def test_grouped_heads_must_be_asked_for(rng):
    q = random(rng, (1, 4, 20, 64), "f16")
    k, v = (random(rng, (1, 2, 20, 64), "f16") for _ in range(2))
    with pytest.raises(fc.SpecError, match="query has 4 heads and key has 2"):
        fc.sdpa(q, k, v)
    assert_close(fc.sdpa(q, k, v, enable_gqa=True, scale=0.3), None, q, k, v, scale=0.3)


@pytest.mark.parametrize("shape", [(2, 4, 20, 50), (1, 4, 1, 50), (2, 1, 20, 1), (20, 50), (50,)])
@pytest.mark.parametrize("dtype", [bool, np.float16, np.float32])
def test_masks_given_as_arrays(rng, shape, dtype):
    q = random(rng, (2, 4, 20, 64), "f16")
    k, v = (random(rng, (2, 4, 50, 64), "f16") for _ in range(2))
    given = rng.standard_normal(shape)
    given = given > 0 if dtype is bool else given.astype(dtype)
    how = {"mask": lambda *_: given} if dtype is bool else {"score": lambda s, *_: s + given}
    assert_close(fc.sdpa(q, k, v, attn_mask=given), None, q, k, v, **how)


def test_what_is_not_supported_says_so():
    x = np.zeros((1, 1, 4, 64), np.float16)
    with pytest.raises(fc.SpecError, match="bias = a list of 1\n  why: it is no array"):
        fc.sdpa(x, x, x, attn_mask=[1.0])
    with pytest.raises(fc.SpecError, match=r"sdpa\(dropout_p=0.1\)"):
        fc.sdpa(x, x, x, dropout_p=0.1)


def test_the_signature_is_torchs():
    torch = pytest.importorskip("torch")
    documented = torch.nn.functional.scaled_dot_product_attention.__doc__.split("\n")
    signature = next(line for line in documented if "scaled_dot_product_attention(" in line)
    for name in inspect.signature(fc.sdpa).parameters:
        assert name in "".join(documented), (name, signature)
