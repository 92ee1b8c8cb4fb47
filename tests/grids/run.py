"""The grids of other projects' tests, at call sites of FlashCore.

    python tests/grids/run.py --suite sdpa --device cuda          # all of it
    python tests/grids/run.py --suite all --device cuda --jobs 16 --seconds 500   # what fits
    python tests/grids/run.py --suite flex --cases 300 --seed 2   # a sample, small, in the emulator
    python tests/grids/run.py --suite flash --only 137            # one case again
    python tests/grids/run.py --device meta                       # what is refused, of all of it

Every case is right, refused in words, wrong, or crashed. In the emulator lengths, heads and batches
are smaller than the peer's; the meta device computes nothing. Arrays are torch's on a GPU or with
--arrays torch, else NumPy's.

Cases run in child processes, so that a crash or a hang is one case's failure. Those that share a
kernel run in one process, and the order goes round the families; a run that --seconds cuts off says
at which place in that order to go on. Processes share a GPU's memory alike: 16 want 110 GB for the
largest cases, and 8 will do on a smaller one.
"""

from __future__ import annotations

import argparse
import collections
import os
import sys
import time
from collections.abc import Iterable
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "support"))
import workers
from backend import NumpyArrays, TorchArrays
from cases import SUITES, Case, Sizes, sample, shares, suite
from judge import Outcome, judge

SECONDS = 180  # of one case, after which it counts as hanging; it may compile several kernels
PROGRESS_SECONDS = 30
CONTEXT_BYTES = 2**30  # of a GPU's memory, in each process beside its arrays


class Tally:
    """How many came out how, refusals by headline, and what is wrong or crashed."""

    def __init__(self) -> None:
        self.counts: collections.Counter[str] = collections.Counter()
        self.refusals: collections.Counter[str] = collections.Counter()
        self.failures: list[tuple[Case, Outcome]] = []

    def add(self, case: Case, outcome: Outcome) -> bool:
        """Whether it is as it should be."""
        self.counts[outcome.kind] += 1
        if outcome.kind == "refused":
            self.refusals[f"{case.suite}.{case.family.name}: {outcome.text}"] += 1
        elif outcome.kind != "right":
            self.failures.append((case, outcome))
            return False
        return True


def run(case: Case, device: str = "cpu", torch: bool = False, small: bool = True) -> Outcome:
    arrays = TorchArrays(case.seed, device) if torch else NumpyArrays(case.seed)
    return judge(arrays, case.problem(arrays, Sizes(small)))


def run_all(chosen: Iterable[Case], torch: bool) -> Tally:
    """In this process, in the emulator."""
    tally = Tally()
    for case in chosen:
        tally.add(case, run(case, torch=torch))
    return tally


def child(device: str, torch: bool, small: bool, jobs: int) -> None:
    if torch:
        import torch as framework

        framework.set_num_threads(1)
        if device == "cuda":
            framework.zeros(1, device=device)
            everything = framework.cuda.mem_get_info()[1]
            share = (0.95 * everything / jobs - CONTEXT_BYTES) / everything
            framework.cuda.set_per_process_memory_fraction(max(0.01, share))
    known = {(name, case.index): case for name in SUITES for case in suite(name, torch)}

    def answer(task: list[str | int]) -> list[str]:
        outcome = run(known[task[0], task[1]], device, torch, small)
        return [outcome.kind, outcome.text]

    workers.serve(answer)


def choose(options: argparse.Namespace, torch: bool) -> list[Case]:
    chosen = []
    for name in SUITES if options.suite == "all" else (options.suite,):
        drawn = suite(name, torch)
        if options.family:
            drawn = [case for case in drawn if case.family.name == options.family]
        if options.only is not None:
            drawn = [case for case in drawn if case.index == options.only]
        elif options.cases is not None:
            drawn = sample(drawn, options.cases, options.seed)
        chosen += drawn
    return chosen


def _tasks(part: Iterable[Case]) -> list[tuple[str, int]]:
    return [(case.suite, case.index) for case in part]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--suite", choices=[*SUITES, "all"], default="all")
    parser.add_argument("--device", choices=["cuda", "cpu", "meta"], default="cpu")
    parser.add_argument("--arrays", choices=["numpy", "torch"])
    parser.add_argument("--cases", type=int, help="a sample of so many of each suite")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--family", help="cases of this family alone")
    parser.add_argument("--only", type=int, help="the case of this number alone")
    parser.add_argument("--whole", action="store_true", help="the peer's own sizes, on a CPU too")
    parser.add_argument("--jobs", type=int, default=min(16, os.cpu_count() or 1))
    parser.add_argument("--seconds", type=float, help="after which no more cases begin")
    parser.add_argument("--first", type=int, default=0, help="the place in the order to begin at")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch = options.device != "cpu" or options.arrays == "torch"
    small = options.device != "cuda" and not options.whole
    if options.child:
        child(options.device, torch, small, options.jobs)
        return 0
    began = time.monotonic()
    how = ["--device", options.device, *(["--arrays", "torch"] if torch else [])]
    how += ["--whole"] if options.whole else []
    jobs = ["--jobs", str(options.jobs)]
    parts = shares(choose(options, torch))
    order = [case for part in parts for case in part]
    place = {(case.suite, case.index): i for i, case in enumerate(order)}
    tasks = [[task for task in _tasks(part) if place[task] >= options.first] for part in parts]
    tallies: dict[str, Tally] = collections.defaultdict(Tally)
    ran = set()
    said = began
    until = float("inf") if options.seconds is None else began + options.seconds
    command = [sys.executable, __file__, "--child", *how, *jobs]
    for answer in workers.run(command, tasks, options.jobs, SECONDS, until):
        at = place[tuple(answer.task)]
        outcome = Outcome("crashed", answer.error) if answer.error else Outcome(*answer.outcome)
        if not tallies[order[at].suite].add(order[at], outcome):
            print(f"{outcome.kind.upper()} {order[at]}\n      {outcome.text}")
            print(f"  python tests/grids/run.py --suite {order[at].suite} {' '.join(how)}", end=" ")
            print(f"--only {order[at].index}", flush=True)
        ran.add(at)
        if time.monotonic() > said + PROGRESS_SECONDS:
            said = time.monotonic()
            print(f"{len(ran):6} after {said - began:.0f} s", file=sys.stderr, flush=True)
    for name, tally in tallies.items():
        for text, count in tally.refusals.most_common():
            print(f"{count:6} refused  {text}")
        print(f"{name}: " + ", ".join(f"{n} {kind}" for kind, n in sorted(tally.counts.items())))
    missing = sorted(set(range(options.first, len(order))) - ran)
    seconds = time.monotonic() - began
    print(f"ran {len(ran)} of {len(order)} in {seconds:.0f} s", end="")
    print(f"; go on with --first {missing[0]}" if missing else "")
    return 1 if any(tally.failures for tally in tallies.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
