"""The functions and shapes of FlexAttention's tests, at call sites of `fc.attention`.

The functions say what those of the tests compute, with NumPy's names or torch's. Where one indexes
in steps (`bias[b][q_idx]`), which means something else for whole arrays of positions, `exact` says
what it means.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from backend import Arrays
from cases import Family, Sizes
from judge import Problem

import flashcore as fc

LOW = ["f16", "bf16"]


@dataclass
class Shape:
    batch: int
    heads: int
    q_len: int
    kv_len: int


@dataclass
class Mod:
    score: Callable[..., Any] | None = None
    mask: Callable[..., Any] | None = None
    exact: Callable[..., Any] | None = None
    """Of the score, for arrays of positions."""
    size: float = 1.0
    """Of q: functions that grow fast take small scores."""


def _scores(a: Arrays, s: Shape, dtype: str) -> dict[str, Callable[[], Mod]]:
    """Score functions by name; each draws what it captures."""
    xp, hidden = a.xp, -math.inf
    longest = max(s.q_len, s.kv_len)
    sin, cos, tan = xp.sin, xp.cos, xp.tan

    def mod(score: Callable[..., Any], exact: Any = None, size: float = 1.0) -> Mod:
        return Mod(score, exact=exact, size=size)

    def causal(score: Any, b: Any, h: Any, m: Any, n: Any) -> Any:
        return xp.where(m >= n, score, hidden)

    def alibi() -> Mod:
        def score(score: Any, b: Any, h: Any, m: Any, n: Any) -> Any:
            return score + (n - m) * xp.exp2(-((h + 1) * 8.0 / s.heads))

        return mod(score)

    def head_offset() -> Mod:
        offset = a.uniform((s.heads,), dtype)
        return mod(lambda score, b, h, m, n: score * offset[h],
                   lambda score, b, h, m, n: score * a.cast(offset, "f64")[h])  # fmt: skip

    def documents() -> Mod:
        ids = a.array([i // 8 for i in range(longest)], "i32")
        return mod(lambda score, b, h, m, n:
                   xp.where((m >= n) & (ids[m] == ids[n]), score, hidden))  # fmt: skip

    def index_twice() -> Mod:
        bias = a.normal((s.batch, longest), "f32")
        return mod(lambda score, b, h, m, n: score + bias[b][m],
                   lambda score, b, h, m, n: score + bias[b, m])  # fmt: skip

    def index_after_constant() -> Mod:
        bias = a.normal((4, s.batch, s.heads, longest), "f32")
        return mod(lambda score, b, h, m, n: score + bias[0][b, h][m],
                   lambda score, b, h, m, n: score + bias[0][b, h, m])  # fmt: skip

    def index_by_captured() -> Mod:
        bias, which = a.normal((s.batch, s.heads, 4, longest), "f32"), a.array(0, "i64")
        return mod(lambda score, b, h, m, n: score + bias[b][h][which, m],
                   lambda score, b, h, m, n: score + bias[b, h, 0, m])  # fmt: skip

    def composed() -> Mod:
        def one(score: Any, b: Any, h: Any, m: Any, n: Any) -> Any:
            return score + (m - n)

        def two(score: Any, b: Any, h: Any, m: Any, n: Any) -> Any:
            return xp.where(m <= n, score, hidden)

        return mod(lambda score, b, h, m, n: two(one(score, b, h, m, n), b, h, m, n))

    def all_dimensions() -> Mod:
        heads, batches = a.normal((s.heads,), "f32"), a.normal((s.batch,), "f32")
        tokens = a.normal((longest,), "f32")

        def score(score: Any, b: Any, h: Any, m: Any, n: Any) -> Any:
            score = score + tokens[m]
            score = score + batches[b]
            return score + heads[h]

        return mod(score)

    def same_half() -> Mod:
        half = a.array([i >= longest // 2 for i in range(longest)], "bool")
        return mod(lambda score, b, h, m, n: xp.where(half[m] == half[n], score, hidden))

    def bias(*places: str) -> Callable[[], Mod]:
        def make() -> Mod:
            lengths = {"b": s.batch, "h": s.heads, "m": s.q_len, "n": s.kv_len}
            table = a.normal(tuple(lengths[place] for place in places), dtype)

            def score(score: Any, b: Any, h: Any, m: Any, n: Any) -> Any:
                at = {"b": b, "h": h, "m": m, "n": n}
                return score + table[tuple(at[place] for place in places)]

            return mod(score)

        return make

    def relative() -> Mod:
        table = a.normal((2 * longest,), dtype)
        return mod(lambda score, b, h, m, n: score + table[(m - n) + longest])

    def two_ways() -> Mod:
        count = a.integers(0, longest, (s.batch,), "i32")
        return mod(lambda score, b, h, m, n: xp.where(
            ((m <= count[b]) & (n <= count[b])) | (m >= n), score, hidden))  # fmt: skip

    def natten() -> Mod:
        width = 8

        def place(index: Any) -> tuple[Any, Any]:
            return index / width, index % width

        def score(score: Any, b: Any, h: Any, m: Any, n: Any) -> Any:
            (x, y), (kv_x, kv_y) = place(m), place(n)
            return xp.where((abs(x - kv_x) <= 3) | (abs(y - kv_y) <= 3), score, hidden)

        return mod(score)

    def silu() -> Mod:
        if xp.__name__ == "torch":
            return mod(lambda score, b, h, m, n: xp.nn.functional.silu(score))
        return mod(lambda score, b, h, m, n: score / (1 + xp.exp(-score)))

    def padded() -> Mod:
        # Where scores are dense, one of a million lies within their rounding of a limit.
        lengths = a.array([i + 5 for i in range(s.batch)], "i32")
        return mod(lambda score, b, h, m, n: xp.where(
            score <= lengths[b], causal(score, b, h, m, n), hidden))  # fmt: skip

    def captured_number() -> Mod:
        scale = a.array(1, "i32")
        return mod(lambda score, b, h, m, n: score + scale)

    def reduced() -> Mod:
        scale = a.normal((s.batch, 8), "f32")
        return mod(lambda score, b, h, m, n: score + scale[b].sum(-1),
                   lambda score, b, h, m, n: score + scale.sum(-1)[b])  # fmt: skip

    def jagged() -> Mod:
        starts = a.array([0, longest // 2, longest // 2 + longest // 4, longest], "i32")
        ids = [sum(i >= at for at in (longest // 2, longest // 2 + longest // 4))
               for i in range(longest)]  # fmt: skip
        of = a.array(ids, "i32")
        return mod(lambda score, b, h, m, n: causal(
            score, b, h, m - starts[of[m]], n - starts[of[n]]))  # fmt: skip

    def rows_of_image() -> Mod:
        table = a.normal((s.batch, s.heads, s.q_len, -(-s.kv_len // 8)), dtype)
        return mod(lambda score, b, h, m, n: score + table[b, h, m, n // 8])

    def zeros_of_head() -> Mod:
        table = a.integers(0, 2, (s.batch, 1, s.q_len, s.kv_len), "bool")
        return mod(lambda score, b, h, m, n: score + table[b, h.new_zeros(h.shape), m, n],
                   lambda score, b, h, m, n: score + a.cast(table, "f64")[b, 0 * h, m, n])  # fmt: skip  # noqa: E501

    def swish_of_softplus() -> Mod:
        if xp.__name__ != "torch":
            return mod(lambda score, b, h, m, n: xp.log1p(xp.exp(score)))
        f = xp.nn.functional
        return mod(lambda score, b, h, m, n: f.gelu(score) + f.softplus(score))

    plain: dict[str, Callable[[], Mod]] = {
        "identity": lambda: mod(lambda score, b, h, m, n: score),
        "times_two": lambda: mod(lambda score, b, h, m, n: score * 2),
        "squared": lambda: mod(lambda score, b, h, m, n: score * score),
        "causal": lambda: mod(causal),
        "inverse_causal": lambda: mod(lambda score, b, h, m, n: xp.where(m <= n, score, hidden)),
        "distance": lambda: mod(lambda score, b, h, m, n: score + (m - n)),
        "causal_distance": lambda: mod(
            lambda score, b, h, m, n: xp.where(m >= n, score + (m - n), hidden)
        ),
        "alibi": alibi,
        "trig": lambda: mod(lambda score, b, h, m, n: sin(cos(score)) + tan(b * 1.0)),
        "trig_twice": lambda: mod(lambda score, b, h, m, n: cos(score) * sin(score) + tan(b * 1.0)),
        "tan_of_whole": lambda: mod(lambda score, b, h, m, n: sin(cos(score)) + tan(b)),
        "even_keys": lambda: mod(lambda score, b, h, m, n: xp.where(n % 2 == 0, score, hidden)),
        "quotient": lambda: mod(lambda score, b, h, m, n: score - m // (1 + n)),
        "softcap": lambda: mod(lambda score, b, h, m, n: 20 * xp.tanh(score / 20)),
        "exponential": lambda: mod(lambda score, b, h, m, n: xp.log(1 + xp.exp(score))),
        "square_root": lambda: mod(lambda score, b, h, m, n: xp.sqrt(abs(score) + 1.0)),
        "head_offset": head_offset, "documents": documents, "index_twice": index_twice,
        "index_after_constant": index_after_constant, "index_by_captured": index_by_captured,
        "composed": composed, "all_dimensions": all_dimensions, "same_half": same_half,
        "bias_of_positions": bias("m", "n"), "bias_of_batch": bias("b", "m", "n"),
        "bias_of_all": bias("b", "h", "m", "n"), "relative": relative, "two_ways": two_ways,
        "natten": natten, "silu": silu, "padded": padded, "captured_number": captured_number,
        "reduced": reduced, "jagged": jagged, "rows_of_image": rows_of_image,
        "swish_of_softplus": swish_of_softplus,
    }  # fmt: skip
    return plain | {"zeros_of_head": zeros_of_head} if xp.__name__ == "torch" else plain


SCORES = [
    "identity", "times_two", "squared", "causal", "inverse_causal", "distance", "causal_distance",
    "alibi",
]  # fmt: skip
OTHER_SCORES = [
    "trig", "trig_twice", "tan_of_whole", "even_keys", "quotient", "softcap", "exponential",
    "square_root", "head_offset", "documents", "index_twice", "index_after_constant",
    "index_by_captured", "composed", "all_dimensions", "same_half", "bias_of_positions",
    "bias_of_batch", "bias_of_all", "relative", "two_ways", "natten", "silu", "padded",
    "captured_number", "reduced", "jagged", "rows_of_image", "swish_of_softplus",
]  # fmt: skip


def _masks(a: Arrays, s: Shape) -> dict[str, Callable[[], Callable[..., Any]]]:
    xp = a.xp
    longest = max(s.q_len, s.kv_len)

    def causal(b: Any, h: Any, m: Any, n: Any) -> Any:
        return m >= n

    def window(b: Any, h: Any, m: Any, n: Any) -> Any:
        return m - n <= 11

    def inverse(b: Any, h: Any, m: Any, n: Any) -> Any:
        return m < n

    def heads_differ() -> Callable[..., Any]:
        kinds = a.integers(0, 2, (s.heads,), "bool")
        return lambda b, h, m, n: xp.where(kinds[h], m >= n, m <= n)

    def table() -> Callable[..., Any]:
        seen = a.integers(0, 2, (s.batch, 1, s.q_len, s.kv_len), "bool")
        return lambda b, h, m, n: seen[b, 0, m, n]

    def documents() -> Callable[..., Any]:
        ids = a.array([min(i // 13, 3) for i in range(longest)], "i64")
        return lambda b, h, m, n: (m >= n) & (ids[m] == ids[n])

    def clamped() -> Callable[..., Any]:
        ids = a.array([i // 16 for i in range(longest)], "i64")
        last = longest - 1
        if xp.__name__ == "torch":
            return lambda b, h, m, n: ids[m.clamp(0, last)] == ids[n.clamp(max=last)]
        return lambda b, h, m, n: ids[xp.clip(m, 0, last)] == ids[xp.minimum(n, last)]

    def counted() -> Callable[..., Any]:
        count = a.integers(1, longest, (s.batch,), "i64")
        return lambda b, h, m, n: (n < count[b]) | (m >= n)

    return {
        "causal": lambda: causal,
        "causal_window": lambda: lambda *at: causal(*at) & window(*at),
        "nothing": lambda: lambda *at: causal(*at) & inverse(*at),
        "everything": lambda: lambda *at: causal(*at) | inverse(*at),
        "not_window": lambda: lambda b, h, m, n: ~((m - n <= 4) & (m - n >= -4)),
        "modulo": lambda: lambda b, h, m, n: (m + n) % 3 == 0,
        "blocks": lambda: lambda b, h, m, n: m // 16 == n // 16,
        "true_division": lambda: lambda b, h, m, n: abs(m / 8 - n / 8) <= 2,
        "first_rows": lambda: lambda b, h, m, n: (n < 3) | (m - n <= 5) & (m >= n),
        "late_keys": lambda: lambda b, h, m, n: m >= n + 7,
        "heads_differ": heads_differ, "table": table, "documents": documents, "clamped": clamped,
        "counted": counted,
    }  # fmt: skip


MASKS = [
    "causal", "causal_window", "nothing", "everything", "not_window", "modulo", "blocks",
    "true_division", "first_rows", "late_keys", "heads_differ", "table", "documents", "clamped",
    "counted",
]  # fmt: skip


def _flex(
    arrays: Arrays, sizes: Sizes, *, dtype: str, score: str | None = None, mask: str | None = None,
    batch: int = 4, heads: int = 8, q_len: int = 2048, kv_len: int = 2048, head_dim: int = 64,
    head_dim_v: int | None = None, kv_batch: int | None = None, kv_heads: int | None = None,
    strides: tuple[str, str, str] | None = None, lse: bool = True,
) -> Problem:  # fmt: skip
    b, h = sizes.batch(batch), sizes.heads(heads)
    n, m = sizes.length(q_len), sizes.length(kv_len)
    kv_b = b if kv_batch is None else kv_batch
    kv_h = h if kv_heads is None else max(1, h * kv_heads // heads)
    shapes = (
        (b, h, n, head_dim),
        (kv_b, kv_h, m, head_dim),
        (kv_b, kv_h, m, head_dim_v or head_dim),
    )
    made = strides or ("dense",) * 3
    q, k, v = (
        _laid_out(arrays, shape, kind, dtype) for shape, kind in zip(shapes, made, strict=True)
    )
    shape = Shape(b, h, n, m)
    mod = _scores(arrays, shape, dtype)[score]() if score else Mod()
    seen = _masks(arrays, shape)[mask]() if mask else None
    given: dict[str, Any] = {}
    if mod.score is not None:
        given["score"] = mod.score
    if seen is not None:
        given["mask"] = seen
    return Problem(
        call=lambda: fc.attention(q, k, v, return_lse=lse, **given),
        dtype=dtype, q=q, k=k, v=v, mask=seen, score=mod.exact or mod.score, with_lse=lse,
        shape=(b, h, n, head_dim_v or head_dim),
    )  # fmt: skip


def _laid_out(arrays: Arrays, shape: Any, kind: str, dtype: str) -> Any:
    b, h, n, d = shape
    if kind == "offset":
        return arrays.strided(shape, (h * n * d, n * d, d, 1), 997, dtype)
    if kind == "exchanged":
        return arrays.strided(shape, (h * d, d, b * h * d, 1), 499, dtype)
    if kind == "heads_inside":
        return arrays.strided(shape, (h * n * d, d, h * d, 1), 0, dtype)
    if kind == "padded":
        return arrays.strided(shape, (n * (d + 1), b * n * (d + 1), d + 1, 1), 293, dtype)
    return arrays.normal(shape, dtype)


def _missing(arrays: Arrays, sizes: Sizes, *, what: str) -> Problem:
    """What FlexAttention has, and FlashCore says that it has not."""
    dtype = what if what == "f64" else "f16"
    width = 513 if what == "head_dim_513" else 16
    q, k, v = (arrays.cast(arrays.normal((1, 2, 9, width), "f32"), dtype) for _ in range(3))

    def call() -> Any:
        if what != "max_scores":
            return fc.attention(q, k, v)
        from types import SimpleNamespace

        request = SimpleNamespace(lse=False, max_scores=True)  # torch's AuxRequest
        return fc.flex_attention(q, k, v, return_aux=request)

    return Problem(call=call, dtype=dtype, q=q, k=k, v=v)


FAMILIES = [
    Family("scores", {"dtype": LOW, "score": SCORES + OTHER_SCORES}, _flex),
    Family("zeros_of_head", {"dtype": ["f16"], "score": ["zeros_of_head"]}, _flex, torch=True),
    Family("missing", {"what": ["f64", "head_dim_513", "max_scores"]}, _missing),
    Family("masks", {"dtype": LOW, "mask": MASKS}, _flex),
    Family("masks_and_scores", {"dtype": ["f16"], "mask": MASKS, "score": ["alibi", "silu", "bias_of_all"]}, _flex),  # noqa: E501
    Family("short", {"dtype": ["f16"], "score": SCORES, "q_len": [64], "kv_len": [64]}, _flex),
    Family("lengths_differ", {"dtype": ["f16"], "score": SCORES, "q_len": [1024]}, _flex),
    Family(
        "lengths",
        {
            "dtype": LOW, "mask": [None, "causal", "documents"], "score": [None, "alibi"],
            "q_len": [1, 55, 127, 277, 1000], "kv_len": [1, 55, 256, 303, 1111],
        },
        _flex,
    ),
    Family(
        "few_rows",
        {"dtype": LOW, "score": SCORES, "q_len": [1, 2, 16, 100], "kv_len": [8, 1013, 2048]},
        _flex,
    ),
    Family(
        "grouped_heads",
        {"dtype": ["f16"], "score": SCORES, "heads": [32], "kv_heads": [8], "q_len": [256]},
        _flex,
    ),
    Family(
        "grouped_heads_by_mask",
        {
            "dtype": ["f16"], "mask": ["causal", "heads_differ"], "heads": [32], "kv_heads": [8],
            "q_len": [256], "kv_len": [256],
        },
        _flex,
    ),
    Family(
        "broadcast_batch",
        {
            "dtype": ["f16"], "score": SCORES, "mask": [None, "causal"], "batch": [3, 4, 5],
            "kv_batch": [1], "heads": [4], "kv_heads": [2, 1],
        },
        _flex,
    ),
    Family(
        "values_of_another_width",
        {"dtype": LOW, "score": SCORES, "head_dim": [64, 32], "head_dim_v": [32, 64]},
        _flex,
    ),
    Family(
        "head_dims",
        {
            "dtype": LOW, "score": ["identity", "causal"],
            "head_dim": [4, 13, 15, 16, 17, 20, 24, 94, 121, 122, 128, 256],
        },
        _flex,
    ),
    Family(
        "strides",
        {
            "dtype": LOW, "score": ["alibi"], "q_len": [1024],
            "strides": [
                (q, k, v)
                for q in ("offset", "exchanged")
                for k, v in (
                    ("offset", "offset"), ("offset", "exchanged"), ("heads_inside", "padded"),
                    ("padded", "exchanged"),
                )
            ],
        },
        _flex,
    ),
]  # fmt: skip
