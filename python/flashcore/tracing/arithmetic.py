"""Arithmetic, functions of one number, and rounding, by the operators and functions of the text."""

from __future__ import annotations

import math
from typing import Any

from .graph import Graph, Node
from .logic import where
from .operations import TABLE, constant_of, floating, infix, neg, operand, operation, whole, wider
from .refusal import refusal


@operation("add")
def add(g: Graph, a: Any, b: Any, *, alpha: Any = None) -> Node:
    return infix(g, "+", a, b if alpha is None else infix(g, "*", b, alpha))


@operation("sub", "subtract")
def sub(g: Graph, a: Any, b: Any, *, alpha: Any = None) -> Node:
    return infix(g, "-", a, b if alpha is None else infix(g, "*", b, alpha))


@operation("rsub")
def rsub(g: Graph, a: Any, b: Any) -> Node:
    return infix(g, "-", b, a)


@operation("div", "divide", "true_divide", "truediv")
def div(g: Graph, a: Any, b: Any, *, rounding_mode: str | None = None) -> Node:
    if rounding_mode == "floor":
        return infix(g, "//", a, b)
    quotient = infix(g, "/", a, b)
    if rounding_mode is None:
        return quotient
    a, b = operand(g, a), operand(g, b)
    if a.kind == "float" or b.kind == "float":
        return trunc(g, quotient)
    size = infix(g, "//", absolute(g, a), absolute(g, b))
    zero = g.number(0)
    apart = infix(g, "!=", *(whole(g, infix(g, "<", x, zero)) for x in (a, b)))
    return where(g, apart, neg(g, size), size)


@operation("pos", "positive", "clone", "contiguous", "detach")
def same(g: Graph, x: Any) -> Node:
    return operand(g, x)


@operation("abs", "absolute", "fabs")
def absolute(g: Graph, x: Any) -> Node:
    x = operand(g, x)
    return g.node("abs", x, kind=x.kind)


@operation("square")
def square(g: Graph, x: Any) -> Node:
    return infix(g, "*", x, x)


@operation("reciprocal")
def reciprocal(g: Graph, x: Any) -> Node:
    return infix(g, "/", g.number(1.0), x)


@operation("pow", "power", "float_power")
def power(g: Graph, base: Any, exponent: Any) -> Node:
    base, exponent = operand(g, base), operand(g, exponent)
    constant, count = constant_of(base), constant_of(exponent)
    if count is not None and float(count).is_integer() and abs(count) <= 16:
        result, factor, left = None, base, abs(int(count))
        while left:
            if left & 1:
                result = factor if result is None else infix(g, "*", result, factor)
            factor = square(g, factor) if left > 1 else factor
            left >>= 1
        if result is None:
            return g.number(1.0 if base.kind == "float" else 1)
        return reciprocal(g, result) if count < 0 else result
    if count is not None and abs(count) == 0.5:
        root = TABLE["sqrt"](g, base)
        return reciprocal(g, root) if count < 0 else root
    if constant is not None and constant > 0:
        if constant != 2:
            exponent = infix(g, "*", exponent, g.number(math.log2(constant)))
        return g.node("exp2", exponent, kind="float")
    raise refusal(
        g.title,
        "a power needs a number: a whole exponent up to 16, 0.5, or a positive base",
        "flashcore.exp2(y * flashcore.log2(x)) for a positive x",
    )


def _register_functions() -> None:
    names = {
        "exp": "",
        "exp2": "special_exp2",
        "log": "",
        "log2": "",
        "sqrt": "",
        "tanh": "",
        "sin": "",
        "cos": "",
        "tan": "",
        "atan": "arctan",
        "erf": "special_erf",
        "expm1": "special_expm1",
        "log1p": "special_log1p",
    }
    for name, others in names.items():

        def apply(g: Graph, x: Any, *, name: str = name) -> Node:
            return g.node(name, operand(g, x), kind="float")

        operation(name, *others.split())(apply)


_register_functions()


@operation("log10")
def log10(g: Graph, x: Any) -> Node:
    return infix(g, "*", TABLE["log2"](g, x), g.number(math.log10(2)))


@operation("rsqrt")
def rsqrt(g: Graph, x: Any) -> Node:
    return reciprocal(g, TABLE["sqrt"](g, x))


@operation("sigmoid", "special_expit")
def sigmoid(g: Graph, x: Any) -> Node:
    return reciprocal(g, infix(g, "+", TABLE["exp"](g, neg(g, x)), g.number(1.0)))


@operation("floor")
def floor(g: Graph, x: Any) -> Node:
    x = operand(g, x)
    return g.node("floor", x, kind="float") if x.kind == "float" else x


@operation("ceil")
def ceil(g: Graph, x: Any) -> Node:
    x = operand(g, x)
    return neg(g, floor(g, neg(g, x))) if x.kind == "float" else x


@operation("trunc", "fix")
def trunc(g: Graph, x: Any) -> Node:
    x = operand(g, x)
    if x.kind != "float":
        return same(g, x)
    return where(g, TABLE["lt"](g, x, g.number(0.0)), ceil(g, x), floor(g, x))


@operation("round", "around", "rint", "special_round")
def nearest(g: Graph, x: Any, decimals: Any = None) -> Node:
    """Halves go to the even number, as in Python, NumPy and torch."""
    x = operand(g, x)
    if decimals is not None and constant_of(decimals) != 0:
        raise refusal(g.title, "it rounds to decimals", "round(x * 100) / 100")
    return g.node("round", x, kind="float") if x.kind == "float" else same(g, x)


@operation("sign", "sgn")
def sign(g: Graph, x: Any) -> Node:
    x, zero = operand(g, x), g.number(0)
    less, more = TABLE["lt"](g, x, zero), TABLE["gt"](g, x, zero)
    result = infix(g, "-", whole(g, more), whole(g, less))
    return floating(g, result) if x.kind == "float" else result


@operation("isnan")
def isnan(g: Graph, x: Any) -> Node:
    x = operand(g, x)
    return infix(g, "!=", x, x) if x.kind == "float" else g.number(False)


@operation("isinf")
def isinf(g: Graph, x: Any) -> Node:
    x = operand(g, x)
    if x.kind != "float":
        return g.number(False)
    return infix(g, "==", absolute(g, x), g.number(math.inf))


@operation("isfinite")
def isfinite(g: Graph, x: Any) -> Node:
    x = operand(g, x)
    if x.kind != "float":
        return g.number(True)
    return infix(g, "<", absolute(g, x), g.number(math.inf))


@operation("hypot")
def hypot(g: Graph, a: Any, b: Any) -> Node:
    return TABLE["sqrt"](g, infix(g, "+", square(g, a), square(g, b)))


@operation("logaddexp")
def logaddexp(g: Graph, a: Any, b: Any) -> Node:
    apart = neg(g, absolute(g, infix(g, "-", a, b)))
    return infix(g, "+", maximum(g, a, b), TABLE["log1p"](g, TABLE["exp"](g, apart)))


@operation("maximum", "max", "fmax")
def maximum(g: Graph, a: Any, b: Any = None) -> Node:
    return _extreme(g, "max", a, b)


@operation("minimum", "min", "fmin")
def minimum(g: Graph, a: Any, b: Any = None) -> Node:
    return _extreme(g, "min", a, b)


def _extreme(g: Graph, name: str, a: Any, b: Any) -> Node:
    if b is None:
        raise refusal(
            g.title,
            f"{name} of one value would have to look at other scores",
            f"{name} of two values",
        )
    a, b = operand(g, a), operand(g, b)
    return g.node(name, a, b, kind=wider(a, b))


@operation("clamp", "clip")
def clamp(g: Graph, x: Any, min: Any = None, max: Any = None) -> Node:
    above = operand(g, x) if min is None else maximum(g, x, min)
    return above if max is None else minimum(g, above, max)


@operation("clamp_min")
def clamp_min(g: Graph, x: Any, min: Any) -> Node:
    return maximum(g, x, min)


@operation("clamp_max")
def clamp_max(g: Graph, x: Any, max: Any) -> Node:
    return minimum(g, x, max)
