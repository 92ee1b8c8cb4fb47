"""A Python function on scores, called once, as the text of an expression.

The functions are those of FlexAttention: (b, h, q_idx, kv_idx) for a mask, with the score in front
for a score, (b, h, q_idx) for a sink. Parameters named q_len and kv_len are given the lengths.
"""

from __future__ import annotations

import functools
import inspect
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from types import FunctionType, MethodType
from typing import Any, Literal, TypeVar

from .arrays import Captured
from .captures import Copier, Witness, listening
from .errors import Error
from .graph import Graph, Kind, Node
from .refusal import refusal, refusal_of
from .tracer import Traced, lift

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


Made = TypeVar("Made")
_traces: weakref.WeakKeyDictionary[Any, dict[Any, tuple[Any, list[Witness]]]]
_traces = weakref.WeakKeyDictionary()
_lock = threading.Lock()


def trace(function: Callable[..., Any], role: Role, make: Callable[[Trace], Made]) -> Made:
    """What `make` makes of the function. A function is traced once, and again only after one of the
    variables that it reads has been given another value."""
    # Methods are made anew whenever they are asked for; what lives on is their object.
    owner = function.__self__ if isinstance(function, MethodType) else function
    key = (role, getattr(function, "__func__", None))
    try:
        known = _traces.get(owner, {}).get(key)
    except TypeError:  # cannot be hashed, or not weakly referred to
        return make(_trace(function, role)[0])
    if known is not None and all(read() is value for read, value in known[1]):
        kept: Made = known[0]
        return kept
    found, witnesses = _trace(function, role)
    made = make(found)
    with _lock:
        _traces.setdefault(owner, {})[key] = (made, witnesses)
    return made


def _trace(function: Callable[..., Any], role: Role) -> tuple[Trace, list[Witness]]:
    named = function.func if isinstance(function, functools.partial) else function
    name = getattr(named, "__qualname__", type(named).__qualname__).rpartition(".")[2]
    graph = Graph(f"the {role} {name}")
    copier = Copier()
    callee = function
    if not isinstance(function, (FunctionType, MethodType, functools.partial)):
        method = inspect.getattr_static(type(function), "__call__", None)
        if isinstance(method, FunctionType):
            callee = MethodType(method, function)
    keywords = _check_signature(graph, callee, role)
    copied = copier.copy(name, callee)
    graph.names = copier.names
    kinds: dict[str, Kind] = {"score": "float"}
    values = {
        word: Traced(graph, graph.node("name", word, kind=kinds.get(word, "int")))
        for word in (*_PARAMETERS[role], *_LENGTHS)
    }
    try:
        with listening():
            result = copied(
                *(values[word] for word in _PARAMETERS[role]),
                **{word: values[word] for word in keywords},
            )
            root = lift(graph, result)
    except Error:
        raise
    except Exception as error:
        fix = "what traced values can do is in docs/python.md"
        raise refusal_of(graph.title, error, fix) from error
    _check_result(graph, function, role, result, root)
    witnesses = [(read, value) for read, value in copier.witnesses if value is not function]
    return Trace(graph.text(root), tuple(graph.tensors), tuple(graph.arrays)), witnesses


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
