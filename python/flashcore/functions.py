"""Functions for masks and scores that need no framework. Of plain numbers they give a number."""

from __future__ import annotations

from typing import Any

import numpy

from .tracer import call, is_traced


def _apply(name: str, *args: Any) -> Any:
    if is_traced(args):
        return call(name, *args)
    return getattr(numpy, name)(*args).item()


def where(condition: Any, yes: Any, no: Any) -> Any:
    """`yes` where the condition holds, `no` elsewhere; both are computed."""
    return _apply("where", condition, yes, no)


def minimum(a: Any, b: Any) -> Any:
    return _apply("minimum", a, b)


def maximum(a: Any, b: Any) -> Any:
    return _apply("maximum", a, b)


def exp(x: Any) -> Any:
    return _apply("exp", x)


def exp2(x: Any) -> Any:
    return _apply("exp2", x)


def log(x: Any) -> Any:
    return _apply("log", x)


def log2(x: Any) -> Any:
    return _apply("log2", x)


def sqrt(x: Any) -> Any:
    return _apply("sqrt", x)


def tanh(x: Any) -> Any:
    return _apply("tanh", x)


def floor(x: Any) -> Any:
    """The next whole number below, as a float."""
    return _apply("floor", x)


__all__ = [
    "exp",
    "exp2",
    "floor",
    "log",
    "log2",
    "maximum",
    "minimum",
    "sqrt",
    "tanh",
    "where",
]
