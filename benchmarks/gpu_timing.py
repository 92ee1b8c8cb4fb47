"""Times GPU work fairly: contenders take turns, on a cold L2 cache, and medians count.

A GPU changes its clock with heat and power, so figures of different minutes do not compare. Here
every round runs each contender once, and every second round runs them in the opposite order;
whatever drifts, drifts for all.

Between two kernels the cache is overwritten, which costs next to no power: a kernel is measured at
about the highest clock. Between the layers of a model it runs at the clock that the GPU's limit of
power allows; `sustained_ms` measures that: each contender alone, back to back. On an H200 the clock
of a kernel falls within 100 ms after a pause, and stays; behind another kernel it swings for half a
second. So each begins with a pause.
"""

from __future__ import annotations

import math
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

Run = Callable[[int], Any]
"""Queues one call on the current stream; the argument says which set of inputs to use."""

# Below this, the time between two kernels is no longer small beside the kernel.
GRAPH_BELOW_MS = 0.05
GRAPH_CALLS = 20
PAUSE_S = 0.25  # for what ran before to be forgotten


def require_gpu() -> Any:
    """torch, with a GPU; ends the program with a plain message where either is missing."""
    try:
        import torch
    except ImportError:
        sys.exit("this benchmark needs PyTorch: pip install torch")
    if not torch.cuda.is_available():
        sys.exit(
            "this benchmark needs an NVIDIA GPU that PyTorch can use; "
            "torch.cuda.is_available() is false here. benchmarks/compile.py runs without one"
        )
    return torch


def hear_warnings(flashcore: Any) -> list[str]:
    """What the library warns of, as it comes in: where the compiler refuses what a schedule
    generates, another schedule serves, and its times would stand for those of the chosen one."""
    heard: list[str] = []

    def hear(level: str, text: str) -> None:
        if level == "warn":
            heard.append(text)

    flashcore.set_log_hook(hear)
    return heard


def machine(torch: Any) -> str:
    """What a figure depends on, in one line."""
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    cudnn = torch.backends.cudnn.version() or 0
    return (
        f"{properties.name}, {properties.multi_processor_count} multiprocessors, "
        f"torch {torch.__version__}, CUDA {torch.version.cuda}, "
        f"cuDNN {cudnn // 10000}.{cudnn // 100 % 100}.{cudnn % 100}"
    )


class Timer:
    """Holds the buffer that clears the L2 cache.

    With `sustained_ms` each contender runs back to back for as many milliseconds twice, each time
    behind a pause, and its time is the mean over the second half of each: by then the clock has
    settled.
    """

    def __init__(self, torch: Any, sustained_ms: float = 0):
        self._torch, self._sustained_ms = torch, sustained_ms
        size = torch.cuda.get_device_properties(torch.cuda.current_device()).L2_cache_size
        self.l2_bytes = size
        self._flush = torch.empty(max(4 * size, 64 << 20), dtype=torch.int8, device="cuda")

    def _events(self) -> tuple[Any, Any]:
        event = self._torch.cuda.Event
        return event(enable_timing=True), event(enable_timing=True)

    def once(self, run: Run, repeats: int = 3) -> float:
        """A first estimate in milliseconds."""
        run(0)
        start, stop = self._events()
        start.record()
        for _ in range(repeats):
            run(0)
        stop.record()
        stop.synchronize()
        return start.elapsed_time(stop) / repeats

    def warm_up(self) -> None:
        """Clocks fall while inputs are made, and take some tenths of a second to rise."""
        square = self._torch.randn(8192, 8192, device="cuda", dtype=self._torch.bfloat16)
        for _ in range(100):
            self._torch.mm(square, square)

    def sets(self, set_bytes: int) -> int:
        """How many sets of inputs a contest walks through, so that none of them waits in L2."""
        if set_bytes > self.l2_bytes:
            return 1
        return max(2, min(math.ceil(3 * self.l2_bytes / set_bytes), GRAPH_CALLS))

    def interleaved(self, runs: Sequence[Run], budget_ms: float, sets: int = 1) -> list[float]:
        """The median time of each contender, in milliseconds; or the mean, where it is sustained.

        Contenders of which one is quick are captured into CUDA graphs of some twenty calls that
        walk through `sets` inputs. A replay finds the L2 cache overwritten, so with as many sets as
        calls, or with sets that exceed it together, each call does.
        """
        estimates = [self.once(run) for run in runs]
        in_graphs = min(estimates) < GRAPH_BELOW_MS and sets > 1
        calls = GRAPH_CALLS if in_graphs else 1
        actions: list[Callable[[], Any]] = [
            self._graph(run, sets) if in_graphs else (lambda run=run: run(0)) for run in runs
        ]
        if self._sustained_ms:
            return [ms / calls for ms in self._sustained(actions, estimates, calls)]
        rounds = round(budget_ms / max(sum(estimates) * calls, 1e-3))
        rounds = 2 * max(5, min(rounds // 2, 100))
        samples: list[list[tuple[Any, Any]]] = [[] for _ in runs]
        order = list(range(len(runs)))
        for _ in range(rounds):
            for i in order:
                start, stop = self._events()
                self._flush.zero_()
                start.record()
                actions[i]()
                stop.record()
                samples[i].append((start, stop))
            order.reverse()
        self._torch.cuda.synchronize()
        # The first two rounds are the warm-up.
        return [
            statistics.median(start.elapsed_time(stop) for start, stop in sample[2:]) / calls
            for sample in samples
        ]

    def _sustained(
        self, actions: Sequence[Callable[[], Any]], estimates: Sequence[float], calls: int
    ) -> list[float]:
        order = list(range(len(actions)))
        counted: list[list[tuple[Any, Any, int]]] = [[] for _ in actions]
        for _ in range(min(2, len(actions))):
            for i in order:
                self._torch.cuda.synchronize()
                time.sleep(PAUSE_S)
                half_ms = self._sustained_ms / 2
                repeats = max(2, math.ceil(half_ms / max(estimates[i] * calls, 1e-3)))
                start, stop = self._events()
                for _ in range(repeats):
                    actions[i]()
                start.record()
                for _ in range(repeats):
                    actions[i]()
                stop.record()
                counted[i].append((start, stop, repeats))
            order.reverse()
        self._torch.cuda.synchronize()
        return [
            statistics.mean(start.elapsed_time(stop) / repeats for start, stop, repeats in loops)
            for loops in counted
        ]

    def _graph(self, run: Run, sets: int) -> Callable[[], None]:
        graph = self._torch.cuda.CUDAGraph()
        with self._torch.cuda.graph(graph):
            for call in range(GRAPH_CALLS):
                run(call % sets)
        return graph.replay
