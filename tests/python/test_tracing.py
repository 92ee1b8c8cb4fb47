"""Functions become the text of expressions."""

import functools
import math
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest

import fake_framework
import flashcore as fc
from flashcore.specs.expression import as_mask, as_score, as_sink

SLOPES = np.linspace(1, 2, 4, dtype=np.float32)
WIDTH = 12


def mask_text(function):
    return as_mask(function).text


def score_text(function):
    return as_score(function).text


class TestOperators:
    @pytest.mark.parametrize(
        ("function", "text"),
        [
            (lambda s, b, h, q, k: s + 1, "score + 1"),
            (lambda s, b, h, q, k: 1 - s, "1 - score"),
            (lambda s, b, h, q, k: -s * -2, "(-score) * (-2)"),
            (lambda s, b, h, q, k: s - (q - k), "score - (q_idx - kv_idx)"),
            (lambda s, b, h, q, k: s / (2 * q) / 4.5, "score / (2 * q_idx) / 4.5"),
            (lambda s, b, h, q, k: 7 // q + 7 % q, "7 // q_idx + 7 % q_idx"),
            (lambda s, b, h, q, k: abs(s) + +s, "abs(score) + score"),
            (lambda s, b, h, q, k: s**3, "score * (score * score)"),
            (lambda s, b, h, q, k: s**-1, "1.0 / score"),
            (lambda s, b, h, q, k: 2.0**s, "exp2(score)"),
            (lambda s, b, h, q, k: s**0.5, "sqrt(score)"),
            (lambda s, b, h, q, k: max(s, q, 0), "max(max(score, q_idx), 0)"),
            (lambda s, b, h, q, k: min(s, max(3, 4)), "min(score, 4)"),
            (lambda s, b, h, q, k: math.floor(s), "floor(score)"),
            (lambda s, b, h, q, k: s + (q > k), "score + (q_idx > kv_idx)"),
            (lambda s, b, h, q, k: s * math.pi, "score * 3.141592653589793"),
            (lambda s, b, h, q, k: s * 1e-05 - math.inf, "score * 1e-05 - inf"),
            (lambda s, b, h, q, k: (q << 3) + (k >> 1), "q_idx * 8 + kv_idx // 2"),
            (lambda s, b, h, q, k: (q & 7) + ~k, "q_idx % 8 + ((-kv_idx) - 1)"),
            (lambda s, b, h, q, k: sum([s, q, k]), "0 + score + q_idx + kv_idx"),
        ],
    )
    def test_of_scores(self, function, text):
        assert score_text(function) == text

    @pytest.mark.parametrize(
        ("function", "text"),
        [
            (lambda b, h, q, k: q >= k, "q_idx >= kv_idx"),
            (lambda b, h, q, k: q > 5, "q_idx > 5"),
            (lambda b, h, q, k: (q < k) == (q > 3), "(q_idx < kv_idx) == (q_idx > 3)"),
            (
                lambda b, h, q, k: (q >= k) & (q - k < WIDTH) & (b != h),
                "(q_idx >= kv_idx) & (q_idx - kv_idx < 12) & (b != h)",
            ),
            (
                lambda b, h, q, k: ~(q == k) | (q < 3) & (k < 3),
                "~(q_idx == kv_idx) | ((q_idx < 3) & (kv_idx < 3))",
            ),
            (
                lambda b, h, q, k: (q < 3) ^ (k < 3),
                "t0 = q_idx < 3; t1 = kv_idx < 3; (t0 & ~t1) | (~t0 & t1)",
            ),
            (lambda b, h, q, k: True & (q < 3) | False, "q_idx < 3"),
            (lambda b, h, q, k: True, "true"),
            (lambda b, h, q, k: np.bool_(False), "false"),
        ],
    )
    def test_of_masks(self, function, text):
        assert mask_text(function) == text

    def test_lengths_are_given_to_those_who_name_them(self):
        def mask(b, h, q_idx, kv_idx, kv_len, q_len):
            return kv_idx <= q_idx + kv_len - q_len

        assert mask_text(mask) == "kv_idx <= q_idx + kv_len - q_len"

    def test_of_sinks(self):
        assert as_sink(lambda b, h, q: SLOPES[h] * 2).text == "SLOPES[h] * 2"


class TestFunctions:
    @pytest.mark.parametrize(
        ("function", "text"),
        [
            (lambda s, *_: fc.where(s > 0, s, 0), "where(score > 0, score, 0)"),
            (lambda s, *_: fc.minimum(s, 1) + fc.maximum(2, s), "min(score, 1) + max(2, score)"),
            (lambda s, *_: fc.tanh(s / 20) * 20, "tanh(score / 20) * 20"),
            (
                lambda s, *_: fc.exp(s) + fc.exp2(s) + fc.log(s) + fc.log2(s) + fc.sqrt(s),
                "exp(score) + exp2(score) + log(score) + log2(score) + sqrt(score)",
            ),
            (lambda s, *_: s + fc.exp2(3) + fc.where(True, 1, 2), "score + 8.0 + 1"),
            (lambda s, b, h, q, k: s + fc.floor(q), "score + q_idx"),
        ],
    )
    def test_of_flashcore(self, function, text):
        assert score_text(function) == text

    @pytest.mark.parametrize(
        ("function", "text"),
        [
            (lambda s, *_: np.where(s > 0, s, -np.inf), "where(score > 0, score, -inf)"),
            (lambda s, *_: np.tanh(s) * np.float32(0.5), "tanh(score) * 0.5"),
            (lambda s, *_: np.float32(0.5) * s, "0.5 * score"),
            (lambda s, *_: np.array(3) - s, "3 - score"),
            (lambda s, *_: np.clip(s, -3, 3), "min(max(score, -3), 3)"),
            (lambda s, *_: np.maximum(s, 0) + np.square(s), "max(score, 0) + score * score"),
            (lambda s, *_: np.power(s, 2), "score * score"),
            (lambda s, *_: np.logical_not(s > 1) * 2, "~(score > 1) * 2"),
        ],
    )
    def test_of_numpy(self, function, text):
        assert score_text(function) == text


class TestSharing:
    def test_a_value_used_twice_has_a_name(self):
        def score(s, b, h, q, k):
            distance = q - k
            return s + fc.where(distance > 3, distance, 0)

        text = "t0 = q_idx - kv_idx; score + where(t0 > 3, t0, 0)"
        assert score_text(score) == text

    def test_equal_values_are_one(self):
        assert score_text(lambda s, b, h, q, k: s + abs(q - k) * abs(q - k)) == (
            "t0 = abs(q_idx - kv_idx); score + t0 * t0"
        )

    def test_the_text_grows_with_the_graph(self):
        def score(s, *_):
            for _ in range(60):
                s = s + s
            return s

        assert len(score_text(score)) < 2000

    def test_long_chains_are_cut(self):
        def score(s, b, h, q, k):
            for i in range(3000):
                s = s + i * 0.5
            return s

        text = score_text(score)
        assert max(part.count("+") for part in text.split(";")) < 30


class TestCaptures:
    def check(self, function, text, *tensors):
        found = as_score(function)
        assert found.text == text
        assert [(t.name, t.dtype, t.rank) for t in found.tensors] == list(tensors)
        return found

    def test_a_global(self):
        found = self.check(
            lambda s, b, h, q, k: s * SLOPES[h], "score * SLOPES[h]", ("SLOPES", "f32", 1)
        )
        assert found.arrays[0].ctypes.data == SLOPES.ctypes.data

    def test_a_closure_a_default_a_container_an_attribute(self):
        here = np.zeros(3, np.int64)
        many = {"first": [np.zeros(3, bool)]}
        thing = SimpleNamespace(part=np.zeros((3, 3), ml_dtypes.bfloat16))

        def score(s, b, h, q, k, fallback=np.zeros(3, np.float16)):  # noqa: B008
            return here[q] + fallback[h] + where(many["first"][0][b], thing.part[q, k], 0)

        where = fc.where
        self.check(
            score,
            "here[q_idx] + fallback[h] + where(first[b], part[q_idx, kv_idx], 0)",
            ("here", "i64", 1),
            ("fallback", "f16", 1),
            ("first", "i1", 1),
            ("part", "bf16", 2),
        )
        assert type(thing.part) is np.ndarray  # the user's own is not touched

    def test_a_helper(self):
        def helper(h):
            return SLOPES[h] * 2

        self.check(
            lambda s, b, h, q, k: s + helper(h), "score + SLOPES[h] * 2", ("SLOPES", "f32", 1)
        )

    def test_a_method_a_partial_a_callable(self):
        class Bias:
            def __init__(self):
                self.table = np.zeros((4, 9), np.uint8)

            def score(self, s, b, h, q, k):
                return s + self.table[h, q - k]

            def __call__(self, s, b, h, q, k):
                return self.score(s, b, h, q, k)

        bias, tensor = Bias(), ("table", "u8", 2)
        self.check(bias.score, "score + table[h, wrap(q_idx - kv_idx)]", tensor)
        self.check(bias, "score + table[h, wrap(q_idx - kv_idx)]", tensor)

        def given(table, s, b, h, q, k):
            return s + table[h][q]

        partial = functools.partial(given, bias.table)
        self.check(partial, "score + table[h, q_idx]", tensor)

    def test_indices(self):
        t = np.zeros((2, 3, 4))
        one = ("t", "f64", 3)
        self.check(lambda s, b, h, q, k: t[b][h][q], "t[b, h, q_idx]", one)
        self.check(lambda s, b, h, q, k: t[b, -1, q + k], "t[b, wrap(-1), q_idx + kv_idx]", one)
        self.check(lambda s, b, h, q, k: t[..., q][b, h], "t[b, h, q_idx]", one)
        self.check(lambda s, b, h, q, k: t[:, h][b, q], "t[b, h, q_idx]", one)
        self.check(lambda s, b, h, q, k: t[1][h, q], "t[h, q_idx]", ("t", "f64", 2))
        part = self.check(lambda s, b, h, q, k: t[b, 1:, q][h], "t[b, h, q_idx]", one)
        assert part.arrays[0].shape == (2, 2, 4)

    def test_strided_and_equal_arrays(self):
        t = np.zeros((4, 8))
        found = self.check(
            lambda s, b, h, q, k: t[:, ::2][h, q] + t.T[q, h] + t[:, ::2][h, k],
            "t[h, q_idx] + t_2[q_idx, h] + t[h, kv_idx]",
            ("t", "f64", 2),
            ("t_2", "f64", 2),
        )
        assert found.arrays[0].strides == (64, 16)

    def test_names_that_mean_something_are_changed(self):
        q, scale = np.zeros(4), np.zeros(4)
        function = lambda s, b, h, q_idx, k: s + q[h] + scale[h]  # noqa: E731
        self.check(function, "score + q_[h] + scale_[h]", ("q_", "f64", 1), ("scale_", "f64", 1))

    def test_an_index_into_an_index(self):
        page = np.zeros(9, np.int32)
        doc = np.zeros((2, 9), np.int16)
        found = as_mask(lambda b, h, q, k: doc[b, page[q]] == doc[b, page[k]])
        assert found.text == ("doc[b, wrap(page[q_idx])] == doc[b, wrap(page[kv_idx])]")

    def test_frameworks_that_speak_dlpack(self):
        class Array(fake_framework.Dlpack):
            dtype = np.dtype(np.float32)

        other = Array(SLOPES)
        found = self.check(
            lambda s, b, h, q, k: s * other[h], "score * other[h]", ("other", "f32", 1)
        )
        assert found.arrays[0] is other

    def test_an_unknown_dtype(self):
        t = np.zeros(3, np.complex64)
        with pytest.raises(fc.SpecError, match="t is an array of complex64"):
            score_text(lambda s, b, h, q, k: s + t[h])


class TestTracedOnce:
    def test_a_function_is_called_once(self):
        calls = []

        def mask(b, h, q, k):
            calls.append(1)
            return q >= k

        assert as_mask(mask) is as_mask(mask)
        assert len(calls) == 1

    def test_a_method_too(self):
        class Maker:
            calls = 0

            def mask(self, b, h, q, k):
                Maker.calls += 1
                return q >= k

        maker = Maker()
        assert as_mask(maker.mask) is as_mask(maker.mask)
        assert Maker.calls == 1

    def test_again_when_a_variable_changes(self):
        width = 3

        def mask(b, h, q, k):
            return q - k < width

        assert mask_text(mask) == "q_idx - kv_idx < 3"
        width = 4
        assert mask_text(mask) == "q_idx - kv_idx < 4"

    def test_a_function_is_not_kept_alive(self):
        import gc
        import weakref

        table = np.zeros(3)

        def mask(b, h, q, k):
            return table[h] > 0

        as_mask(mask)
        gone = weakref.ref(mask)
        del mask
        gc.collect()
        assert gone() is None


class TestTorch:
    @pytest.fixture
    def torch(self):
        return pytest.importorskip("torch")

    def test_functions(self, torch):
        cases = [
            (lambda s, *_: torch.where(s > 0, s, -float("inf")), "where(score > 0, score, -inf)"),
            (lambda s, *_: torch.tanh(s / 20) * 20, "tanh(score / 20) * 20"),
            (lambda s, *_: s.tanh().mul(2).add(1, alpha=3), "tanh(score) * 2 + 3"),
            (lambda s, *_: torch.clamp(s, min=-1, max=1), "min(max(score, -1), 1)"),
            (lambda s, *_: s.clamp(max=1), "min(score, 1)"),
            (lambda s, *_: torch.maximum(s, torch.tensor(0.5)), "max(score, 0.5)"),
            (lambda s, *_: torch.sigmoid(input=s), "1.0 / (exp(-score) + 1.0)"),
            (lambda s, *_: torch.rsqrt(s) + s.square(), "1.0 / sqrt(score) + score * score"),
            (lambda s, *_: torch.pow(s, 2), "score * score"),
            (lambda s, b, h, q, k: s + torch.exp2(-(h * 0.5)), "score + exp2(-(h * 0.5))"),
            (lambda s, b, h, q, k: torch.div(q, 4, rounding_mode="floor"), "q_idx // 4"),
            (lambda s, b, h, q, k: torch.remainder(q, 4), "q_idx % 4"),
            (lambda s, b, h, q, k: q.to(s.dtype), "float(q_idx)"),
            (lambda s, b, h, q, k: (s * 4).to(torch.int64).float(), "float(int(score * 4))"),
            (lambda s, b, h, q, k: s.masked_fill(q < k, float("-inf")), "where(q_idx < kv_idx, -inf, score)"),  # noqa: E501
            (lambda s, *_: s + torch.zeros_like(s) + torch.full_like(s, 3), "score + 0.0 + 3.0"),
            (lambda s, *_: torch.nn.functional.relu(s), "max(score, 0)"),
        ]  # fmt: skip
        for function, text in cases:
            assert score_text(function) == text

    def test_conditions(self, torch):
        def mask(b, h, q, k):
            near = torch.logical_and(torch.abs(q - k) <= 3, torch.le(k, q))
            return torch.logical_or(near, torch.logical_not(torch.eq(b, h)))

        assert mask_text(mask) == ("((abs(q_idx - kv_idx) <= 3) & (kv_idx <= q_idx)) | ~(b == h)")

    def test_captured_tensors(self, torch):
        doc = torch.zeros(2, 9, dtype=torch.int64)
        slopes = torch.nn.Parameter(torch.ones(4))
        things = {"bias": torch.zeros(4, 9, dtype=torch.bfloat16)}

        def score(s, b, h, q, k):
            same = doc[b, q] == doc[b][k]
            return torch.where(same, s + slopes[h] * things["bias"][h, q - k], s)

        found = as_score(score)
        assert found.text == (
            "where(doc[b, q_idx] == doc[b, kv_idx], "
            "score + slopes[h] * bias[h, wrap(q_idx - kv_idx)], score)"
        )
        assert [(t.name, t.dtype, t.rank) for t in found.tensors] == [
            ("doc", "i64", 2), ("slopes", "f32", 1), ("bias", "bf16", 2)
        ]  # fmt: skip
        assert found.arrays[0] is doc
        assert found.arrays[1] is slopes

    def test_numbers_of_torch(self, torch):
        cap = torch.tensor(20.0)
        assert score_text(lambda s, *_: cap * torch.tanh(s / cap)) == "20.0 * tanh(score / 20.0)"

    def test_attributes_of_a_module(self, torch):
        class Bias(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.table = torch.nn.Parameter(torch.zeros(4, 9))

            def forward(self, s, b, h, q, k):
                return s + self.table[h, q - k]

        assert score_text(Bias()) == "score + table[h, wrap(q_idx - kv_idx)]"

    def test_combinations_of_flex_attention(self, torch):
        flex = pytest.importorskip("torch.nn.attention.flex_attention")
        near = flex.and_masks(lambda b, h, q, k: q >= k, lambda b, h, q, k: q - k < 9)
        text = "(q_idx >= kv_idx) & (q_idx - kv_idx < 9)"
        assert mask_text(near) == text
        assert mask_text(flex.or_masks(near, lambda b, h, q, k: k < 2)) == (
            f"({text}) | (kv_idx < 2)"
        )
