"""Moves the coefficients of the cost model to where the schedules that it chooses lose least.

    python benchmarks/schedule_choice.py --out choice.json              # on a GPU, some times
    python benchmarks/refine_costs.py choice.json --seconds 300 --out costs.json

`flashcore calibrate` fits coefficients to the times of kernels, each family of schedules by itself;
a choice depends on differences between families as small as the errors of those fits. A random
search from there changes a few coefficients of one family at a time, and keeps a change that makes
the chosen schedules of all problems in the files faster: in the mean, and above all where they are
far from the best. A schedule that is predicted to be nearly as fast as the chosen one counts in its
place if it is slower. Where kernels with split keys were timed as well, what the call would get
counts besides; the coefficients of these kernels stay as they are. Problems of several GPUs count
together if the table has one set of coefficients for them, each with its GPU's bandwidth and L2
size. Needs no GPU. The table goes to --out; the build reads it at its place in templates/. A file
that is named several times counts as often.
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
from schedule_choice import named

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

    def __init__(
        self,
        gpu: dict[str, Any],
        costs: dict[str, Any],
        split_gain: float,
        rows: Iterable[dict[str, Any]],
    ):
        """`gpu` and `costs`: its entry of the table, and that with its coefficients. `split_gain`:
        by what share a split has to be predicted faster."""
        from flashcore import _core

        self._gpu, self._cluster_share = gpu, costs["cluster_share"]
        self._split_factor = 1 + split_gain
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
        self._split, self._best_call = self._split_choice(costs["decoding"], rows)

    def _split_choice(
        self, decoding: dict[str, Any], rows: list[dict[str, Any]]
    ) -> tuple[Choice, np.ndarray]:
        """What choice_of gives, of kernels with split keys, and for every problem the time of the
        fastest kernel, with whole keys or split."""
        from flashcore import AttentionSpec, _core
        from flashcore.tuning.decode_costs import blocks_for

        least, taken = np.full(len(rows), np.inf), np.zeros(len(rows))
        best_call = self.best.copy()
        for at, row in enumerate(rows):
            # Times of another contest, in which the best schedule with whole keys took part again.
            timed = row.get("split", {})
            whole = min(row["whole"].keys() & timed.keys(), key=timed.get, default=None)
            if whole is None:
                continue
            scale = row["whole"][whole] / timed[whole]
            spec = AttentionSpec.from_json(row["spec"])
            for blocks in blocks_for(spec, self._gpu["target"], row["problem"][2]):
                if (name := named(blocks)) not in timed:
                    continue
                probe = _core.SplitProbe(self._gpu["multiprocessors"])
                probe.add(row["spec"], blocks, tuple(row["problem"]), None)
                costs = json.dumps(decoding[_core.decode_family(blocks)])
                (us,) = probe.times(costs, self._gpu["bytes_per_us"])
                best_call[at] = min(best_call[at], scale * timed[name])
                if us < least[at]:
                    least[at], taken[at] = us, scale * timed[name]
        return (least, taken), best_call

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
        """For every problem, the time of the chosen schedule over that of the fastest candidate;
        behind them, for every problem whose keys may be split, that of what the call gets over the
        best of all."""
        choices = list((self.choices | (changed or {})).values())
        least, taken = self._split
        call = slowest_near_best([*choices, (least * self._split_factor, taken)]) / self._best_call
        return np.concatenate([slowest_near_best(choices) / self.best, call[np.isfinite(least)]])


def slowest_near_best(choices: list[Choice]) -> np.ndarray:
    """For every problem, the time that it may take: of those whose predictions are the least, or
    near that, the slowest."""
    predicted = np.stack([least for least, _ in choices])
    taken = np.stack([taken for _, taken in choices])
    return np.where(predicted <= NEAR * predicted.min(axis=0), taken, 0).max(axis=0)


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
    files: Iterable[Path], table: list[dict[str, Any]]
) -> tuple[list[Problems], dict[str, Any]]:
    """The problems of each GPU in files that schedule_choice.py wrote, and the entry of the table
    whose coefficients these GPUs have."""
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
    measured = {name: name if "families" in gpus[name] else gpus[name]["measured"]["gpu"]
                for name in rows}  # fmt: skip
    if len(set(measured.values())) != 1:
        raise SystemExit(
            f"the problems of {' and '.join(measured)} cannot be refined together: in the table of"
            f" coefficients, those of {' and '.join(sorted(set(measured.values())))} differ;"
            " name files of GPUs that have the same"
        )
    costs = gpus[next(iter(measured.values()))]
    split_gain = next(e["properties"]["split_gain"] for e in table if "properties" in e)
    return [Problems(gpus[name], costs, split_gain, own) for name, own in rows.items()], costs


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
    sets, entry = read_problems(given.files, table)
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
