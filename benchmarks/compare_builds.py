"""Two builds of FlashCore in one run: is a change slower anywhere?

    python benchmarks/compare_builds.py --before ../old/build/release/python \
        --after build/release/python
    python benchmarks/compare_builds.py --before A --after B --only forward --dims 128

Each build runs in a process of its own, and the two take turns, in the order before, after, after,
before and then after, before, before, after; the median of each counts. A case whose machine code
is the same in both is not timed. With --control the build before runs in one more process: its
ratio to itself differs from 1 by noise, as does that of the other build. Of many cases some look
slow by that noise alone: those below --again-below are measured once more at the end, with twice
the rounds, and both figures are told. Outputs are compared: builds may differ by the rounding of a
score, not by more. The tables are those of docs/performance_hopper.md: forward, small, variants,
head_dims, sequences (packed and padded) and backward.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import statistics
import subprocess
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from build_worker import Case
from contest import MODEL_WIDTH, TOLERANCE
from gpu_timing import machine, require_gpu
from hopper import LENGTHS, MASKS, SMALL, TOKENS, VARIANT_DIMS, VARIANT_LENGTHS, VARIANTS
from options import SUSTAINED, numbers, words
from report import mean_and_least

SECTIONS = ["forward", "small", "variants", "head_dims", "sequences", "backward"]
OTHER_DIMS = [32, 80, 96, 112, 160, 192]
MORE_VARIANTS = [("relative_bias_causal", 0), ("dense_bias", 0), ("dense_mask", 0),
                 ("chunked", 1024), ("sinks_causal", 0)]  # fmt: skip
BACKWARD_DIMS = [32, 64, 80, 96, 112, 128, 160, 192, 256]
BACKWARD_KINDS = [("full", 0), ("causal", 0), ("window", 1024)]
BACKWARD_VARIANTS = [("softcap_causal", 30), ("alibi_causal", 0), ("causal_documents", 1000)]
SEQUENCE_KINDS = [*BACKWARD_KINDS, ("softcap_causal", 30), ("alibi_causal", 0)]
PACKED_DIMS = [32, 64, 96, 128, 192]
PACKED_LENGTHS = [512, *VARIANT_LENGTHS]


@dataclass
class Result:
    section: str
    name: str
    ratio: float  # time before / time after: above 1 where the change is faster
    after_ms: float = math.nan
    control: float = math.nan  # time before / time before, of another process
    same_code: bool = False
    again: float = math.nan  # the ratio of a second measurement, of a case that looked slow
    apart: float = 0.0  # relative difference of the outputs


def of_tokens(kind: str, size: int, dtype: str, length: int, head_dim: int) -> Case:
    batch, heads = max(1, TOKENS // length), max(1, MODEL_WIDTH // head_dim)
    return Case(kind, size, dtype, batch, heads, length, head_dim)


def cases_of(section: str, dims: list[int]) -> list[Case]:
    found: list[Case] = []
    if section == "forward":
        every = itertools.product(["bf16", "fp16"], [64, 128, 256], MASKS, LENGTHS)
        found = [of_tokens(mask, 0, dtype, length, dim) for dtype, dim, mask, length in every]
    elif section == "small":
        found = [Case(mask, 0, "bf16", *shape) for shape in SMALL for mask in MASKS]
    elif section == "variants":
        kinds = [(case.kind, case.size) for case in VARIANTS] + MORE_VARIANTS
        every = itertools.product(kinds, VARIANT_DIMS, VARIANT_LENGTHS)
        found = [of_tokens(*kind, "bf16", length, dim) for kind, dim, length in every]
    elif section == "head_dims":
        every = itertools.product(OTHER_DIMS, MASKS, [1024, 4096, 16384])
        found = [of_tokens(mask, 0, "bf16", length, dim) for dim, mask, length in every]
    elif section == "sequences":
        every = itertools.product(SEQUENCE_KINDS, BACKWARD_DIMS, [256, 1024, 4096])
        lengths = [of_tokens(*kind, "bf16", length, dim) for kind, dim, length in every]
        found = [replace(case, packed=True) for case in lengths]
        found += [replace(case, padded=True) for case in lengths]
    elif section == "backward":
        every = itertools.product(BACKWARD_KINDS, BACKWARD_DIMS, [1024, 4096, 16384])
        found = [of_tokens(*kind, "bf16", length, dim) for kind, dim, length in every]
        every = itertools.product(BACKWARD_VARIANTS, VARIANT_DIMS, VARIANT_LENGTHS)
        found += [of_tokens(*kind, "bf16", length, dim) for kind, dim, length in every]
        every = itertools.product(BACKWARD_KINDS, PACKED_DIMS, PACKED_LENGTHS)
        packed = [of_tokens(*kind, "bf16", length, dim) for kind, dim, length in every]
        found += [replace(case, packed=True) for case in packed]
        found = [replace(case, backward=True) for case in found]
    return [case for case in found if not dims or case.head_dim in dims]


class Build:
    """A worker process, with one build of FlashCore."""

    def __init__(self, path: str, cache: str, target: str | None = None):
        environment = os.environ | {
            "PYTHONPATH": str(Path(path).resolve()),
            "FLASHCORE_CACHE_DIR": cache,
        }
        script = str(Path(__file__).with_name("build_worker.py"))
        self._process = subprocess.Popen(
            [sys.executable, script, *([target] if target else [])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def send(self, **command: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()

    def receive(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        return json.loads(line) if line else {"error": "the process has ended"}

    def ask(self, **command: Any) -> dict[str, Any]:
        self.send(**command)
        answer = self.receive()
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer


def apart(before: list[float], after: list[float]) -> float:
    """Relative to the size of what was computed before; infinite for NaN."""
    error = math.dist(before, after) / max(math.hypot(*before), 1e-30)
    return error if math.isfinite(error) else math.inf


def compare(
    builds: list[Build], section: str, case: Case, rounds: int, timing: dict[str, float]
) -> Result:
    loaded = [build.ask(do="load", case=asdict(case)) for build in builds]
    result = Result(section, case.name, 1.0, apart=apart(*(one["seen"] for one in loaded[:2])))
    if loaded[0]["code"] == loaded[1]["code"]:
        result.same_code = True
        return result
    for build in builds:  # a GPU that was idle has a higher clock, which the first would gain from
        build.ask(do="time", **timing)
    times: list[list[float]] = [[] for _ in builds]
    for which in turns(len(builds), rounds):
        answer = builds[which].ask(do="time", **timing)
        times[which].append(answer["ms"])
    before, result.after_ms, *again = (statistics.median(part) for part in times)
    result.ratio = before / result.after_ms
    if again:
        result.control = before / again[0]
    return result


def turns(builds: int, rounds: int) -> list[int]:
    """Each round once there and once back, so that whatever drifts, drifts for all; and each begins
    with another build, since the first of a round finds a GPU that rested."""
    order: list[int] = []
    for first in range(rounds):
        there = [(first + i) % builds for i in range(builds)]
        order += there + there[::-1]
    return order


def save(path: Path | None, results: list[tuple[Case, Result]]) -> None:
    if path:
        path.write_text(json.dumps([asdict(result) for _, result in results], indent=1))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--before", required=True, help="the folder that holds flashcore/")
    parser.add_argument("--after", required=True)
    parser.add_argument("--only", type=words, default=SECTIONS, help=f"of {', '.join(SECTIONS)}")
    parser.add_argument("--dims", type=numbers, default=[], help="these head_dims only")
    parser.add_argument("--target", help="of all forward kernels; sm_90: mma.sync on Hopper")
    parser.add_argument("--control", action="store_true", help="measure the noise as well")
    parser.add_argument("--rounds", type=int, default=3, help="two measurements of each a case")
    parser.add_argument("--budget-ms", type=float, default=40, help="GPU time of a measurement")
    parser.add_argument("--sustained-ms", type=float, default=0, help=SUSTAINED)
    parser.add_argument("--again-below", type=float, default=0.98, help="0: no case is")
    parser.add_argument("--json", type=Path, help="write every figure there")
    return parser.parse_args()


def main() -> int:
    options = parse()
    torch = require_gpu()
    print(machine(torch), flush=True)
    cache = os.environ.get("FLASHCORE_CACHE_DIR", "build/compare_builds")
    contenders = [("before", options.before), ("after", options.after)]
    if options.control:
        contenders.append(contenders[0])
    builds = [
        Build(path, str(Path(f"{cache}_{which}").resolve()), options.target)
        for which, path in contenders
    ]
    cases = {section: cases_of(section, options.dims) for section in options.only}
    every = [asdict(case) for part in cases.values() for case in part]
    problems = 0
    for build in builds:
        for name, why in build.ask(do="compile", cases=every)["failed"]:
            print(f"! {name}: {why}")
            problems += 1
    timing = {"budget_ms": options.budget_ms, "sustained_ms": options.sustained_ms}
    results: list[tuple[Case, Result]] = []
    for section, wanted in cases.items():
        for case in wanted:
            try:
                result = compare(builds, section, case, options.rounds, timing)
            except RuntimeError as error:
                print(f"! {case.name}: {' '.join(str(error).split())}", flush=True)
                problems += 1
                continue
            results.append((case, result))
            wrong = not result.apart < TOLERANCE[case.dtype]
            problems += wrong
            shown = "same code" if result.same_code else f"{result.ratio:.3f}"
            if math.isfinite(result.control):
                shown += f" control {result.control:.3f}"
            notes = f"  WRONG: {result.apart:.1e} apart" if wrong else ""
            print(f"{section:>10} {case.name:<45} {shown:>9}{notes}", flush=True)
            save(options.json, results)
    for case, result in results:
        if result.ratio < options.again_below:
            second = compare(builds, result.section, case, 2 * options.rounds, timing)
            result.again = second.ratio
            print(f"{'again':>10} {case.name:<45} {result.ratio:.3f}, then {second.ratio:.3f}",
                  flush=True)  # fmt: skip
            save(options.json, results)
    for section in options.only:
        part = [result for _, result in results if result.section == section]
        timed = [r.ratio for r in part if not r.same_code]
        control = [r.control for r in part if not r.same_code]
        same = sum(r.same_code for r in part)
        if found := mean_and_least(timed):
            noise = mean_and_least(control) if options.control else None
            print(f"{section}: {len(timed)} timed, before / after mean {found[0]:.3f}, "
                  f"least {found[1]:.3f}"
                  + (f" (control {noise[0]:.3f}, {noise[1]:.3f})" if noise else "")
                  + f"; {same} of the same code")  # fmt: skip
        else:
            print(f"{section}: {same} of the same code")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
