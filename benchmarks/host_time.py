"""What a call whose lengths no call had before costs the host: median, 99.9 % and maximum.

    python benchmarks/host_time.py

Batch, heads and lengths of every call are random. Each case runs in a process of its own: after
`prepare`, which builds and loads all that the calls can come to; without it, where another kernel
serves until the best one is built; and, to compare, with the same shapes at every call, and what
torch takes for an addition of the same random shapes, and of the same at every call. The queue of
the GPU is emptied before it fills, and a small kernel is queued before calls are timed again.

A core that two hardware threads share, or a virtual machine's that others use too, is slower by
half now and then, for seconds, whatever runs on it. So every case runs in several processes, which
take turns, and each times a loop that only adds integers beside every 50 calls. Told are the
medians over the processes, the least and the most of them; and the median and 99.9 % of all calls
beside which that loop took at most a tenth longer than the fastest loops of all processes did:
calls on a core at full speed. Figures of two builds are those of two values of PYTHONPATH.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from gpu_timing import machine, require_gpu

ADDITIONS = ("torch.add", "torch.add, same shapes")
CASES = ("prepared", "not prepared", "same shapes", *ADDITIONS)
AT_ONCE = 50  # calls between two looks at the GPU
FULL_SPEED = 1.1  # times what the loop takes at its fastest


def draw(rng: random.Random, most: int) -> int:
    return int(2 ** rng.uniform(0, math.log2(most)))


def time_additions() -> float:
    """Microseconds of a loop that needs neither memory nor a GPU."""
    start, total = time.perf_counter_ns(), 0
    for i in range(500):
        total += i
    return (time.perf_counter_ns() - start) / 1e3


def measure(case: str, options: argparse.Namespace) -> dict[str, Any]:
    torch = require_gpu()
    import flashcore as fc

    dim = options.head_dim
    most = options.batch * options.heads * options.length * dim
    memory = [torch.zeros(most, device="cuda", dtype=torch.bfloat16) for _ in range(4)]

    def arrays(batch: int, heads: int, rows: int, keys: int) -> list[Any]:
        lengths = (rows, keys, keys, rows)
        shapes = [(batch, heads, length, dim) for length in lengths]
        return [m[: math.prod(shape)].view(shape) for m, shape in zip(memory, shapes, strict=True)]

    rng = random.Random(1)
    most_of = (options.batch, options.heads, options.length, options.length)
    problems = [tuple(draw(rng, top) for top in most_of) for _ in range(options.calls)]
    kernel = fc.jit(fc.AttentionSpec(head_dim=dim, mask=fc.causal()))
    if case == "prepared":
        ranges = {name: (1, getattr(options, name)) for name in ("batch", "heads")}
        kernel.prepare(lengths=(1, options.length), lse=False, **ranges)
    if case.endswith("same shapes"):
        problems = [(1, 1, 64, 64)] * options.calls
    q, k, v, out = arrays(1, 1, 1, 1)
    kernel(q, k, v, out=out)  # of a process the first
    before = fc.cache_stats().compiled
    micro, additions = [], []
    with torch.no_grad():
        for first in range(0, options.calls, AT_ONCE):
            inputs = [arrays(*problem) for problem in problems[first : first + AT_ONCE]]
            torch.cuda.synchronize()
            additions.append(time_additions())
            torch.add(q, q, out=q)  # what the machine needs to wake up is not the call's
            for q, k, v, out in inputs:
                start = time.perf_counter_ns()
                if case in ADDITIONS:
                    torch.add(k, v, out=k)
                else:
                    kernel(q, k, v, out=out)
                micro.append((time.perf_counter_ns() - start) / 1e3)
    compiled = fc.cache_stats().compiled - before
    return {
        "calls_us": micro,
        "additions_us": additions,
        "compiled": compiled,
        "machine": machine(torch),
    }


def quantile(values: list[float], part: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * part))] if values else math.nan


def calls_at_full_speed(run: dict[str, Any], fastest_us: float) -> list[float]:
    """Of the calls of a process those beside which the loop of additions was fast."""
    found = []
    for i, additions in enumerate(run["additions_us"]):
        if additions <= FULL_SPEED * fastest_us:
            found += run["calls_us"][i * AT_ONCE : (i + 1) * AT_ONCE]
    return found


def print_table(found: dict[str, list[dict[str, Any]]]) -> None:
    every = [each for runs in found.values() for run in runs for each in run["additions_us"]]
    fastest = quantile(every, 0.01)
    columns = ("median us", "least", "most", "99.9 % us", "most us", "over 30 us", "compiled")
    at_full_speed = ("full speed", "median us", "99.9 % us")
    print(f"{'case':<22}", *(f"{column:>10}" for column in (*columns, *at_full_speed)))
    for case, runs in found.items():
        medians = [statistics.median(run["calls_us"]) for run in runs]
        ends = [[quantile(run["calls_us"], part) for run in runs] for part in (0.999, 1)]
        figures = (statistics.median(medians), min(medians), max(medians))
        over = sum(each > 30 for run in runs for each in run["calls_us"])
        fast = [each for run in runs for each in calls_at_full_speed(run, fastest)]
        print(
            f"{case:<22}",
            *(f"{figure:>10.2f}" for figure in (*figures, *map(statistics.median, ends))),
            *(f"{count:>10}" for count in (over, sum(run["compiled"] for run in runs))),
            f"{len(fast) / sum(len(run['calls_us']) for run in runs):>10.0%}",
            *(f"{quantile(fast, part):>10.2f}" for part in (0.5, 0.999)),
            flush=True,
        )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--calls", type=int, default=10_000)
    parser.add_argument("--head-dim", type=int, default=64)
    parser.add_argument("--batch", type=int, default=8, help="the most")
    parser.add_argument("--heads", type=int, default=16, help="the most")
    parser.add_argument("--length", type=int, default=4096, help="the most")
    parser.add_argument("--processes", type=int, default=5, help="of each case")
    parser.add_argument("--case", choices=CASES, help="this one, in this process, as JSON")
    options = parser.parse_args()
    if options.case:
        print(json.dumps(measure(options.case, options)))
        return 0
    found: dict[str, list[dict[str, Any]]] = {case: [] for case in CASES}
    for _ in range(options.processes):
        for case in CASES:
            command = [sys.executable, str(Path(__file__)), *sys.argv[1:], "--case", case]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
            if done.returncode:
                return done.returncode
            found[case].append(json.loads(done.stdout.splitlines()[-1]))
    print_table(found)
    print(found[CASES[0]][0]["machine"])
    return 0


if __name__ == "__main__":
    sys.exit(main())
