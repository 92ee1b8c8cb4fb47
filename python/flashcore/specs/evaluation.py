"""The text of an expression, computed with NumPy over arrays of positions and scores.

It is read by Python's own parser: & and | stand where and and or do, more loosely than comparisons.
"""

from __future__ import annotations

import ast
import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

Values = Mapping[str, Any]
Element = Callable[[str, Sequence[Any], Sequence[bool]], Any]
"""What an array of that name holds at these indices, of which some count from the end where they
are negative."""

_BINARY: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Add: np.add, ast.Sub: np.subtract, ast.Mult: np.multiply, ast.Div: np.true_divide,
    ast.FloorDiv: np.floor_divide, ast.Mod: np.mod, ast.Lt: np.less, ast.LtE: np.less_equal,
    ast.Gt: np.greater, ast.GtE: np.greater_equal, ast.Eq: np.equal, ast.NotEq: np.not_equal,
    ast.And: np.logical_and, ast.Or: np.logical_or,
}  # fmt: skip
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "abs": np.abs, "min": np.fmin, "max": np.fmax, "where": np.where, "exp": np.exp,
    "exp2": np.exp2, "log": np.log, "log2": np.log2, "sqrt": np.sqrt, "tanh": np.tanh,
    "sin": np.sin, "cos": np.cos, "tan": np.tan, "atan": np.arctan, "expm1": np.expm1,
    "log1p": np.log1p, "erf": np.vectorize(math.erf, otypes=[np.float64]), "round": np.rint,
    "floor": np.floor, "float": lambda x: np.asarray(x, np.float64),
    "int": lambda x: np.trunc(x).astype(np.int64),
}  # fmt: skip
_NAMED = {"true": np.True_, "false": np.False_, "inf": np.inf, "nan": np.nan}


def _number(x: Any) -> Any:
    """A condition in arithmetic is 0 or 1."""
    return np.asarray(x, np.int64) if np.asarray(x).dtype == bool else x


def element(array: Any, indices: Sequence[Any], wraps: Sequence[bool]) -> Any:
    """Zero outside the array, as kernels read."""
    inside = np.True_
    clipped = []
    for index, wrap, size in zip(indices, wraps, array.shape, strict=True):
        if wrap:
            index = np.where(index < 0, index + size, index)
        inside = inside & (index >= 0) & (index < size)
        clipped.append(np.clip(index, 0, max(size - 1, 0)))
    if array.size == 0:
        return np.zeros(np.broadcast_shapes(*map(np.shape, indices)))
    return np.where(inside, array[tuple(clipped)], 0)


class Formula:
    """A text that was read: its parts by name, and its result."""

    def __init__(self, text: str):
        python = text.replace("&", " and ").replace("|", " or ")
        read = [ast.parse(part.strip()).body[0] for part in python.split(";") if part.strip()]
        self.parts: dict[str, ast.expr] = {}
        for statement in read:
            if isinstance(statement, ast.Assign):
                self.parts[name_of(statement.targets[0])] = statement.value
            else:
                assert isinstance(statement, ast.Expr)
                self.result = statement.value

    def lookups(self) -> Iterator[ast.Subscript]:
        """Every place where it reads an array."""
        for root in (*self.parts.values(), self.result):
            yield from (node for node in ast.walk(root) if isinstance(node, ast.Subscript))

    def value(self, node: ast.expr, values: dict[str, Any], element: Element) -> Any:
        """A piece of it; `values` learns what its parts are."""
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name):
            if node.id in _NAMED:
                return _NAMED[node.id]
            if node.id not in values:
                values[node.id] = self.value(self.parts[node.id], values, element)
            return values[node.id]
        operands = [self.value(part, values, element) for part in _operands(node)]
        if isinstance(node, ast.BoolOp):
            return functools.reduce(_BINARY[type(node.op)], operands)
        if isinstance(node, ast.Subscript):
            wraps = [index.wraps for index in indices_of(node)]
            return element(name_of(node.value), operands, wraps)
        if isinstance(node, ast.UnaryOp) and not isinstance(node.op, ast.USub):
            return np.logical_not(operands[0])
        if isinstance(node, ast.Call):
            name = name_of(node.func)
            if name in ("min", "max"):
                return functools.reduce(_FUNCTIONS[name], map(_number, operands))
            return _FUNCTIONS[name](*map(_number, operands) if name == "abs" else operands)
        numbers = [_number(operand) for operand in operands]
        if isinstance(node, ast.UnaryOp):
            return np.negative(numbers[0])
        if isinstance(node, ast.Compare):
            return _BINARY[type(node.ops[0])](*numbers)
        assert isinstance(node, ast.BinOp)
        return _BINARY[type(node.op)](*numbers)


def evaluate(text: str, values: Values) -> Any:
    """The expression over NumPy arrays of positions, scores and what it captures."""
    formula, known = Formula(text), dict(values)

    def of(node: ast.expr) -> Any:
        return formula.value(node, known, lambda name, *at: element(values[name], *at))

    for name, part in formula.parts.items():
        known[name] = of(part)
    return of(formula.result)


def name_of(node: ast.expr) -> str:
    assert isinstance(node, ast.Name)
    return node.id


class Index(NamedTuple):
    """One index of an array; one that wraps counts from the end where it is negative."""

    value: ast.expr
    wraps: bool


def indices_of(node: ast.Subscript) -> list[Index]:
    given = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    return [
        Index(index.args[0], True)
        if isinstance(index, ast.Call) and name_of(index.func) == "wrap"
        else Index(index, False)
        for index in given
    ]


def _operands(node: ast.expr) -> Iterator[ast.expr]:
    if isinstance(node, ast.Subscript):
        yield from (index.value for index in indices_of(node))
    elif isinstance(node, ast.Call):
        yield from node.args
    else:
        yield from (part for part in ast.iter_child_nodes(node) if isinstance(part, ast.expr))


__all__ = ["Formula", "Index", "Values", "element", "evaluate", "indices_of", "name_of"]
