"""Errors that name the line of the user's function: while it is traced, that is where we are."""

from __future__ import annotations

import os
import sys
from types import FrameType, TracebackType

from ..errors import SpecError

_HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_FRAMEWORKS = tuple(
    f"{os.sep}{name}{os.sep}" for name in ("torch", "numpy", "jax", "cupy", "functools.py")
)


def _is_users(path: str) -> bool:
    ours = os.path.abspath(path).startswith(_HERE) or path.startswith("<frozen")
    return not ours and not any(part in path for part in _FRAMEWORKS)


def refusal(title: str, why: str, fix: str) -> SpecError:
    """The error to raise; its place is the innermost line outside FlashCore and frameworks."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not _is_users(frame.f_code.co_filename):
        frame = frame.f_back
    if frame is None:
        return SpecError(title, why, fix)
    return SpecError(title, why, fix, frame.f_code.co_filename, frame.f_lineno)


def refusal_of(title: str, error: Exception, fix: str) -> SpecError:
    """The same for an exception that the function itself met."""
    file, line = "", 0
    step: TracebackType | None = error.__traceback__
    while step is not None:
        if _is_users(step.tb_frame.f_code.co_filename):
            file, line = step.tb_frame.f_code.co_filename, step.tb_lineno
        step = step.tb_next
    return SpecError(title, f"{type(error).__name__}: {error}", fix, file, line)
