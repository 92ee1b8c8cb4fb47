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
from flashcore.tuning import decode_costs

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import refine_costs
from schedule_choice import named

TABLE = json.loads(refine_costs.SHIPPED.read_text())
GPU = next(entry for entry in TABLE if "families" in entry)
SPLIT_GAIN = GPU["properties"]["split_gain"]
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
    return refine_costs.Problems(GPU, GPU, SPLIT_GAIN, rows)


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


def test_what_a_call_with_split_keys_gets_counts_beside_its_schedule_of_whole_keys() -> None:
    spec = fc.AttentionSpec(head_dim=64)
    problem = 1, 4, 1, 16384
    (schedule, *_) = _core.candidate_schedules(spec.to_json())
    (blocks, *_) = decode_costs.blocks_for(spec, GPU["target"], 1)
    row = {
        "spec": spec.to_json(),
        "problem": problem,
        "whole": {schedule: 100.0},
        # Timed again with those that split keys, on a slower clock.
        "split": {schedule: 110.0, named(blocks): 22.0},
    }
    losses = with_choices(problems_of([row]), GPU["families"])
    assert losses == pytest.approx([1, 1]), "keys are split, which takes 20 us"
    dear = GPU | {"decoding": copy.deepcopy(GPU["decoding"])}
    for costs in dear["decoding"].values():
        costs["launch_us"] = 1000.0
    problems = refine_costs.Problems(GPU, dear, SPLIT_GAIN, [row])
    assert with_choices(problems, GPU["families"]) == pytest.approx([1, 5]), "they are left whole"


def test_problems_of_several_gpus_count_with_the_memory_of_each(tmp_path: Path) -> None:
    rows = made_up(GPU["families"])
    files = []
    for name in ("NVIDIA H200", "NVIDIA H100 80GB HBM3", "NVIDIA H200"):
        files.append(tmp_path / f"{len(files)}.json")
        machine = f"{name}, 132 multiprocessors, torch"
        files[-1].write_text(json.dumps({"machine": machine, "rows": rows}))
    alike = [entry if entry is GPU else {k: v for k, v in entry.items() if k != "families"}
             | {"measured": {"gpu": GPU["gpu"]}} for entry in TABLE]  # fmt: skip
    sets, costs = refine_costs.read_problems(files, alike)
    assert [len(problems.best) for problems in sets] == [2 * len(rows), len(rows)]
    assert costs is GPU
    with pytest.raises(
        SystemExit, match="H200 and NVIDIA H100 80GB HBM3 cannot be refined together"
    ):
        refine_costs.read_problems(files, TABLE)


def test_a_gpu_that_the_table_has_no_entry_for_is_named(tmp_path: Path) -> None:
    file = tmp_path / "choice.json"
    file.write_text(json.dumps({"machine": "A GPU, 1 multiprocessor", "rows": []}))
    with pytest.raises(SystemExit, match="problems of A GPU cannot be predicted"):
        refine_costs.read_problems([file], TABLE)
