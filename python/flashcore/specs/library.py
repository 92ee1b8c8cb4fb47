"""Programs and modules that a shared library of C++ declares."""

from __future__ import annotations

import ctypes
import json
import operator
import os
from collections.abc import Callable
from typing import Any

from .. import _core, arguments, errors
from ..errors import SpecError
from ..host import host_library
from .module import Module
from .program import Program
from .schedule import Schedule

_Answer = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)


class Library:
    """Programs and modules that a shared library, or the source of one, offers through
    FLASHCORE_EXPORT_PROGRAM and FLASHCORE_EXPORT_MODULE, as attributes."""

    def __init__(self, path: str | os.PathLike[str]):
        fix = "programs in C++, as ./mine.cpp, or a shared library of them, as ./libmine.so"
        name = arguments.path("the library", path, fix)
        self._path = os.path.abspath(name)
        why, fix = _unloadable(self._path)
        if not why:
            if self._path.endswith(host_library.SOURCES):
                self._library = host_library.open_source(self._path)
                return
            try:
                self._library = ctypes.CDLL(self._path)
                return
            except OSError as error:
                why = str(error).removeprefix(f"{self._path}: ")
        raise SpecError(f"the library {self._path}", why, fix)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            function = self._library[f"flashcore_program_{name}"]
        except (AttributeError, UnicodeEncodeError):
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

        def build(**options: Any) -> Program | Module:
            given = json.dumps(options, default=_as_json).encode()
            answer = ask(given, None)
            # Errors of later name the author's line; a library built before says none.
            places = answer.get("places", ())
            if "module" in answer:
                module = Module.parse(
                    answer["module"], lambda target: _schedules(ask(given, target), "schedules")
                )
                module._place([[(file, line) for file, line in own] for own in places])
                return module

            def schedule_for(target: str) -> Schedule:
                found = ask(given, target)
                if "schedule" not in found:
                    return Program(found["program"]).schedule_for(target)
                return _schedule(found["schedule"])

            program = Program(answer["program"], schedule_for)
            program._core = _core.Program(answer["program"], [(f, line) for f, line in places])
            return program

        build.__name__ = name
        return build

    def __repr__(self) -> str:
        return f"<flashcore.Library {self._path}>"


def _schedule(fields: dict[str, Any]) -> Schedule:
    return Schedule.from_json(json.dumps(fields))


def _schedules(answer: dict[str, Any], name: str) -> list[Schedule]:
    return [_schedule(fields) for fields in answer.get(name, ())]


def _unloadable(path: str) -> tuple[str, str]:
    """Why a path is no library, if that can be told from outside, and what would work."""
    if os.path.isdir(path):
        return "it is a directory", "a file in it, as mine.cpp or libmine.so"
    if not os.path.exists(path):
        offered = (".so", *host_library.SOURCES)
        near = [name for name in _names_beside(path) if any(end in name for end in offered)]
        close = arguments.nearest(os.path.basename(path), near)
        return "there is no such file", f"{close}the path of programs in C++, or of their library"
    if path.endswith(host_library.SOURCES):
        return "", ""
    if path.endswith(".h"):
        return "it is a header", "the source that includes it, as mine.cpp"
    with open(path, "rb") as file:
        if file.read(4) != b"\x7fELF":
            return "it is a file, but no shared library", "a library built with g++ -shared -fPIC"
    return "", "build the library for this machine, with what it is linked to beside it"


def _names_beside(path: str) -> list[str]:
    try:
        return os.listdir(os.path.dirname(path))
    except OSError:
        return []


def _as_json(value: Any) -> Any:
    """An argument of a program: numbers of other libraries are numbers, dtypes their names."""
    try:
        return operator.index(value)
    except TypeError:
        return str(value)


def load(path: str | os.PathLike[str]) -> Library:
    """Opens programs in C++: ``load("mine.cpp").my_attention(head_dim=64)``.

    A source file is compiled by the host's C++ compiler ($FLASHCORE_CXX, or c++ on PATH), with what
    it includes; unchanged ones once for all processes, and changed ones anew at the next load. A
    shared library that was built elsewhere, as ``libmine.so``, is loaded as it is. Raises SpecError
    for a file that is neither, and CompileError with the line that does not compile.
    """
    return Library(path)
