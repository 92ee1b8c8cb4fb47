"""The coefficients of the cost model, measured on the GPU that is here.

All schedules among which the model chooses are timed on random problems, by turns; the coefficients
of each family of schedules are those whose predictions come closest to what was measured. See
templates/cost_model.h in the sources.
"""

from __future__ import annotations

import datetime
import functools
import json
import math
import os
import random
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .. import _core
from ..cache.tuning_table import Problem
from ..errors import DeviceError, Error
from ..kernels.attention_kernel import AttentionKernel
from ..kernels.just_in_time import default_target
from ..specs.schedule import Schedule
from ..specs.spec import AttentionSpec
from ..specs.variants import causal, full
from .gpu import machine, require_torch

MOST_OPERATIONS = 2e12  # of a problem: a few milliseconds
MOST_ELEMENTS = 1 << 30  # of an array
HOPELESS = 1.6  # times the best, after a first look
GRAPH_BELOW_US = 60.0  # below, the time between two launches is no longer small beside them
GRAPH_CALLS = 10
SCORE_OPERATION_CLOCKS = 128 * 128 / 128 / 2
"""Of an operation for each score of a tile of 128 x 128, on 128 lanes; half of it is hidden behind
products."""

SCAN_CLOCKS = 1300.0
"""Of a block that looks for the tiles that it has to visit: 7 to 8 % of one of 64 rows."""


@dataclass
class Measurements:
    """Times of schedules for problems, in microseconds, and the GPU that they are of."""

    gpu: str
    target: str
    multiprocessors: int
    l2_bytes: int
    clock_mhz: float
    machine: dict[str, str]
    rows: list[tuple[str, Problem, dict[str, float]]] = field(default_factory=list)
    """Spec as JSON, problem, and the time of each schedule as JSON."""

    def save(self, path: Path) -> None:
        path.write_text(json.dumps(self.__dict__))

    @staticmethod
    def load(path: Path) -> Measurements:
        return Measurements(**json.loads(path.read_text()))


def measured_specs() -> list[AttentionSpec]:
    """Attention of every head_dim that has a coefficient of its own, full and causal."""
    return [
        AttentionSpec(head_dim=dim, mask=mask)
        for mask in (full(), causal())
        for dim in _core.cost_dims()
    ]


def draw_problem(rng: random.Random, spec: AttentionSpec) -> Problem:
    """Batch 1 to 64, heads 1 to 64, lengths 1 to 32k on a logarithmic scale, every seventh with
    other lengths of queries than of keys, every third a multiple of 128."""
    masked = spec.expressions[0].text != "true"
    while True:
        batch, heads = (round(2 ** rng.uniform(0, 6)) for _ in range(2))
        q_len = kv_len = round(2 ** rng.uniform(0, 15))
        kind = rng.random()
        if kind < 1 / 7:
            q_len, kv_len = round(2 ** rng.uniform(0, 11)), round(2 ** rng.uniform(9, 16.5))
        elif kind < 1 / 2:
            q_len = kv_len = max(128, q_len // 128 * 128)
        share = 0.5 if masked and q_len == kv_len else 1
        operations = 4 * batch * heads * q_len * kv_len * spec.head_dim * share
        elements = batch * heads * max(q_len, kv_len) * spec.head_dim
        if operations <= MOST_OPERATIONS and elements <= MOST_ELEMENTS:
            return batch, heads, q_len, kv_len


class Stopwatch:
    """Times kernels by turns, on inputs that are cut out of large ones."""

    def __init__(self, torch: Any):
        self._torch = torch
        self._pool = [
            torch.randn(MOST_ELEMENTS, device="cuda", dtype=torch.bfloat16) for _ in range(4)
        ]

    def times(
        self, kernels: dict[str, AttentionKernel], dim: int, problem: Problem
    ) -> dict[str, float]:
        """The median of each kernel in microseconds, without those that are hopeless."""
        inputs = [self._inputs(dim, problem, turn) for turn in range(GRAPH_CALLS)]
        calls = {
            name: functools.partial(self._call, kernel, inputs) for name, kernel in kernels.items()
        }
        for call in calls.values():
            call()
        looks = [self._round(calls) for _ in range(3)]
        first = {name: min(look[name] for look in looks) for name in calls}
        best = min(first.values())
        calls = {n: c for n, c in calls.items() if first[n] < HOPELESS * best + 5}
        if best < GRAPH_BELOW_US:
            replays = {name: self._graph(call) for name, call in calls.items()}
            rounds = [self._round(replays) for _ in range(7)]
            repeats = GRAPH_CALLS
        else:
            rounds = [self._round(calls) for _ in range(3 if best > 1000 else 7)]
            repeats = 1
        return {name: statistics.median(each[name] for each in rounds) / repeats for name in calls}

    @staticmethod
    def _call(kernel: AttentionKernel, inputs: list[list[Any]], turn: int = 0) -> None:
        *arrays, out = inputs[turn]
        kernel(*arrays, out=out)

    def _inputs(self, dim: int, problem: Problem, turn: int) -> list[Any]:
        """q, k, v and the output; those of other turns lie elsewhere, so that what L2 holds is that
        of another call."""
        batch, heads, q_len, kv_len = problem
        arrays = []
        for pool, length in zip(self._pool, (q_len, kv_len, kv_len, q_len), strict=True):
            size = batch * heads * length * dim
            start = turn * size if (turn + 1) * size <= len(pool) else 0
            arrays.append(pool[start : start + size].view(batch, heads, length, dim))
        return arrays

    def _round(self, calls: Mapping[str, Callable[..., Any]]) -> dict[str, float]:
        cuda = self._torch.cuda
        events = {}
        for name, call in calls.items():
            # The host is ahead, so that the time between the events is that of the kernel alone.
            cuda._sleep(200_000)
            start, stop = (cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            call()
            stop.record()
            events[name] = start, stop
        cuda.synchronize()
        return {name: 1e3 * start.elapsed_time(stop) for name, (start, stop) in events.items()}

    def _graph(self, call: Callable[..., Any]) -> Callable[[], None]:
        cuda = self._torch.cuda
        graph = cuda.CUDAGraph()
        with cuda.graph(graph):
            for turn in range(GRAPH_CALLS):
                call(turn)
        replay: Callable[[], None] = graph.replay
        return replay


def build_candidates(
    specs: Sequence[AttentionSpec], target: str, say: Callable[[str], None]
) -> dict[AttentionSpec, dict[str, AttentionKernel]]:
    """A kernel of every candidate, by its schedule as JSON; what does not compile is left out."""
    wanted = [(spec, text) for spec in specs for text in _core.candidate_schedules(spec.to_json())]

    def build(spec: AttentionSpec, text: str) -> AttentionKernel | None:
        try:
            kernel = AttentionKernel(spec, Schedule.from_json(text), target)
            kernel.compile()
            return kernel
        except Error:
            return None

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        built = list(pool.map(build, *zip(*wanted, strict=True)))
    kernels: dict[AttentionSpec, dict[str, AttentionKernel]] = {spec: {} for spec in specs}
    for (spec, text), kernel in zip(wanted, built, strict=True):
        if kernel is not None:
            kernels[spec][text] = kernel
    say(f"{sum(kernel is not None for kernel in built)} of {len(wanted)} kernels")
    return kernels


def measure(
    problems: int, seed: int = 0, say: Callable[[str], None] = lambda text: None
) -> Measurements:
    """Times all candidates on so many random problems of each spec. Raises DeviceError without a
    GPU whose target has a cost model."""
    target = default_target()
    torch = require_torch(target)
    if not _core.target_facts(target)["wgmma"]:
        raise DeviceError(
            "measuring the cost model",
            f"{target} has one schedule for all problems of a spec: nothing is chosen by costs",
            "python -m flashcore.tune --head-dim ..., for a better one",
        )
    here = torch.cuda.get_device_properties(torch.cuda.current_device())
    clock = getattr(here, "clock_rate", 0) / 1e3 or 1755.0
    found = Measurements(
        gpu=here.name,
        target=target,
        multiprocessors=here.multi_processor_count,
        l2_bytes=here.L2_cache_size,
        clock_mhz=clock,
        machine=machine(torch),
    )
    specs = measured_specs()
    kernels = build_candidates(specs, target, say)
    watch = Stopwatch(torch)
    rng = random.Random(seed)
    wanted = [(spec, draw_problem(rng, spec)) for spec in specs for _ in range(problems)]
    rng.shuffle(wanted)
    start = time.monotonic()
    for i, (spec, problem) in enumerate(wanted):
        times = watch.times(kernels[spec], spec.head_dim, problem)
        found.rows.append((spec.to_json(), problem, times))
        if i % 50 == 49:
            say(f"{i + 1} of {len(wanted)} problems, {time.monotonic() - start:.0f} s")
    return found


@dataclass
class _Family:
    """What was measured of one family, ready to be compared with predictions."""

    probe: Any
    log_times: list[float] = field(default_factory=list)
    weights: list[float] = field(default_factory=list)


def _families(found: Measurements) -> dict[str, _Family]:
    families: dict[str, _Family] = {}
    for spec, problem, times in found.rows:
        masked = AttentionSpec.from_json(spec).expressions[0].text != "true"
        best = min(times.values())
        for schedule, us in times.items():
            name = _core.cost_family(schedule, masked)
            if name not in families:
                probe = _core.CostProbe(found.multiprocessors, found.l2_bytes)
                families[name] = _Family(probe)
            family = families[name]
            family.probe.add(spec, schedule, tuple(problem))
            family.log_times.append(math.log(us))
            # What is close to the best decides.
            family.weights.append((best / us) ** 2)
    return families


_START = (2.2, 1.0, 0.5, 0.1, 0.3, 0.2, 0.5, 0.3, 0.3, 0.1, 0.3, 0.3)
_SCALE = (1.0, 1.0, 1.0, 0.1, 0.3, 0.3, 0.3, 0.3, 0.3, 0.2, 0.5, 0.5)
_CLUSTER_SHARE = 0.92
"""Of 132 multiprocessors in groups of 16 or 18, clusters of four reach 120."""


def fit(found: Measurements, bytes_per_us: float) -> tuple[dict[str, Any], float]:
    """An entry of a table of coefficients, and the mean error of its predictions (of 1)."""
    import numpy as np
    from scipy.optimize import least_squares  # type: ignore[import-untyped]

    names, dims = _core.cost_names(), _core.cost_dims()
    start = [*_START, *(0.4 + 0.8 * dim / 128 for dim in dims)]
    scale = [*_SCALE, *(0.5 for _ in dims)]
    entry: dict[str, Any] = {
        "gpu": found.gpu,
        "target": found.target,
        "multiprocessors": found.multiprocessors,
        "l2_bytes": found.l2_bytes,
        "bytes_per_us": bytes_per_us,
        "cluster_share": _CLUSTER_SHARE,
        "score_operation_us": round(SCORE_OPERATION_CLOCKS / found.clock_mhz, 4),
        "scan_us": round(SCAN_CLOCKS / found.clock_mhz, 4),
        "families": {},
        "measured": {
            **found.machine,
            "date": datetime.date.today().isoformat(),
            "problems": len(found.rows),
        },
    }
    errors: list[float] = []
    for name, family in sorted(_families(found).items()):
        measured, weights = np.array(family.log_times), np.array(family.weights)

        def residuals(numbers: Any, family: _Family = family, measured: Any = measured,
                      weights: Any = weights) -> Any:  # fmt: skip
            numbers = np.abs(numbers)
            times = family.probe.times(list(numbers), bytes_per_us, _CLUSTER_SHARE)
            columns = numbers[len(names) :]
            # What nothing was measured of stays small, or like its iteration_contentions.
            small = 0.003 * numbers[: len(names)]
            smooth = 0.01 * np.diff(columns) / columns.mean()
            return np.concatenate([(np.log(times) - measured) * weights, smooth, small])

        solution = least_squares(
            residuals, start, loss="soft_l1", f_scale=0.05, x_scale=scale, max_nfev=200
        )
        numbers = [round(abs(float(x)), 4) for x in solution.x]
        entry["families"][name] = {
            **dict(zip(names, numbers, strict=False)),
            "columns_us": {
                str(dim): us for dim, us in zip(dims, numbers[len(names) :], strict=True)
            },
        }
        errors += list(np.abs(residuals(solution.x)[: len(measured)] / weights))
    return entry, float(np.mean(errors))


def measure_bandwidth(torch: Any) -> float:
    """Bytes that a copy moves in a microsecond, read and written."""
    a = torch.empty(1 << 30, dtype=torch.int8, device="cuda")
    b = torch.empty_like(a)
    best = math.inf
    for _ in range(6):
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        b.copy_(a)
        stop.record()
        torch.cuda.synchronize()
        best = min(best, 1e3 * start.elapsed_time(stop))
    return float(2 * a.numel() / best)


def losses(found: Measurements, table: str | None) -> Iterator[tuple[float, str, Problem]]:
    """For every problem, the time of the schedule that is chosen with these coefficients over the
    best that was measured; None: those that kernels are made by."""
    gpu = found.gpu, found.multiprocessors, found.l2_bytes
    if table is None:
        file = _core.cost_model_file()
        table = Path(file).read_text() if file and Path(file).exists() else ""
    for spec, problem, times in found.rows:
        chosen = _core.choose_with(spec, found.target, problem, table, gpu)
        best = min(times.values())
        yield times.get(chosen, HOPELESS * best) / best, spec, problem


def write(path: Path, entry: dict[str, Any]) -> None:
    """Puts the entry into the table at `path`, in the place of what was there for its GPU."""
    there: list[dict[str, Any]] = json.loads(path.read_text()) if path.exists() else []
    kept = [e for e in there if (e["gpu"], e["target"]) != (entry["gpu"], entry["target"])]
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    aside = path.with_suffix(".new")
    aside.write_text(json.dumps([*kept, entry], indent=2) + "\n")
    aside.replace(path)
    _core.forget_cost_models()


__all__ = [
    "Measurements",
    "draw_problem",
    "fit",
    "losses",
    "measure",
    "measure_bandwidth",
    "measured_specs",
    "write",
]
