"""Modules: several programs that one call runs one after another."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from .. import _core, arguments
from ..errors import ScheduleError
from .program import Program
from .schedule import Schedule


class Module:
    """Programs in the order of their launches, which share tensors and scalars by name.

    An output of one program is the input of that name of those behind it. A workspace is such a
    tensor that callers do not pass: every call allocates it, and what it holds before a program
    writes it is undefined. `numbers` are computed by every launch: lengths that only workspaces
    have, or i32 scalars of the programs, as expressions of whole numbers in the language of masks,
    of the named extents of the module's arguments, its i32 scalars, numbers in front, and
    `multiprocessors`, those of the GPU. Each tensor is stored by one program, but those of
    `several_writers`, to other elements of which each program stores.
    """

    def __init__(
        self,
        name: str,
        programs: Sequence[Program],
        workspaces: Sequence[str] = (),
        numbers: Mapping[str, str] | None = None,
        several_writers: Sequence[str] = (),
    ):
        """Raises SpecError with the first reason that the programs do not fit together."""
        if not arguments.is_text(name):
            fix = 'a name such as "attention_backward"'
            raise arguments.refusal("the name of a module", name, "it is no text", fix)
        for program in programs:
            if not isinstance(program, Program):
                fix = "flashcore.Program(text), or programs of flashcore.load(library)"
                raise arguments.refusal(f"a program of {name}", program, "it is none", fix)
        wanted = list(arguments.names("workspaces", workspaces))
        pairs = [(key, str(text)) for key, text in (numbers or {}).items()]
        shared = list(arguments.names("several_writers", several_writers))
        cores = [program._core for program in programs]
        self._core = _core.Module(name, cores, wanted, pairs, shared)
        self._programs = tuple(programs)

    @classmethod
    def parse(
        cls, text: str, schedules: Callable[[str], Sequence[Schedule]] | None = None
    ) -> Module:
        """The module of a text; `schedules` gives those of a target, one a program."""
        module = cls._of(_core.Module.parse(text))
        if schedules is not None:
            for at, program in enumerate(module._programs):
                program._schedule = _nth(schedules, at)
        return module

    @classmethod
    def _of(cls, core: _core.Module) -> Module:
        module = cls.__new__(cls)
        module._core = core
        module._programs = tuple(Program._of(program) for program in core.kernels)
        return module

    def _place(self, places: Sequence[list[tuple[str, int]]]) -> None:
        """Has errors name the lines where the operations of each program were written."""
        for program, own in zip(self._programs, places, strict=False):
            program._core = _core.Program(program.text, own)

    @property
    def name(self) -> str:
        return self._core.name

    @property
    def programs(self) -> tuple[Program, ...]:
        return self._programs

    @property
    def workspaces(self) -> tuple[str, ...]:
        return tuple(self._core.workspaces)

    @property
    def numbers(self) -> dict[str, str]:
        return self._core.numbers

    @property
    def several_writers(self) -> tuple[str, ...]:
        return tuple(self._core.several_writers)

    @property
    def text(self) -> str:
        """What :meth:`parse` reads."""
        return self._core.text

    def __repr__(self) -> str:
        names = ", ".join(program.name for program in self._programs)
        return f"<flashcore.Module {self.name}: {names}>"


def _nth(schedules: Callable[[str], Sequence[Schedule]], at: int) -> Callable[[str], Schedule]:
    def schedule(target: str) -> Schedule:
        found = schedules(target)
        if at >= len(found):
            raise ScheduleError(
                f"schedules of a module for {target}",
                f"there are {len(found)}, and program {at} has none",
                "one schedule a program, in their order",
            )
        return found[at]

    return schedule


__all__ = ["Module"]
