"""A Python function on scores, called once, as the text of an expression.

The functions are those of FlexAttention: (b, h, q_idx, kv_idx) for a mask, with the score in front
for a score, (b, h, q_idx) for a sink. Parameters named q_len and kv_len are given the lengths.
"""

from __future__ import annotations

import functools
import inspect
import os
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from types import FunctionType, MethodType
from typing import Any, Literal, Protocol, TypeVar

from ..arrays import Captured
from ..errors import Error
from .captures import Copier, listening
from .graph import Graph, Kind, Node
from .refusal import refusal, refusal_of
from .rows import Row
from .tracer import PartlyIndexed, Traced, lift, still_an_array
from .watch import Path, Watch

Role = Literal["mask", "score", "sink"]
_PARAMETERS: dict[Role, tuple[str, ...]] = {
    "mask": ("b", "h", "q_idx", "kv_idx"),
    "score": ("score", "b", "h", "q_idx", "kv_idx"),
    "sink": ("b", "h", "q_idx"),
}
_LENGTHS = ("q_len", "kv_len")


@dataclass(frozen=True)
class Trace:
    """What a function computes, and the arrays it reads, in the order of `tensors`."""

    text: str
    tensors: tuple[Captured, ...]
    arrays: tuple[Any, ...]


class _Expression(Protocol):
    """What a trace is made into."""

    def with_arrays(self: Made, arrays: tuple[Any, ...]) -> Made: ...


Made = TypeVar("Made", bound=_Expression)


@dataclass
class _Known:
    """A trace that was made, and what it holds for."""

    made: Any
    watch: Watch
    arrays: list[Any]
    arguments: list[tuple[int, Callable[[], Any], type[Any]]]

    def now(self) -> Any:
        """What was made, with the numbers of now; None if it does not hold any more."""
        if not self.watch.holds():
            return None
        changed = False
        for at, read, kind in self.arguments:
            number = read()
            if type(number) is not kind:
                return None
            if number != self.arrays[at]:
                if kind is int and not -(2**31) <= number < 2**31:
                    return None
                self.arrays = [*self.arrays[:at], number, *self.arrays[at + 1 :]]
                changed = True
        if changed:
            self.made = self.made.with_arrays(tuple(self.arrays))
        return self.made


class _Numbers:
    """The numbers that functions of one code were traced with. One with more values than a few is
    an argument of the kernel from then on, unless the function needs it while it is traced."""

    def __init__(self) -> None:
        self.varying: frozenset[Path] = frozenset()
        self._needed: set[Path] = set()
        self._values: dict[Path, list[Any]] = {}

    def learn(self, numbers: dict[Path, Any]) -> frozenset[Path]:
        """Those that have become arguments by these values."""
        found = set()
        for path, value in numbers.items():
            values = self._values.setdefault(path, [])
            if value not in values and len(values) <= _CONSTANTS:
                values.append(value)
            if len(values) > _CONSTANTS and path not in self._needed | self.varying:
                found.add(path)
        return frozenset(found)

    def need(self, path: Path) -> None:
        self._needed.add(path)
        self.varying -= {path}


_CONSTANTS = 2  # kernels with a number compiled in, before it becomes an argument
_KEPT = 4  # traces of one function, for what it reads going back and forth
_MOST = 1024  # functions, and codes of functions
_traces: weakref.WeakKeyDictionary[Any, dict[Any, list[_Known]]]
_traces = weakref.WeakKeyDictionary()
_numbers: dict[Any, _Numbers] = {}
_lock = threading.Lock()


def _renew_lock() -> None:
    """In a forked child, where the thread that may have held it does not exist."""
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)


def trace(function: Callable[..., Any], role: Role, make: Callable[[Trace], Made]) -> Made:
    """What `make` makes of the function. A function is traced once, and again only after something
    that it read has been given another value."""
    # Methods are made anew whenever they are asked for; what lives on is their object.
    owner = function.__self__ if isinstance(function, MethodType) else function
    key = (role, getattr(function, "__func__", None))
    try:
        all_known = _traces.get(owner, {}).get(key)
    except TypeError:  # cannot be hashed, or not weakly referred to
        return _known(function, role, make).made  # type: ignore[no-any-return]
    for known in all_known or ():
        made = known.now()
        if made is not None:
            return made  # type: ignore[no-any-return]
    known = _known(function, role, make)
    with _lock:
        if len(_traces) >= _MOST:
            _traces.clear()
        of_owner = _traces.setdefault(owner, {})
        of_owner[key] = [known, *of_owner.get(key, ())][:_KEPT]
    return known.made  # type: ignore[no-any-return]


def _known(function: Callable[..., Any], role: Role, make: Callable[[Trace], Made]) -> _Known:
    code = (_code(function), role)
    with _lock:
        if len(_numbers) >= _MOST:
            _numbers.clear()
        numbers = _numbers.setdefault(code, _Numbers())
    found, copier = _trace_with(function, role, numbers, numbers.varying)
    for path in numbers.learn(copier.numbers):
        found, copier = _trace_with(function, role, numbers, numbers.varying | {path})
    copier.watch.forget(function)
    return _Known(make(found), copier.watch, list(found.arrays), copier.arguments)


def _trace_with(
    function: Callable[..., Any], role: Role, numbers: _Numbers, varying: frozenset[Path]
) -> tuple[Trace, Copier]:
    """With these numbers as arguments, but for those that the function needs to know: it counts
    with one, asks what is more, or makes an array of it."""
    try:
        traced = _trace(function, role, varying)
    except Exception:
        if not varying:
            raise
        newest = varying - numbers.varying
        for path in newest or varying:
            numbers.need(path)
        return _trace(function, role, numbers.varying)
    numbers.varying = varying
    return traced


def _code(function: Any) -> Any:
    """Equal for functions that one definition made."""
    while isinstance(function, functools.partial):
        function = function.func
    if not hasattr(function, "__code__") and not isinstance(function, MethodType):
        function = inspect.getattr_static(type(function), "__call__", function)
    return getattr(function, "__code__", None) or type(function)


def _trace(
    function: Callable[..., Any], role: Role, varying: frozenset[Path]
) -> tuple[Trace, Copier]:
    named = function.func if isinstance(function, functools.partial) else function
    name = getattr(named, "__qualname__", type(named).__qualname__).rpartition(".")[2]
    graph = Graph(f"the {role} {name}")
    copier = Copier(graph, varying)
    callee = function
    if not isinstance(function, (FunctionType, MethodType, functools.partial)):
        method = inspect.getattr_static(type(function), "__call__", None)
        if isinstance(method, FunctionType):
            callee = MethodType(method, function)
    keywords = _check_signature(graph, callee, role)
    kinds: dict[str, Kind] = {"score": "float"}
    values = {
        word: Traced(graph, graph.node("name", word, kind=kinds.get(word, "int")))
        for word in (*_PARAMETERS[role], *_LENGTHS)
    }
    try:
        copied = copier.copy(name, callee, ())
        with listening(copier):
            result = copied(
                *(values[word] for word in _PARAMETERS[role]),
                **{word: values[word] for word in keywords},
            )
            if isinstance(result, (PartlyIndexed, Row)):
                raise _refuse_whole(graph, function, *still_an_array(result))
            root = lift(graph, result)
    except Error:
        raise
    except Exception as error:
        fix = "what traced values can do is in docs/python.md"
        raise refusal_of(graph.title, error, fix) from error
    _check_result(graph, function, role, result, root)
    return Trace(graph.text(root), tuple(graph.tensors), tuple(graph.arrays)), copier


def _place(function: Any) -> tuple[str, int]:
    function = inspect.unwrap(function)
    while isinstance(function, functools.partial):
        function = function.func
    code = getattr(function, "__code__", None)
    return (code.co_filename, code.co_firstlineno) if code else ("", 0)


def _refuse_whole(graph: Graph, function: Any, why: str, fix: str) -> Exception:
    error = refusal(graph.title, why, fix)
    return type(error)(error.what, why, fix, *_place(function))


def _check_signature(graph: Graph, function: Callable[..., Any], role: Role) -> list[str]:
    """Refuses a function that cannot be called; the lengths that it asks for by name."""
    expected = _PARAMETERS[role]
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return []
    keywords = [word for word in _LENGTHS if word in signature.parameters]
    try:
        signature.bind(*expected, **dict.fromkeys(keywords))
    except TypeError:
        given = ", ".join(signature.parameters)
        others = [
            f"; ({given}) is right for {other}="
            for other, names in _PARAMETERS.items()
            if other != role and len(names) == len(signature.parameters)
        ]
        raise _refuse_whole(
            graph,
            function,
            f"it takes ({given}) and is called with ({', '.join(expected)})",
            f"({', '.join(expected)}){''.join(others)}",
        ) from None
    return keywords


def _check_result(graph: Graph, function: Any, role: Role, result: Any, root: Any) -> None:
    wanted = "a condition" if role == "mask" else "a number"
    if isinstance(root, Node) and (root.kind == "bool") == (role == "mask"):
        return
    if result is None:
        why, fix = "it returns None", f"return {wanted}"
    elif not isinstance(root, Node):
        why, fix = f"it returns {type(result).__qualname__}", f"return {wanted}"
    elif role == "mask":
        kind = {"int": "a whole number", "float": "a float"}[root.kind]
        why = f"it returns {graph.text(root)}, {kind}"
        fix = "a comparison, such as q_idx >= kv_idx; what is added to scores goes to score="
    else:
        why = f"it returns {graph.text(root)}, a condition"
        fix = "flashcore.where(condition, score, -inf), or the condition as mask="
    raise _refuse_whole(graph, function, why, fix)


__all__ = ["Role", "Trace", "trace"]
