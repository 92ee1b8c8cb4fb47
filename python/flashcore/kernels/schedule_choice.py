"""The schedules for a call: those for few or short sequences differ from those for long ones."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .. import _core
from ..arguments import whole
from ..cache import tuning_table
from ..cache.tuning_table import ANY, Problem
from ..errors import DeviceError
from ..specs.spec import AttentionSpec
from .copies import allocate_bytes
from .shapes import Fitting

if TYPE_CHECKING:
    from .attention_variants import AttentionVariants


def schedules_for(
    spec: AttentionSpec, target: str, tuned: bool, problem: Problem = ANY
) -> list[str]:
    """The schedules to try for (batch, heads, q_len, kv_len), the best first; unless `tuned` is
    false, the one that the user's searches found before those that ship."""
    texts = _core.attention_schedules(spec.to_json(), target, *problem)
    winner = tuning_table.winner_for(spec, target, problem) if tuned else None
    return texts if winner is None else [winner.to_json(), *texts]


def explain_choice(spec: AttentionSpec, target: str, sizes: Mapping[str, int | None]) -> str:
    """Why a call of these sizes gets its schedule; empty if none is given."""
    given = {
        name: whole(name, size, "a number, as 16")
        for name, size in sizes.items()
        if size is not None
    }
    if not given:
        return ""
    q_len = given.get("q_len", given.get("kv_len", 0))
    problem = given.get("batch", 0), given.get("heads", 0), q_len, given.get("kv_len", q_len)
    longest = given.get("max_q_len", q_len if spec.layout == "thd" else 0)
    return _core.explain_choice(spec.to_json(), target, problem, longest)


class Dispatch:
    """How the calls of a kernel find what they launch. `core` does it, by the user's table of
    winners as `look_at_winners` saw it last, and is launched as the core of one kernel is."""

    def __init__(
        self,
        home: AttentionVariants,
        fitting: Fitting,
        *,
        schedules: bool,
        tuned: bool,
        alternatives: bool,
    ):
        """What calls choose: their schedule, by the user's winners too, and whether several kernels
        run in place of one."""
        self._tuned = tuned
        self.core = _core.KernelDispatch(
            home._core,
            home.spec.to_json(),
            schedules,
            tuned,
            alternatives,
            fitting.rules,
            allocate_bytes,
        )
        self.name = home.name
        self.launch = self.core.launch
        self._home = home

    @property
    def tensors(self) -> list[tuple[str, str, bool, tuple[int | str, ...]]]:
        """Those of every kernel that calls come to."""
        return self._home._core.tensors

    def look_at_winners(self) -> None:
        """The table may be another than at the last call."""
        if not self.core.dispatches or not self.core.asks_for_winners():
            return
        table = tuning_table.text() if self._tuned else ""
        if self.core.take_winners(table) and self._tuned:  # says what is wrong with the table
            tuning_table.winner_for(self._home.spec, self._home.target)


def problem_of(
    spec: AttentionSpec, q: Any, k: Any, sequences: int, page_table: Any = None
) -> Problem:
    """What a call with these arrays computes; of packed sequences the mean lengths, as how long
    each is only the GPU knows, and of pages as many keys as the table has room for."""
    *batch, a, b, _ = q.shape
    heads, q_len, kv_axis = (a, b, -2) if spec.layout == "bhsd" else (b, a, -3)
    keys = k.shape[kv_axis] if page_table is None else 0
    each = [-(-length // max(1, sequences)) for length in (q_len, keys)]
    if page_table is not None:
        each[1] = page_table.shape[1] * (spec.page_size or 0)
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


__all__ = ["Dispatch", "explain_choice", "not_compiled", "problem_of", "schedules_for"]
