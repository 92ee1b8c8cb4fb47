"""Conditions, choices by them, and the bits of whole numbers."""

from __future__ import annotations

from typing import Any

from .graph import Graph, Node
from .operations import condition, constant_of, infix, neg, operand, operation, wider
from .refusal import refusal


@operation("where")
def where(g: Graph, which: Any, yes: Any = None, no: Any = None) -> Node:
    if yes is None or no is None:
        raise refusal(g.title, "where needs two values to choose from", "where(condition, a, b)")
    which, yes, no = condition(g, which), operand(g, yes), operand(g, no)
    if yes.kind == no.kind == "bool":
        otherwise = logical_and(g, logical_not(g, which), no)
        return logical_or(g, logical_and(g, which, yes), otherwise)
    return g.node("where", which, yes, no, kind=wider(yes, no))


@operation("masked_fill")
def masked_fill(g: Graph, x: Any, mask: Any, value: Any) -> Node:
    return where(g, mask, value, x)


@operation("logical_and")
def logical_and(g: Graph, a: Any, b: Any) -> Node:
    pair = condition(g, a), condition(g, b)
    for one, other in (pair, pair[::-1]):
        if constant_of(one) is not None:
            return other if constant_of(one) else one
    return g.node("&", *pair, kind="bool")


@operation("logical_or")
def logical_or(g: Graph, a: Any, b: Any) -> Node:
    pair = condition(g, a), condition(g, b)
    for one, other in (pair, pair[::-1]):
        if constant_of(one) is not None:
            return one if constant_of(one) else other
    return g.node("|", *pair, kind="bool")


@operation("logical_not")
def logical_not(g: Graph, x: Any) -> Node:
    holds = condition(g, x)
    constant = constant_of(holds)
    return g.node("not", holds, kind="bool") if constant is None else g.number(not constant)


@operation("logical_xor")
def logical_xor(g: Graph, a: Any, b: Any) -> Node:
    a, b = condition(g, a), condition(g, b)
    return logical_or(g, logical_and(g, a, logical_not(g, b)), logical_and(g, logical_not(g, a), b))


@operation("and", "bitwise_and")
def bitwise_and(g: Graph, a: Any, b: Any) -> Node:
    a, b = operand(g, a), operand(g, b)
    if a.kind == b.kind == "bool":
        return logical_and(g, a, b)
    for bits, x in ((constant_of(b), a), (constant_of(a), b)):
        # A floor modulo is what the low bits are, of a negative number as well.
        if x.kind == "int" and type(bits) is int and bits > 0 and bits & (bits + 1) == 0:
            return infix(g, "%", x, g.number(bits + 1))
    raise _no_bits(g, "&")


@operation("or", "bitwise_or")
def bitwise_or(g: Graph, a: Any, b: Any) -> Node:
    a, b = operand(g, a), operand(g, b)
    if a.kind == b.kind == "bool":
        return logical_or(g, a, b)
    raise _no_bits(g, "|")


@operation("xor", "bitwise_xor")
def bitwise_xor(g: Graph, a: Any, b: Any) -> Node:
    a, b = operand(g, a), operand(g, b)
    if a.kind == b.kind == "bool":
        return logical_xor(g, a, b)
    raise _no_bits(g, "^")


@operation("invert", "bitwise_not")
def invert(g: Graph, x: Any) -> Node:
    x = operand(g, x)
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
    number = constant_of(count)
    if operand(g, x).kind == "int" and type(number) is int and 0 <= number <= 30:
        return g.number(1 << number)
    raise _no_bits(g, op)


def _no_bits(g: Graph, op: str) -> Exception:
    return refusal(
        g.title,
        f"{op} works on two conditions, on whole numbers only to take low bits or to shift by a "
        "number",
        "comparisons make conditions: (a > 0) & (b > 0)",
    )
