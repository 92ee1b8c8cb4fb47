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


def test_what_is_not_supported_says_so():
    x = np.zeros((1, 1, 4, 64), np.float16)
    with pytest.raises(fc.SpecError, match="a mask given as an array is not supported"):
        fc.sdpa(x, x, x, attn_mask=x)
    with pytest.raises(fc.SpecError, match=r"sdpa\(dropout_p=0.1\)"):
        fc.sdpa(x, x, x, dropout_p=0.1)
    with pytest.raises(fc.SpecError, match=r"q has shape \(1, 4, 64\)"):
        fc.sdpa(x[0], x, x)


def test_the_signature_is_torchs():
    torch = pytest.importorskip("torch")
    documented = torch.nn.functional.scaled_dot_product_attention.__doc__.split("\n")
    signature = next(line for line in documented if "scaled_dot_product_attention(" in line)
    for name in inspect.signature(fc.sdpa).parameters:
        assert name in "".join(documented), (name, signature)
