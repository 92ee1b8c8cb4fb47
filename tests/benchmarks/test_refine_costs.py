"""Coefficients move to where the schedules that are chosen lose least, on made-up times."""

import copy
import itertools
import json
import sys
from pathlib import Path

import numpy as np
import pytest

import flashcore as fc
from flashcore import _core

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import refine_costs

TABLE = json.loads(refine_costs.SHIPPED.read_text())
GPU = next(entry for entry in TABLE if "families" in entry)
SIZES = list(itertools.product((1, 4), (4, 8, 16), (256, 512, 1024, 2048)))


def made_up(families: refine_costs.Families) -> list[dict[str, object]]:
    """Problems that take what these coefficients predict."""
    spec = fc.AttentionSpec(head_dim=64).to_json()
    rows = []
    for batch, heads, length in SIZES:
        times = {}
        for schedule in _core.candidate_schedules(spec):
            probe = _core.CostProbe(GPU["multiprocessors"], GPU["l2_bytes"])
            probe.add(spec, schedule, (batch, heads, length, length))
            own = json.dumps(families[_core.cost_family(schedule)])
            times[schedule] = probe.times(own, GPU["bytes_per_us"], GPU["cluster_share"])[0]
        rows.append({"spec": spec, "problem": [batch, heads, length, length], "whole": times})
    return rows


def problems_of(rows: list[dict[str, object]]) -> refine_costs.Problems:
    return refine_costs.Problems(GPU, GPU["cluster_share"], rows)


def with_choices(problems: refine_costs.Problems, families: refine_costs.Families) -> np.ndarray:
    problems.choices = {n: problems.choice_of(n, families[n]) for n in problems.families}
    return problems.losses()


def test_what_is_predicted_right_loses_nothing_but_where_predictions_are_near() -> None:
    losses = with_choices(problems_of(made_up(GPU["families"])), GPU["families"])
    assert losses.max() <= refine_costs.NEAR


def test_a_family_that_is_predicted_too_fast_is_found() -> None:
    wrong = copy.deepcopy(GPU["families"])
    wrong["64"]["columns_us"] = [us / 1.3 for us in wrong["64"]["columns_us"]]
    problems = problems_of(made_up(GPU["families"]))
    before = with_choices(problems, wrong)
    found = refine_costs.refine([problems], wrong, seconds=3, seed=1)
    after = with_choices(problems, found)
    assert before.max() > 1.05
    assert refine_costs.penalty(after) < refine_costs.penalty(before)
    assert refine_costs.distance(found, wrong) > 0


def test_problems_of_several_gpus_count_with_the_memory_of_each(tmp_path: Path) -> None:
    rows = made_up(GPU["families"])
    files = []
    for name in ("NVIDIA H200", "NVIDIA H100 80GB HBM3", "NVIDIA H200"):
        files.append(tmp_path / f"{len(files)}.json")
        machine = f"{name}, 132 multiprocessors, torch"
        files[-1].write_text(json.dumps({"machine": machine, "rows": rows}))
    sets = refine_costs.read_problems(files, TABLE, GPU["cluster_share"])
    assert [len(problems.best) for problems in sets] == [2 * len(rows), len(rows)]


def test_a_gpu_that_the_table_has_no_entry_for_is_named(tmp_path: Path) -> None:
    file = tmp_path / "choice.json"
    file.write_text(json.dumps({"machine": "A GPU, 1 multiprocessor", "rows": []}))
    with pytest.raises(SystemExit, match="problems of A GPU cannot be predicted"):
        refine_costs.read_problems([file], TABLE, GPU["cluster_share"])
