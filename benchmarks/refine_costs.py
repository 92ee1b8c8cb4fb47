"""Moves the coefficients of the cost model to where the schedules that it chooses lose least.

    python benchmarks/schedule_choice.py --out choice.json              # on a GPU, some times
    python benchmarks/refine_costs.py choice.json --seconds 300 --out costs.json

`flashcore calibrate` fits coefficients to the times of kernels, each family of schedules by itself;
a choice depends on differences between families as small as the errors of those fits. A random
search from there changes a few coefficients of one family at a time, and keeps a change that makes
the chosen schedules of all problems in the files faster: in the mean, and above all where they are
far from the best. A schedule that is predicted to be nearly as fast as the chosen one counts in its
place if it is slower. Problems of several GPUs count together, each with its GPU's bandwidth and L2
size from the table. Needs no GPU. The table goes to --out; the build reads it at its place in
templates/. A file that is named several times counts as often.
"""

from __future__ import annotations

import argparse
import copy
import datetime
import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

SHIPPED = Path(__file__).parents[1] / "templates/choice/cost_coefficients.json"
NEAR = 1.006  # of two predictions no further apart, either schedule may be chosen
BOUNDS = {1.02: 1, 1.05: 3, 1.10: 10, 1.13: 20}
"""By its time over that of the best, how many times more a chosen schedule costs."""
PULL = 1e-3
"""The cost of a coefficient e times as large as its fit, as a share of time in the mean. With
a tenth of it, more problems outside the files have a schedule that is far from the best."""
LEAST_US = 0.05  # added to coefficients before they are compared: those near 0 change freely
STEPS = (0.02, 0.06, 0.15)
Families = dict[str, dict[str, Any]]
Choice = tuple[np.ndarray, np.ndarray]
"""For every problem, the prediction for the schedule of one family that is predicted to be its
fastest, and the time that was measured of that schedule; infinity and 0 without a candidate."""


class Problems:
    """Problems that were timed on one GPU under all candidates."""

    def __init__(self, gpu: dict[str, Any], cluster_share: float, rows: Iterable[dict[str, Any]]):
        from flashcore import _core

        self._gpu, self._cluster_share = gpu, cluster_share
        rows = list(rows)
        self.best = np.array([min(row["whole"].values()) for row in rows])
        self._probes: dict[str, Any] = {}
        measured: dict[str, list[tuple[int, float]]] = {}
        for at, row in enumerate(rows):
            for schedule, us in row["whole"].items():
                name = _core.cost_family(schedule)
                if name not in measured:
                    facts = gpu["multiprocessors"], gpu["l2_bytes"]
                    self._probes[name], measured[name] = _core.CostProbe(*facts), []
                self._probes[name].add(row["spec"], schedule, tuple(row["problem"]))
                measured[name].append((at, us))
        self._measured = {
            name: tuple(np.array(column) for column in zip(*pairs, strict=True))
            for name, pairs in measured.items()
        }
        self.choices: dict[str, Choice] = {}

    @property
    def families(self) -> Iterable[str]:
        return self._probes

    def choice_of(self, name: str, costs: dict[str, Any]) -> Choice:
        at, us = self._measured[name]
        predicted = np.array(
            self._probes[name].times(
                json.dumps(costs), self._gpu["bytes_per_us"], self._cluster_share
            )
        )
        least, taken = np.full(len(self.best), np.inf), np.zeros(len(self.best))
        np.minimum.at(least, at, predicted)
        is_best = predicted == least[at]
        taken[at[is_best]] = us[is_best]
        return least, taken

    def losses(self, changed: dict[str, Choice] | None = None) -> np.ndarray:
        """For every problem, the time of the chosen schedule over that of the fastest candidate."""
        choices = (self.choices | (changed or {})).values()
        predicted = np.stack([least for least, _ in choices])
        taken = np.stack([taken for _, taken in choices])
        is_near = predicted <= NEAR * predicted.min(axis=0)
        return np.where(is_near, taken, 0).max(axis=0) / self.best


def penalty(losses: np.ndarray) -> float:
    """The mean logarithm of losses, and of those above each of BOUNDS more."""
    far = (weight * np.maximum(0, np.log(losses / bound)) for bound, weight in BOUNDS.items())
    return float(np.mean(np.log(losses) + sum(far)))


def distance(families: Families, start: Families) -> float:
    """The squared logarithms of all coefficients over those that the search began with."""
    pairs = [(np.array(families[name][field]), np.array(start[name][field]))
             for name in start for field in start[name]]  # fmt: skip
    return float(
        sum(np.sum(np.log((now + LEAST_US) / (then + LEAST_US)) ** 2) for now, then in pairs)
    )


def vary(rng: np.random.Generator, costs: dict[str, Any]) -> dict[str, Any]:
    """The coefficients of a family with one to four of them some per cent larger or smaller."""
    costs = copy.deepcopy(costs)
    for field in rng.choice(list(costs), rng.integers(1, 5)):
        factor = float(np.exp(rng.normal() * rng.choice(STEPS)))
        if isinstance(costs[field], list):
            at = rng.integers(len(costs[field]))
            costs[field][at] = round(costs[field][at] * factor, 4)
        else:
            costs[field] = round(costs[field] * factor, 4)
    return costs


def refine(sets: list[Problems], start: Families, seconds: float, seed: int) -> Families:
    """The coefficients of the least penalty that were found in so many seconds."""
    rng, families = np.random.default_rng(seed), copy.deepcopy(start)
    names = sorted(set().union(*(problems.families for problems in sets)))
    for problems in sets:
        problems.choices = {n: problems.choice_of(n, families[n]) for n in problems.families}

    def cost(now: Families, choices: list[dict[str, Choice]]) -> float:
        losses = [problems.losses(own) for problems, own in zip(sets, choices, strict=True)]
        return penalty(np.concatenate(losses)) + PULL * distance(now, start)

    least, end = cost(families, [{} for _ in sets]), time.monotonic() + seconds
    while time.monotonic() < end:
        name = str(rng.choice(names))
        costs = vary(rng, families[name])
        choices = [{name: problems.choice_of(name, costs)} if name in problems.families else {}
                   for problems in sets]  # fmt: skip
        own = cost(families | {name: costs}, choices)
        if own < least:
            least, families[name] = own, costs
            for problems, choice in zip(sets, choices, strict=True):
                problems.choices |= choice
    return families


def summary(losses: np.ndarray) -> str:
    above = ", ".join(f"{int(np.sum(losses > bound))} above {bound:.2f}" for bound in (1.05, 1.15))
    mean = float(np.exp(np.log(losses).mean()))
    return f"{mean:.4f} in the mean, {losses.max():.3f} at most, {above} of {len(losses)}"


def read_problems(
    files: Iterable[Path], table: list[dict[str, Any]], cluster_share: float
) -> list[Problems]:
    """The problems of each GPU in files that schedule_choice.py wrote."""
    rows: dict[str, list[dict[str, Any]]] = {}
    for file in files:
        found = json.loads(file.read_text())
        rows.setdefault(found["machine"].split(",")[0], []).extend(found["rows"])
    gpus = {entry["gpu"]: entry for entry in table}
    unknown = set(rows) - set(gpus)
    if unknown:
        raise SystemExit(
            f"the problems of {', '.join(unknown)} cannot be predicted: the table of coefficients"
            f" has entries for {', '.join(gpus)} alone; measure that GPU with"
            " `flashcore calibrate`,"
            " or name a table with its entry by --table"
        )
    return [Problems(gpus[name], cluster_share, own) for name, own in rows.items()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", type=Path, nargs="+", help="of schedule_choice.py --out")
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--table", type=Path, default=SHIPPED, help="the one to begin with")
    parser.add_argument("--out", type=Path, default=Path("cost_coefficients.json"))
    given = parser.parse_args()
    from flashcore.cache.table_text import table_text

    table = json.loads(given.table.read_text())
    entry = next(entry for entry in table if "families" in entry)
    sets = read_problems(given.files, table, entry["cluster_share"])
    before = entry["families"]
    entry["families"] = refine(sets, before, given.seconds, given.seed)
    count = sum(len(problems.best) for problems in sets)
    entry["measured"]["refined"] = f"{datetime.date.today()}, {count} problems"
    for problems in sets:
        after = summary(problems.losses())
        problems.choices = {n: problems.choice_of(n, before[n]) for n in problems.families}
        print(f"before: {summary(problems.losses())}\nafter:  {after}")
    given.out.write_text(table_text(table) + "\n")


if __name__ == "__main__":
    main()
