"""The schedules for a call: those for few or short sequences differ from those for long ones."""

from __future__ import annotations

import math
from typing import Any

from .. import _core
from ..cache import tuning_table
from ..cache.tuning_table import ANY, Problem
from ..errors import DeviceError, ScheduleError
from ..specs.spec import AttentionSpec


def schedules_for(
    spec: AttentionSpec, target: str, tuned: bool, problem: Problem = ANY
) -> list[str]:
    """The schedules to try for (batch, heads, q_len, kv_len), the best first; unless `tuned` is
    false, the one that the user's searches found before those that ship."""
    texts = _core.attention_schedules(spec.to_json(), target, *problem)
    winner = tuning_table.winner_for(spec, target, problem) if tuned else None
    return texts if winner is None else [winner.to_json(), *texts]


class ScheduleChoice:
    """Chooses for the calls of one kernel, by the user's table of winners as it is at each call."""

    def __init__(self, spec: AttentionSpec, target: str, tuned: bool):
        self._spec = spec
        self._target = target
        self._tuned = tuned
        self._winners: str | None = None  # the table that the chooser was made with
        self._made = 0  # choosers so far
        self._chooser: _core.ScheduleChooser

    def choose(self, problem: Problem) -> tuple[int, int]:
        """Which list of schedules the problem wants; equal for equal lists of one table."""
        winners = tuning_table.text() if self._tuned else ""
        if winners != self._winners:
            self._chooser = self._choosing_by(winners, problem)
            self._winners = winners
            self._made += 1
        return self._made, self._chooser.choose(*problem)

    def schedules(self, chosen: tuple[int, int]) -> list[str]:
        """The list, the best first; of what `choose` returned last."""
        return self._chooser.schedules(chosen[1])

    def _choosing_by(self, winners: str, problem: Problem) -> _core.ScheduleChooser:
        if self._tuned:  # says what is wrong with the table
            tuning_table.winner_for(self._spec, self._target, problem)
        try:
            return _core.ScheduleChooser(self._spec.to_json(), self._target, winners)
        except ScheduleError:  # a table that is left aside
            return _core.ScheduleChooser(self._spec.to_json(), self._target, "")


def problem_of(spec: AttentionSpec, q: Any, k: Any, sequences: int) -> Problem:
    """What a call with these arrays computes; of packed sequences the mean lengths, as how long
    each is only the GPU knows."""
    *batch, a, b, _ = q.shape
    heads, q_len, kv_axis = (a, b, -2) if spec.layout == "bhsd" else (b, a, -3)
    each = [-(-length // max(1, sequences)) for length in (q_len, k.shape[kv_axis])]
    return math.prod(batch) * sequences, heads, each[0], each[1]


def not_compiled(kernel: str, problem: Problem) -> DeviceError:
    """The refusal to compile while a graph is captured."""
    return DeviceError(
        f"{kernel}: the kernel for {problem[2]} query rows and {problem[3]} keys is "
        "not compiled, and the stream is being captured",
        "compiling during the capture of a graph would take a second, and loading code "
        "is not allowed then",
        f"kernel.prepare(lengths={problem[3]}, q_lengths={problem[2]}), or a call with "
        "arrays of these shapes, before the capture begins",
    )


__all__ = ["ScheduleChoice", "not_compiled", "problem_of", "schedules_for"]
