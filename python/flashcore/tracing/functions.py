"""Functions for masks and scores that need no framework. Of plain numbers they give a number."""

from __future__ import annotations

import math
from typing import Any

import numpy

from ..arguments import real
from .tracer import call, is_traced


def _apply(name: str, *args: Any) -> Any:
    if is_traced(args):
        return call(name, *args)
    numbers = [real(f"flashcore.{name}", arg) for arg in args]
    with numpy.errstate(all="ignore"):
        return getattr(numpy, name)(*numbers).item()


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


def sin(x: Any) -> Any:
    """Sine of radians."""
    return _apply("sin", x)


def cos(x: Any) -> Any:
    """Cosine of radians."""
    return _apply("cos", x)


def tan(x: Any) -> Any:
    """Tangent of radians."""
    return _apply("tan", x)


def expm1(x: Any) -> Any:
    """exp(x) - 1, exact near 0."""
    return _apply("expm1", x)


def log1p(x: Any) -> Any:
    """log(1 + x), exact near 0."""
    return _apply("log1p", x)


def atan(x: Any) -> Any:
    """The angle in radians whose tangent is x."""
    return call("atan", x) if is_traced(x) else math.atan(real("flashcore.atan", x))


def erf(x: Any) -> Any:
    """The error function."""
    return call("erf", x) if is_traced(x) else math.erf(real("flashcore.erf", x))


def floor(x: Any) -> Any:
    """The next whole number below, as a float."""
    return _apply("floor", x)


__all__ = [
    "atan",
    "cos",
    "erf",
    "exp",
    "exp2",
    "expm1",
    "floor",
    "log",
    "log1p",
    "log2",
    "maximum",
    "minimum",
    "sin",
    "sqrt",
    "tan",
    "tanh",
    "where",
]
