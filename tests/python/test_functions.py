"""Functions on scores against NumPy, where they are hard to get right: near 0, far out, halves."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

import flashcore as fc
from flashcore.tracing.tracer import call
from reference import assert_close

erf = np.vectorize(math.erf)


def through(name, *args, **options):
    """A score function that calls what torch or NumPy name so."""
    return lambda s, b, h, i, j: call(name, s, *args, **options)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def log_sigmoid(x):
    return np.minimum(x, 0) - np.log1p(np.exp(-np.abs(x)))


CASES = {
    "sin": (through("sin"), np.sin),
    "cos": (through("cos"), np.cos),
    "tan": (lambda s, b, h, i, j: fc.tan(s / 4), lambda x: np.tan(x / 4)),
    "atan": (through("arctan"), np.arctan),
    "erf": (through("erf"), erf),
    "expm1": (lambda s, b, h, i, j: 1e4 * fc.expm1(s * 1e-4), lambda x: 1e4 * np.expm1(x * 1e-4)),
    "log1p": (lambda s, b, h, i, j: 1e4 * fc.log1p(s * 1e-4), lambda x: 1e4 * np.log1p(x * 1e-4)),
    "exp2": (through("special_exp2"), np.exp2),
    "log10": (lambda s, b, h, i, j: call("log10", s * s + 1), lambda x: np.log10(x * x + 1)),
    "isnan": (lambda s, b, h, i, j: fc.where(call("isnan", s), 0, s), lambda x: x),
    "isinf": (
        lambda s, b, h, i, j: fc.where(call("isinf", s / 0), s, 0),  # zero over zero is NaN
        lambda x: np.where(x == 0, 0, x),
    ),
    "isfinite": (lambda s, b, h, i, j: fc.where(call("isfinite", s), s, 0), lambda x: x),
    "hypot": (through("hypot", 3), lambda x: np.hypot(x, 3)),
    "logaddexp": (through("logaddexp", 0.5), lambda x: np.logaddexp(x, 0.5)),
    "silu": (through("silu"), lambda x: x * sigmoid(x)),
    "gelu": (through("gelu"), lambda x: 0.5 * x * (1 + erf(x / math.sqrt(2)))),
    "gelu by tanh": (
        through("gelu", approximate="tanh"),
        lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    ),
    "softplus": (through("softplus"), lambda x: np.logaddexp(x, 0)),
    "softplus with a beta": (through("softplus", beta=2), lambda x: np.logaddexp(2 * x, 0) / 2),
    "elu": (through("elu", 0.5), lambda x: np.where(x > 0, x, 0.5 * np.expm1(x))),
    "leaky_relu": (through("leaky_relu", 0.2), lambda x: np.where(x > 0, x, 0.2 * x)),
    "hardtanh": (through("hardtanh", -0.5, 2.0), lambda x: np.clip(x, -0.5, 2)),
    "logsigmoid": (through("log_sigmoid"), log_sigmoid),
    "mish": (through("mish"), lambda x: x * np.tanh(np.logaddexp(x, 0))),
    "relu6": (through("relu6"), lambda x: np.clip(x, 0, 6)),
}


@pytest.mark.parametrize("name", CASES)
def test_a_function_is_that_of_numpy(rng, name):
    ours, theirs = CASES[name]
    q, k, v = (rng.standard_normal((1, 2, n, 16)).astype(np.float16) for n in (20, 40, 40))
    out = fc.attention(q, k, v, score=ours)
    assert_close(out, None, q, k, v, score=lambda s, b, h, i, j: theirs(s))


def of_positions(function):
    """What a function of q_idx gives, as the sink of a row whose one key has the score zero."""
    q = np.zeros((1, 1, 41, 16), ml_dtypes.bfloat16)
    _, lse = fc.attention(
        q, q[:, :, :1], q[:, :, :1], return_lse=True, score=lambda s, b, h, i, j: function(i)
    )
    return lse[0, 0]


POSITIONS = np.arange(41)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (lambda i: call("round", i / 2 - 10), lambda i: np.round(i / 2 - 10)),
        (lambda i: call("float", round(i / 2 - 10)), lambda i: np.round(i / 2 - 10)),
        (lambda i: call("trunc", i / 4 - 5), lambda i: np.trunc(i / 4 - 5)),
        (lambda i: call("ceil", i / 4 - 5), lambda i: np.ceil(i / 4 - 5)),
        (lambda i: call("sign", i - 20), lambda i: np.sign(i - 20)),
        (lambda i: call("sign", i / 4 - 5), lambda i: np.sign(i / 4 - 5)),
        (lambda i: call("sin", i * 1000.0), lambda i: np.sin(i * 1000.0)),
        (lambda i: call("silu", i * 4.0 - 80), lambda i: (i * 4.0 - 80) * sigmoid(i * 4.0 - 80)),
        (lambda i: call("softplus", i * 10.0 - 200), lambda i: np.logaddexp(i * 10.0 - 200, 0)),
        (lambda i: call("log_sigmoid", i * 10.0 - 200), lambda i: log_sigmoid(i * 10.0 - 200)),
    ],
)  # fmt: skip
def test_functions_of_positions_hold_far_from_zero_and_at_halves(ours, theirs):
    np.testing.assert_allclose(of_positions(ours), theirs(POSITIONS), rtol=1e-5, atol=1e-5)


def test_conditions_are_equal_or_not(rng):
    q, k, v = (rng.standard_normal((1, 1, n, 16)).astype(np.float16) for n in (20, 40, 40))
    for ours, theirs in (
        (lambda b, h, i, j: (i > 5) == (j > 9), lambda b, h, i, j: (i > 5) == (j > 9)),
        (lambda b, h, i, j: (i > 5) != (j > 9), lambda b, h, i, j: (i > 5) != (j > 9)),
        (lambda b, h, i, j: (i > 5) ^ (j > 9), lambda b, h, i, j: (i > 5) ^ (j > 9)),
    ):
        assert_close(fc.attention(q, k, v, mask=ours), None, q, k, v, mask=theirs)


def test_of_plain_numbers_they_give_a_number():
    assert fc.erf(0.5) == pytest.approx(0.5204998778)
    assert fc.atan(1.0) == pytest.approx(math.pi / 4)
    assert fc.log1p(1e-12) == pytest.approx(1e-12)


def test_rounding_to_decimals_says_how():
    with pytest.raises(fc.SpecError, match="round"):
        fc.AttentionSpec(head_dim=16, score=lambda s, b, h, i, j: round(s, 2))
