"""What a call that was not refused has to give: fp64 from the values as they are, or nothing.

`Meaningless` is raised where arguments have no meaning that a caller could have counted on; a call
that takes them without a word is at fault, whatever it returns.
"""

from __future__ import annotations

import decimal
import fractions
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from values import BF16

import flashcore as fc

LAYOUTS = ("bhsd", "bshd", "thd")
Known = dict[int, Callable[..., Any]]


class Meaningless(Exception):
    pass


class TooLarge(Exception):
    """Scores of which single precision keeps no more than their order."""


def _need(holds: bool, why: str) -> None:
    if not holds:
        raise Meaningless(why)


def number(value: Any, name: str) -> float:
    kinds = (int, float, np.number, np.bool_, decimal.Decimal, fractions.Fraction)
    single = isinstance(value, np.ndarray) and value.shape == () and value.dtype.kind in "fiub"
    _need(isinstance(value, kinds) or single, f"{name} is no number")
    _need(not isinstance(value, complex | np.complexfloating), f"{name} is complex")
    _need(math.isfinite(float(value)), f"{name} is {value}")
    return float(value)


def whole(value: Any, name: str) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise Meaningless(f"{name} is no whole number") from None


def is_stream(value: Any) -> None:
    """Calls in CPU memory wait for themselves: any stream will do, and nothing else."""
    handle = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**64
    _need(value is None or handle, "no stream")


def truth(value: Any) -> bool:
    try:
        return bool(value)
    except Exception as error:
        raise Meaningless(str(error)) from None


def sink_of(value: Any, known: Known) -> Callable[..., Any]:
    if id(value) in known:
        return known[id(value)]
    if isinstance(value, fc.Sink):  # values.py has this one
        return lambda b, h, i: 0.0 * (h + i)
    return score_of(value, known)


def floats(value: Any, name: str) -> np.ndarray:
    _need(isinstance(value, np.ndarray), f"{name} is no array")
    native = value.dtype.newbyteorder("=")
    _need(native in (np.float16, BF16, np.float32), f"{name} is of {value.dtype}")
    return np.asarray(value, np.float64)


def _evaluated(function: Callable[..., Any], *at: Any) -> Any:
    try:
        with np.errstate(all="ignore"):
            return np.asarray(function(*at))
    except Exception as error:
        raise Meaningless(f"the function does not run: {error!r}") from None


def mask_of(value: Any, known: Known) -> Callable[..., Any]:
    if value is None:
        return lambda *_: np.True_
    if id(value) in known:
        return known[id(value)]
    if isinstance(value, fc.Mask) and value == fc.causal():  # values.py has this one
        return lambda b, h, i, j: j <= i + j.shape[-1] - i.shape[-2]
    _need(callable(value) and not isinstance(value, fc.Expression), "mask is nothing known")

    def evaluate(*at: Any) -> Any:
        seen = _evaluated(value, *at)
        _need(seen.dtype == bool, "the mask gives no conditions")
        return seen

    return evaluate


def score_of(value: Any, known: Known) -> Callable[..., Any]:
    if value is None:
        return lambda s, *_: s
    if id(value) in known:
        return known[id(value)]
    if isinstance(value, list | tuple):
        parts = [score_of(part, known) for part in value]

        def composed(s: Any, *at: Any) -> Any:
            for part in parts:
                s = part(s, *at)
            return s

        return composed
    if isinstance(value, fc.Score) and value == fc.softcap(2.0):  # values.py has this one
        return lambda s, *_: 2 * np.tanh(s / 2)
    _need(callable(value) and not isinstance(value, fc.Expression), "score is nothing known")

    def evaluate(*at: Any) -> Any:
        found = _evaluated(value, *at)
        _need(found.dtype.kind in "fiub", "the score gives no numbers")
        return found.astype(np.float64)

    return evaluate


def together(what: str, *shapes: tuple[int, ...]) -> tuple[int, ...]:
    """What dimensions of 1 stand for."""
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        raise Meaningless(f"{what} differ: {shapes}") from None


def four(arrays: Any, layout: str = "bhsd") -> tuple[list[np.ndarray], Callable[..., Any]]:
    """Arrays of [batch, heads, length, dim] that mean the same as arrays of other dimensions, and
    what brings a result back."""
    arrays = [np.asarray(x) for x in arrays]
    ranks = [x.ndim for x in arrays]
    _need(min(ranks) >= 2, "no length and head_dim")
    made = []
    for x in arrays:
        if x.ndim == 2 and layout == "bshd":
            x = x[:, None]
        x = x.reshape((1,) * (4 - x.ndim) + x.shape)
        made.append(x.swapaxes(-2, -3) if layout == "bshd" else x)
    lead = together("batches", *(x.shape[:-3] for x in made))
    count = math.prod(lead)
    flat = [np.broadcast_to(x, (*lead, *x.shape[-3:])).reshape(count, *x.shape[-3:]) for x in made]

    def back(result: np.ndarray, of_rows: bool = False) -> np.ndarray:
        if layout == "bshd" and not of_rows:
            result = result.swapaxes(1, 2)
        result = result.reshape(*lead, *result.shape[1:])
        if max(ranks) == 2:
            return result[0, 0] if layout == "bhsd" or of_rows else result[0, :, 0]
        return result[0] if max(ranks) == 3 else result

    return flat, back


def attention(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, scale: float,
    mask: Callable[..., Any], score: Callable[..., Any], sink: Callable[..., Any] | None = None,
    first: int = 0,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """(out, lse) of [batch, heads, length, dim], whose batches count from `first`; k and v
    broadcast over batches and heads."""
    _need(k.shape[2] == v.shape[2], "lengths of k and v differ")
    _need(k.shape[3] == q.shape[3] > 0, "head_dim differs")
    (batch,) = together("batches", *(x.shape[:1] for x in (q, k, v)))
    (kv_heads,) = together("heads of k and v", k.shape[1:2], v.shape[1:2])
    heads = kv_heads if q.shape[1] == 1 else q.shape[1]
    _need(kv_heads > 0 and heads % kv_heads == 0, "heads do not divide")
    q = np.broadcast_to(q, (batch, heads, *q.shape[2:]))
    k, v = (np.broadcast_to(x, (batch, kv_heads, *x.shape[2:])) for x in (k, v))
    k, v = (np.repeat(x, heads // kv_heads, 1) for x in (k, v))
    with np.errstate(all="ignore"):
        scores = q @ k.swapaxes(-1, -2) * scale
        at = [
            np.arange(n).reshape([-1 if i == axis else 1 for i in range(4)])
            for axis, n in enumerate(scores.shape)
        ]
        at[0] = at[0] + first
        scores = np.broadcast_to(score(scores, *at), scores.shape)
        if np.abs(scores[np.isfinite(scores)]).max(initial=0.0) > 1e6:
            raise TooLarge
        scores = np.where(np.broadcast_to(mask(*at), scores.shape), scores, -np.inf)
        if sink is not None:
            more = np.broadcast_to(sink(*at[:3]), (*scores.shape[:3], 1))
            scores = np.concatenate([scores, more], -1)
            v = np.concatenate([v, np.zeros_like(v[:, :, :1])], 2) if v.shape[2] else v
        top = scores.max(-1, keepdims=True, initial=-np.inf)
        probs = np.exp(scores - np.maximum(top, np.finfo(np.float64).min))
        sums = probs.sum(-1, keepdims=True)
        if probs.shape[-1] != v.shape[2]:
            probs = probs[..., : v.shape[2]]
        out = np.where(sums > 0, probs @ v / np.where(sums > 0, sums, 1), 0.0)
        lse = np.where(sums > 0, top + np.log(sums), -np.inf)[..., 0]
    return out, lse


def close(found: Any, exact: np.ndarray, dtype: Any, largest: float) -> str | None:
    """What is wrong with a result, or None. Where `exact` is NaN it may be anything: nothing writes
    rows of no sequence."""
    if not isinstance(found, np.ndarray):
        return f"a {type(found).__name__} and no array"
    if found.shape != exact.shape:
        return f"shape {found.shape}, not {exact.shape}"
    if found.dtype != dtype:
        return f"dtype {found.dtype}, not {dtype}"
    native = np.dtype(dtype).newbyteorder("=")
    epsilon = {np.dtype(np.float16): 2**-10, BF16: 2**-7}.get(native, 1e-5)
    given = found.astype(np.float64)
    with np.errstate(all="ignore"):
        finite = np.isfinite(exact)
        bound = 4 * epsilon * max(1.0, largest) + 1e-5
        off = np.abs(np.where(finite, given - exact, 0))
    if not (off <= bound).all():
        return f"off by {np.nanmax(off):.3e}, allowed are {bound:.3e} ({np.isnan(off).sum()} NaN)"
    return None


def attention_call(args: Mapping[str, Any], known: Known) -> dict[str, Any]:
    """The result of fc.attention with these arguments: out, lse, dtype, largest."""
    layout = args.get("layout", "bhsd")
    _need(isinstance(layout, str) and layout in LAYOUTS, "no layout")
    is_stream(args.get("stream"))
    q, k, v = (floats(args[name], name) for name in "qkv")
    dtypes = {args[name].dtype.newbyteorder("=") for name in "qkv"}
    _need(len(dtypes) == 1, "dtypes differ")
    in_parts = np.float32 in dtypes
    most = 256 if in_parts else 512 if q.shape[-1:] == v.shape[-1:] else 576
    _need(q.size == 0 or 0 < q.shape[-1] <= most, "head_dim")
    _need(v.size == 0 or v.shape[-1] <= (256 if in_parts else 512), "head_dim_v")
    scale = args.get("scale")
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else number(scale, "scale")
    mask, score = mask_of(args.get("mask"), known), score_of(args.get("score"), known)
    sink = args.get("sink")
    if sink is not None:
        sink = sink_of(sink, known)
    lse_too = args.get("return_lse", False)
    _need(isinstance(lse_too, bool | np.bool_), "return_lse is neither")
    packed = [args.get(n) for n in ("cu_seqlens_q", "cu_seqlens_k", "max_q_len")]
    padded = [args.get(n) for n in ("q_lens", "kv_lens")]
    largest = max((float(np.abs(v[np.isfinite(v)]).max(initial=0.0)), 0.0))
    if layout == "thd":
        _need(all(x is None for x in padded), "padded lengths of packed sequences")
        out, lse = _packed(q, k, v, scale, mask, score, sink, packed)
    else:
        _need(all(x is None for x in packed), "packed lengths of a batch")
        (q, k, v), back = four((q, k, v), layout)
        if all(x is None for x in padded):
            out, lse = attention(q, k, v, scale, mask, score, sink)
        else:
            out, lse = _padded(q, k, v, scale, mask, score, sink, padded)
        out, lse = back(out), back(lse, True)
    return {"out": out, "lse": lse if lse_too else None, "dtype": dtypes.pop(), "largest": largest}


def _lengths(value: Any, count: int | None, name: str) -> np.ndarray:
    _need(isinstance(value, np.ndarray) and value.ndim == 1, f"{name} is no list of lengths")
    _need(value.dtype.kind in "iu", f"{name} is of {value.dtype}")
    _need(count is None or len(value) == count, f"{name} has {len(value)} of {count}")
    _need(bool((value >= 0).all()), f"{name} has negative lengths")
    return np.asarray(value, np.int64)


def _packed(q: Any, k: Any, v: Any, scale: float, mask: Any, score: Any, sink: Any, given: Any):  # noqa: ANN202
    cu_q, cu_k, longest = given
    starts = _lengths(cu_q, None, "cu_seqlens_q")
    key_starts = starts if cu_k is None else _lengths(cu_k, len(starts), "cu_seqlens_k")
    _need(len(starts) > 0, "no start")
    for own, x, name in ((starts, q, "q"), (key_starts, k, "k")):
        _need(bool((np.diff(own) >= 0).all()), f"starts of {name} fall")
        _need(x.ndim == 3 and own[-1] <= x.shape[0], f"starts of {name} leave it")
    _need(v.ndim == 3, "v has no three dimensions")
    if longest is not None:
        longest = whole(longest, "max_q_len")
        _need(longest >= np.diff(starts).max(initial=0), "max_q_len is too small")
    out = np.full((*q.shape[:-1], v.shape[-1]), np.nan)
    lse = np.full((q.shape[1], q.shape[0]), np.nan)
    _need(v.shape[0] == k.shape[0], "lengths of k and v differ")
    for i in range(len(starts) - 1):
        rows, keys = slice(*starts[i : i + 2]), slice(*key_starts[i : i + 2])
        parts = (x.swapaxes(0, 1)[None] for x in (q[rows], k[keys], v[keys]))
        found, own = attention(*parts, scale, mask, score, sink, first=i)
        out[rows], lse[:, rows] = found[0].swapaxes(0, 1), own[0]
    return out, lse


def _padded(q: Any, k: Any, v: Any, scale: float, mask: Any, score: Any, sink: Any, given: Any):  # noqa: ANN202
    batch = q.shape[0]
    lengths = []
    for value, x, name in zip(given, (q, k), ("q_lens", "kv_lens"), strict=True):
        own = np.full(batch, x.shape[2]) if value is None else _lengths(value, batch, name)
        _need(bool((own <= x.shape[2]).all()), f"{name} is beyond the array")
        lengths.append(own)
    heads = q.shape[1] if q.shape[1] > 1 else max(k.shape[1], v.shape[1])
    out = np.zeros((batch, heads, q.shape[2], v.shape[-1]))
    lse = np.full(out.shape[:-1], -np.inf)
    for i in range(batch):
        n, m = lengths[0][i], lengths[1][i]
        at = slice(i, i + 1)
        part = slice(0, 1) if k.shape[0] == 1 else at
        found, own = attention(
            q[at, :, :n], k[part, :, :m], v[part, :, :m], scale, mask, score, sink, first=i
        )
        out[i, :, :n], lse[i, :, :n] = found[0], own[0]
    return out, lse
