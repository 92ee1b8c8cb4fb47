"""The graph of one traced function, and its text.

Equal operations on equal operands are one node. In the text, a node that several others use has a
name of its own, so the text grows with the graph and not with the number of paths through it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, Literal

from .. import _core
from ..arrays import Captured, captured, memory_of, stored_dtype
from . import signs
from .refusal import refusal

Kind = Literal["bool", "int", "float"]
"""What a value is: a condition, a whole number of 32 bits, a float of 32 bits."""

_DEEPEST = 24  # a deeper expression is cut by a name: readers of the text recurse
_BINDING = {
    "|": 1, "&": 2, "<": 4, "<=": 4, ">": 4, ">=": 4, "==": 4, "!=": 4,
    "+": 5, "-": 5, "*": 6, "/": 6, "//": 6, "%": 6,
}  # fmt: skip
_UNARY = 7
_ATOM = 8


@dataclass(frozen=True, eq=False)
class Node:
    """`op` is an operator, "neg", "not", "name", "number", "index", or the name of a function.

    The arguments of an index are the array's name, which of its indices may be negative and then
    count from the end, and the indices.
    """

    op: str
    args: tuple[Any, ...]
    kind: Kind
    depth: int = 0
    never_negative: bool = False


class Graph:
    """The nodes of one function, and the arrays that they read."""

    def __init__(self, title: str):
        self.title = title
        self.tensors: list[Captured] = []
        self.arrays: list[Any] = []
        self.names: dict[int, str] = {}
        """What the function calls arrays, by their id."""
        self.number_of: Callable[[str, Any], Node] = lambda _, array: self.number(array.item())
        """What an array in CPU memory without dimensions is."""
        self._nodes: dict[tuple[Any, ...], Node] = {}
        self._captured: dict[tuple[Any, ...], Captured] = {}

    def node(self, op: str, *args: Any, kind: Kind) -> Node:
        key = (op, kind, *((type(arg), arg) for arg in args))
        known = self._nodes.get(key)
        if known is None:
            inner = max((a.depth for a in args if isinstance(a, Node)), default=0)
            depth = 0 if inner >= _DEEPEST else inner + 1
            known = Node(op, args, kind, depth, kind == "bool" or _never_negative(op, args))
            self._nodes[key] = known
        return known

    def number(self, value: bool | int | float) -> Node:
        if isinstance(value, bool):
            return self.node("number", value, kind="bool")
        if isinstance(value, int):
            if not -(2**31) <= value < 2**31:
                raise refusal(
                    self.title,
                    f"{value} does not fit into a whole number of 32 bits",
                    f"{float(value)!r}, if a rounded value is meant",
                )
            return self.node("number", value, kind="int")
        if math.isnan(value):
            raise refusal(self.title, "it uses NaN as a number", "-inf, to hide a score")
        return self.node("number", value, kind="float")

    def capture(self, name: str, array: Any) -> Captured:
        """The tensor that stands for the array; the same one for the same memory."""
        key = memory_of(array)
        known = self._captured.get(key)
        if known is None:
            dtype = stored_dtype(array)
            if dtype is None:
                raise refusal(
                    self.title,
                    f"{name} is an array of {array.dtype}",
                    "an array of f16, bf16, f32, f64, integers of up to 64 bits, or bool",
                )
            known = captured(free_name(name, self._taken()), array, dtype)
            self._captured[key] = known
            self.tensors.append(known)
            self.arrays.append(array)
        return known

    def argument(self, name: str, value: int | float) -> tuple[Node, int]:
        """A number that a launch is given, and its place among the arrays."""
        self.number(value)  # refuses what no kernel can be given
        kind: Kind = "int" if isinstance(value, int) else "float"
        tensor = Captured(free_name(name, self._taken()), "i32" if kind == "int" else "f32", 0)
        self.tensors.append(tensor)
        self.arrays.append(value)
        return self.node("name", tensor.name, kind=kind), len(self.arrays) - 1

    def name_of(self, array: Any) -> str:
        for owner in (array, getattr(array, "_base", None), getattr(array, "base", None)):
            if id(owner) in self.names:
                return self.names[id(owner)]
        return "array"

    def _taken(self) -> set[str]:
        return {tensor.name for tensor in self.tensors}

    def text(self, root: Node) -> str:
        return _Printer(self, root).text()


def _never_negative(op: str, args: tuple[Any, ...]) -> bool:
    if op == "number":
        return bool(args[0] >= 0)
    if op == "name":
        return signs.of_name(args[0])
    return signs.of_operation(op, [arg.never_negative for arg in args if isinstance(arg, Node)])


def free_name(wish: str, taken: Collection[str]) -> str:
    """A name that means nothing yet, as near to the wish as can be."""
    name, count = _core.captured_name(wish), 2
    while name in taken:
        name = _core.captured_name(f"{wish}_{count}")
        count += 1
    return name


class _Printer:
    def __init__(self, graph: Graph, root: Node):
        self._root = root
        self._taken = {tensor.name for tensor in graph.tensors}
        self._uses: dict[Node, int] = {}
        self._order: list[Node] = []
        self._names: dict[Node, str] = {}
        self._visit()

    def _visit(self) -> None:
        """Counts uses, and orders nodes after what they use. A deep graph is no deep recursion."""
        stack = [(self._root, False)]
        while stack:
            node, done = stack.pop()
            if done:
                self._order.append(node)
                continue
            if node in self._uses:
                continue
            self._uses[node] = 0
            stack.append((node, True))
            stack += [(arg, False) for arg in reversed(node.args) if isinstance(arg, Node)]
        for node in self._order:
            for arg in node.args:
                if isinstance(arg, Node):
                    self._uses[arg] += 1

    def text(self) -> str:
        parts = []
        for node in self._order:
            shared = self._uses[node] > 1 or node.depth == 0
            if node is self._root or not shared or node.op in ("name", "number"):
                continue
            body = self._inline(node)
            self._names[node] = name = free_name(f"t{len(self._names)}", self._taken)
            self._taken.add(name)
            parts.append(f"{name} = {body};")
        return " ".join([*parts, self._inline(self._root)])

    def _inline(self, node: Node) -> str:
        return self._expression(node)[0]

    def _expression(self, node: Node) -> tuple[str, int]:
        """The text, and how tightly its outermost operator binds."""
        if node in self._names:
            return self._names[node], _ATOM
        op, args = node.op, node.args
        if op == "name":
            return args[0], _ATOM
        if op == "number":
            text = str(args[0]).lower() if isinstance(args[0], bool) else repr(args[0])
            return text, _UNARY if text.startswith("-") else _ATOM
        if op == "index":
            name, wraps, *indices = args
            texts = map(self._inline, indices)
            shown = (f"wrap({t})" if w else t for t, w in zip(texts, wraps, strict=True))
            return f"{name}[{', '.join(shown)}]", _ATOM
        if op in ("neg", "not"):
            return f"{'-' if op == 'neg' else '~'}{self._within(args[0], _ATOM)}", _UNARY
        if op not in _BINDING:
            return f"{op}({', '.join(map(self._inline, args))})", _ATOM
        binding = _BINDING[op]
        left, right = binding, binding + 1
        if op in ("&", "|"):
            # Python and C disagree on whether & or < binds tighter: both read parentheses.
            left = binding if args[0].op == op else _UNARY
            right = _UNARY
        elif binding == _BINDING["<"]:
            left = right
        return f"{self._within(args[0], left)} {op} {self._within(args[1], right)}", binding

    def _within(self, node: Node, least: int) -> str:
        text, binding = self._expression(node)
        return text if binding >= least and not text.startswith("-") else f"({text})"


__all__ = ["Graph", "Kind", "Node", "free_name"]
