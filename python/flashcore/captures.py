"""A function as it is traced: a copy in which the arrays it reads answer to traced indices.

torch lets us listen to the indexing of its tensors, NumPy and others do not. So the function is
copied with stand-ins for what its closure, defaults and globals hold, through nested functions,
containers and objects. The user's own function and objects are not touched.
"""

from __future__ import annotations

import builtins
import contextlib
import copy
import functools
import importlib
import sys
from collections.abc import Callable, Iterator
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy

from .arrays import is_array, is_torch_tensor
from .tracer import call, index, is_traced

_DEEPEST = 4  # containers and objects within each other
_LONGEST = 1000  # a container that has more is data, and not copied
_FOREIGN = {"torch", "numpy", "jax", "jaxlib", "cupy", "ml_dtypes", "flashcore", "builtins"}

Witness = tuple[Callable[[], Any], Any]
"""How to read a variable of the function, and what it held."""


class _NumpyStandIn(numpy.ndarray):
    """The same memory; in every other way the array itself."""

    _name = "array"

    def __array_finalize__(self, source: Any) -> None:
        self._name = getattr(source, "_name", "array")

    def __getitem__(self, key: Any) -> Any:
        if is_traced(key):
            return index(self.view(numpy.ndarray), key, self._name)
        return super().__getitem__(key)


class _StandIn:
    """An array of a framework that only DLPack knows."""

    def __init__(self, array: Any, name: str):
        self._array = array
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(self._array, attribute)

    def __getitem__(self, key: Any) -> Any:
        if is_traced(key):
            return index(self._array, key, self._name)
        part = self._array[key]
        return _StandIn(part, self._name) if is_array(part) else part


def _of_two(name: str) -> Callable[..., Any]:
    plain = getattr(builtins, name)

    def extreme(*args: Any, **options: Any) -> Any:
        return (
            functools.reduce(functools.partial(call, name), args)
            if is_traced(args)
            else plain(*args, **options)
        )

    return extreme


# These would compare and ask which one is true.
_BUILTINS = {"min": _of_two("min"), "max": _of_two("max")}


class Copier:
    """Copies one function and whatever it can reach."""

    def __init__(self) -> None:
        self.names: dict[int, str] = {}
        self.witnesses: list[Witness] = []
        self._done: dict[int, Any] = {}
        self._kept: list[Any] = []  # ids are of living objects

    def copy(self, name: str, value: Any, depth: int = 0) -> Any:
        if id(value) in self._done:
            return self._done[id(value)]
        if isinstance(value, (bool, int, float, complex, str, bytes, type, BuiltinFunctionType)):
            return value
        self._kept.append(value)
        if is_array(value):
            return self._array(name, value)
        if isinstance(value, FunctionType):
            return self._function(value)
        if isinstance(value, MethodType):
            owner = self.copy(name, value.__self__, depth)
            return MethodType(self.copy(name, value.__func__, depth), owner)
        if isinstance(value, functools.partial):
            code = getattr(value.func, "__code__", None)
            called = code.co_varnames if code else (name,) * len(value.args)
            given = zip(called, value.args, strict=False)
            arguments = [self.copy(its_name, part, depth + 1) for its_name, part in given]
            options = {key: self.copy(key, part, depth + 1) for key, part in value.keywords.items()}
            return functools.partial(self.copy(name, value.func, depth), *arguments, **options)
        if depth < _DEEPEST:
            return self._container(name, value, depth)
        return value

    def _array(self, name: str, array: Any) -> Any:
        self.names.setdefault(id(array), name)
        if is_torch_tensor(array) or len(array.shape) == 0:
            return array
        if not isinstance(array, numpy.ndarray):
            return _StandIn(array, name)
        stand_in = array.view(_NumpyStandIn)
        stand_in._name = name
        return stand_in

    def _function(self, function: FunctionType) -> FunctionType:
        if _root(function.__module__) in _FOREIGN and not function.__closure__:
            return function
        code = function.__code__
        space: dict[str, Any] = {"__builtins__": builtins, "__name__": function.__module__}
        cells = tuple(CellType() for _ in function.__closure__ or ())
        copied = FunctionType(code, space, function.__name__, None, cells)
        self._done[id(function)] = copied
        copied.__kwdefaults__ = _each(self, function.__kwdefaults__)
        defaults = zip(_last_names(code, function.__defaults__), function.__defaults__ or (),
                       strict=True)  # fmt: skip
        copied.__defaults__ = tuple(self.copy(name, value) for name, value in defaults) or None
        for name, cell, old in zip(
            code.co_freevars, cells, function.__closure__ or (), strict=True
        ):
            try:
                value = old.cell_contents
            except ValueError:  # not assigned yet
                continue
            self.witnesses.append((functools.partial(getattr, old, "cell_contents", None), value))
            cell.cell_contents = self.copy(name, value)
        theirs = function.__globals__
        for name in dict.fromkeys(_names(code)):
            if name in theirs:
                value = theirs[name]
                self.witnesses.append((functools.partial(theirs.get, name), value))
                space[name] = self._global(name, value)
            elif name in _BUILTINS:
                space[name] = _BUILTINS[name]
        return copied

    def _global(self, name: str, value: Any) -> Any:
        if isinstance(value, FunctionType) and _root(value.__module__) in _FOREIGN:
            return value
        return self.copy(name, value)

    def _container(self, name: str, value: Any, depth: int) -> Any:
        if isinstance(value, (tuple, list, dict)) and len(value) > _LONGEST:
            return value
        if isinstance(value, (tuple, list)):
            parts = [self.copy(name, part, depth + 1) for part in value]
            if all(new is old for new, old in zip(parts, value, strict=True)):
                return value
            kind = type(value)
            return kind(*parts) if hasattr(kind, "_fields") else kind(parts)
        if isinstance(value, dict):
            entries = {key: self.copy(str(key), part, depth + 1) for key, part in value.items()}
            return entries if _differs(entries, value) else value
        if isinstance(value, ModuleType) or _root(type(value).__module__) in _FOREIGN:
            return value
        own = getattr(value, "__dict__", None)
        if not isinstance(own, dict):
            return value
        self._done[id(value)] = value  # objects may refer to each other
        attributes = {key: self.copy(key, part, depth + 1) for key, part in own.items()}
        del self._done[id(value)]
        if not _differs(attributes, own):
            return value
        clone = copy.copy(value)
        clone.__dict__.update(attributes)
        return clone


def _differs(new: dict[Any, Any], old: dict[Any, Any]) -> bool:
    return any(new[key] is not old[key] for key in old)


def _each(copier: Copier, values: dict[str, Any] | None) -> dict[str, Any] | None:
    return {key: copier.copy(key, value) for key, value in values.items()} if values else None


def _last_names(code: CodeType, defaults: tuple[Any, ...] | None) -> tuple[str, ...]:
    count = len(defaults or ())
    return code.co_varnames[code.co_argcount - count : code.co_argcount]


def _names(code: CodeType) -> Iterator[str]:
    """What the code and the functions within it may read from its globals."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _root(module: str | None) -> str:
    return (module or "").partition(".")[0]


def listening() -> Any:
    """A context in which tensors of torch answer to traced indices."""
    return _listener()() if "torch" in sys.modules else contextlib.nullcontext()


@functools.cache
def _listener() -> Any:
    overrides = importlib.import_module("torch.overrides")

    class Listener(overrides.TorchFunctionMode):  # type: ignore[misc, name-defined]
        def __torch_function__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            kwargs = kwargs or {}
            if not is_traced((args, tuple(kwargs.values()))):
                return function(*args, **kwargs)
            if function.__name__ == "__getitem__" and is_torch_tensor(args[0]):
                return index(args[0], args[1])
            return call(f"torch.{function.__name__}", *args, **kwargs)

    return Listener


__all__ = ["Copier", "Witness", "listening"]
