"""Kernels of programs that are not attention."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..arguments import described
from ..arrays import empty
from ..errors import DeviceError
from ..pytorch import seam as torch_seam
from ..pytorch.tensors import is_watched
from .kernel import Kernel


class ProgramKernel(Kernel):
    """Called with the program's arguments by name.

    Arrays in CPU memory run in the emulator, arrays on a GPU run there. Outputs that are not given
    are allocated beside the inputs and returned: one array, or a tuple in the program's order. A
    kernel with probes returns that and a dictionary of what they saw.
    """

    def __call__(self, *, stream: Any = None, **arguments: Any) -> Any:
        scalars = tuple(self._take(arguments, name) for name, _, _ in self._core.scalars)
        extents: dict[str, int] = {}
        tensors = self._core.tensors[: len(self._core.tensors) - len(self._probe)]
        arrays: dict[str, Any] = {}
        for name, _, output, dims in tensors:
            if output and arguments.get(name) is None:
                arguments.pop(name, None)
                continue
            arrays[name] = self._take(arguments, name)
            try:
                shape = arrays[name].shape
            except AttributeError:
                given = described(arrays[name])
                raise self._refusal(f"takes an array for {name}, which is {given}") from None
            for extent, size in zip(dims, shape, strict=False):
                if isinstance(extent, str):
                    extents.setdefault(extent, size)
        if arguments:
            raise self._refusal(f"takes no {', '.join(arguments)}")
        if any(is_watched(array) for array in arrays.values()):
            raise self._refusal("computes, and torch only watches: it exports, or fakes tensors")
        made = []
        for name, dtype, _, dims in tensors:
            if name not in arrays:
                shape = [self._size(name, dim, extents) for dim in dims]
                arrays[name] = empty(next(iter(arrays.values())), shape, dtype)
                made.append(arrays[name])
        every = tuple(arrays[tensor[0]] for tensor in tensors)
        probes = self._probe_arrays(every, stream) if self._probe else ()
        self._launch(every + probes, scalars, stream)
        result = made[0] if len(made) == 1 else tuple(made) if made else None
        return (result, dict(zip(self._probe, probes, strict=True))) if self._probe else result

    def _take(self, arguments: dict[str, Any], name: str) -> Any:
        if name not in arguments:
            raise self._refusal(f"needs {name}")
        return arguments.pop(name)

    def _size(self, name: str, dim: int | str, extents: Mapping[str, int]) -> int:
        if isinstance(dim, int):
            return dim
        if dim not in extents:
            raise self._refusal(f"cannot allocate {name}: no input carries its length {dim}")
        return extents[dim]

    def _refusal(self, why: str) -> DeviceError:
        scalars = [f"{name}: {dtype}" for name, dtype, _ in self._core.scalars]
        tensors = [
            f"{name}: {dtype}[{', '.join(map(str, dims))}]{' (output)' if output else ''}"
            for name, dtype, output, dims in self._core.tensors
        ]
        return DeviceError(
            f"calling {self.name}", f"it {why}", f"its arguments are {', '.join(tensors + scalars)}"
        )


torch_seam.instead_of(ProgramKernel.__call__, torch_seam.program)
