"""What else is public: methods of kernels, functions of numbers, loading and tuning, expressions as
text."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import oracle
from call_targets import kernel
from oracle import Meaningless
from target import KNOWN, MASKS, Arguments, D, Rng, Target, pick
from variant_targets import check_run, run

import flashcore as fc


def _draw_why_not(rng: Rng) -> Arguments:
    return {"target": "sm_90", "schedule": pick(rng, [None, {"stages": 3}])}


def _check_why_not(args: Arguments, result: Any) -> str | None:
    if not isinstance(result, list):
        return "no list"
    if args["target"] not in fc.targets() and not result:
        return "nothing against such a target"
    if not isinstance(args["schedule"], dict | fc.Schedule | None) and not result:
        raise Meaningless("schedule")
    return None


def _method(name: str, right: Any, check: Callable[[Any, Any], str | None]) -> Target:
    def call(given: Any) -> Any:
        return getattr(kernel("causal"), name)(given)

    return Target(f"kernel.{name}", lambda r: {"given": right}, call,
                  lambda args, result: check(args["given"], result))  # fmt: skip


def _refused(given: Any, result: Any) -> str | None:
    raise Meaningless("there is nothing that it could mean here")


def _text_only(given: Any, result: Any) -> str | None:
    if not isinstance(given, str):
        raise Meaningless("no text")
    return None if isinstance(result, str) else "no text"


_NUMPY_NAMES = ["exp", "exp2", "log", "log2", "sqrt", "tanh", "floor"]


def _function(name: str) -> Target:
    def check(args: Arguments, result: Any) -> str | None:
        x = args["x"]
        if isinstance(x, np.ndarray) and x.ndim or isinstance(x, complex):
            raise Meaningless("no number")
        with np.errstate(all="ignore"):
            try:
                right = getattr(np, name)(float(x))
            except Exception:
                raise Meaningless("no number") from None
        same = result == right or abs(result - right) <= 1e-6 * abs(right)
        if isinstance(x, np.generic | np.ndarray):  # in its own precision
            same = same or abs(result - right) <= 2e-3 * abs(right)
        return None if same or (result != result and right != right) else f"{result}, not {right}"

    return Target(name, lambda r: {"x": 0.5}, lambda x: getattr(fc, name)(x), check)


def _set_log_hook(hook: Any) -> Any:
    try:
        return fc.set_log_hook(hook)
    finally:
        fc.set_log_hook(None)


def _check_hook(args: Arguments, result: Any) -> str | None:
    if args["hook"] is not None and not callable(args["hook"]):
        raise Meaningless("no function")
    return None


def _draw_text_expression(rng: Rng) -> Arguments:
    return {"text": "kv_idx <= q_idx + 1", "tensors": (), "arrays": None}


def _check_expression(args: Arguments, result: Any) -> str | None:
    if not isinstance(args["text"], str):
        raise Meaningless("no text")
    return None


TARGETS = [
    Target("why_not", _draw_why_not,
           lambda **a: fc.AttentionSpec(head_dim=D, dtype="f16").why_not(**a), _check_why_not),
    Target("load", lambda r: {"path": os.devnull}, fc.load, lambda a, r: _refused(a, r)),
    Target("autotune", lambda r: {"spec": fc.AttentionSpec(head_dim=D), "shapes": [(1, 64, 64)],
                                  "seconds": 1, "log": None, "write": False},
           fc.autotune, lambda a, r: _refused(a, r)),
    Target("set_log_hook", lambda r: {"hook": None}, _set_log_hook, _check_hook),
    _method("ir", "built", _text_only),
    _method("prepare", 0, _refused),
    *[_function(name) for name in _NUMPY_NAMES],
    Target("Mask", _draw_text_expression, lambda **a: run("mask", fc.Mask(**a)), _check_expression),  # noqa: E501
    Target("mask & mask", lambda r: {"other": fc.causal()},
           lambda other: run("mask", fc.full() & other),
           lambda a, result: check_run(
               "mask", oracle.mask_of(a["other"], KNOWN | {id(a["other"]): MASKS[1][1]}
                                      if isinstance(a["other"], fc.Mask) else KNOWN), result)),
]  # fmt: skip
