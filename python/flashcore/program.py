"""Tile programs: their text, and those that a shared library of C++ declares."""

from __future__ import annotations

import ctypes
import json
import os
from collections.abc import Callable, Sequence
from typing import Any

from . import _core, errors
from .errors import ScheduleError, SpecError
from .schedule import Schedule

_Answer = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)


class Program:
    """What a kernel computes, as the text form of the tile IR."""

    def __init__(self, text: str, schedule: Callable[[str], Schedule] | None = None):
        """Checks the text; raises SpecError with the line that does not parse or verify."""
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
        program = Program._of(self._core.with_probes(list(names)))
        program._schedule = self._schedule
        return program

    def schedule_for(self, target: str) -> Schedule:
        """The schedule that ships with the program; raises ScheduleError where there is none."""
        if self._schedule is None:
            raise ScheduleError(
                f"{self.name} has no schedule for {target}",
                "the program came without one",
                "pass jit(..., schedule=flashcore.Schedule(tiles={...})) with an entry for each of "
                + ", ".join(self._core.tiled_axes),
            )
        return self._schedule(target)

    def __repr__(self) -> str:
        return f"<flashcore.Program {self.name}>"


class Library:
    """Programs that a shared library offers through FLASHCORE_EXPORT_PROGRAM, as attributes."""

    def __init__(self, path: str | os.PathLike[str]):
        self._path = os.path.abspath(path)
        try:
            self._library = ctypes.CDLL(self._path)
        except OSError as error:
            raise SpecError(
                f"cannot load {self._path}", str(error), "build the library for this machine"
            ) from None

    def __getattr__(self, name: str) -> Callable[..., Program]:
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            function = self._library[f"flashcore_program_{name}"]
        except AttributeError:
            raise AttributeError(
                f"{self._path} offers no program {name}; "
                f"is FLASHCORE_EXPORT_PROGRAM({name}) in its source?"
            ) from None
        function.restype = None
        function.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_void_p, _Answer]

        def ask(arguments: bytes, target: str | None) -> dict[str, Any]:
            answers: list[bytes] = []
            collect = _Answer(lambda _, text, size: answers.append(ctypes.string_at(text, size)))
            function(arguments, target.encode() if target else None, None, collect)
            answer: dict[str, Any] = json.loads(answers[0])
            if "error" in answer:
                kind = getattr(errors, answer.pop("error"))
                raise kind(**answer)
            return answer

        def build(**arguments: Any) -> Program:
            given = json.dumps(arguments, default=str).encode()
            answer = ask(given, None)

            def schedule_for(target: str) -> Schedule:
                found = ask(given, target)
                if "schedule" not in found:
                    return Program(found["program"]).schedule_for(target)
                return Schedule.from_json(json.dumps(found["schedule"]))

            return Program(answer["program"], schedule_for)

        build.__name__ = name
        return build

    def __repr__(self) -> str:
        return f"<flashcore.Library {self._path}>"


def load(path: str | os.PathLike[str]) -> Library:
    """Opens a shared library of programs: ``load("libmine.so").my_attention(head_dim=64)``."""
    return Library(path)
