"""What functions on scores may compute, by the names that Python, NumPy and torch have for it.

The text knows a handful of operators and functions (docs/language.md); everything else is written
with those here.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

from .graph import Graph, Kind, Node
from .refusal import refusal

Operation = Callable[..., Node]
TABLE: dict[str, Operation] = {}


def operation(*names: str) -> Callable[[Operation], Operation]:
    def register(function: Operation) -> Operation:
        for name in names:
            TABLE[name] = function
        return function

    return register


def _value(g: Graph, x: Any) -> Node:
    if isinstance(x, Node):
        return x
    raise refusal(g.title, f"it computes with {x!r}", "numbers, conditions and elements of arrays")


def _constant(x: Any) -> Any:
    return x.args[0] if isinstance(x, Node) and x.op == "number" else None


def _wider(a: Node, b: Node) -> Kind:
    return "float" if "float" in (a.kind, b.kind) else "int"


def condition(g: Graph, x: Any) -> Node:
    return _as(g, x, "bool", bool, lambda x: g.node("!=", x, g.number(0), kind="bool"))


def whole(g: Graph, x: Any) -> Node:
    return _as(g, x, "int", int, lambda x: g.node("int", x, kind="int"))


def floating(g: Graph, x: Any) -> Node:
    return _as(g, x, "float", float, lambda x: g.node("float", x, kind="float"))


def _as(g: Graph, x: Any, kind: Kind, fold: Any, convert: Callable[[Node], Node]) -> Node:
    node = _value(g, x)
    if node.kind == kind:
        return node
    constant = _constant(node)
    return convert(node) if constant is None else g.number(fold(constant))


_OF_NUMBERS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def infix(g: Graph, op: str, a: Any, b: Any) -> Node:
    a, b = _value(g, a), _value(g, b)
    if a.op == b.op == "number" and op in _OF_NUMBERS:
        return g.number(_OF_NUMBERS[op](a.args[0], b.args[0]))
    if op[0] in "=!<>":
        return g.node(op, a, b, kind="bool")
    kind = "float" if op == "/" else _wider(a, b)
    return g.node(op, a, b, kind=kind)


def _register_infix() -> None:
    names = {
        "*": "mul multiply",
        "//": "floordiv floor_divide",
        "%": "mod remainder",
        "==": "eq equal",
        "!=": "ne not_equal",
        "<": "lt less",
        "<=": "le less_equal",
        ">": "gt greater",
        ">=": "ge greater_equal",
    }
    for op, words in names.items():

        def apply(g: Graph, a: Any, b: Any, *, op: str = op) -> Node:
            return infix(g, op, a, b)

        operation(*words.split())(apply)


_register_infix()


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
    a, b = _value(g, a), _value(g, b)
    if a.kind == "float" or b.kind == "float":
        return trunc(g, quotient)
    size = infix(g, "//", absolute(g, a), absolute(g, b))
    zero = g.number(0)
    apart = infix(g, "!=", *(whole(g, infix(g, "<", x, zero)) for x in (a, b)))
    return where(g, apart, neg(g, size), size)


@operation("neg", "negative")
def neg(g: Graph, x: Any) -> Node:
    x = _value(g, x)
    return g.node("neg", x, kind="int" if x.kind == "bool" else x.kind)


@operation("pos", "positive", "clone", "contiguous", "detach")
def same(g: Graph, x: Any) -> Node:
    return _value(g, x)


@operation("abs", "absolute", "fabs")
def absolute(g: Graph, x: Any) -> Node:
    x = _value(g, x)
    return g.node("abs", x, kind=x.kind)


@operation("square")
def square(g: Graph, x: Any) -> Node:
    return infix(g, "*", x, x)


@operation("reciprocal")
def reciprocal(g: Graph, x: Any) -> Node:
    return infix(g, "/", g.number(1.0), x)


@operation("pow", "power", "float_power")
def power(g: Graph, base: Any, exponent: Any) -> Node:
    base, exponent = _value(g, base), _value(g, exponent)
    constant, count = _constant(base), _constant(exponent)
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
            return g.node(name, _value(g, x), kind="float")

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
    x = _value(g, x)
    return g.node("floor", x, kind="float") if x.kind == "float" else x


@operation("ceil")
def ceil(g: Graph, x: Any) -> Node:
    x = _value(g, x)
    return neg(g, floor(g, neg(g, x))) if x.kind == "float" else x


@operation("trunc", "fix")
def trunc(g: Graph, x: Any) -> Node:
    x = _value(g, x)
    if x.kind != "float":
        return same(g, x)
    return where(g, TABLE["lt"](g, x, g.number(0.0)), ceil(g, x), floor(g, x))


@operation("round", "around", "rint", "special_round")
def nearest(g: Graph, x: Any, decimals: Any = None) -> Node:
    """Halves go to the even number, as in Python, NumPy and torch."""
    x = _value(g, x)
    if decimals is not None and _constant(decimals) != 0:
        raise refusal(g.title, "it rounds to decimals", "round(x * 100) / 100")
    return g.node("round", x, kind="float") if x.kind == "float" else same(g, x)


@operation("sign", "sgn")
def sign(g: Graph, x: Any) -> Node:
    x, zero = _value(g, x), g.number(0)
    less, more = TABLE["lt"](g, x, zero), TABLE["gt"](g, x, zero)
    result = infix(g, "-", whole(g, more), whole(g, less))
    return floating(g, result) if x.kind == "float" else result


@operation("isnan")
def isnan(g: Graph, x: Any) -> Node:
    x = _value(g, x)
    return infix(g, "!=", x, x) if x.kind == "float" else g.number(False)


@operation("isinf")
def isinf(g: Graph, x: Any) -> Node:
    x = _value(g, x)
    if x.kind != "float":
        return g.number(False)
    return infix(g, "==", absolute(g, x), g.number(math.inf))


@operation("isfinite")
def isfinite(g: Graph, x: Any) -> Node:
    x = _value(g, x)
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
    a, b = _value(g, a), _value(g, b)
    return g.node(name, a, b, kind=_wider(a, b))


@operation("clamp", "clip")
def clamp(g: Graph, x: Any, min: Any = None, max: Any = None) -> Node:
    above = _value(g, x) if min is None else maximum(g, x, min)
    return above if max is None else minimum(g, above, max)


@operation("clamp_min")
def clamp_min(g: Graph, x: Any, min: Any) -> Node:
    return maximum(g, x, min)


@operation("clamp_max")
def clamp_max(g: Graph, x: Any, max: Any) -> Node:
    return minimum(g, x, max)


@operation("where")
def where(g: Graph, which: Any, yes: Any = None, no: Any = None) -> Node:
    if yes is None or no is None:
        raise refusal(g.title, "where needs two values to choose from", "where(condition, a, b)")
    which, yes, no = condition(g, which), _value(g, yes), _value(g, no)
    if yes.kind == no.kind == "bool":
        otherwise = logical_and(g, logical_not(g, which), no)
        return logical_or(g, logical_and(g, which, yes), otherwise)
    return g.node("where", which, yes, no, kind=_wider(yes, no))


@operation("masked_fill")
def masked_fill(g: Graph, x: Any, mask: Any, value: Any) -> Node:
    return where(g, mask, value, x)


@operation("logical_and")
def logical_and(g: Graph, a: Any, b: Any) -> Node:
    pair = condition(g, a), condition(g, b)
    for one, other in (pair, pair[::-1]):
        if _constant(one) is not None:
            return other if _constant(one) else one
    return g.node("&", *pair, kind="bool")


@operation("logical_or")
def logical_or(g: Graph, a: Any, b: Any) -> Node:
    pair = condition(g, a), condition(g, b)
    for one, other in (pair, pair[::-1]):
        if _constant(one) is not None:
            return one if _constant(one) else other
    return g.node("|", *pair, kind="bool")


@operation("logical_not")
def logical_not(g: Graph, x: Any) -> Node:
    holds = condition(g, x)
    constant = _constant(holds)
    return g.node("not", holds, kind="bool") if constant is None else g.number(not constant)


@operation("logical_xor")
def logical_xor(g: Graph, a: Any, b: Any) -> Node:
    a, b = condition(g, a), condition(g, b)
    return logical_or(g, logical_and(g, a, logical_not(g, b)), logical_and(g, logical_not(g, a), b))


@operation("and", "bitwise_and")
def bitwise_and(g: Graph, a: Any, b: Any) -> Node:
    a, b = _value(g, a), _value(g, b)
    if a.kind == b.kind == "bool":
        return logical_and(g, a, b)
    for bits, x in ((_constant(b), a), (_constant(a), b)):
        # A floor modulo is what the low bits are, of a negative number as well.
        if x.kind == "int" and type(bits) is int and bits > 0 and bits & (bits + 1) == 0:
            return infix(g, "%", x, g.number(bits + 1))
    raise _no_bits(g, "&")


@operation("or", "bitwise_or")
def bitwise_or(g: Graph, a: Any, b: Any) -> Node:
    a, b = _value(g, a), _value(g, b)
    if a.kind == b.kind == "bool":
        return logical_or(g, a, b)
    raise _no_bits(g, "|")


@operation("xor", "bitwise_xor")
def bitwise_xor(g: Graph, a: Any, b: Any) -> Node:
    a, b = _value(g, a), _value(g, b)
    if a.kind == b.kind == "bool":
        return logical_xor(g, a, b)
    raise _no_bits(g, "^")


@operation("invert", "bitwise_not")
def invert(g: Graph, x: Any) -> Node:
    x = _value(g, x)
    if x.kind == "bool":
        return logical_not(g, x)
    if x.kind == "int":
        return infix(g, "-", neg(g, x), g.number(1))
    raise _no_bits(g, "~")


@operation("lshift", "left_shift", "bitwise_left_shift")
def left_shift(g: Graph, x: Any, count: Any) -> Node:
    return infix(g, "*", x, _power_of_two(g, x, count, "<<"))


@operation("rshift", "right_shift", "bitwise_right_shift")
def right_shift(g: Graph, x: Any, count: Any) -> Node:
    return infix(g, "//", x, _power_of_two(g, x, count, ">>"))


def _power_of_two(g: Graph, x: Any, count: Any, op: str) -> Node:
    number = _constant(count)
    if _value(g, x).kind == "int" and type(number) is int and 0 <= number <= 30:
        return g.number(1 << number)
    raise _no_bits(g, op)


def _no_bits(g: Graph, op: str) -> Exception:
    return refusal(
        g.title,
        f"{op} works on two conditions, on whole numbers only to take low bits or to shift by a "
        "number",
        "comparisons make conditions: (a > 0) & (b > 0)",
    )


def _register_casts() -> None:
    operation("float", "double", "half", "bfloat16")(floating)
    operation("int", "long", "short")(whole)
    operation("bool")(condition)

    def cast(g: Graph, x: Any, *targets: Any, dtype: Any = None, **_: Any) -> Node:
        for target in (*targets, dtype):
            if isinstance(target, Node):
                return TABLE[target.kind](g, x)
            name = str(getattr(target, "name", None) or target).removeprefix("torch.")
            name = getattr(target, "__name__", name) if isinstance(target, type) else name
            for prefix, kind in (("float", "float"), ("bfloat", "float"), ("bool", "bool")):
                if name.startswith(prefix):
                    return TABLE[kind](g, x)
            if name.startswith(("int", "uint")):
                return TABLE["int"](g, x)
        return _value(g, x)

    operation("to", "type", "astype", "type_as", "view_as")(cast)


_register_casts()


def _register_constants() -> None:
    def filled(g: Graph, value: Any, dtype: Any, like: Any) -> Node:
        if dtype is None:
            return TABLE[_value(g, like).kind](g, value)
        return TABLE["to"](g, value, dtype)

    def new(value: float | None) -> Operation:
        def make(g: Graph, like: Any, *args: Any, dtype: Any = None, **_: Any) -> Node:
            given = args[-1] if value is None else g.number(value)
            return filled(g, given, dtype, like)

        return make

    operation("zeros_like", "new_zeros")(new(0))
    operation("ones_like", "new_ones")(new(1))
    operation("full_like", "new_full", "new_tensor")(new(None))


_register_constants()
