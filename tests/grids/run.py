"""The grids of other projects' tests, at call sites of FlashCore.

    python tests/grids/run.py --suite sdpa --device cuda          # all of it
    python tests/grids/run.py --suite flex --cases 300 --seed 2   # a sample, small, in the emulator
    python tests/grids/run.py --suite flash --only 137            # one case again
    python tests/grids/run.py --device meta                       # what is refused, of all of it

Every case is right, refused in words, wrong, or crashed. In the emulator lengths, heads and batches
are smaller than the peer's; the meta device computes nothing. Arrays are torch's on a GPU or with
--arrays torch, else NumPy's.
"""

from __future__ import annotations

import argparse
import collections
import importlib
import random
import sys
from collections.abc import Iterable

from backend import NumpyArrays, TorchArrays
from cases import Case, Sizes, cases
from judge import Outcome, judge

SUITES = ("sdpa", "flex", "flash")


def suite(name: str, torch: bool) -> list[Case]:
    """All of its cases; without torch, those that need no torch. Indices stay."""
    families = importlib.import_module(name).FAMILIES
    return [case for case in cases(name, families) if torch or not case.family.torch]


def sample(drawn: list[Case], count: int, seed: int, kinds: int = 3) -> list[Case]:
    """`count` cases: from every family alike, and few of each so that kernels serve several."""
    rng = random.Random(seed)
    families: dict[str, list[Case]] = {}
    for case in drawn:
        families.setdefault(case.family.name, []).append(case)
    for members in families.values():
        rng.shuffle(members)
    chosen: list[Case] = []
    while len(chosen) < count and families:
        for name in list(families):
            chosen += families[name][:kinds]
            families[name] = families[name][kinds:]
            if not families[name]:
                del families[name]
    return sorted(chosen[:count], key=lambda case: case.index)


def run(case: Case, device: str = "cpu", torch: bool = False, small: bool = True) -> Outcome:
    arrays = TorchArrays(case.seed, device) if torch else NumpyArrays(case.seed)
    return judge(arrays, case.problem(arrays, Sizes(small)))


def run_all(
    chosen: Iterable[Case], device: str, torch: bool, small: bool, report: bool = True
) -> tuple[collections.Counter[str], collections.Counter[str], list[tuple[Case, Outcome]]]:
    """How many came out how, refusals by headline, and what is wrong or crashed."""
    counts: collections.Counter[str] = collections.Counter()
    refusals: collections.Counter[str] = collections.Counter()
    failures = []
    for case in chosen:
        outcome = run(case, device, torch, small)
        counts[outcome.kind] += 1
        if outcome.kind == "refused":
            refusals[f"{case.suite}.{case.family.name}: {outcome.text}"] += 1
        elif outcome.kind != "right":
            failures.append((case, outcome))
            if report:
                print(f"{outcome.kind.upper()} {case}\n      {outcome.text}", flush=True)
    return counts, refusals, failures


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
    options = parser.parse_args()
    torch = options.device != "cpu" or options.arrays == "torch"
    small = options.device != "cuda" and not options.whole
    failed = 0
    for name in SUITES if options.suite == "all" else (options.suite,):
        chosen = suite(name, torch)
        if options.family:
            chosen = [case for case in chosen if case.family.name == options.family]
        if options.only is not None:
            chosen = [case for case in chosen if case.index == options.only]
        elif options.cases is not None:
            chosen = sample(chosen, options.cases, options.seed)
        counts, refusals, failures = run_all(chosen, options.device, torch, small)
        failed += len(failures)
        for text, count in refusals.most_common():
            print(f"{count:6} refused  {text}")
        print(f"{name}: " + ", ".join(f"{n} {kind}" for kind, n in sorted(counts.items())))
        for case, _ in failures:
            how = f"--device {options.device}" + (" --arrays torch" if torch else "")
            print(f"  python tests/grids/run.py --suite {name} {how} --only {case.index}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
