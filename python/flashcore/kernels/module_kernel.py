"""Kernels of a module, launched by one call."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import TYPE_CHECKING, Any

from .. import _core
from ..arguments import whole
from ..errors import CompileError, ScheduleError
from ..pytorch import seam as torch_seam
from ..specs.module import Module
from ..specs.program import Program
from ..specs.schedule import Schedule
from .called_by_name import CalledByName, returned
from .copies import allocate_bytes
from .program_kernel import ProgramKernel

if TYPE_CHECKING:
    from .._core import Kernel as CoreKernel


class ModuleKernel(CalledByName):
    """Called with the module's arguments by name: runs all its kernels, one after another on one
    stream.

    Arrays in CPU memory run in the emulator, arrays on a GPU run there. Outputs that are not given
    are allocated beside the inputs and returned: one array, or a tuple in the module's order.
    Those that the module adds to, without a kernel in front that stores there, start as zeros;
    where they are given, it adds to what they hold. Workspaces are allocated by every call, in the
    arrays' framework; a CUDA graph that captures one keeps them.
    """

    _core: _core.ModuleKernels

    def __init__(self, module: Module, kernels: Sequence[ProgramKernel], target: str):
        self._module = module
        self._kernels = tuple(kernels)
        self._target = target
        self._core = _core.ModuleKernels(module._core, [kernel._core for kernel in kernels])

    @classmethod
    def first_fitting(
        cls, module: Module, schedules: Sequence[Sequence[Schedule]], target: str, compiled: bool
    ) -> ModuleKernel:
        """Each kernel under the first of its schedules that can run, and, compiled, whose code does
        not spill. The kernels are compiled beside each other."""

        def build(of: tuple[Program, Sequence[Schedule]]) -> ProgramKernel:
            return _first_fitting(*of, target, compiled)

        with ThreadPoolExecutor(len(module.programs)) as pool:
            kernels = list(pool.map(build, zip(module.programs, schedules, strict=True)))
        return cls(module, kernels, target)

    @classmethod
    def of_cores(cls, module: Module, cores: Sequence[CoreKernel], target: str) -> ModuleKernel:
        """Of kernels that are built."""
        kernels = [
            ProgramKernel(program, Schedule.from_json(core.schedule), target, core=core)
            for program, core in zip(module.programs, cores, strict=True)
        ]
        return cls(module, kernels, target)

    def __call__(self, *, stream: Any = None, **arguments: Any) -> Any:
        arrays, scalars, made = self._arguments(arguments, self.tensors, stream)
        self.launch(arrays, scalars, stream)
        return returned(made)

    @cached_property
    def _summed(self) -> frozenset[str]:
        return frozenset(self._module._core.added_to)

    def launch(self, arrays: tuple[Any, ...], scalars: tuple[Any, ...], stream: Any) -> None:
        """A call with all arrays and scalars, outputs included, in the order of `tensors` and of
        the module's scalars."""
        self._core.launch(arrays, scalars, stream, allocate_bytes)

    def numbers(self, **arguments: Any) -> dict[str, int]:
        """The numbers that a call with these arguments computes, by name."""
        arrays, scalars, _ = self._arguments(arguments, self.tensors)
        return self._core.numbers(arrays, scalars)

    def compile(self) -> None:
        """Compiles all kernels now rather than at the first launch. Needs no GPU."""
        for kernel in self._kernels:
            kernel.compile()

    def prepare(self, device: int = 0) -> None:
        """Loads the code of all kernels on a GPU now, so that the first call can be captured into a
        graph. Raises DeviceError and CompileError."""
        number = whole("device of prepare", device, "the number of a GPU, from 0 on")
        for kernel in self._kernels:
            kernel.prepare(number)

    @property
    def name(self) -> str:
        return self._core.name

    @property
    def tensors(self) -> list[tuple[str, str, bool, tuple[int | str, ...]]]:
        """(name, dtype, whether it is an output, dimensions) of each argument, in order."""
        return self._core.tensors

    @property
    def scalars(self) -> list[tuple[str, str, bool]]:
        """(name, dtype, whether it has to be positive) of each scalar argument, in order."""
        return self._core.scalars

    @cached_property
    def argument_names(self) -> tuple[list[str], list[str]]:
        """Those of the arrays and of the scalars, in order."""
        return [name for name, *_ in self.tensors], [name for name, *_ in self.scalars]

    @property
    def module(self) -> Module:
        return self._module

    @property
    def kernels(self) -> tuple[ProgramKernel, ...]:
        """In the order of their launches: source, machine code and schedule of each."""
        return self._kernels

    @property
    def target(self) -> str:
        return self._target

    def explain(self) -> str:
        """What code generation derived for each kernel, under its name."""
        parts = [f"{kernel.name}\n{kernel.explain()}" for kernel in self._kernels]
        return "\n".join(parts)

    def __repr__(self) -> str:
        return f"<flashcore.ModuleKernel {self.name} for {self.target}>"


def _first_fitting(
    program: Program, schedules: Sequence[Schedule], target: str, compiled: bool
) -> ProgramKernel:
    refusal: CompileError | ScheduleError | None = None
    for schedule in schedules:
        try:
            kernel = ProgramKernel(program, schedule, target)
            if compiled:
                kernel.compile()
        except (CompileError, ScheduleError) as error:
            refusal = refusal or error
        else:
            return kernel
    assert refusal is not None
    raise refusal


torch_seam.instead_of(ModuleKernel.__call__, torch_seam.program)

__all__ = ["ModuleKernel"]
