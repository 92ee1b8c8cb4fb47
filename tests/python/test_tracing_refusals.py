"""What no expression can say is refused, with the line that asked and what would work."""

import inspect
import math

import numpy as np
import pytest

import flashcore as fc
from flashcore.specs.expression import as_mask, as_score

SLOPES = np.linspace(1, 2, 4, dtype=np.float32)
TABLE = np.zeros((4, 5))


def refused(function, role=as_mask):
    with pytest.raises(fc.SpecError) as caught:
        role(function)
    return caught.value


class TestRefusals:
    def test_a_condition_in_an_if(self):
        def band(b, h, q_idx, kv_idx):
            if q_idx >= kv_idx:
                return q_idx < 3
            return True

        error = refused(band)
        line = inspect.getsourcelines(band)[1] + 1
        assert str(error) == (
            f"the mask band\n  at:  {__file__}:{line}\n"
            "  why: it asks whether q_idx >= kv_idx is true, which differs from score to score\n"
            "  try: flashcore.where(condition, a, b) for if; &, | and ~ for and, or and not; "
            "(a <= b) & (b < c) for a <= b < c; flashcore.minimum and maximum for min and max"
        )

    def test_the_line_is_that_of_the_helper(self):
        def helper(x):
            return math.exp(x)

        error = refused(lambda s, b, h, q, k: s + helper(q), as_score)
        assert error.line == inspect.getsourcelines(helper)[1] + 1
        assert error.why == "it asks for the number of q_idx, which differs from score to score"
        assert "flashcore.exp" in error.fix

    @pytest.mark.parametrize(
        ("function", "why"),
        [
            (lambda b, h, q, k: q >= k and k > 3, "it asks whether q_idx >= kv_idx is true"),
            (lambda b, h, q, k: 0 <= q < k, "it asks whether q_idx >= 0 is true"),
            (lambda b, h, q, k: k in [q], "it asks whether q_idx == kv_idx is true"),
            (lambda b, h, q, k: [1, 2][q] > 1, "it uses q_idx as a plain index or count"),
            (lambda b, h, q, k: any(i > 2 for i in range(k)), "it uses kv_idx as a plain index"),
            (lambda b, h, q, k: int(q) > 1, "it asks for the whole number of q_idx"),
            (lambda b, h, q, k: len(q) > 1, "it asks for the length of q_idx"),
            (lambda b, h, q, k: all(x > 1 for x in q), "it loops over q_idx"),
            (
                lambda b, h, q, k: np.sinh(q) > 1,
                "it calls numpy.sinh, which expressions do not have",
            ),
            (lambda b, h, q, k: np.add.reduce(q) > 1, "it calls numpy.add.reduce"),
            (lambda b, h, q, k: q.sinh() > 1, "AttributeError: a value that is traced has no sinh"),
            (lambda b, h, q, k: q + None > 1, "it computes with None"),
            (lambda b, h, q, k: q.max() > 1, "max of one value would have to look at other scores"),
            (lambda b, h, q, k: q**k > 1, "a power needs a number"),
            (lambda b, h, q, k: (q & 6) > 1, "& works on two conditions"),
            (lambda b, h, q, k: (q + 2**40) > 1, "1099511627776 does not fit into a whole number"),
            (lambda b, h, q, k: q > math.nan, "it uses NaN as a number"),
            (lambda b, h, q, k: SLOPES[h, q] > 1, "SLOPES has 1 dimensions and is given 2 indices"),
            (lambda b, h, q, k: SLOPES[q / 2] > 1, "index 0 of SLOPES is q_idx / 2"),
            (lambda b, h, q, k: SLOPES[q > k] > 1, "index 0 of SLOPES is a condition"),
            (
                lambda b, h, q, k: TABLE[h, 7] > 1,
                "index 1 of TABLE is 7, and its length there is 5",
            ),
            (
                lambda b, h, q, k: TABLE[h] > 1,
                "it computes with TABLE[h, :], which is still an array",
            ),
            (lambda b, h, q, k: SLOPES + q > 1, "it computes with SLOPES, an array of shape (4)"),
            (lambda b, h, q, k: undefined > q, "NameError: name 'undefined' is not defined"),  # noqa: F821
        ],
    )
    def test_what_is_no_expression(self, function, why):
        error = refused(function)
        assert error.why.startswith(why)
        assert error.file == __file__
        assert error.line == function.__code__.co_firstlineno
        assert error.fix

    @pytest.mark.parametrize(
        ("function", "role", "why", "fix"),
        [
            (
                lambda b, h, q: q > 1,
                as_mask,
                "it takes (b, h, q) and is called with (b, h, q_idx, kv_idx)",
                "(b, h, q_idx, kv_idx); (b, h, q) is right for sink=",
            ),
            (
                lambda b, h, q, k: q > 1,
                as_score,
                "it takes (b, h, q, k) and is called with (score, b, h, q_idx, kv_idx)",
                "(score, b, h, q_idx, kv_idx); (b, h, q, k) is right for mask=",
            ),
            (lambda b, h, q, k: None, as_mask, "it returns None", "return a condition"),
            (lambda b, h, q, k: "x", as_mask, "it returns str", "return a condition"),
            (
                lambda b, h, q, k: q - k,
                as_mask,
                "it returns q_idx - kv_idx, a whole number",
                "a comparison, such as q_idx >= kv_idx; what is added to scores goes to score=",
            ),
            (
                lambda s, b, h, q, k: q > k,
                as_score,
                "it returns q_idx > kv_idx, a condition",
                "flashcore.where(condition, score, -inf), or the condition as mask=",
            ),
        ],
    )
    def test_what_has_the_wrong_shape(self, function, role, why, fix):
        error = refused(function, role)
        assert (error.why, error.fix) == (why, fix)
        assert (error.file, error.line) == (__file__, function.__code__.co_firstlineno)

    def test_values_of_another_call(self):
        kept = []

        def keep(b, h, q, k):
            kept.append(q)
            return q > k

        as_mask(keep)
        error = refused(lambda b, h, q, k: q > kept[0])
        assert error.why == "it uses q_idx, which was traced for another call"

    def test_what_is_no_function(self):
        error = refused(np.zeros((3, 3), bool))
        assert str(error) == (
            "mask = an array of bool [3, 3]\n  why: it is no Mask and no function\n"
            "  try: flashcore.causal(), or a function (b, h, q_idx, kv_idx); "
            "flashcore.dense_mask(array) takes an array"
        )
        assert refused(fc.softcap(3)).why == "it is a Score"


def test_torch():
    torch = pytest.importorskip("torch")
    doc = torch.zeros(9)
    error = refused(lambda b, h, q, k: torch.lgamma(q) > 0)
    assert error.why == "it calls torch.lgamma, which expressions do not have"
    assert error.file == __file__
    error = refused(lambda b, h, q, k: doc + q > 0)
    assert error.why == "it computes with doc, an array of shape (9), as a whole"
    error = refused(lambda b, h, q, k: torch.stack([q, k]) > 0)
    assert error.why.startswith("it calls torch.stack")
