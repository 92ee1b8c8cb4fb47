"""What a target is, and what several of them draw from: small arrays, and masks, scores and sinks
whose meaning is known.

A target draws right arguments, of which the runner spoils some, and says what is wrong with the
result of a call that was not refused: None if nothing is.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import oracle
from oracle import Meaningless

import flashcore as fc

B, H, Q, K, D = 2, 2, 5, 7, 16
Rng = np.random.Generator
Arguments = dict[str, Any]


@dataclasses.dataclass
class Target:
    name: str
    draw: Callable[[Rng], Arguments]
    """Right arguments; those that start with _ are not spoiled and not passed."""
    call: Callable[..., Any]
    check: Callable[[Arguments, Any], str | None]
    """May raise Meaningless: then these arguments had to be refused."""
    weight: int = 1


def floats(rng: Rng, *shape: int, dtype: Any = np.float16) -> np.ndarray:
    return rng.standard_normal(shape).astype(dtype)


SLOPES = np.array([0.5, 0.25], np.float32)
BIAS = np.linspace(-1, 1, Q * K, dtype=np.float32).reshape(Q, K)
VISIBLE = (np.arange(Q * K).reshape(Q, K) % 3 > 0) | (np.arange(K) == 0)
LOGITS = np.array([0.5, -1.0], np.float32)


def shift(i: Any, j: Any) -> int:
    return j.shape[-1] - i.shape[-2]


# Masks, scores and sinks of FlashCore, and what they mean.
MASKS: list[tuple[Any, Callable[..., Any]]] = [
    (fc.full(), lambda *_: np.True_),
    (fc.causal(), lambda b, h, i, j: j <= i + shift(i, j)),
    (fc.causal("top_left"), lambda b, h, i, j: j <= i),
]
SCORES: list[tuple[Any, Callable[..., Any]]] = [
    (fc.softcap(2.0), lambda s, *_: 2 * np.tanh(s / 2)),
    (fc.alibi(SLOPES), lambda s, b, h, i, j: s - SLOPES[h] * (i + shift(i, j) - j)),
]
SINKS = [(fc.sinks(LOGITS), lambda b, h, i: LOGITS[h] + 0 * i)]
ONLY_BATCHES = [
    (fc.dense_mask(VISIBLE), lambda b, h, i, j: VISIBLE),
    (fc.bias(BIAS), lambda s, *_: s + BIAS),
]
KNOWN: oracle.Known = {id(made): meant for made, meant in [*MASKS, *SCORES, *SINKS, *ONLY_BATCHES]}


def pick(rng: Rng, values: list[Any]) -> Any:
    return values[rng.integers(len(values))]


def check_result(expected: dict[str, Any], result: Any, out: Any, args: Arguments) -> str | None:
    lse = None
    if expected["lse"] is not None:
        if not isinstance(result, tuple) or len(result) != 2:
            return "no pair of out and lse"
        result, lse = result
    if out is not None:
        if not isinstance(out, np.ndarray):
            raise Meaningless("out is no array")
        if result is not out:
            return "another array than out"
        if out.dtype.newbyteorder("=") != expected["dtype"]:
            raise Meaningless("out is of another dtype")
        inputs = (args.get(name) for name in "qkv")
        if any(isinstance(x, np.ndarray) and np.shares_memory(x, out) for x in inputs):
            raise Meaningless("out overlaps an input")
    dtype = expected["dtype"] if out is None else out.dtype
    wrong = oracle.close(result, expected["out"], dtype, expected["largest"])
    if wrong is None and lse is not None:
        exact = expected["lse"]
        exact = np.where(np.isnan(exact), lse, exact) if lse.shape == exact.shape else exact
        largest = np.abs(exact[np.isfinite(exact)]).max(initial=10.0)
        wrong = oracle.close(lse, exact, np.dtype(np.float32), float(largest))
        wrong = wrong and f"lse: {wrong}"
    return wrong
