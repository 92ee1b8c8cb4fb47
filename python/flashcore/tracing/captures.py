"""A function as it is traced: a copy in which the arrays it reads answer to traced indices.

torch lets us listen to the indexing of its tensors, NumPy and others do not. So the function is
copied with stand-ins for what its closure, defaults and globals hold, through nested functions,
containers and objects. The user's own function and objects are not touched. What is read is
watched, and a number that keeps changing becomes an argument of the kernel.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import importlib
import sys
from collections.abc import Callable, Iterator, Mapping
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy

from ..arrays import in_cpu_memory, is_array, is_torch_tensor
from .graph import Graph, Node
from .recording import (
    RecordingDict,
    RecordingList,
    RecordingModule,
    class_of,
    is_users,
    object_of,
)
from .tracer import Traced, call, index, is_traced
from .watch import Path, Watch

_LONGEST = 1000  # a container that has more is data, and not copied
_FOREIGN = {"torch", "numpy", "jax", "jaxlib", "cupy", "ml_dtypes", "flashcore", "builtins"}
_PLAIN = (bool, int, float, complex, str, bytes, BuiltinFunctionType)


class _NumpyStandIn(numpy.ndarray):
    """The same memory; in every other way the array itself."""

    _name = "array"

    def __array_finalize__(self, source: Any) -> None:
        self._name = getattr(source, "_name", "array")
        self._copier = getattr(source, "_copier", None)

    _copier: Copier | None = None

    def __getitem__(self, key: Any) -> Any:
        plain = self.view(numpy.ndarray)
        if is_traced(key):
            return index(plain, key, self._name)
        part = super().__getitem__(key)
        if isinstance(part, numpy.generic) and self._copier is not None:
            self._copier.watch.read(functools.partial(plain.__getitem__, key), part)
        return part


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
    """Copies one function and whatever it reads."""

    def __init__(self, graph: Graph, varying: frozenset[Path] = frozenset()):
        """`varying` are the numbers that become arguments of the kernel."""
        self.graph = graph
        self.watch = Watch()
        self.numbers: dict[Path, Any] = {}
        """Every number that was read, and how it was come by."""
        self.arguments: list[tuple[int, Callable[[], Any], type]] = []
        """Which of the graph's arrays are numbers, how to read them again, and what they are."""
        self._varying = varying
        self._arguments: dict[Path, Node] = {}
        self._done: dict[int, Any] = {}
        self._kept: list[Any] = []  # ids are of living objects
        graph.number_of = self._lone_number

    # What is read, and watched from then on.

    def cell(self, name: str, cell: CellType, path: Path) -> Any:
        value = cell.cell_contents
        number = self._number(name, value, path, functools.partial(getattr, cell, "cell_contents"))
        if number is not None:
            return number
        self.watch.cell(cell, value)
        return self.copy(name, value, path)

    def entry(self, name: str, table: Mapping[Any, Any], key: Any, path: Path) -> Any:
        value = table[key]
        number = self._number(name, value, path, functools.partial(table.get, key))
        if number is not None:
            return number
        self.watch.entry(table, key, value)
        return self.copy(name, value, path)

    def reading(self, name: str, read: Callable[[], Any], path: Path, *key: Any) -> Any:
        value = read()
        number = self._number(name, value, path, read)
        if number is not None:
            return number
        self.watch.read(read, value, *key)
        return self.copy(name, value, path)

    def constant(self, name: str, value: Any, path: Path) -> Any:
        """What cannot change: another function would hold another value."""
        number = self._number(name, value, path, functools.partial(_itself, value))
        return self.copy(name, value, path) if number is None else number

    def _number(self, name: str, value: Any, path: Path, read: Callable[[], Any]) -> Traced | None:
        if type(value) not in (int, float):
            return None
        self.numbers[path] = value
        if path not in self._varying:
            return None
        return Traced(self.graph, self._argument(name, value, path, read))

    def _argument(self, name: str, value: Any, path: Path, read: Callable[[], Any]) -> Node:
        if path not in self._arguments:
            self._arguments[path], at = self.graph.argument(name, value)
            self.arguments.append((at, read, type(value)))
        return self._arguments[path]

    def _lone_number(self, _: str, array: Any) -> Node:
        """An array in CPU memory without dimensions, of what is left of an expression."""
        value = array.item()
        self.watch.read(array.item, value)
        return self.graph.number(value)

    def computed(self, operands: tuple[Any, ...], result: Any) -> None:
        """torch computed something while the function was traced, and the trace has it as it was
        then: it holds until a tensor is written to. What only shows a tensor is the tensor."""
        base = getattr(result, "_base", None)
        for tensor in operands:
            if is_torch_tensor(tensor) and id(tensor) in self.graph.names:
                shown = base is not None and (base is tensor or base is tensor._base)
                if isinstance(result, (bool, int, float)) or (
                    is_torch_tensor(result) and result is not tensor and not shown
                ):
                    version = functools.partial(getattr, tensor, "_version")
                    self.watch.read(version, tensor._version, id(tensor), "version")

    # Copies.

    def copy(self, name: str, value: Any, path: Path) -> Any:
        if isinstance(value, _PLAIN):
            return value
        if id(value) in self._done:
            return self._done[id(value)]
        self._kept.append(value)
        if is_array(value):
            return self._array(name, value, path)
        if isinstance(value, FunctionType):
            return self.function(value, path)
        copied = self._copied(name, value, path)
        if not isinstance(value, tuple):
            self._done[id(value)] = copied
        return copied

    def _copied(self, name: str, value: Any, path: Path) -> Any:
        if isinstance(value, MethodType):
            owner = self.copy(name, value.__self__, path)
            return MethodType(self.copy(name, value.__func__, path), owner)
        if isinstance(value, functools.partial):
            return self._partial(name, value, path)
        if isinstance(value, tuple):
            return self._tuple(name, value, path)
        if type(value) in (list, dict):
            if len(value) > _LONGEST:
                return value
            return (RecordingList if type(value) is list else RecordingDict)(self, value, path)
        if isinstance(value, (dict, list)):  # of a class of its own
            held = tuple(value.items() if isinstance(value, dict) else value)
            self.watch.read(functools.partial(_holds, value, held), True, id(value))
            return value
        if isinstance(value, ModuleType):
            users = is_users(value.__name__, _FOREIGN)
            return RecordingModule(self, value, path) if users else value
        if isinstance(value, type):
            return class_of(self, value, path) if is_users(value.__module__, _FOREIGN) else value
        if _root(type(value).__module__) in _FOREIGN and not _is_torch_module(value):
            return value
        return object_of(self, value, path)

    def _partial(self, name: str, value: Any, path: Path) -> Any:
        code = getattr(value.func, "__code__", None)
        called = code.co_varnames if code else (name,) * len(value.args)
        arguments = [
            self.constant(its_name, part, (*path, str(at)))
            for at, (its_name, part) in enumerate(zip(called, value.args, strict=False))
        ]
        options = {
            key: self.entry(key, value.keywords, key, (*path, key)) for key in value.keywords
        }
        return functools.partial(self.copy(name, value.func, path), *arguments, **options)

    def _tuple(self, name: str, value: Any, path: Path) -> Any:
        if len(value) > _LONGEST:
            return value
        parts = [self.constant(name, part, (*path, str(at))) for at, part in enumerate(value)]
        if all(new is old for new, old in zip(parts, value, strict=True)):
            return value
        kind = type(value)
        return kind(*parts) if hasattr(kind, "_fields") else kind(parts)

    def _array(self, name: str, array: Any, path: Path) -> Any:
        self.graph.names.setdefault(id(array), name)
        if len(array.shape) == 0 and in_cpu_memory(array):
            value = array.item()
            number = self._number(name, value, path, array.item)
            if number is None:
                self.watch.read(array.item, value, id(array), "item")
            return array if number is None else number
        if is_torch_tensor(array) or len(array.shape) == 0:
            return array
        if not isinstance(array, numpy.ndarray):
            return _StandIn(array, name)
        stand_in = array.view(_NumpyStandIn)
        stand_in._name = name
        stand_in._copier = self
        return stand_in

    def function(self, function: FunctionType, path: Path = ()) -> Any:
        if id(function) in self._done:
            return self._done[id(function)]
        if _root(function.__module__) in _FOREIGN and not function.__closure__:
            return function
        self._kept.append(function)
        code = function.__code__
        space: dict[str, Any] = {"__builtins__": builtins, "__name__": function.__module__}
        cells = tuple(CellType() for _ in function.__closure__ or ())
        copied = FunctionType(code, space, function.__name__, None, cells)
        self._done[id(function)] = copied
        self._defaults(function, copied, path)
        for name, cell, old in zip(
            code.co_freevars, cells, function.__closure__ or (), strict=True
        ):
            with contextlib.suppress(ValueError):  # not assigned yet
                cell.cell_contents = self.cell(name, old, (*path, "of", name))
        theirs = function.__globals__
        for name in dict.fromkeys(_names(code)):
            if name in theirs:
                space[name] = self._global(name, theirs, function)
            elif name in _BUILTINS:
                space[name] = _BUILTINS[name]
        return copied

    def _defaults(self, function: FunctionType, copied: FunctionType, path: Path) -> None:
        values = function.__defaults__
        if values:
            self.watch.read(functools.partial(getattr, function, "__defaults__"), values)
            names = _last_names(function.__code__, values)
            copied.__defaults__ = tuple(
                self.constant(name, value, (*path, "default", name))
                for name, value in zip(names, values, strict=True)
            )
        options = function.__kwdefaults__
        if options:
            copied.__kwdefaults__ = {
                name: self.entry(name, options, name, (*path, "default", name)) for name in options
            }

    def _global(self, name: str, table: dict[str, Any], function: FunctionType) -> Any:
        value = table[name]
        if isinstance(value, FunctionType) and _root(value.__module__) in _FOREIGN:
            self.watch.entry(table, name, value)
            return value
        if isinstance(value, ModuleType):  # modules stay what they are
            return self.copy(name, value, (value.__name__,))
        return self.entry(name, table, name, (function.__module__ or "", name))


def _holds(container: Any, held: tuple[Any, ...]) -> bool:
    return held == tuple(container.items() if isinstance(container, dict) else container)


def _itself(value: Any) -> Any:
    return value


def _is_torch_module(value: Any) -> bool:
    nn = sys.modules.get("torch.nn")
    return nn is not None and isinstance(value, nn.Module)


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


def listening(copier: Copier) -> Any:
    """A context in which tensors of torch answer to traced indices."""
    return _listener()(copier) if "torch" in sys.modules else contextlib.nullcontext()


@functools.cache
def _listener() -> Any:
    overrides = importlib.import_module("torch.overrides")

    class Listener(overrides.TorchFunctionMode):  # type: ignore[misc, name-defined]
        def __init__(self, copier: Copier):
            super().__init__()
            self._copier = copier

        def __torch_function__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            kwargs = kwargs or {}
            if not is_traced((args, tuple(kwargs.values()))):
                result = function(*args, **kwargs)
                self._copier.computed(args, result)
                return result
            if function.__name__ == "__getitem__" and is_torch_tensor(args[0]):
                return index(args[0], args[1])
            return call(f"torch.{function.__name__}", *args, **kwargs)

    return Listener


__all__ = ["Copier", "listening"]
