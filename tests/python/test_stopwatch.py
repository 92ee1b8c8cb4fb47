"""Times of work on a GPU do not depend on how long the host takes to queue it."""

import math
from types import SimpleNamespace

import pytest

from flashcore.tuning import stopwatch


class Machine:
    """A host that queues and a GPU that does one thing after the other; microseconds."""

    def __init__(self):
        self.now = self.gpu_free = 0.0
        self.cuda = SimpleNamespace(
            Event=lambda enable_timing: Event(self),
            _sleep=lambda cycles: self.queue(cycles / stopwatch.CYCLES_PER_US),
            synchronize=self.synchronize,
            current_device=lambda: 0,
            get_device_properties=lambda device: SimpleNamespace(L2_cache_size=50 << 20),
        )
        self.int8 = None

    def empty(self, size, dtype, device):
        return SimpleNamespace(zero_=lambda: self.queue(60))

    def queue(self, gpu_us, host_us=0.0):
        self.now += host_us
        self.gpu_free = max(self.gpu_free, self.now) + gpu_us

    def synchronize(self):
        self.now = max(self.now, self.gpu_free)

    def run(self, gpu_us, host_us):
        """A contender; `host_us` by how often it was called."""
        calls = iter(range(10**9))
        return lambda turn: self.queue(gpu_us, host_us(next(calls)))


class Event:
    def __init__(self, machine):
        self.machine = machine

    def record(self):
        self.at = max(self.machine.gpu_free, self.machine.now)

    def query(self):
        return self.at <= self.machine.now

    def elapsed_time(self, later):
        return (later.at - self.at) / 1e3


@pytest.fixture
def machine(monkeypatch):
    found = Machine()
    clock = SimpleNamespace(perf_counter=lambda: found.now * 1e-6)
    monkeypatch.setattr(stopwatch, "time", clock)
    return found


def times(machine, *contenders, hopeless=1.6):
    runs = [machine.run(*contender) for contender in contenders]
    return stopwatch.Stopwatch(machine).times(runs, rounds=5, sets=20, hopeless=hopeless)


def test_a_call_that_is_long_in_queueing_is_not_taken_for_hopeless(machine):
    quick, slow = (12.0, lambda call: 5.0), (8.0, lambda call: 300.0)
    assert times(machine, quick, slow) == pytest.approx([12, 8])


def test_a_round_in_which_the_host_was_late_is_done_again(machine):
    # From its thirtieth call on it takes the host five times as long.
    slower = (8.0, lambda call: 20.0 if call < 30 else 100.0)
    assert times(machine, slower, (9.0, lambda call: 5.0)) == pytest.approx([8, 9])


def test_a_first_look_at_which_the_host_was_late_is_done_again(machine):
    # The host takes longer from its third call on, until a look has seen that.
    late = (8.0, lambda call: 300.0 if 2 <= call < 5 else 5.0)
    assert times(machine, (7.0, lambda call: 5.0), late) == pytest.approx([7, 8])


def test_what_takes_too_long_is_timed_no_further(machine):
    assert times(machine, (10.0, lambda call: 5.0), (40.0, lambda call: 5.0)) == [
        pytest.approx(10),
        math.inf,
    ]


def test_long_work_is_timed_call_by_call(machine):
    found = times(machine, (400.0, lambda call: 5.0), (500.0, lambda call: 5.0))
    assert found == pytest.approx([400, 500])
