"""The warning and the progress bar of a run in the emulator."""

from __future__ import annotations

import sys
import warnings
from types import FrameType
from typing import Any

from .. import _core

_LONG = 2.0  # seconds
_told = False


def _frames_to_user() -> int:
    """How far up the stack the first frame outside of this package is, for a warning."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and _is_ours(frame):
        frame, level = frame.f_back, level + 1
    return level


def _is_ours(frame: FrameType) -> bool:
    ours, _, _ = __name__.partition(".")
    return str(frame.f_globals.get("__package__")).partition(".")[0] == ours


class Observer:
    """Of one run that lasts: one warning a process, and a bar on a terminal."""

    def __init__(self) -> None:
        self._bar: Any = None
        self._asked = False

    def show(self, done: int, all_blocks: int, seconds: float) -> None:
        """`done` of `all_blocks` are done after so many seconds."""
        expected = seconds * all_blocks / done if done else None
        if max(seconds, expected or 0.0) < _LONG:
            return
        self._tell(expected)
        if not self._asked:
            self._asked = True
            self._bar = _bar(all_blocks)
        if self._bar is not None:
            self._bar.n = done
            self._bar.refresh()

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()

    def _tell(self, expected: float | None) -> None:
        global _told
        if _told:
            return
        _told = True
        length = "takes a while" if expected is None else f"takes about {expected:.0f} s"
        warnings.warn(
            f"arrays in CPU memory are computed by FlashCore's emulator, which is for correctness "
            f"and not for speed: this call {length}; arrays on a GPU run there",
            stacklevel=_frames_to_user(),
        )


def _bar(all_blocks: int) -> Any:
    """A bar of tqdm on the standard error; None without the one or the other."""
    if sys.stderr is None or not sys.stderr.isatty():
        return None
    try:
        from tqdm import tqdm
    except ImportError:
        return None
    return tqdm(total=all_blocks, desc="flashcore emulator", unit="block", leave=False)


def observe() -> None:
    """Has every run in the emulator that lasts make an Observer."""
    _core.set_emulation_observer(Observer)
