"""Wrong and unusual values for every parameter of every public function.

    python tests/surface/run.py --cases 5000
    python tests/surface/run.py --first 1234 --cases 1 --show     # one draw again

Each draw calls one function with right arguments of which some are spoiled. What comes out is an
fc.Error with all its parts, in words of FlashCore, or a result equal to fp64. Draws run in child
processes, so that a crash or a hang is one draw's failure and not the end. FLASHCORE_PROPERTY_CASES
and FLASHCORE_PROPERTY_FIRST stand in for the options.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import os
import re
import sys
import traceback
import warnings
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "support"))
import workers

SECONDS = 60  # of one draw, after which it counts as hanging
CHUNK = 500
INSIDES = re.compile(
    r"incompatible (function|constructor) arguments|pybind|has no attribute|unsupported operand"
    r"|NoneType|object is not|positional argument|<object object|built-in function|_core\."
)


@dataclasses.dataclass
class Failure:
    index: int
    text: str

    def __str__(self) -> str:
        return f"{self.text}\n    python tests/surface/run.py --first {self.index} --cases 1 --show"


def draw(index: int) -> tuple[Any, dict[str, Any], list[tuple[str, str]]]:
    """Target, arguments, and which were spoiled with what."""
    import numpy as np
    from targets import TARGETS
    from values import BENT, PLAIN, bent_names

    rng = np.random.default_rng(index)
    weights = np.array([target.weight for target in TARGETS], float)
    target = TARGETS[rng.choice(len(TARGETS), p=weights / weights.sum())]
    arguments = target.draw(rng)
    open_to = [name for name in arguments if not name.startswith("_")]
    spoiled = []
    count = min(len(open_to), int(rng.choice([0, 1, 2], p=[0.05, 0.75, 0.2])))
    for name in rng.choice(open_to, count, replace=False):
        bent = bent_names(arguments[name])
        if bent and rng.integers(2):
            kind = str(rng.choice(bent))
            arguments[name] = BENT[kind](arguments[name])
        elif arguments.get("out") is None and name == "out" and rng.integers(2):
            kind = str(rng.choice(["q", "k"]))
            arguments[name] = arguments[kind]
        else:
            kind = str(rng.choice(list(PLAIN)))
            arguments[name] = PLAIN[kind]()
        spoiled.append((str(name), kind))
    return target, arguments, spoiled


def judge(index: int, show: bool = False) -> tuple[str, str]:
    """("refused" or "right", "") or ("failed", what is wrong)."""
    import numpy as np

    import flashcore as fc

    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            target, arguments, spoiled = draw(index)
        except (TypeError, ValueError, IndexError):  # what cannot be bent so
            return "right", ""
    from oracle import Meaningless, TooLarge

    title = f"{target.name}({', '.join(f'{name}: {kind}' for name, kind in spoiled)})"

    def failed(text: str) -> tuple[str, str]:
        return "failed", f"{title}: {text}"

    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        try:
            result = target.call(**arguments)
        except fc.Error as error:
            if show:
                print(f"{title}\n{type(error).__name__}: {error}")
            if isinstance(error, fc.InternalError):
                return failed(f"InternalError: {error}")
            parts = {"what": error.what, "why": error.why, "fix": error.fix}
            missing = [name for name, part in parts.items() if not part]
            if missing:
                return failed(f"without {', '.join(missing)}: {error}")
            inside = INSIDES.search(str(error))
            if inside:
                return failed(f"shows its insides, {inside[0]!r}: {str(error)[:300]}")
            if len(str(error)) > 4000:
                return failed(f"a message of {len(str(error))} characters")
            return "refused", ""
        except Exception as error:
            if show:
                traceback.print_exc()
            return failed(f"{type(error).__name__}: {str(error)[:300]}")
    if len(heard) > 2:
        return failed(f"{len(heard)} warnings: {heard[0].message}")
    if show:
        print(f"{title}\nreturned {str(result)[:300]}")
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            wrong = target.check(arguments, result)
        except TooLarge:
            wrong = None
        except Meaningless as error:
            return failed(f"taken without a word: {error}")
    return ("right", "") if wrong is None else failed(f"wrong: {wrong}")


def run(first: int, count: int, jobs: int) -> tuple[collections.Counter[str], list[Failure]]:
    counts: collections.Counter[str] = collections.Counter()
    failures: list[Failure] = []
    draws = range(first, first + count)
    shares = [draws[i : i + CHUNK] for i in range(0, count, CHUNK)]
    command = [sys.executable, __file__, "--child"]
    for answer in workers.run(command, shares, jobs, SECONDS, renew=True):
        kind, text = ("failed", answer.error) if answer.error else answer.outcome
        counts[kind] += 1
        if kind == "failed":
            failures.append(Failure(answer.task, text))
    return counts, sorted(failures, key=lambda failure: failure.index)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    environment = os.environ.get
    parser.add_argument(
        "--cases", type=int, default=int(environment("FLASHCORE_PROPERTY_CASES") or 5000)
    )
    parser.add_argument(
        "--first", type=int, default=int(environment("FLASHCORE_PROPERTY_FIRST") or 0)
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--show", action="store_true", help="in this process, and what comes out")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        workers.serve(judge)
        return 0
    if options.show:
        outcomes = [judge(options.first + i, True) for i in range(options.cases)]
        print(*outcomes, sep="\n")
        return int(any(kind == "failed" for kind, _ in outcomes))
    counts, failures = run(options.first, options.cases, options.jobs)
    kinds = collections.Counter(re.sub(r"\d+", "#", f.text)[:140] for f in failures)
    for failure in failures:
        print(failure)
    print(f"--- {len(kinds)} kinds of failure")
    for text, number in kinds.most_common():
        print(f"{number:5} {text.splitlines()[0]}")
    print(", ".join(f"{number} {kind}" for kind, number in counts.items()))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
