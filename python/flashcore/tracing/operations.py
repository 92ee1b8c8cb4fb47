"""What functions on scores may compute, by the names that Python, NumPy and torch have for it.

Here are the table of them, the operators of the text, and casts. The text knows a handful of
operators and functions (docs/language.md); everything else is written with those, here, in
logic.py, in arithmetic.py and in activations.py.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from .graph import Graph, Kind, Node
from .refusal import refusal

Operation = Callable[..., Node]
TABLE: dict[str, Operation] = {}
# What an error offers of them.
OFFERED = [
    "where",
    "maximum",
    "minimum",
    "clamp",
    "abs",
    "exp",
    "exp2",
    "log",
    "log2",
    "sqrt",
    "rsqrt",
    "tanh",
    "sigmoid",
    "sin",
    "cos",
    "tan",
    "atan",
    "erf",
    "expm1",
    "log1p",
    "floor",
    "round",
    "isnan",
    "silu",
    "gelu",
    "softplus",
    "pow",
    "logical_and",
    "logical_or",
    "logical_not",
]


def operation(*names: str) -> Callable[[Operation], Operation]:
    def register(function: Operation) -> Operation:
        for name in names:
            TABLE[name] = function
        return function

    return register


def operand(g: Graph, x: Any) -> Node:
    if isinstance(x, Node):
        return x
    raise refusal(g.title, f"it computes with {x!r}", "numbers, conditions and elements of arrays")


def constant_of(x: Any) -> Any:
    return x.args[0] if isinstance(x, Node) and x.op == "number" else None


def wider(a: Node, b: Node) -> Kind:
    return "float" if "float" in (a.kind, b.kind) else "int"


def condition(g: Graph, x: Any) -> Node:
    return _as(g, x, "bool", bool, lambda x: g.node("!=", x, g.number(0), kind="bool"))


def whole(g: Graph, x: Any) -> Node:
    return _as(g, x, "int", int, lambda x: g.node("int", x, kind="int"))


def floating(g: Graph, x: Any) -> Node:
    return _as(g, x, "float", float, lambda x: g.node("float", x, kind="float"))


def _as(g: Graph, x: Any, kind: Kind, fold: Any, convert: Callable[[Node], Node]) -> Node:
    node = operand(g, x)
    if node.kind == kind:
        return node
    constant = constant_of(node)
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
    a, b = operand(g, a), operand(g, b)
    if a.op == b.op == "number" and op in _OF_NUMBERS:
        return g.number(_OF_NUMBERS[op](a.args[0], b.args[0]))
    if op[0] in "=!<>":
        return g.node(op, a, b, kind="bool")
    kind = "float" if op == "/" else wider(a, b)
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


@operation("neg", "negative")
def neg(g: Graph, x: Any) -> Node:
    x = operand(g, x)
    return g.node("neg", x, kind="int" if x.kind == "bool" else x.kind)


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
        return operand(g, x)

    operation("to", "type", "astype", "type_as", "view_as")(cast)


_register_casts()


def _register_constants() -> None:
    def filled(g: Graph, value: Any, dtype: Any, like: Any) -> Node:
        if dtype is None:
            return TABLE[operand(g, like).kind](g, value)
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
