"""Tile programs, by their text."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .. import _core, arguments
from ..errors import ScheduleError
from .schedule import Schedule


class Program:
    """What a kernel computes, as the text form of the tile IR."""

    def __init__(self, text: str, schedule: Callable[[str], Schedule] | None = None):
        """Checks the text; raises SpecError with the line that does not parse or verify."""
        if not arguments.is_text(text):
            fix = "its text, or flashcore.load(library) for programs in C++"
            raise arguments.refusal("the program", text, "it is no text", fix)
        if schedule is not None and not callable(schedule):
            fix = (
                "schedule=lambda target: flashcore.Schedule(tiles={...}), or jit(..., schedule=...)"
            )
            raise arguments.refusal("schedule", schedule, "it is no function of a target", fix)
        self._core = _core.Program(text)
        self._schedule = schedule

    @classmethod
    def _of(cls, core: _core.Program) -> Program:
        program = cls.__new__(cls)
        program._core = core
        program._schedule = None
        return program

    @property
    def name(self) -> str:
        return self._core.name

    @property
    def text(self) -> str:
        return self._core.text

    def with_probes(self, names: Sequence[str]) -> Program:
        """The program that also stores the values of these names, in outputs `probe_<name>`."""
        probes = list(arguments.names("probe", names))
        program = Program._of(self._core.with_probes(probes))
        program._schedule = self._schedule
        return program

    def schedule_for(self, target: str) -> Schedule:
        """The schedule that ships with the program; raises ScheduleError where there is none."""
        target = arguments.target_name(target)
        if self._schedule is None:
            raise ScheduleError(
                f"{self.name} has no schedule for {target}",
                "the program came without one",
                "pass jit(..., schedule=flashcore.Schedule(tiles={...})) with an entry for each of "
                + ", ".join(self._core.tiled_axes),
            )
        found = self._schedule(target)
        if not isinstance(found, Schedule):
            fix = "a function of a target that returns a flashcore.Schedule"
            raise arguments.refusal(
                f"the schedule of {self.name}", found, "it is no schedule", fix, ScheduleError
            )
        return found

    def __repr__(self) -> str:
        return f"<flashcore.Program {self.name}>"
