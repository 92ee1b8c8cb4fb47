"""A short row of a captured array, element by element: what is computed of it is unrolled.

`means[q_idx, :].sum()` has an element of the array for every position of the row, whose length is
known. Rows compute with rows of the same length and with numbers; reductions make a number of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from .graph import Graph
from .refusal import refusal

LONGEST = 64
"""Elements of a row: each is read, and stands in the text."""

Apply = Callable[..., Any]
"""An operation by its name, of traced numbers."""


class Row:
    """Traced values side by side."""

    def __init__(self, graph: Graph, values: list[Any], apply: Apply, shown: str):
        """`shown` is what messages call it."""
        self._graph = graph
        self._values = values
        self._apply = apply
        self._shown = shown

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self._values),)

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._values)

    def __getitem__(self, at: Any) -> Any:
        if isinstance(at, slice):
            return Row(self._graph, self._values[at], self._apply, self._shown)
        return self._values[at]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"a row that is traced has no {name}")
        return lambda *args, **kwargs: self._apply(name, self, *args, **kwargs)

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return self._shown


def check_length(graph: Graph, shown: str, length: int) -> None:
    if not 1 <= length <= LONGEST:
        raise refusal(
            graph.title,
            f"it computes with {shown}, a row of {length} elements",
            f"1 to {LONGEST} elements: every one of them is read for every score",
        )


def of_rows(word: str, operands: tuple[Any, ...], options: dict[str, Any], apply: Apply) -> Any:
    """An operation on rows and what else it is given."""
    first = operands[0]
    if word in _REDUCTIONS and isinstance(first, Row) and _is_whole(operands[1:], options):
        return _REDUCTIONS[word](list(first), apply)
    rows = [operand for operand in operands if isinstance(operand, Row)]
    lengths = {len(row) for row in rows}
    graph = rows[0]._graph
    if word in ("dot", "matmul", "inner", "vdot") and len(operands) == 2 and len(lengths) == 1:
        return _total(list(of_rows("mul", operands, {}, apply)), apply)
    if len(lengths) > 1:
        raise refusal(
            graph.title,
            f"{word} of rows of {' and '.join(map(str, sorted(lengths)))} elements",
            "rows of one length",
        )
    values = [
        apply(word, *(o[at] if isinstance(o, Row) else o for o in operands), **options)
        for at in range(lengths.pop())
    ]
    return Row(graph, values, apply, str(rows[0]))


def _is_whole(more: tuple[Any, ...], options: dict[str, Any]) -> bool:
    """Whether a reduction is told nothing but the one dimension that there is."""
    dims = [*more, *(options.get(name) for name in ("dim", "axis") if name in options)]
    others = options.keys() - {"dim", "axis", "dtype"}
    return not others and all(dim in (None, 0, -1, (0,), (-1,), [0], [-1]) for dim in dims)


def _folded(word: str) -> Callable[[list[Any], Apply], Any]:
    def fold(values: list[Any], apply: Apply) -> Any:
        result = values[0]
        for value in values[1:]:
            result = apply(word, result, value)
        return result

    return fold


_total = _folded("add")


def _conditions(word: str) -> Callable[[list[Any], Apply], Any]:
    def fold(values: list[Any], apply: Apply) -> Any:
        return _folded(word)([apply("bool", value) for value in values], apply)

    return fold


_REDUCTIONS: dict[str, Callable[[list[Any], Apply], Any]] = {
    "sum": _total,
    "prod": _folded("mul"),
    "mean": lambda values, apply: apply("div", _total(values, apply), len(values)),
    "max": _folded("maximum"),
    "amax": _folded("maximum"),
    "min": _folded("minimum"),
    "amin": _folded("minimum"),
    "any": _conditions("logical_or"),
    "all": _conditions("logical_and"),
}


__all__ = ["LONGEST", "Row", "check_length", "of_rows"]
