"""Kernels of programs that are not attention."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from ..pytorch import seam as torch_seam
from .called_by_name import CalledByName, returned
from .kernel import Kernel


class ProgramKernel(CalledByName, Kernel):
    """Called with the program's arguments by name.

    Arrays in CPU memory run in the emulator, arrays on a GPU run there. Outputs that are not given
    are allocated beside the inputs and returned: one array, or a tuple in the program's order.
    Those that the program adds to start as zeros; where they are given, it adds to what they hold.
    A kernel with probes returns that and a dictionary of what they saw.
    """

    def __call__(self, *, stream: Any = None, **arguments: Any) -> Any:
        tensors = self._core.tensors[: len(self._core.tensors) - len(self._probe)]
        every, scalars, made = self._arguments(arguments, tensors, stream)
        probes = self._probe_arrays(every, stream) if self._probe else ()
        self._launch(every + probes, scalars, stream)
        result = returned(made)
        return (result, dict(zip(self._probe, probes, strict=True))) if self._probe else result

    @cached_property
    def _summed(self) -> frozenset[str]:
        return frozenset(self._program._core.added_to)


torch_seam.instead_of(ProgramKernel.__call__, torch_seam.program)
