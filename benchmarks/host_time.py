"""What a call whose lengths no call had before costs the host: median, 99.9 % and maximum.

    python benchmarks/host_time.py

Batch, heads and lengths of every call are random. Each case runs in a process of its own: after
`prepare`, which builds and loads all that the calls can come to; without it, where another kernel
serves until the best one is built; and, to compare, with the same shapes at every call, and what
torch takes for an addition of the same random shapes, and of the same at every call. A host that
is shared is slower by half now and then, for seconds: every case runs in several processes, which
take turns, and the medians over these count; the least and the most are told beside them. The
queue of the GPU is emptied before it fills, and a small kernel is queued before calls are timed
again. Figures of two builds are those of two values of PYTHONPATH.
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


def draw(rng: random.Random, most: int) -> int:
    return int(2 ** rng.uniform(0, math.log2(most)))


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
    micro = []
    with torch.no_grad():
        for first in range(0, options.calls, AT_ONCE):
            inputs = [arrays(*problem) for problem in problems[first : first + AT_ONCE]]
            torch.cuda.synchronize()
            torch.add(q, q, out=q)  # what the machine needs to wake up is not the call's
            for q, k, v, out in inputs:
                start = time.perf_counter_ns()
                if case in ADDITIONS:
                    torch.add(k, v, out=k)
                else:
                    kernel(q, k, v, out=out)
                micro.append((time.perf_counter_ns() - start) / 1e3)
    compiled = fc.cache_stats().compiled - before
    micro.sort()
    return {
        "median_us": micro[len(micro) // 2],
        "p999_us": micro[min(len(micro) - 1, int(len(micro) * 0.999))],
        "most_us": micro[-1],
        "over_30_us": sum(each > 30 for each in micro),
        "compiled": compiled,
        "machine": machine(torch),
    }


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
    columns = ("median us", "least", "most", "99.9 % us", "most us", "over 30 us", "compiled")
    print(f"{'case':<22}", *(f"{column:>10}" for column in columns))
    for case, runs in found.items():
        medians = [run["median_us"] for run in runs]
        middle = [statistics.median(run[name] for run in runs) for name in ("p999_us", "most_us")]
        figures = (statistics.median(medians), min(medians), max(medians), *middle)
        counts = (sum(run[name] for run in runs) for name in ("over_30_us", "compiled"))
        print(
            f"{case:<22}",
            *(f"{figure:>10.2f}" for figure in figures),
            *(f"{count:>10}" for count in counts),
            flush=True,
        )
    print(found[CASES[0]][0]["machine"])
    return 0


if __name__ == "__main__":
    sys.exit(main())
