"""The coefficients of the cost model, measured on the GPU that is here.

All schedules among which the model chooses are timed on random problems; the coefficients of each
family of schedules are those whose predictions come closest to what was measured. See
templates/choice/cost_model.h and templates/choice/decode_splits.h in the sources.
"""

from __future__ import annotations

import datetime
import json
import math
import random
import statistics
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from .. import _core
from ..cache.table_text import table_text
from ..cache.tuning_table import Problem
from ..errors import DeviceError
from ..kernels.just_in_time import default_target
from .decode_costs import draw_split_problem, measure_splits, split_specs
from .gpu import require_torch
from .measurements import (
    HOPELESS,
    Contest,
    Measurements,
    Say,
    draw_problems,
    measure_candidates,
    measured_specs,
)
from .terms import fit_terms, measure_terms

SPLIT_PROBLEMS = 18  # of each spec
_FAR = 1.3
"""Schedules that take more than so many times the best do not count in a fit: they are never close
to being chosen, and predictions that come near to theirs too make the choice among others worse."""


def measure(problems: int, seed: int = 0, say: Say = lambda text: None) -> Measurements:
    """Times all candidates on so many random problems of each spec, and what else coefficients are
    found by. Raises DeviceError without a GPU whose target has a cost model."""
    target = default_target()
    torch = require_torch(target)
    if not _core.target_facts(target)["wgmma"]:
        raise DeviceError(
            "measuring the cost model",
            f"{target} has one schedule for all problems of a spec: nothing is chosen by costs",
            "python -m flashcore.tune --head-dim ..., for a better one",
        )
    found = Measurements.here(torch, target)
    contest = Contest(torch)
    rng = random.Random(seed)
    measure_candidates(found, contest, draw_problems(rng, measured_specs(), problems), say)
    measure_terms(found, contest, say)
    wanted = [(spec, draw_split_problem(rng, spec, found)) for spec in split_specs()
              for _ in range(SPLIT_PROBLEMS)]  # fmt: skip
    measure_splits(found, contest, wanted, rng, say)
    return found


@dataclass
class _Family:
    """What was measured of one family, ready to be compared with predictions."""

    probe: Any
    times: list[float] = field(default_factory=list)
    weights: list[float] = field(default_factory=list)


def _families(found: Measurements) -> dict[str, _Family]:
    families: dict[str, _Family] = {}
    for spec, problem, times in found.rows:
        best = min(times.values())
        for schedule, us in times.items():
            if us > _FAR * best:
                continue
            name = _core.cost_family(schedule)
            if name not in families:
                probe = _core.CostProbe(found.multiprocessors, found.l2_bytes)
                families[name] = _Family(probe)
            family = families[name]
            family.probe.add(spec, schedule, problem)
            family.times.append(us)
            # What is close to the best decides.
            family.weights.append((best / us) ** 2)
    return families


# A value to begin with, and by how much the search changes it at first.
_FAMILY_START = {
    "launch_us": (2.2, 1.0),
    "spread_us": (0.3, 0.5),
    "fill_share": (0.5, 0.5),
    "stall_share": (0.2, 0.2),
    "iteration_us": (0.1, 0.1),
    "contention": (0.9, 0.3),
    "mask_us": (0.3, 0.3),
    "split_us": (0.3, 0.5),
    "split_dim_us": (0.3, 0.5),
}
# A value to begin with at head_dim 0, by how much it grows up to 128, and the change.
_FAMILY_START_BY_DIM = {
    "block_us": (1.0, 0.5, 1.0),
    "columns_us": (0.4, 0.8, 0.5),
    "row_share": (0.5, 0.0, 0.5),
}
_LIKE = {"128/multicast": "128/ping_pong"}
"""Kernels with multicast are candidates above a head_dim of 112 alone, and few of their times are
measured: their fit begins with the coefficients of another family and stays near.
"""
_CLUSTER_SHARE = 0.92
"""Of 132 multiprocessors in groups of 16 or 18, clusters of four reach 120."""


def _fit(
    predict: Callable[[list[float]], list[float]],
    times: Sequence[float],
    weights: Sequence[float],
    start: Sequence[float],
    scale: Sequence[float],
    drawn: Callable[[Any], Any],
    step: float = 1e-4,
) -> list[float]:
    """The coefficients, none below 0, whose predictions come closest; `drawn` are more residuals,
    for what nothing was measured of. `step`: the least share by which a prediction tells them
    apart."""
    from scipy.optimize import least_squares  # type: ignore[import-untyped]

    measured, weighed = np.log(times), np.array(weights)

    def residuals(numbers: Any) -> Any:
        numbers = np.abs(numbers)
        predicted = np.log(predict(list(numbers)))
        return np.concatenate([(predicted - measured) * weighed, drawn(numbers)])

    solution = least_squares(
        residuals, start, loss="soft_l1", f_scale=0.05, x_scale=scale, max_nfev=200, diff_step=step
    )
    return [round(abs(float(number)), 4) for number in solution.x]


def fit(found: Measurements) -> tuple[dict[str, Any], float]:
    """An entry of a table of coefficients, and the mean error of its predictions (of 1)."""
    names, dims = list(_FAMILY_START), _core.cost_dims()
    start = [first for first, _ in _FAMILY_START.values()]
    scale = [changed for _, changed in _FAMILY_START.values()]
    for first, of_dim, changed in _FAMILY_START_BY_DIM.values():
        start += [first + of_dim * dim / 128 for dim in dims]
        scale += [changed for _ in dims]

    def small_and_smooth(numbers: Any) -> Any:
        tables = numbers[len(names) :].reshape(-1, len(dims))
        steps = [0.01 * np.diff(table) / (0.01 + table.mean()) for table in tables]
        return np.concatenate([0.003 * numbers, *steps])

    families: dict[str, Any] = {}
    coefficients: dict[str, list[float]] = {}
    errors: list[float] = []
    for name, family in sorted(_families(found).items(), key=lambda one: (one[0] in _LIKE, one[0])):

        def predict(numbers: list[float], family: _Family = family) -> list[float]:
            text = json.dumps(_costs(_FAMILY_START, _FAMILY_START_BY_DIM, numbers))
            predicted: list[float] = family.probe.times(text, found.bytes_per_us, _CLUSTER_SHARE)
            return predicted

        own = _without_idle(predict, start, len(names))
        drawn = small_and_smooth
        if alike := coefficients.get(_LIKE.get(name, "")):
            own = list(alike)

            def drawn(numbers: Any, own: list[float] = own) -> Any:
                return 0.05 * (numbers - np.array(own)) / np.array(scale)

        numbers = _fit(predict, family.times, family.weights, own, scale, drawn)
        errors += [abs(math.log(a / b))
                   for a, b in zip(predict(numbers), family.times, strict=True)]  # fmt: skip
        coefficients[name] = numbers
        families[name] = _costs(_FAMILY_START, _FAMILY_START_BY_DIM, numbers)
    entry = {
        "gpu": found.gpu,
        "target": found.target,
        "multiprocessors": found.multiprocessors,
        "l2_bytes": found.l2_bytes,
        "bytes_per_us": round(found.bytes_per_us),
        "cluster_share": _CLUSTER_SHARE,
        **fit_terms(found, families, _CLUSTER_SHARE),
        "families": families,
        "decoding": fit_decoding(found),
        "measured": {
            **found.machine,
            "date": datetime.date.today().isoformat(),
            "problems": len(found.rows),
        },
    }
    return entry, statistics.mean(errors)


def _without_idle(
    predict: Callable[[list[float]], list[float]], start: Sequence[float], count: int
) -> list[float]:
    """The start, with 0 for those of the first `count` coefficients that change no prediction."""
    predicted = predict(list(start))

    def is_idle(at: int) -> bool:
        return predict([*start[:at], 2 * start[at], *start[at + 1 :]]) == predicted

    return [0.0 if is_idle(at) else start[at] for at in range(count)] + list(start[count:])


_DECODE_START = {
    "launch_us": (5.0, 2.0),
    "block_us": (0.5, 1.0),
    "lone_share": (0.2, 0.2),
    "read_factor": (1.0, 0.2),
    "stall_share": (0.2, 0.2),
    "split_us": (0.05, 0.03),
    "partial_us": (0.05, 0.03),
    "row_us": (0.1, 0.05),
    "tiled_row_us": (0.05, 0.02),
}
_DECODE_BY_DIM = ["columns_us"]
_SHARES = {"lone_share", "read_factor", "stall_share"}


def fit_decoding(found: Measurements) -> dict[str, dict[str, Any]]:
    """The coefficients of the blocks of decoding."""
    names, dims = list(_DECODE_START), _core.cost_dims()
    start = [*(first for first, _ in _DECODE_START.values()), *(0.3 + dim / 128 for dim in dims)]
    scale = [*(changed for _, changed in _DECODE_START.values()), *(0.5 for _ in dims)]
    best: dict[tuple[str, Problem], float] = {}
    for spec, problem, _, _, us in found.split:
        best[spec, problem] = min(us, best.get((spec, problem), math.inf))
    families: dict[str, _Family] = {}
    for spec, problem, blocks, splits, us in found.split:
        name = _core.decode_family(blocks)
        if name not in families:
            families[name] = _Family(_core.SplitProbe(found.multiprocessors))
        families[name].probe.add(spec, blocks, problem, splits)
        families[name].times.append(us)
        families[name].weights.append(best[spec, problem] / us)
    # In thousandths: it counts in whole picoseconds, and shares in ten-thousandths.
    slower = [1 if name in _SHARES else 1000 for name in names] + [1000] * len(dims)
    fitted = {}
    for name, family in sorted(families.items()):

        def predict(numbers: list[float], probe: Any = family.probe) -> list[float]:
            slow = [number * by for number, by in zip(numbers, slower, strict=True)]
            text = json.dumps(_costs(_DECODE_START, _DECODE_BY_DIM, slow))
            return [us / 1000 for us in probe.times(text, found.bytes_per_us / 1000)]

        def near_start_and_smooth(numbers: Any) -> Any:
            away = (numbers - np.array(start)) / np.array(scale)
            columns = numbers[len(names) :]
            return np.concatenate(
                [0.05 * away[: len(names)], 0.1 * np.diff(columns, 2) / columns.mean()]
            )

        numbers = _fit(
            predict, family.times, family.weights, start, scale, near_start_and_smooth, step=1e-3
        )
        fitted[name] = _costs(_DECODE_START, _DECODE_BY_DIM, numbers)
    return fitted


def _costs(
    names: Collection[str], by_dim: Collection[str], numbers: Sequence[float]
) -> dict[str, Any]:
    """Coefficients as a table has them: numbers, and lists with one for each head_dim."""
    count = len(_core.cost_dims())
    rows = [list(numbers[at : at + count]) for at in range(len(names), len(numbers), count)]
    return dict(zip(names, numbers, strict=False)) | dict(zip(by_dim, rows, strict=True))


def losses(found: Measurements, table: str | None) -> Iterator[tuple[float, str, Problem]]:
    """For every problem, the time of the schedule that is chosen with these coefficients over the
    best that was measured; None: those that kernels are made by."""
    gpu = found.gpu, found.multiprocessors, found.l2_bytes
    if table is None:
        file = _core.cost_model_file()
        table = Path(file).read_text() if file and Path(file).exists() else ""
    for spec, problem, times in found.rows:
        chosen = _core.choose_with(spec, found.target, problem, table, gpu)
        best = min(times.values())
        yield times.get(chosen, HOPELESS * best) / best, spec, problem


def write(path: Path, entry: dict[str, Any]) -> None:
    """Puts the entry into the table at `path`, in the place of what was there for its GPU."""
    there: list[dict[str, Any]] = json.loads(path.read_text()) if path.exists() else []
    kept = [e for e in there if (e["gpu"], e["target"]) != (entry["gpu"], entry["target"])]
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    aside = path.with_suffix(".new")
    aside.write_text(table_text([*kept, entry]) + "\n")
    aside.replace(path)
    _core.forget_cost_models()


__all__ = ["fit", "losses", "measure", "write"]
