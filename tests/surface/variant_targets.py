"""Ready-made masks, scores and sinks, built and then run."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import oracle
from oracle import Meaningless, number, whole
from target import (
    BIAS,
    KNOWN,
    LOGITS,
    SLOPES,
    VISIBLE,
    Arguments,
    B,
    D,
    H,
    K,
    Q,
    Rng,
    Target,
    check_result,
    floats,
    pick,
    shift,
)
from values import BF16

import flashcore as fc


def run(part: str, made: Any) -> Any:
    rng = np.random.default_rng(7)
    q, k, v = (floats(rng, *s) for s in ((B, H, Q, D), (B, H, K, D), (B, H, K, D)))
    return fc.attention(q, k, v, **{part: made})


def check_run(part: str, meant: Any, result: Any) -> str | None:
    rng = np.random.default_rng(7)
    q, k, v = (floats(rng, *s) for s in ((B, H, Q, D), (B, H, K, D), (B, H, K, D)))
    marker = object()
    expected = oracle.attention_call(
        {"q": q, "k": k, "v": v, part: marker}, KNOWN | {id(marker): meant}
    )
    return check_result(expected, result, None, {})


def _corner(align: Any) -> Callable[[Any, Any], int]:
    if not isinstance(align, str) or align not in ("bottom_right", "top_left"):
        raise Meaningless("no corner")
    return shift if align == "bottom_right" else lambda i, j: 0


def _reach(value: Any, name: str) -> float:
    if value is None:
        return math.inf
    value = whole(value, name)
    if value < -1:
        raise Meaningless(f"{name} is {value}")
    return math.inf if value == -1 else value


def _array_of(value: Any, shapes: tuple[tuple[int, ...], ...], kinds: str, name: str) -> np.ndarray:
    if not isinstance(value, np.ndarray) or value.shape not in shapes:
        raise Meaningless(f"{name} has no shape that fits")
    if value.dtype.kind not in kinds and not (value.dtype == BF16 and "f" in kinds):
        raise Meaningless(f"{name} is of {value.dtype}")
    return value.astype(np.float64)


def _broadcasts(value: Any, kinds: str) -> np.ndarray:
    if not isinstance(value, np.ndarray):
        raise Meaningless("no array")
    try:
        np.broadcast_to(value, (B, H, Q, K))
    except ValueError:
        raise Meaningless("does not broadcast") from None
    if value.dtype.kind not in kinds and value.dtype != BF16:
        raise Meaningless(f"of {value.dtype}")
    return value if value.dtype == bool else value.astype(np.float64)


def _window(args: Arguments) -> Any:
    left, right = _reach(args["left"], "left"), _reach(args["right"], "right")
    shift = _corner(args["align"])
    return lambda b, h, i, j: (j >= i + shift(i, j) - left) & (j <= i + shift(i, j) + right)


def _prefix(args: Arguments) -> Any:
    length = args["length"]
    if isinstance(length, np.ndarray) and length.ndim:
        lengths = _array_of(length, ((B,),), "iu", "length")
        return lambda b, h, i, j: (j < lengths[b]) & (i == i)  # noqa: PLR0124
    length = whole(length, "length")
    return lambda b, h, i, j: (j < length) & (i == i)  # noqa: PLR0124


def _ids(args: Arguments) -> Any:
    # Of rows and of keys apart: 5 and 7 positions.
    ids, kv_ids = args["ids"], args["kv_ids"]
    rows = _array_of(ids, ((Q,), (1, Q), (B, Q)), "iufb", "ids")
    keys = _array_of(kv_ids, ((K,), (1, K), (B, K)), "iufb", "kv_ids")
    rows, keys = (np.broadcast_to(x, (B, x.shape[-1])) for x in (rows, keys))
    return lambda b, h, i, j: rows[b, i] == keys[b, j]


def _step(name: str) -> Any:
    def meant(args: Arguments) -> Any:
        n = whole(args[name], name)
        if n < 1:
            raise Meaningless(f"{name} is {n}")
        if name == "size":
            return lambda b, h, i, j: i // n == j // n
        return lambda b, h, i, j: (i - j) % n == 0

    return meant


def _alibi(args: Arguments) -> Any:
    slopes, shift = args["slopes"], _corner(args["align"])
    slopes = _array_of(slopes, ((H,), (B, H)), "fiu", "slopes")
    slopes = np.broadcast_to(slopes, (B, H))
    return lambda s, b, h, i, j: s - slopes[b, h] * (i + shift(i, j) - j)


def _cap(args: Arguments) -> Any:
    cap = number(args["cap"], "cap")
    if cap <= 0 or cap > np.finfo(np.float32).max:
        raise Meaningless(f"cap is {cap}")
    return lambda s, *_: cap * np.tanh(s / cap)


def _table(args: Arguments) -> Any:
    table = args["table"]
    if not isinstance(table, np.ndarray) or table.ndim != 2 or table.shape[0] != H:
        raise Meaningless("table is no array [heads, 2 n + 1]")
    if table.dtype.kind not in "fiu" and table.dtype != BF16:
        raise Meaningless(f"table is of {table.dtype}")
    if table.shape[1] % 2 == 0:
        raise Meaningless("an even number of distances")
    n = (table.shape[1] - 1) // 2
    values = table.astype(np.float64)

    def score(s: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
        at = j - i + n
        inside = (at >= 0) & (at < table.shape[1])
        return s + np.where(inside, values[h, np.clip(at, 0, table.shape[1] - 1)], 0)

    return score


def _added(args: Arguments) -> Any:
    bias = _broadcasts(args["array"], "fiu")
    return lambda s, *_: s + bias


def _dense(args: Arguments) -> Any:
    seen = _broadcasts(args["array"], "b")
    return lambda *_: seen


def _logits(args: Arguments) -> Any:
    logits = _array_of(args["logits"], ((H,),), "fiu", "logits")
    return lambda b, h, i: logits[h]


def _variant(name: str, part: str, draw: Callable[[Rng], Arguments], meant: Any) -> Target:
    def check(args: Arguments, result: Any) -> str | None:
        return check_run(part, meant(args), result)

    return Target(name, draw, lambda **args: run(part, getattr(fc, name)(**args)), check)


TARGETS = [
    _variant("causal", "mask", lambda r: {"align": "top_left"},
             lambda a: (lambda shift: lambda b, h, i, j: j <= i + shift(i, j))(_corner(a["align"]))),  # noqa: E501
    _variant("sliding_window", "mask", lambda r: {"left": 2, "right": pick(r, [0, None, 1]),
                                                  "align": "bottom_right"}, _window),
    _variant("prefix", "mask", lambda r: {"length": np.array([2, 5], np.int32)}, _prefix),
    _variant("documents", "mask", lambda r: {
        "ids": np.array([0, 0, 1, 1, 2], np.int32),
        "kv_ids": np.array([[0, 0, 1, 1, 2, 2, 2]] * B, np.int32)}, _ids),
    _variant("chunked", "mask", lambda r: {"size": 3}, _step("size")),
    _variant("dilated", "mask", lambda r: {"step": 2}, _step("step")),
    _variant("dense_mask", "mask", lambda r: {"array": VISIBLE.copy()}, _dense),
    _variant("alibi", "score", lambda r: {"slopes": SLOPES.copy(), "align": "bottom_right"}, _alibi),  # noqa: E501
    _variant("softcap", "score", lambda r: {"cap": 2.0}, _cap),
    _variant("relative_bias", "score", lambda r: {"table": floats(r, H, 7)}, _table),
    _variant("bias", "score", lambda r: {"array": BIAS.copy()}, _added),
    _variant("sinks", "sink", lambda r: {"logits": LOGITS.copy()}, _logits),
]  # fmt: skip
