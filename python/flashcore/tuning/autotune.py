"""The best schedule for a spec on this GPU, by measurement."""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import _core, arguments
from ..cache import tuning_table
from ..errors import SpecError
from ..kernels.just_in_time import default_target
from ..specs.schedule import Schedule
from ..specs.spec import AttentionSpec
from .gpu import GpuEvaluator, Shape, machine, problem_of, require_torch
from .log import TuningLog
from .search import Effort, Evaluator, Found, Search, Trial
from .space import Space

TOKENS = 16384  # of a shape, where none are given
LENGTHS = (1024, 4096, 16384)


@dataclass(frozen=True)
class TunedSchedule:
    """What a search found. ``jit(spec, schedule=tuned.schedule)`` makes the kernel."""

    schedule: Schedule
    """The winner; the default, if nothing beat it in every comparison."""
    default: Schedule
    """The one that ships; where it depends on the shape, that of the first. Each shape is compared
    with its own."""
    ratio: float
    """How much faster the winner is than the default: the median of several comparisons, each the
    geometric mean over shapes. 1.0 for the default itself."""
    spread: tuple[float, float]
    """The lowest and the highest of these comparisons."""
    shapes: Sequence[Shape]
    microseconds: Sequence[float]
    """Of the winner, for each shape; empty for the default."""
    default_microseconds: Sequence[float]
    counts: Mapping[str, int]
    """Candidates by outcome: "timed", "refused" (by the resource model) and "same" (source as
    another), which were not compiled, "failed" (to compile within the budget), "wrong",
    "crashed"."""
    wrong: Sequence[tuple[Schedule, str]]
    """Schedules whose results were wrong, and how: each is a bug of FlashCore. Please report it."""
    target: str
    machine: Mapping[str, str]
    written_to: Path | None
    """The table that jit reads the winner from; None if there is none."""

    @property
    def is_default(self) -> bool:
        """Whether nothing beat what ships."""
        return not self.microseconds

    def summary(self) -> str:
        """A few lines for people."""
        counts = ", ".join(f"{count} {outcome}" for outcome, count in self.counts.items())
        lines = [f"{self.target}, {', '.join(self.machine.values())}: {counts}"]
        if self.is_default:
            lines.append("nothing beat the schedule that ships")
        else:
            low, high = self.spread
            lines.append(f"{self.ratio:.3f}x the default's speed ({low:.3f} to {high:.3f})")
            for shape, before, after in zip(
                self.shapes, self.default_microseconds, self.microseconds, strict=True
            ):
                title = "x".join(map(str, shape))
                lines.append(f"  {title}: {before:.1f} us to {after:.1f} us")
            lines.append(f"  {json.dumps(changes(self.default, self.schedule))}")
        for schedule, why in self.wrong:
            lines.append(f"WRONG RESULTS, a bug to report: {why}: {schedule}")
        if self.written_to is not None:
            lines.append(f"written to {self.written_to}")
        return "\n".join(lines)


def changes(default: Schedule, schedule: Schedule) -> dict[str, Any]:
    """The fields in which a schedule differs, as jit takes them."""
    before, after = dataclasses.asdict(default), dataclasses.asdict(schedule)
    return {name: value for name, value in after.items() if value != before[name]}


def default_shapes(spec: AttentionSpec) -> list[Shape]:
    """Short, middling and long sequences of 16,384 tokens in all, or the lengths of the spec."""
    shapes = []
    for length in LENGTHS:
        q_len = spec.q_len or spec.kv_len or length
        batch = spec.batch or max(1, TOKENS // q_len)
        shapes.append((batch, q_len, spec.kv_len or spec.q_len or length))
    return list(dict.fromkeys(shapes))


def _check_shapes(spec: AttentionSpec, shapes: Sequence[Shape]) -> list[Shape]:
    good: list[Shape] = []
    if not isinstance(shapes, (list, tuple)):
        fix = "a list of (batch, q_len, kv_len), as shapes=[(2, 8192, 8192)]"
        raise arguments.refusal("shapes", shapes, "it is no list", fix)
    for shape in shapes:
        is_shape = isinstance(shape, (list, tuple)) and len(shape) == 3
        if not is_shape or not all(isinstance(n, int) and n > 0 for n in shape):
            raise SpecError(
                f"autotune for the shape {shape!r}",
                "it is not three whole numbers above 0",
                "(batch, q_len, kv_len), as in shapes=[(2, 8192, 8192)]",
            )
        for name, given, fixed in zip(
            ("batch", "q_len", "kv_len"), shape, (spec.batch, spec.q_len, spec.kv_len), strict=True
        ):
            if fixed not in (None, given):
                raise SpecError(
                    f"autotune for the shape {tuple(shape)}",
                    f"the spec has {name} = {fixed}",
                    f"{name} = {fixed}, or a spec that leaves it open",
                )
        good.append((shape[0], shape[1], shape[2]))
    if not good:
        raise SpecError("autotune for no shape", "shapes is empty", "shapes=[(2, 8192, 8192)]")
    return good


def autotune(
    spec: AttentionSpec,
    *,
    shapes: Sequence[Shape] | None = None,
    target: str | None = None,
    seconds: float = 60,
    log: str | os.PathLike[str] | None = None,
    progress: bool = True,
    seed: int = 0,
    write: bool | str | os.PathLike[str] = True,
    effort: Effort | None = None,
    evaluator: Evaluator | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> TunedSchedule:
    """Searches for a faster schedule than the one that ships, on the GPU that is here.

    Every candidate is held against the resource model, compiled, checked for right results, and
    timed beside the default on a cold L2 cache. It counts as better only if it wins every one of
    several comparisons at the end. Needs PyTorch with CUDA.

    `shapes` are (batch, q_len, kv_len); what counts is the geometric mean over them. `target` is
    that of the GPU. `seconds` is how long to search, the last comparison included. `log` is a file
    of JSON lines to go on from and to append to: what it holds for the same spec, shapes, GPU,
    driver, compiler and version of FlashCore is not tried again. `write` says where the winner
    goes: True for the table that jit reads (FLASHCORE_SCHEDULES, or schedules.json in the cache
    directory), False for nowhere, or a file. `effort` sets population, rounds and repeats, and
    `seconds` is then the one in it.

    Where the schedules that ship depend on the lengths of a call (sm_90a), the table holds the
    winner for lengths like those of `shapes` only: search for one shape at a time. Elsewhere it
    holds it for all.

    `evaluator` and `clock` stand in for the GPU and the time in tests.

    Raises SpecError for shapes that the spec cannot have, DeviceError without PyTorch or the GPU
    and when a kernel crashes (a new process with the same log goes on without that schedule),
    CacheError for a log or table that cannot be read or written, and what :func:`jit` raises if no
    schedule that ships compiles.
    """
    if not isinstance(spec, AttentionSpec):
        why = "a search is for the schedules of attention, that of an AttentionSpec"
        fix = "autotune(spec), or jit(program, schedule=...) for schedules of a program of your own"
        raise arguments.refusal("what autotune is given", spec, why, fix)
    if spec.page_size is not None:
        raise SpecError(
            f"autotune of a spec with page_size = {spec.page_size}",
            "a search makes keys that are contiguous",
            "the cost model's choice, which kernels have without a search",
        )
    target = default_target() if target is None else arguments.target_name(target)
    seconds = arguments.number("seconds", seconds, "how long to search, as seconds=60")
    seed = arguments.whole("seed", seed, "a whole number; 0 unless given")
    progress = arguments.flag("progress", progress)
    if log is not None:
        log = arguments.path("log", log, "a file of JSON lines, or None")
    if effort is not None and not isinstance(effort, Effort):
        raise arguments.refusal("effort", effort, "it is no Effort", "None, or Effort(seconds=60)")
    shapes = _check_shapes(spec, default_shapes(spec) if shapes is None else shapes)
    if reasons := spec.why_not(target):
        raise SpecError(
            f"autotune for {target}", "; ".join(reasons), "a spec that this target can run"
        )
    effort = effort or Effort(seconds=seconds)
    table = _table(write)
    if evaluator is None:
        here = machine(require_torch(target))
        evaluator = GpuEvaluator(spec, target, shapes, seed)
    else:
        here = {"gpu": "none"}
    problems = [problem_of(spec, shape) for shape in shapes]
    shipped = [
        Schedule.from_json(_core.attention_schedules(spec.to_json(), target, *problem)[0])
        for problem in problems
    ]
    space = Space(spec, target)
    # Another version generates other code, and ratios are to the default.
    code = hashlib.sha256("".join(space.text(s) or "" for s in shipped).encode()).hexdigest()[:16]
    problem = {
        "spec": json.loads(spec.to_json()),
        "shapes": shapes,
        "target": target,
        **here,
        "default_code": code,
    }
    with _Progress(effort.seconds, progress) as shown:
        search = Search(
            space,
            evaluator,
            shipped,
            effort,
            TuningLog(log, problem),
            seed,
            clock,
            shown.update,
        )
        found = search.run()
    if _core.schedules_depend_on_problems(target):
        keys = [tuning_table.key_for(spec, target, problem) for problem in problems]
    else:
        keys = [tuning_table.key_for(spec, target)]
    return _result(found, shipped[0], target, shapes, here, table, keys)


def _table(write: bool | str | os.PathLike[str]) -> Path | None:
    """Where the winner goes; refused before the search rather than after it."""
    if not isinstance(write, bool):
        return Path(arguments.path("write", write, "True, False, or the file of a table"))
    return tuning_table.user_file() if write else None


def _result(
    found: Found,
    default: Schedule,
    target: str,
    shapes: Sequence[Shape],
    here: Mapping[str, str],
    table: Path | None,
    keys: Sequence[Mapping[str, Any]],
) -> TunedSchedule:
    best = found.best
    if best is not None and table is not None:
        measured = {
            **here,
            "date": datetime.date.today().isoformat(),
            "shapes": [list(shape) for shape in shapes],
            "ratio": round(best.ratio, 4),
            "spread": [round(min(best.ratios), 4), round(max(best.ratios), 4)],
            "microseconds": [round(t, 2) for t in best.microseconds],
            "default_microseconds": [round(t, 2) for t in best.default_microseconds],
        }
        tuning_table.write(table, keys, best.schedule, measured)
    return TunedSchedule(
        schedule=best.schedule if best else default,
        default=default,
        ratio=best.ratio if best else 1.0,
        spread=(min(best.ratios), max(best.ratios)) if best else (1.0, 1.0),
        shapes=shapes,
        microseconds=best.microseconds if best else (),
        default_microseconds=best.default_microseconds if best else (),
        counts=dict(found.counts),
        wrong=[(trial.schedule, trial.why) for trial in found.wrong],
        target=target,
        machine=here,
        written_to=table if best else None,
    )


class _Progress:
    """A bar of tqdm over the time; without tqdm, a line now and then."""

    def __init__(self, seconds: float, shown: bool):
        self._bar: Any = None
        self._shown = shown
        self._next_line = 0.0
        if not shown:
            return
        try:
            from tqdm import tqdm
        except ImportError:
            return
        self._bar = tqdm(
            total=round(seconds),
            bar_format="{desc} |{bar}| {n:.0f}/{total} s",
            dynamic_ncols=True,
        )

    def __enter__(self) -> _Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def update(self, search: Search, trial: Trial | None) -> None:
        if not self._shown:
            return
        if trial is not None and trial.outcome == "wrong":
            self._line(f"WRONG RESULTS, a bug to report: {trial.why}: {trial.schedule}")
        best = search.best
        counts = ", ".join(f"{count} {outcome}" for outcome, count in search.counts.items())
        text = f"best {best.ratio:.3f}x; {counts}" if best else counts
        if self._bar is not None:
            self._bar.n = min(search.elapsed, self._bar.total)
            self._bar.set_description_str(text)
        elif search.elapsed >= self._next_line:
            self._next_line = search.elapsed + 5
            self._line(f"{search.elapsed:.0f} s: {text}")

    def _line(self, text: str) -> None:
        if self._bar is not None:
            self._bar.write(text, file=sys.stderr)
        else:
            print(text, file=sys.stderr, flush=True)


__all__ = ["TunedSchedule", "autotune", "changes", "default_shapes"]
