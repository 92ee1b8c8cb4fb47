"""Times of all schedules among which the cost model chooses, on random problems.

The coefficients of the model are found by such times (cost_model.py), and how good its choice is.
"""

from __future__ import annotations

import json
import math
import os
import random
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from .. import _core
from ..cache.tuning_table import Problem
from ..errors import Error
from ..kernels.attention_kernel import AttentionKernel
from ..specs.schedule import Schedule
from ..specs.spec import AttentionSpec
from ..specs.variants import causal, full
from .gpu import machine
from .stopwatch import Stopwatch

MOST_OPERATIONS = 2e12  # of a problem: a few milliseconds
MOST_ELEMENTS = 1 << 30  # of an array
HOPELESS = 1.6  # times the best, after a first look

Say = Callable[[str], None]
Launch = Callable[[list[Any]], Any]
"""Queues a call with these arrays: q, k, v and the output."""


@dataclass
class Measurements:
    """Times of schedules for problems, in microseconds, and the GPU that they are of."""

    gpu: str
    target: str
    multiprocessors: int
    l2_bytes: int
    bytes_per_us: float
    machine: dict[str, str]
    rows: list[tuple[str, Problem, dict[str, float]]] = field(default_factory=list)
    """Spec as JSON, problem, and the time of each schedule as JSON."""
    added: list[tuple[str, str, str, Problem, float, float]] = field(default_factory=list)
    """A spec, another that computes more, a schedule, a problem, the times of both (terms.py)."""
    split: list[tuple[str, Problem, tuple[str, int, bool, bool, bool], int, float]] = field(
        default_factory=list
    )
    """Spec, problem, the blocks of decoding, into how many splits, and the time."""

    @staticmethod
    def here(torch: Any, target: str) -> Measurements:
        """None yet, of the current GPU."""
        gpu = torch.cuda.get_device_properties(torch.cuda.current_device())
        return Measurements(
            gpu=gpu.name,
            target=target,
            multiprocessors=gpu.multi_processor_count,
            l2_bytes=gpu.L2_cache_size,
            bytes_per_us=measure_bandwidth(torch),
            machine=machine(torch),
        )

    def save(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)))

    @staticmethod
    def load(path: Path) -> Measurements:
        read = Measurements(**json.loads(path.read_text()))
        # JSON knows lists alone.
        read.rows = [(spec, _problem(p), times) for spec, p, times in read.rows]
        read.added = [(a, b, c, _problem(p), us, more) for a, b, c, p, us, more in read.added]
        read.split = [
            (spec, _problem(p), (rows, tile, tiled, any(more[:1]), any(more[1:])), splits, us)
            for spec, p, (rows, tile, tiled, *more), splits, us in read.split
        ]
        return read


def _problem(numbers: Sequence[int]) -> Problem:
    batch, heads, q_len, kv_len = numbers
    return batch, heads, q_len, kv_len


def measure_bandwidth(torch: Any) -> float:
    """Bytes that a copy moves in a microsecond, read and written."""
    a = torch.empty(1 << 30, dtype=torch.int8, device="cuda")
    b = torch.empty_like(a)
    (us,) = Stopwatch(torch).times([lambda _: b.copy_(a)], rounds=6)
    return float(2 * a.numel() / us)


def measured_specs() -> list[AttentionSpec]:
    """Attention of every head_dim that has a coefficient of its own, full and causal."""
    return [
        AttentionSpec(head_dim=dim, mask=mask)
        for mask in (full(), causal())
        for dim in _core.cost_dims()
    ]


def is_masked(spec: AttentionSpec) -> bool:
    return spec.expressions[0].text != "true"


def draw_problem(rng: random.Random, spec: AttentionSpec) -> Problem:
    """Batch 1 to 64, heads 1 to 64 unless the spec has them, lengths 1 to 32k on a logarithmic
    scale, every seventh with other lengths of queries than of keys, every third a multiple of
    128."""
    while True:
        batch, heads = (round(2 ** rng.uniform(0, 6)) for _ in range(2))
        q_len = kv_len = round(2 ** rng.uniform(0, 15))
        kind = rng.random()
        if kind < 1 / 7:
            q_len, kv_len = round(2 ** rng.uniform(0, 11)), round(2 ** rng.uniform(9, 16.5))
        elif kind < 1 / 2:
            q_len = kv_len = max(128, q_len // 128 * 128)
        problem = batch, spec.heads or heads, q_len, kv_len
        if is_feasible(spec, problem):
            return problem


def is_feasible(spec: AttentionSpec, problem: Problem) -> bool:
    """Within a few milliseconds, and within the arrays that are there."""
    batch, heads, q_len, kv_len = problem
    share = 0.5 if is_masked(spec) and q_len == kv_len else 1
    operations = 4 * batch * heads * q_len * kv_len * spec.head_dim * share
    sizes = batch * heads * q_len, batch * (spec.kv_heads or heads) * kv_len
    return operations <= MOST_OPERATIONS and max(sizes) * spec.head_dim <= MOST_ELEMENTS


class Contest:
    """Times launches that compute the same problem, on inputs cut out of large arrays."""

    def __init__(self, torch: Any):
        self._watch = Stopwatch(torch)
        self._pool = [
            torch.randn(MOST_ELEMENTS, device="cuda", dtype=torch.bfloat16) for _ in range(4)
        ]

    def times(
        self, launches: Sequence[Launch], spec: AttentionSpec, problem: Problem
    ) -> list[float]:
        """The median of each in microseconds; of those that are hopeless, infinity."""
        batch, heads, q_len, kv_len = problem
        kv_heads = spec.kv_heads or heads
        shapes = [(batch, heads, q_len), *[(batch, kv_heads, kv_len)] * 2, (batch, heads, q_len)]
        sizes = [math.prod(shape) * spec.head_dim for shape in shapes]
        sets = self._watch.sets(2 * sum(sizes))
        inputs = [
            [
                pool[turn * size : (turn + 1) * size].view(*shape, spec.head_dim)
                for pool, shape, size in zip(self._pool, shapes, sizes, strict=True)
            ]
            for turn in range(sets)
        ]
        is_long = batch * heads * q_len * kv_len * spec.head_dim > MOST_OPERATIONS / 16
        runs = [lambda turn, launch=launch: launch(inputs[turn]) for launch in launches]
        return self._watch.times(runs, 3 if is_long else 7, sets, HOPELESS)


def launch_of(kernel: AttentionKernel) -> Launch:
    return lambda arrays: kernel(*arrays[:3], out=arrays[3])


def build_kernels(
    wanted: Iterable[tuple[AttentionSpec, str]], target: str, say: Say
) -> dict[AttentionSpec, dict[str, AttentionKernel]]:
    """Kernels of specs by their schedules as JSON, compiled at once; what does not compile is left
    out."""
    pairs = list(dict.fromkeys(wanted))

    def build(spec: AttentionSpec, text: str) -> AttentionKernel | None:
        try:
            kernel = AttentionKernel(spec, Schedule.from_json(text), target)
            kernel.compile()
            return kernel
        except Error:
            return None

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        built = list(pool.map(build, *zip(*pairs, strict=True)))
    kernels: dict[AttentionSpec, dict[str, AttentionKernel]] = {spec: {} for spec, _ in pairs}
    for (spec, text), kernel in zip(pairs, built, strict=True):
        if kernel is not None:
            kernels[spec][text] = kernel
    say(f"{sum(kernel is not None for kernel in built)} of {len(pairs)} kernels")
    return kernels


def candidates_of(specs: Iterable[AttentionSpec]) -> list[tuple[AttentionSpec, str]]:
    return [(spec, text) for spec in specs for text in _core.candidate_schedules(spec.to_json())]


def measure_candidates(
    found: Measurements,
    contest: Contest,
    wanted: Sequence[tuple[AttentionSpec, Problem]],
    say: Say,
) -> None:
    """Adds the times of all candidates for these problems."""
    kernels = build_kernels(candidates_of(dict.fromkeys(spec for spec, _ in wanted)),
                            found.target, say)  # fmt: skip
    start = time.monotonic()
    for i, (spec, problem) in enumerate(wanted):
        own = kernels[spec]
        times = contest.times([launch_of(kernel) for kernel in own.values()], spec, problem)
        kept = {text: us for text, us in zip(own, times, strict=True) if math.isfinite(us)}
        found.rows.append((spec.to_json(), problem, kept))
        if i % 50 == 49:
            say(f"{i + 1} of {len(wanted)} problems, {time.monotonic() - start:.0f} s")


def draw_problems(
    rng: random.Random, specs: Sequence[AttentionSpec], each: int
) -> list[tuple[AttentionSpec, Problem]]:
    """So many of each spec, in an order by chance."""
    wanted = [(spec, draw_problem(rng, spec)) for spec in specs for _ in range(each)]
    rng.shuffle(wanted)
    return wanted


__all__ = [
    "HOPELESS",
    "Contest",
    "Launch",
    "Measurements",
    "Say",
    "build_kernels",
    "candidates_of",
    "draw_problem",
    "draw_problems",
    "is_feasible",
    "is_masked",
    "launch_of",
    "measure_bandwidth",
    "measure_candidates",
    "measured_specs",
]
