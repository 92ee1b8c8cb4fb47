"""Stand-ins for objects, classes, modules and containers that say what is read of them.

Whatever is read goes through the copier: arrays answer to traced indices then, and a later call can
ask whether the value is still there. What the function writes is written to what they stand for.
"""

from __future__ import annotations

import functools
import inspect
import operator
import sys
from collections.abc import Mapping
from types import FunctionType, MethodType, ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .captures import Copier
    from .watch import Path

_SOURCE = "_flashcore_source"
_STORES = ("_parameters", "_buffers", "_modules")  # of torch's modules
_CALLED = ("__call__", "__getitem__")
_MISSING = object()


def _is_special(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


def object_of(copier: Copier, value: Any, path: Path) -> Any:
    """An object of a class of the user's, or itself where its class cannot be derived from."""
    own: Any = type(value)
    kind = _recording_class(own)
    if kind is None:
        return value
    try:
        base = SimpleNamespace if isinstance(value, SimpleNamespace) else object
        stand_in: Any = base.__new__(kind)
        object.__setattr__(stand_in, _SOURCE, (copier, value, path))
    except (TypeError, AttributeError):
        return value
    return stand_in


@functools.lru_cache(maxsize=256)
def _recording_class(kind: type) -> type | None:
    def __getattribute__(self: Any, name: str) -> Any:
        copier, original, path = object.__getattribute__(self, "__dict__")[_SOURCE]
        if _is_special(name):
            return getattr(original, name)
        return _attribute(copier, self, original, name, path)

    def special(name: str) -> Any:
        def method(self: Any, *args: Any, **kwargs: Any) -> Any:
            copier, _, _ = object.__getattribute__(self, "__dict__")[_SOURCE]
            return copier.function(getattr(kind, name))(self, *args, **kwargs)

        return method

    def __setattr__(self: Any, name: str, value: Any) -> None:
        copier, original, _ = object.__getattribute__(self, "__dict__")[_SOURCE]
        copier.watch.written(getattr(original, "__dict__", None), name)
        setattr(original, name, value)

    space: dict[str, Any] = {
        "__getattribute__": __getattribute__,
        "__setattr__": __setattr__,
        "__module__": kind.__module__,
    }
    space |= {name: special(name) for name in _CALLED if _is_function(kind, name)}
    try:
        return type(kind)(kind.__name__, (kind,), space)
    except Exception:  # the class, or its metaclass, has its own idea of what may be derived
        return None


def _is_function(kind: type, name: str) -> bool:
    return isinstance(inspect.getattr_static(kind, name, None), FunctionType)


def _attribute(copier: Copier, stand_in: Any, original: Any, name: str, path: Path) -> Any:
    own = getattr(original, "__dict__", None)
    own = own if isinstance(own, dict) else {}
    owner, found = _of_class(type(original), name)
    if isinstance(found, property) and found.fget is not None:
        getter: Any = found.fget
        return copier.function(getter)(stand_in)
    if name in own:
        return copier.entry(name, own, name, (*path, name))
    if isinstance(found, FunctionType):
        copier.watch.entry(_table(owner), name, found)
        return MethodType(copier.function(found), stand_in)
    if found is not _MISSING and not hasattr(type(found), "__get__"):
        copier.watch.absence(own, name)
        return copier.entry(name, _table(owner), name, (*path, name))
    for store in _STORES:
        if isinstance(own.get(store), dict) and name in own[store]:
            return copier.entry(name, own[store], name, (*path, name))
    return copier.reading(name, functools.partial(getattr, original, name), (*path, name))


@functools.lru_cache(maxsize=1024)
def _table(kind: type) -> Mapping[str, Any]:
    """The attributes of a class: the same object whenever it is asked for."""
    return vars(kind)


def _of_class(kind: type, name: str) -> tuple[Any, Any]:
    for owner in kind.__mro__:
        if name in vars(owner):
            return owner, vars(owner)[name]
    return kind, _MISSING


def class_of(copier: Copier, kind: type, path: Path) -> Any:
    """A class of the user's: its attributes are read like those of objects."""

    def __getattribute__(stand_in: Any, name: str) -> Any:
        if _is_special(name) or name == "mro":
            return type.__getattribute__(stand_in, name)
        owner, found = _of_class(kind, name)
        if found is _MISSING or hasattr(type(found), "__get__"):
            value = getattr(kind, name)
            return copier.function(value) if isinstance(value, FunctionType) else value
        return copier.entry(name, _table(owner), name, (*path, name))

    def __setattr__(stand_in: Any, name: str, value: Any) -> None:
        owner, _ = _of_class(kind, name)
        copier.watch.written(_table(owner), name)
        setattr(kind, name, value)

    space = {
        "__getattribute__": __getattribute__,
        "__setattr__": __setattr__,
        "__instancecheck__": lambda _, value: isinstance(value, kind),
        "__subclasscheck__": lambda _, other: issubclass(other, kind),
        "__call__": lambda _, *args, **kwargs: kind(*args, **kwargs),
    }
    try:
        meta = type(type(kind).__name__, (type(kind),), space)
        return type.__new__(meta, kind.__name__, (kind,), {})
    except Exception:  # an enumeration, or a class that must not be derived from
        return kind


class RecordingModule(ModuleType):
    """A module of the user's."""

    def __init__(self, copier: Copier, module: ModuleType, path: Path):
        super().__init__(module.__name__)
        object.__setattr__(self, _SOURCE, (copier, module, path))

    def __getattribute__(self, name: str) -> Any:
        own = object.__getattribute__(self, "__dict__")
        copier, module, path = own[_SOURCE]
        if _is_special(name) or name not in vars(module):
            return getattr(module, name)
        return copier.entry(name, vars(module), name, (*path, name))


def is_users(module: str | None, foreign: set[str]) -> bool:
    root = (module or "").partition(".")[0]
    return root not in foreign and root not in sys.stdlib_module_names or root == "__main__"


def _writing(kind: type, name: str) -> Any:
    plain = getattr(kind, name)

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        copier, container, _ = self._source
        copier.watch.written(container)
        plain(self, *args, **kwargs)
        return plain(container, *args, **kwargs)

    return method


class RecordingDict(dict[Any, Any]):
    """A dictionary: an entry that is asked for is read, and all where it is walked through."""

    def __init__(self, copier: Copier, table: dict[Any, Any], path: Path):
        super().__init__(table)
        self._source = copier, table, path

    def __getitem__(self, key: Any) -> Any:
        copier, table, path = self._source
        if key not in table:
            copier.watch.absence(table, key)
            return super().__getitem__(key)
        return copier.entry(str(key), table, key, (*path, str(key)))

    def get(self, key: Any, default: Any = None) -> Any:
        if key in self:
            return self[key]
        copier, table, _ = self._source
        copier.watch.absence(table, key)
        return default

    def values(self) -> Any:
        return [value for _, value in self.items()]

    def items(self) -> Any:
        return [(key, self[key]) for key in self]

    def __iter__(self) -> Any:
        copier, table, _ = self._source
        keys = list(table)
        copier.watch.read(lambda: list(table) == keys, True, id(table), "keys")
        return iter(keys)


class RecordingList(list[Any]):
    """A list: an entry that is asked for is read, and all where it is walked through."""

    def __init__(self, copier: Copier, values: list[Any], path: Path):
        super().__init__(values)
        self._source = copier, values, path

    def __getitem__(self, at: Any) -> Any:
        if isinstance(at, slice):
            return [self[i] for i in range(*at.indices(len(self)))]
        copier, values, path = self._source
        at = operator.index(at)
        name = path[-1] if path else "array"
        return copier.reading(
            name, functools.partial(operator.getitem, values, at), (*path, str(at)), id(values), at
        )

    def __len__(self) -> int:
        copier, values, _ = self._source
        copier.watch.read(functools.partial(len, values), len(values), id(values), "length")
        return len(values)

    def __iter__(self) -> Any:
        return (self[at] for at in range(len(self)))


for _name in ("__setitem__", "__delitem__", "clear", "pop", "popitem", "setdefault", "update"):
    setattr(RecordingDict, _name, _writing(dict, _name))
for _name in ("__setitem__", "__delitem__", "append", "clear", "extend", "insert", "pop"):
    setattr(RecordingList, _name, _writing(list, _name))

__all__ = [
    "RecordingDict",
    "RecordingList",
    "RecordingModule",
    "class_of",
    "is_users",
    "object_of",
]
