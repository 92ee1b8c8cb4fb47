"""An evolutionary search over schedules. It knows nothing of GPUs: an Evaluator does.

Every generation breeds candidates from the best so far, leaves out what the resource model refuses
and what has been seen, compiles the rest in parallel, checks their results, and times them beside
the default: all of them briefly, the better ones longer. All randomness comes from one seed, so
equal timings make equal searches.
"""

from __future__ import annotations

import hashlib
import math
import os
import random
import statistics
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Protocol

from ..errors import CompileError, DeviceError, InternalError, ScheduleError
from ..specs.schedule import Schedule
from .log import RIGHT, STARTED, TuningLog, key_of
from .space import Space


class Evaluator(Protocol):
    """What a search asks about schedules. A kernel is whatever `compiled` returns."""

    def default(self) -> Any:
        """The kernel to beat. Raises what jit raises."""

    def compiled(self, schedule: Schedule) -> Any:
        """Called from several threads. Raises CompileError or ScheduleError for what cannot be."""

    def wrong(self, kernel: Any) -> str:
        """What is wrong with the results of the kernel; empty if they are right."""

    def times(self, kernels: Sequence[Any], rounds: int) -> list[list[float]]:
        """Microseconds of each kernel for each shape, taken in turns."""


@dataclass(frozen=True)
class Effort:
    """How much a search does. Rounds are launches of each contender for each shape."""

    seconds: float = 60.0
    """Wall-clock time; the last generation and the comparison at the end may exceed it a little."""
    trials: int | None = None
    """Candidates to compile at most; None: as many as there is time for."""
    population: int = 16
    survivors: int = 6
    rungs: Sequence[int] = (4, 12, 32)
    """Rounds of the first timing, of the better half's, and of the best quarter's."""
    finalists: int = 3
    repeats: int = 7
    """Comparisons of the finalists with the default at the end, each of the last rung's rounds."""
    margin: float = 0.005
    """By how much a winner has to be faster, as a fraction."""
    threads: int = field(default_factory=lambda: len(os.sched_getaffinity(0)))


@dataclass
class Trial:
    """One schedule and what became of it."""

    schedule: Schedule
    outcome: str = ""
    """ "timed", "failed" (the compiler or its report), "wrong" or "crashed"."""
    why: str = ""
    ratio: float = 0.0
    """Of speed to the default's: above 1 is faster. The geometric mean over shapes."""
    rounds: int = 0
    kernel: Any = None


@dataclass(frozen=True)
class Comparison:
    """A schedule beside the default, in several measurements."""

    schedule: Schedule
    ratios: Sequence[float]
    microseconds: Sequence[float]
    default_microseconds: Sequence[float]

    @property
    def ratio(self) -> float:
        return statistics.median(self.ratios)


@dataclass(frozen=True)
class Found:
    best: Comparison | None
    """The finalist that beat the default in every comparison; None if none did."""
    finalists: Sequence[Comparison]
    counts: Counter[str]
    """Candidates by outcome. Never compiled are those "refused" by the resource model and the
    "same", which came out as the source of another."""
    wrong: Sequence[Trial]


class Search:
    def __init__(
        self,
        space: Space,
        evaluator: Evaluator,
        shipped: Sequence[Schedule],
        effort: Effort,
        log: TuningLog,
        seed: int = 0,
        clock: Callable[[], float] = time.monotonic,
        report: Callable[[Search, Trial | None], None] = lambda search, trial: None,
    ):
        """`shipped` are the schedules that the default takes for the shapes. `report` is called
        after every trial, and with None as time passes."""
        self.space = space
        self.evaluator = evaluator
        self.effort = effort
        self.counts: Counter[str] = Counter()
        self.trials: dict[str, Trial] = {}
        self._shipped = shipped
        self._log = log
        self._rng = random.Random(seed)
        self._clock = clock
        self._start = clock()
        self._report = report
        self._passed_over: set[str] = set()
        self._kernels: set[str] = set()
        self._compiled = 0

    @property
    def elapsed(self) -> float:
        return self._clock() - self._start

    @property
    def best(self) -> Trial | None:
        return max(self._timed(), key=lambda trial: trial.ratio, default=None)

    def _timed(self) -> list[Trial]:
        return [trial for trial in self.trials.values() if trial.outcome == "timed"]

    def run(self) -> Found:
        default = self._default()
        self._recall()
        with ThreadPoolExecutor(self.effort.threads) as pool:
            generation = self._first_generation()
            while generation:
                self._evaluate(generation, default, pool)
                if self._out_of_time() or self._out_of_trials():
                    break
                generation = self._children()
            finalists = self._compare(default)
        repeatable = [
            found
            for found in finalists
            if min(found.ratios) > 1 and found.ratio >= 1 + self.effort.margin
        ]
        return Found(
            max(repeatable, key=lambda found: found.ratio, default=None),
            finalists,
            self.counts,
            [trial for trial in self.trials.values() if trial.outcome == "wrong"],
        )

    def _out_of_time(self) -> bool:
        # What the comparison at the end takes is small beside the rest, but not nothing.
        return self.elapsed >= 0.9 * self.effort.seconds

    def _out_of_trials(self) -> bool:
        return self.effort.trials is not None and self._compiled >= self.effort.trials

    # Candidates.

    def _default(self) -> Trial:
        trial = Trial(self._shipped[0], kernel=self.evaluator.default())
        if why := self._guarded(None, lambda: self.evaluator.wrong(trial.kernel)):
            raise InternalError("the schedule that ships gives wrong results", why, "report it")
        if len(set(map(key_of, self._shipped))) == 1:
            # It is a parent and no candidate. If there are several, each is one: it has not been
            # tried for the shapes of the others.
            self._is_new_kernel(trial.schedule)
            self.trials[key_of(trial.schedule)] = trial
            self._add_timed(trial, 1.0, self.effort.rungs[-1])
        return trial

    def _recall(self) -> None:
        """What the log knows counts as tried here."""
        for schedule, line in self._log.all():
            key = key_of(schedule)
            if key in self.trials or (
                line["outcome"] == "timed" and not self._is_new_kernel(schedule)
            ):
                continue
            self.trials[key] = trial = Trial(schedule)
            if line["outcome"] == "timed":
                self._add_timed(trial, line["ratio"], line["rounds"])
            else:
                self._settle(trial, line["outcome"], line.get("why", ""), write=False)

    def _first_generation(self) -> list[Trial]:
        wanted = self.effort.population
        first: list[Trial] = []
        for schedule in self._shipped:
            self._take(schedule, first)
        if len(self._timed()) > self.effort.survivors:  # from the log
            return first + self._children()
        parents = [trial.schedule for trial in [*self._timed(), *first]]
        self._fill(
            first,
            wanted,
            lambda: (
                self.space.drawn(self._rng)
                if self._rng.random() < 0.7
                else self.space.mutated(self._rng.choice(parents), self._rng)
            ),
        )
        return first

    def _children(self) -> list[Trial]:
        ranked = sorted(self._timed(), key=lambda trial: -trial.ratio)
        parents = [trial.schedule for trial in ranked[: self.effort.survivors]]

        def child() -> Schedule:
            kind = self._rng.random()
            if kind < 0.6:
                return self.space.mutated(self._rng.choice(parents), self._rng)
            if kind < 0.85 and len(parents) > 1:
                a, b = self._rng.sample(parents, 2)
                both = self.space.crossed(a, b, self._rng)
                return both if self._rng.random() < 0.5 else self.space.mutated(both, self._rng)
            return self.space.drawn(self._rng)

        children: list[Trial] = []
        self._fill(children, self.effort.population, child)
        return children

    def _fill(self, into: list[Trial], wanted: int, draw: Callable[[], Schedule]) -> None:
        """Where the space has little left, fewer; none once it has nothing."""
        for _ in range(200 * wanted):
            if len(into) >= wanted:
                return
            self._take(draw(), into)

    def _take(self, schedule: Schedule, into: list[Trial]) -> None:
        schedule = self.space.normal(schedule)
        key = key_of(schedule)
        if key in self.trials or key in self._passed_over:
            return
        if not self._is_new_kernel(schedule):
            self._passed_over.add(key)
            return
        self.trials[key] = trial = Trial(schedule)
        into.append(trial)

    def _is_new_kernel(self, schedule: Schedule) -> bool:
        text = self.space.text(schedule)
        digest = text and hashlib.sha256(text.encode()).hexdigest()
        if digest is None or digest in self._kernels:
            self.counts["same" if digest else "refused"] += 1
            return False
        self._kernels.add(digest)
        return True

    # What becomes of them.

    def _settle(self, trial: Trial, outcome: str, why: str = "", write: bool = True) -> None:
        trial.outcome, trial.why = outcome, why
        self.counts[outcome] += 1
        if write:
            self._log.add(trial.schedule, outcome, why=why)
        self._report(self, trial)

    def _add_timed(self, trial: Trial, ratio: float, rounds: int) -> None:
        first = trial.outcome != "timed"
        trial.ratio, trial.rounds = ratio, rounds
        trial.outcome = "timed"
        self.counts["timed"] += first
        self._report(self, trial if first else None)

    def _evaluate(
        self, generation: Sequence[Trial], default: Trial, pool: ThreadPoolExecutor
    ) -> None:
        self._compile(generation, pool)
        for trial in generation:
            if not trial.outcome:
                self._check(trial)
        right = [trial for trial in generation if not trial.outcome]
        for rounds in self.effort.rungs:
            self._time(right, default, rounds)
            right.sort(key=lambda trial: -trial.ratio)
            right = right[: max(1, len(right) // 2)]
        for trial in generation:
            trial.kernel = None  # a kernel holds memory of the GPU; the cache has its code

    def _compile(self, trials: Sequence[Trial], pool: ThreadPoolExecutor) -> None:
        def build(trial: Trial) -> Exception | None:
            try:
                trial.kernel = self.evaluator.compiled(trial.schedule)
            except (CompileError, ScheduleError) as error:
                return error
            return None

        self._compiled += len(trials)
        for trial, error in zip(trials, pool.map(build, trials), strict=True):
            if error is not None:
                self._settle(trial, "failed", str(error))

    def _check(self, trial: Trial) -> None:
        self._log.add(trial.schedule, STARTED)
        why = self._guarded(trial, lambda: self.evaluator.wrong(trial.kernel))
        if why:
            trial.kernel = None
            self._settle(trial, "wrong", why)
        else:
            self._log.add(trial.schedule, RIGHT)

    def _time(self, trials: Sequence[Trial], default: Trial, rounds: int) -> None:
        if not trials:
            return
        kernels = [default.kernel, *(trial.kernel for trial in trials)]
        base, *others = self._guarded(None, lambda: self.evaluator.times(kernels, rounds))
        for trial, times in zip(trials, others, strict=True):
            ratio = ratio_of(base, times)
            self._log.add(
                trial.schedule,
                "timed",
                ratio=ratio,
                rounds=rounds,
                microseconds=times,
                default_microseconds=base,
            )
            self._add_timed(trial, ratio, rounds)

    def _again(self, trial: Trial) -> bool:
        """Brings back the kernel of a finalist, which was put away or is known from the log."""
        try:
            trial.kernel = self.evaluator.compiled(trial.schedule)
        except (CompileError, ScheduleError):
            return False
        return True

    def _guarded(self, trial: Trial | None, run: Callable[[], Any]) -> Any:
        try:
            return run()
        except DeviceError as error:
            # Nothing works on this GPU any more, in this process.
            if trial is not None:
                self._settle(trial, "crashed", str(error))
            which = f": {key_of(trial.schedule)}" if trial else ""
            raise DeviceError(
                f"a kernel crashed while it was tuned{which}",
                str(error),
                "a new process with the same log= goes on without it; please report the schedule",
            ) from error

    def _compare(self, default: Trial) -> list[Comparison]:
        """The finalists and the default, again and again. What was measured before does not count:
        the best of many noisy figures is lucky as well as good."""
        ranked = sorted(self._timed(), key=lambda trial: -trial.ratio)
        finalists: list[Trial] = []
        for trial in ranked:
            if trial.ratio > 1 and len(finalists) < self.effort.finalists and self._again(trial):
                finalists.append(trial)
        if not finalists:
            return []
        kernels = [default.kernel, *(trial.kernel for trial in finalists)]
        runs = []
        for _ in range(self.effort.repeats):
            times = self._guarded(
                None, lambda: self.evaluator.times(kernels, self.effort.rungs[-1])
            )
            runs.append(times)
            self._report(self, None)

        def medians(at: int) -> list[float]:
            return [statistics.median(per) for per in zip(*(run[at] for run in runs), strict=True)]

        return [
            Comparison(
                trial.schedule,
                [ratio_of(run[0], run[at]) for run in runs],
                medians(at),
                medians(0),
            )
            for at, trial in enumerate(finalists, 1)
        ]


def ratio_of(default: Sequence[float], times: Sequence[float]) -> float:
    """How much faster, as the geometric mean over shapes."""
    logs = [math.log(a / b) for a, b in zip(default, times, strict=True)]
    return math.exp(sum(logs) / len(logs))


__all__ = ["Comparison", "Effort", "Evaluator", "Found", "Search", "Trial", "ratio_of"]
