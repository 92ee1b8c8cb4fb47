"""Which traced values are never negative, by how they are made.

An index that is known not to be is read as it stands; any other counts from the end where it is
negative, as in Python, which costs a kernel two instructions an element. Whole numbers are taken to
stay within 32 bits. Nothing here depends on how floats are rounded: no rounding changes a sign.
"""

from __future__ import annotations

from collections.abc import Sequence

_POSITIONS = {"b", "h", "q_idx", "kv_idx", "q_len", "kv_len"}
_WITH_ALL = {"+", "*", "/", "//", "min", "int", "float", "floor", "round"}
_ALWAYS = {"abs", "sqrt", "exp", "exp2"}


def of_name(name: str) -> bool:
    """Of a value that stands in an expression by its name."""
    return name in _POSITIONS


def of_operation(op: str, signs: Sequence[bool]) -> bool:
    """Of what an operator or a function of expressions makes of operands with these signs."""
    if op in _WITH_ALL:
        return all(signs)
    if op == "%":  # has the sign of what it divides by
        return signs[1]
    if op == "max":
        return any(signs)
    if op == "where":
        return all(signs[1:])
    return op in _ALWAYS


__all__ = ["of_name", "of_operation"]
