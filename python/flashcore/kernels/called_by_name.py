"""Calls with arguments by name, for what is no attention: programs and modules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from ..arguments import described
from ..arrays import empty, full
from ..errors import DeviceError
from ..pytorch.tensors import is_watched
from .copies import on_stream


class CalledByName:
    """What a program or a module takes, and a launch of it."""

    # With `tensors`, `scalars` and `name`.
    _core: Any

    @cached_property
    def _summed(self) -> frozenset[str]:
        """The outputs that a launch adds to: those that a call makes start as zeros."""
        return frozenset()

    def _arguments(
        self, given: Mapping[str, Any], tensors: Sequence[Any], stream: Any = None
    ) -> tuple[tuple[Any, ...], tuple[Any, ...], list[Any]]:
        """Arrays and scalars in the program's order, and of the arrays those made here: outputs
        that are not given, of which zeros are written on the stream of the launch."""
        arguments = dict(given)
        scalars = tuple(self._take(arguments, name) for name, _, _ in self._core.scalars)
        extents: dict[str, int] = {}
        arrays: dict[str, Any] = {}
        for name, _, output, dims in tensors:
            if output and arguments.get(name) is None:
                arguments.pop(name, None)
                continue
            arrays[name] = self._take(arguments, name)
            try:
                shape = arrays[name].shape
            except AttributeError:
                what = described(arrays[name])
                raise self._refusal(f"takes an array for {name}, which is {what}") from None
            for extent, size in zip(dims, shape, strict=False):
                if isinstance(extent, str):
                    named, more = _parts(extent)
                    extents.setdefault(named, size - more)
        if arguments:
            raise self._refusal(f"takes no {', '.join(arguments)}")
        if any(is_watched(array) for array in arrays.values()):
            raise self._refusal("computes, and torch only watches: it exports, or fakes tensors")
        made = []
        for name, dtype, _, dims in tensors:
            if name not in arrays:
                shape = [self._size(name, dim, extents) for dim in dims]
                like = next(iter(arrays.values()))
                if name in self._summed:
                    with on_stream(like, stream):
                        arrays[name] = full(like, shape, dtype, 0)
                else:
                    arrays[name] = empty(like, shape, dtype)
                made.append(arrays[name])
        return tuple(arrays[tensor[0]] for tensor in tensors), scalars, made

    def _take(self, arguments: dict[str, Any], name: str) -> Any:
        if name not in arguments:
            raise self._refusal(f"needs {name}")
        return arguments.pop(name)

    def _size(self, name: str, dim: int | str, extents: Mapping[str, int]) -> int:
        if isinstance(dim, int):
            return dim
        named, more = _parts(dim)
        if named not in extents:
            raise self._refusal(f"cannot allocate {name}: no input carries its length {named}")
        return extents[named] + more

    def _refusal(self, why: str) -> DeviceError:
        scalars = [f"{name}: {dtype}" for name, dtype, _ in self._core.scalars]
        tensors = [
            f"{name}: {dtype}[{', '.join(map(str, dims))}]{' (output)' if output else ''}"
            for name, dtype, output, dims in self._core.tensors
        ]
        return DeviceError(
            f"calling {self._core.name}",
            f"it {why}",
            f"its arguments are {', '.join(tensors + scalars)}",
        )


def _parts(extent: str) -> tuple[str, int]:
    """The name of an extent such as "B + 1", and how much longer it is."""
    named, _, more = extent.partition(" + ")
    return named, int(more or 0)


def returned(made: Sequence[Any]) -> Any:
    """What a call returns of the outputs that it made: one array, or a tuple, or nothing."""
    return made[0] if len(made) == 1 else tuple(made) if made else None


__all__ = ["CalledByName", "returned"]
