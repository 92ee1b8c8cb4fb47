"""One call of a suite, what it should give in fp64, and how far off a right answer may be.

    max |out - exact| <= 2 max |plain - exact| + u (max |exact| + 2 max R) + s

`plain` rounds the probabilities and the output to the inputs' dtype, once each; u is half of that
dtype's epsilon, R the root of sum p^2 v^2, and s what fp32 loses in large scores. The same bound
serves kernels in tests/gpu/exact.py; this one judges call sites, in NumPy where torch is missing.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from backend import EPSILON, Arrays

import flashcore as fc

_MOST_SCORES = 2**24  # at a time; about ten arrays of so many


@dataclass
class Problem:
    """A call as users of the peer write it, and the attention that it means.

    q, k and v are [batch, heads, length, dim]; `heads_first` brings the output into that order.
    `mask` and `score` are functions of arrays of positions.
    """

    call: Callable[[], Any]
    dtype: str
    q: Any = None
    k: Any = None
    v: Any = None
    scale: float | None = None
    mask: Callable[..., Any] | None = None
    score: Callable[..., Any] | None = None
    heads_first: Callable[[Any], Any] = lambda out: out
    with_lse: bool = False
    shape: tuple[int, ...] | None = None
    """Of the output as it comes; None: not looked at."""
    refused_by_peer: bool = False
    """The peer raises, so any refusal in words is right and a result is not."""
    parts: tuple[tuple[tuple[Any, Any, Any], Callable[[Any], Any]], ...] = ()
    """Of packed sequences: the arrays of each, and its part of the output."""


@dataclass
class Outcome:
    kind: str
    """right, refused, wrong or crashed."""
    text: str = ""


@dataclass
class Expected:
    out: Any
    lse: Any
    bound: float


def expect(arrays: Arrays, problem: Problem, q: Any, k: Any, v: Any) -> Expected:
    """A few heads at a time: scores in fp64 are large."""
    batch, heads = max(q.shape[0], k.shape[0], v.shape[0]), q.shape[1]
    rows, keys = q.shape[2], k.shape[2]
    if 0 in (batch, heads, rows, keys):
        out = arrays.full((batch, heads, rows, v.shape[-1]), 0.0, "f64")
        return Expected(out, out.sum(-1) - math.inf, 0.0)
    most = max(1, _MOST_SCORES // (rows * keys))
    of_batch, of_heads = max(1, most // heads), min(heads, most)
    q_heads, scale = range(heads), problem.scale
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    outs, lses, sizes = [], [], []
    for b in range(0, batch, of_batch):
        at_batch = range(b, min(b + of_batch, batch))
        parts = []
        for h in range(0, heads, of_heads):
            at_heads = q_heads[h : h + of_heads]
            own = (_heads(arrays, x, at_batch, at_heads, heads) for x in (q, k, v))
            part = _expect(arrays, problem, *own, (at_batch.start, h), scale)
            parts.append(part[:2])
            sizes.append(arrays.xp.stack(part[2]))
        outs.append(_joined(arrays, [part[0] for part in parts], 1))
        lses.append(_joined(arrays, [part[1] for part in parts], 1))
    apart, exact, root, score, value = _most(arrays, sizes)
    u = EPSILON[problem.dtype] / 2
    lost = 2.0**-20 * score * value
    bound = 2 * apart + lost + 1e-6 + u * (exact + 2 * root)
    return Expected(_joined(arrays, outs, 0), _joined(arrays, lses, 0), bound)


def _most(arrays: Arrays, sizes: list[Any]) -> list[float]:
    """Of each column."""
    found = arrays.xp.stack(sizes).max(0)
    return (found if arrays.xp is np else found.values).tolist()


def _joined(arrays: Arrays, parts: list[Any], axis: int) -> Any:
    return parts[0] if len(parts) == 1 else arrays.xp.concatenate(parts, axis)


def _heads(arrays: Arrays, x: Any, batch: range, heads: range, of: int) -> Any:
    """Those of q, in fp64; a batch or a head of k and v may stand for several."""
    if x.shape[0] > 1:
        x = x[batch.start : batch.stop]
    if x.shape[1] == of:
        x = x[:, heads.start : heads.stop]
    elif x.shape[1] > 1:
        x = x[:, [h * x.shape[1] // of for h in heads]]
    return arrays.cast(x, "f64")


def _expect(
    arrays: Arrays, problem: Problem, q: Any, k: Any, v: Any, first: tuple[int, int], scale: float
) -> tuple[Any, Any, Any]:
    """The output and the log-sum-exp of heads that begin at `first`, and the largest of what the
    bound is made of: how far off `plain` is, the output, R, the scores and v."""
    xp = arrays.xp
    batch = max(q.shape[0], k.shape[0], v.shape[0])
    scores = xp.matmul(q, xp.swapaxes(k, -1, -2)) * scale
    positions = _positions(arrays, (batch, *scores.shape[1:]), first)
    largest = arrays.largest(scores)
    if problem.score is not None:
        scores = arrays.cast(problem.score(scores, *positions), "f64")
        finite = xp.isfinite(scores)
        finite = arrays.largest(xp.where(finite, scores, 0 * positions[0]))
        largest = xp.maximum(largest, finite)
    if problem.mask is not None:
        minus = arrays.full((1,), -math.inf, "f64")
        scores = xp.where(problem.mask(*positions), scores, minus)
    top = scores.max(-1)
    top = (top if xp is np else top.values)[..., None]
    lowest = arrays.full((1,), np.finfo(np.float64).min, "f64")
    probs = xp.exp(scores - xp.maximum(top, lowest))
    sums = probs.sum(-1)[..., None]
    safe = xp.where(sums > 0, sums, sums + 1)
    exact = xp.matmul(probs, v) / safe
    root = (xp.matmul(probs**2, v**2)) ** 0.5 / safe
    rounded = arrays.cast(arrays.cast(probs, problem.dtype), "f64")
    plain = xp.matmul(rounded, v) / safe
    plain = arrays.cast(arrays.cast(plain, problem.dtype), "f64")
    minus = arrays.full((1,), -math.inf, "f64")
    lse = xp.where(sums > 0, top + xp.log(safe), minus)[..., 0]
    shape = (batch, *exact.shape[1:])
    sizes = [*(arrays.largest(x) for x in (plain - exact, exact, root)), largest, arrays.largest(v)]
    return arrays.expand(exact, shape), arrays.expand(lse, shape[:-1]), sizes


def _positions(arrays: Arrays, shape: Any, first: tuple[int, int]) -> list[Any]:
    """Batch, head, row and key, one dimension each."""
    found = []
    for axis, (size, start) in enumerate(zip(shape, (*first, 0, 0), strict=True)):
        place = [size if i == axis else 1 for i in range(4)]
        found.append(arrays.count(start, size).reshape(place))
    return found


def _compare(arrays: Arrays, name: str, given: Any, exact: Any, bound: float) -> str | None:
    xp = arrays.xp
    if tuple(given.shape) != tuple(exact.shape):
        return f"{name} has shape {tuple(given.shape)}, not {tuple(exact.shape)}"
    given = arrays.cast(given, "f64")
    if bool((xp.isnan(given) & ~xp.isnan(exact)).any()):
        return f"{name} has NaN"
    apart = xp.abs(xp.where(given == exact, exact * 0, given - exact))
    if bool((~(apart <= bound) & xp.isfinite(exact)).any()):
        return f"{name} is off by {float(arrays.largest(apart)):.3e}, allowed are {bound:.3e}"
    if bool((xp.isinf(exact) & (given != exact)).any()):
        return f"{name} is finite where it should be infinite"
    return None


def _wrong(arrays: Arrays, problem: Problem, result: Any) -> str | None:
    out, lse = result if problem.with_lse else (result, None)
    if out.dtype != arrays.dtype(problem.dtype):
        return f"out is of {out.dtype}"
    if problem.shape is not None and tuple(out.shape) != problem.shape:
        return f"out has shape {tuple(out.shape)}, not {problem.shape}"
    parts = problem.parts or (((problem.q, problem.k, problem.v), problem.heads_first),)
    for (q, k, v), of_part in parts:
        expected = expect(arrays, problem, q, k, v)
        given = of_part(out)
        found = _compare(arrays, "out", given, expected.out, expected.bound)
        if found is None and lse is not None:
            nothing = arrays.full((1,), 0, "f64")
            seen = arrays.xp.where(arrays.xp.isfinite(expected.lse), expected.lse, nothing)
            # Scores are f32, and so is what they are relative to.
            rounded = 2.0**-22 * float(arrays.largest(seen))
            found = _compare(arrays, "lse", lse, expected.lse, 1e-4 + 1e-5 * len(parts) + rounded)
        if found is not None:
            return found
    return None


def headline(error: fc.Error) -> str:
    """What a refusal says, without its numbers, so that kinds can be counted."""
    return re.sub(r"-?\d+(\.\d+)?(e[-+]?\d+)?", "#", error.what)


def judge(arrays: Arrays, problem: Problem) -> Outcome:
    try:
        result = problem.call()
        arrays.synchronize()
    except fc.Error as error:
        if not (error.what and error.why and error.fix):
            return Outcome("crashed", f"a refusal without all its parts: {error}")
        if problem.refused_by_peer and not isinstance(error, fc.InternalError):
            return Outcome("right")
        return Outcome("refused", headline(error))
    except Exception as error:
        return Outcome("crashed", f"{type(error).__name__}: {error}")
    if problem.refused_by_peer:
        return Outcome("wrong", "it was computed, and the peer refuses it")
    if arrays.device == "meta":
        return Outcome("right")
    with np.errstate(all="ignore"):
        found = _wrong(arrays, problem, result)
    return Outcome("right") if found is None else Outcome("wrong", found)
