"""The values that a trace has read, which every call compares with the present ones, cheaply."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import CellType, MethodType
from typing import Any

import numpy

Path = tuple[str, ...]
"""How a function comes to a value, in words that are the same for every copy of the function."""

_GONE = object()
_VALUES = (bool, int, float, complex, str, bytes, MethodType)


def _same(now: Any, then: Any) -> bool:
    """Whether two objects that are not one are still the same to a trace."""
    if type(now) is not type(then):
        return False
    return isinstance(then, (*_VALUES, numpy.generic)) and bool(now == then)


class Watch:
    """Variables of closures, entries of dictionaries (variables of modules, attributes), and what
    else can be asked again."""

    def __init__(self) -> None:
        self._cells: list[tuple[CellType, Any]] = []
        self._entries: list[tuple[Mapping[Any, Any], Any, Any]] = []
        self._reads: list[tuple[Callable[[], Any], Any]] = []
        self._of: list[int] = []
        """The container that each of the reads is of, 0 for none."""
        self._known: set[tuple[Any, ...]] = set()

    def cell(self, cell: CellType, value: Any) -> None:
        if self._is_new(id(cell)):
            self._cells.append((cell, value))

    def entry(self, table: Mapping[Any, Any], key: Any, value: Any) -> None:
        if self._is_new(id(table), key):
            self._entries.append((table, key, value))

    def absence(self, table: Mapping[Any, Any], key: Any) -> None:
        self.entry(table, key, _GONE)

    def read(self, read: Callable[[], Any], value: Any, *key: Any) -> None:
        """`key` says what is read, so that it is asked once; without it, it is new."""
        if not key or self._is_new(*key):
            self._reads.append((read, value))
            self._of.append(key[0] if key else 0)

    def _is_new(self, *key: Any) -> bool:
        known = key in self._known
        self._known.add(key)
        return not known

    def written(self, container: Any, key: Any = _GONE) -> None:
        """The function itself changes a container, at a key of it or anywhere: what it read there
        is no reason to trace again."""
        self._entries = [
            kept
            for kept in self._entries
            if kept[0] is not container or key not in (kept[1], _GONE)
        ]
        kept = [at for at, owner in enumerate(self._of) if owner != id(container)]
        self._reads, self._of = [self._reads[at] for at in kept], [self._of[at] for at in kept]

    def forget(self, value: Any) -> None:
        """A trace must not keep the function alive that it is kept for."""
        self._cells = [kept for kept in self._cells if kept[1] is not value]
        self._entries = [kept for kept in self._entries if kept[2] is not value]
        self._known.clear()

    def holds(self) -> bool:
        try:
            for cell, value in self._cells:
                now = cell.cell_contents
                if now is not value and not _same(now, value):
                    return False
            for table, key, value in self._entries:
                now = table.get(key, _GONE)
                if now is not value and not _same(now, value):
                    return False
            for read, value in self._reads:
                now = read()
                if now is not value and not _same(now, value):
                    return False
        except Exception:  # what was read cannot be read any more
            return False
        return True


__all__ = ["Path", "Watch"]
