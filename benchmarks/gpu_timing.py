"""Times GPU work fairly: contenders take turns, on a cold L2 cache, and medians count.

A GPU changes its clock with heat and power, so figures of different minutes do not compare. Here
every round runs each contender once, and every second round runs them in the opposite order;
whatever drifts, drifts for all.
"""

from __future__ import annotations

import math
import statistics
import sys
from collections.abc import Callable, Sequence
from typing import Any

Run = Callable[[int], Any]
"""Queues one call on the current stream; the argument says which set of inputs to use."""

# Below this, the time between two kernels is no longer small beside the kernel.
GRAPH_BELOW_MS = 0.05
GRAPH_CALLS = 20


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
    """Holds the buffer that clears the L2 cache."""

    def __init__(self, torch: Any):
        self._torch = torch
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

    def sets(self, set_bytes: int) -> int:
        """How many sets of inputs a contest walks through, so that none of them waits in L2."""
        if set_bytes > self.l2_bytes:
            return 1
        return max(2, min(math.ceil(3 * self.l2_bytes / set_bytes), GRAPH_CALLS))

    def interleaved(self, runs: Sequence[Run], budget_ms: float, sets: int = 1) -> list[float]:
        """The median time of each contender, in milliseconds.

        Contenders of which one is quick are captured into CUDA graphs of some twenty calls that
        walk through `sets` inputs. A replay finds the L2 cache overwritten, so with as many sets as
        calls, or with sets that exceed it together, each call does.
        """
        estimates = [self.once(run) for run in runs]
        in_graphs = min(estimates) < GRAPH_BELOW_MS and sets > 1
        calls = GRAPH_CALLS if in_graphs else 1
        actions = [
            self._graph(run, sets) if in_graphs else (lambda run=run: run(0)) for run in runs
        ]
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

    def _graph(self, run: Run, sets: int) -> Callable[[], None]:
        graph = self._torch.cuda.CUDAGraph()
        with self._torch.cuda.graph(graph):
            for call in range(GRAPH_CALLS):
                run(call % sets)
        return graph.replay
