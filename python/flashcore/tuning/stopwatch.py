"""Times work on a GPU fairly.

A GPU changes its clock with heat and power, so contenders take turns, every second time in the
opposite order, on a cold L2 cache, and medians count.
"""

from __future__ import annotations

import functools
import math
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

Run = Callable[[int], Any]
"""Queues one call on the current stream; the argument says which set of inputs to use."""

QUEUED_BELOW_US = 50.0  # below, the time between two launches is no longer small beside them
QUEUED_CALLS = 20
CYCLES_PER_US = 2000  # at 2 GHz, which few GPUs exceed
LOOKS = 2  # before contenders are timed in earnest
TRIES = 4  # of a round in which the host is late
SPARED_US = 5.0  # of what is hopeless: a first look at a short kernel may be off by so much


class Stopwatch:
    """Holds the buffer that clears the L2 cache."""

    def __init__(self, torch: Any, wait: Callable[[float], None] | None = None):
        """`wait` waits for what is queued and takes about so many seconds."""
        self._torch = torch
        self._wait = wait or (lambda seconds: torch.cuda.synchronize())
        size = torch.cuda.get_device_properties(torch.cuda.current_device()).L2_cache_size
        self.l2_bytes = int(size)
        self._flush = torch.empty(max(4 * size, 64 << 20), dtype=torch.int8, device="cuda")

    def sets(self, set_bytes: int) -> int:
        """How many sets of inputs calls that are timed together have to walk through, so that L2
        holds none of them."""
        if set_bytes > self.l2_bytes:
            return 1
        return max(2, min(math.ceil(3 * self.l2_bytes / set_bytes), QUEUED_CALLS))

    def times(
        self, runs: Sequence[Run], rounds: int, sets: int = 1, hopeless: float = math.inf
    ) -> list[float]:
        """The median of each contender in microseconds. Of short ones twenty calls, which walk
        through `sets` inputs, are timed together: the host queues them while the GPU waits, so that
        they follow each other without a gap. Contenders that at a first look take `hopeless` times
        as long as the best are timed no further: theirs is infinite."""
        for run in runs:
            run(0)
        plain = [functools.partial(run, 0) for run in runs]
        held_once = [self._hold_us(action) for action in plain]
        looks = [
            self._punctual_round(plain, look % 2 == 1, 1e-3, held_once) for look in range(LOOKS)
        ]
        first = [min(look[i] for look in looks) for i in range(len(runs))]
        best = min(first)
        kept = [i for i, us in enumerate(first) if us < hopeless * best + SPARED_US]
        calls = QUEUED_CALLS if sets > 1 and best < QUEUED_BELOW_US else 1
        if calls > 1:
            actions: list[Callable[[], Any]] = [_several(runs[i], sets) for i in kept]
            held = [self._hold_us(action) for action in actions]
        else:
            actions, held = [plain[i] for i in kept], [0.0] * len(kept)
        expected = 1e-6 * (sum(calls * first[i] for i in kept) + sum(held))
        samples = [
            self._punctual_round(actions, turn % 2 == 1, expected, held)
            for turn in range(rounds + 1)
        ]
        found = [math.inf] * len(runs)
        # The first round is the warm-up.
        for at, times in zip(kept, zip(*samples[1:], strict=True), strict=True):
            found[at] = statistics.median(times) / calls
        return found

    def _punctual_round(
        self,
        actions: Sequence[Callable[[], Any]],
        backwards: bool,
        seconds: float,
        held: list[float],
    ) -> list[float]:
        """A round in which the GPU begins no action before the host has queued all of it. If it
        did, the GPU is held up twice as long and the round is run again, up to `TRIES` times."""
        for _ in range(TRIES):
            times, late = self._round(actions, backwards, seconds, held)
            if not late:
                break
            for i in late:
                held[i] *= 2
        return times

    def _round(
        self,
        actions: Sequence[Callable[[], Any]],
        backwards: bool,
        seconds: float,
        held: Sequence[float] = (),
    ) -> tuple[list[float], list[int]]:
        """Microseconds of each action, done once, of which all together take about `seconds`. In
        front of each the GPU does nothing for its `held` microseconds, while the host queues it.
        Also returned: which actions the GPU began before the host had queued them."""
        event = self._torch.cuda.Event
        pairs = [(event(enable_timing=True), event(enable_timing=True)) for _ in actions]
        late: list[int] = []
        turns = list(enumerate(zip(actions, pairs, held or [0.0] * len(pairs), strict=True)))
        for i, (action, (start, stop), held_us) in reversed(turns) if backwards else turns:
            # It also keeps the GPU busy until the host has queued one call.
            self._flush.zero_()
            if held_us:
                self._torch.cuda._sleep(int(held_us * CYCLES_PER_US))
            start.record()
            action()
            stop.record()
            if held_us and start.query():
                late.append(i)
        self._wait(seconds)
        return [1e3 * start.elapsed_time(stop) for start, stop in pairs], late

    def _hold_us(self, action: Callable[[], Any]) -> float:
        """How long the GPU has to be held up for the host to queue the action: twice as long as
        that takes on an idle GPU."""
        self._wait(1e-3)
        start = time.perf_counter()
        action()
        queued = time.perf_counter() - start
        self._wait(queued)
        return 2e6 * queued


def _several(run: Run, sets: int) -> Callable[[], None]:
    """Several calls, which walk through the sets of inputs, as one action."""

    def queue() -> None:
        for call in range(QUEUED_CALLS):
            run(call % sets)

    return queue


__all__ = ["QUEUED_CALLS", "Run", "Stopwatch"]
