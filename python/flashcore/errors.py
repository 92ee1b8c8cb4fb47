"""The one exception family.

Every message says what failed, where, why with the numbers, and what would work. The parts are
attributes, so that a program need not read the text.
"""

from __future__ import annotations


class Error(Exception):
    """Base of everything FlashCore raises on purpose."""

    def __init__(self, what: str, why: str = "", fix: str = "", file: str = "", line: int = 0):
        text = what
        if line > 0:
            text += f"\n  at:  {file}:{line}"
        if why:
            text += f"\n  why: {why}"
        if fix:
            text += f"\n  try: {fix}"
        super().__init__(text)
        self.what = what
        self.why = why
        self.fix = fix
        self.file = file
        self.line = line

    def __reduce__(self) -> tuple[type[Error], tuple[str, str, str, str, int]]:
        return type(self), (self.what, self.why, self.fix, self.file, self.line)


class SpecError(Error, ValueError):
    """A program, an attention spec or an argument that cannot be as it is."""


class ScheduleError(Error, ValueError):
    """A schedule that the program or the target cannot run."""


class CompileError(Error, RuntimeError):
    """A compiler that is missing or refuses, or a kernel over its budget."""


class CacheMissError(CompileError):
    """A kernel that is not in the cache where nothing may be compiled; `why` says of every place
    that was looked into why it did not help."""


class CacheError(Error, RuntimeError):
    """A cache directory that cannot serve an explicit request."""


class DeviceError(Error, RuntimeError):
    """The driver, the GPU, or the arrays given to a launch."""


class LayoutError(DeviceError):
    """An array that a kernel cannot address where it lies in memory; a copy of it would do."""

    tensor = 0
    """Which of the launch's arrays."""


class InternalError(Error, RuntimeError):
    """A bug in FlashCore itself; the message asks for a report."""
