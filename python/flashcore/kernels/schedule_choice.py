"""Which schedules a call wants: short sequences, and few of them, others than long ones."""

from __future__ import annotations

import math
from typing import Any

from .. import _core
from ..cache import tuning_table
from ..cache.tuning_table import ANY, Problem
from ..errors import DeviceError
from ..specs.spec import AttentionSpec


def schedules_for(
    spec: AttentionSpec, target: str, tuned: bool, problem: Problem = ANY
) -> list[str]:
    """The schedules to try for (batch, heads, q_len, kv_len), the best first; unless `tuned` is
    false, the one that the user's searches found before those that ship."""
    texts = _core.attention_schedules(spec.to_json(), target, *problem)
    winner = tuning_table.winner_for(spec, target, problem) if tuned else None
    return texts if winner is None else [winner.to_json(), *texts]


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


__all__ = ["not_compiled", "problem_of", "schedules_for"]
