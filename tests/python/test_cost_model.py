"""The coefficients of the cost model: found again from times that a model made, and put to use."""

import itertools
import json
import math
import random
import re
from pathlib import Path

import pytest

import flashcore as fc
from flashcore import _core
from flashcore.cli import main
from flashcore.tuning import cost_model as costs
from flashcore.tuning import decode_costs, terms
from flashcore.tuning.measurements import Measurements, draw_problem, measured_specs

ROOT = Path(__file__).resolve().parents[2]
TARGET = "sm_90a"
GPU = ("Made-up GPU", 132, 50 << 20)
CAUSAL = fc.AttentionSpec(head_dim=128, mask=fc.causal())


def made_up(scale=1.0):
    """A table of one GPU whose kernels take `scale` times as long as those of the first that
    ships."""
    found = shipped()

    def scaled(value, key=""):
        if isinstance(value, dict):
            return {name: scaled(inner, key if key.endswith("_us") else name)
                    for name, inner in value.items()}  # fmt: skip
        if isinstance(value, list):
            return [scaled(one, key) for one in value]
        return value * (scale if key.endswith("_us") else 1)

    shared = {name: scale * found[name] for name in ("scan_us", "score_operation_us")}
    tables = {table: scaled(found[table]) for table in ("families", "decoding")}
    return found | shared | {"gpu": GPU[0]} | tables


def shipped():
    """The first entry, with the coefficients of the GPU that was measured in its place."""
    text = (ROOT / "templates" / "choice" / "cost_coefficients.json").read_text()
    first, measured = json.loads(text)
    return measured | first | {"measured": measured["measured"]}


def predicted(entry, spec, schedule, problem):
    probe = _core.CostProbe(*GPU[1:])
    probe.add(spec.to_json(), schedule, problem)
    family = json.dumps(entry["families"][_core.cost_family(schedule)])
    shared = (entry[key] for key in ("bytes_per_us", "cluster_share", "scan_us",
                                     "score_operation_us"))  # fmt: skip
    return probe.times(family, *shared)[0]


def predicted_split(entry, spec, problem, blocks, splits):
    probe = _core.SplitProbe(GPU[1])
    probe.add(spec.to_json(), blocks, problem, splits)
    own = json.dumps(entry["decoding"][_core.decode_family(blocks)])
    return probe.times(own, entry["bytes_per_us"])[0]


def measurements(entry, problems=8):
    rng = random.Random(3)
    found = Measurements(*GPU[:1], TARGET, *GPU[1:], entry["bytes_per_us"], {"gpu": GPU[0]})
    for spec in measured_specs():
        schedules = _core.candidate_schedules(spec.to_json())
        for _ in range(problems):
            problem = draw_problem(rng, spec)
            times = {s: predicted(entry, spec, s, problem) for s in schedules}
            found.rows.append((spec.to_json(), problem, times))
    for pair in (*terms.scan_pairs(), *terms.score_pairs()):
        for schedule, problem in itertools.product(terms.common_schedules(pair[1]), terms.PROBLEMS):
            times = (predicted(entry, spec, schedule, problem) for spec in pair)
            found.added.append((*(spec.to_json() for spec in pair), schedule, problem, *times))
    for spec in decode_costs.split_specs():
        for _ in range(4 * problems):
            problem = decode_costs.draw_split_problem(rng, spec, found)
            for blocks in decode_costs.blocks_for(spec, TARGET, problem[2]):
                splits = decode_costs.draw_splits(rng, spec, blocks, problem, GPU[1])
                us = predicted_split(entry, spec, problem, blocks, splits)
                found.split.append((spec.to_json(), problem, blocks, splits, us))
    return found


def test_a_fit_predicts_the_times_that_it_was_made_of():
    found = measurements(made_up(scale=1.7))
    entry, error = costs.fit(found)
    assert error < 0.03
    table = json.dumps([entry])
    losses = [loss for loss, *_ in costs.losses(found, table)]
    assert sum(losses) / len(losses) < 1.02
    assert set(entry["families"]) == set(shipped()["families"])
    assert set(entry["decoding"]) == set(shipped()["decoding"])
    errors = [
        abs(math.log(predicted_split(entry, fc.AttentionSpec.from_json(spec), *rest) / us))
        for spec, *rest, us in found.split
    ]
    assert sum(errors) / len(errors) < 0.03


def test_terms_are_what_they_were_made_of():
    entry = made_up(scale=1.7)
    found = measurements(entry, problems=0)
    terms_found = terms.fit_terms(found, entry["families"], entry["cluster_share"])
    rounded = 6e-5  # to four digits, by half of the last one
    assert terms_found == {
        name: pytest.approx(entry[name], rel=1e-3, abs=rounded) for name in terms_found
    }
    assert set(terms_found) == {"scan_us", "score_operation_us"}


def test_measurements_are_kept(tmp_path):
    found = measurements(made_up(), problems=1)
    found.save(tmp_path / "times.json")
    again = Measurements.load(tmp_path / "times.json")
    assert again.gpu == found.gpu
    assert [times for *_, times in again.rows] == [times for *_, times in found.rows]


def test_a_table_is_for_the_gpu_that_it_names(tmp_path):
    slow_splits = made_up()
    for name, family in slow_splits["families"].items():
        if name.endswith("/split"):
            family["launch_us"] = 1e6
    costs.write(tmp_path / "model.json", slow_splits)
    text = (tmp_path / "model.json").read_text()
    problem = 1, 4, 64, 4096

    def splits(gpu):
        chosen = _core.choose_with(CAUSAL.to_json(), TARGET, problem, text, gpu)
        return fc.Schedule.from_json(chosen).cluster_splits

    assert splits(GPU) == 1
    assert splits(("Another GPU", *GPU[1:])) > 1
    costs.write(tmp_path / "model.json", made_up())
    assert len(json.loads((tmp_path / "model.json").read_text())) == 1


def test_the_command_writes_what_measurements_say(tmp_path, capsys):
    found = measurements(made_up(), problems=4)
    found.save(tmp_path / "times.json")
    files = [
        "--measurements",
        str(tmp_path / "times.json"),
        "--write",
        str(tmp_path / "model.json"),
    ]
    assert main(["calibrate", *files]) == 0
    assert f"{GPU[0]}, 48 problems" in capsys.readouterr().out
    (entry,) = json.loads((tmp_path / "model.json").read_text())
    assert entry["gpu"] == GPU[0]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{}", "it is not a JSON array"),
        ("[3]", "an entry names no target and gpu"),
        (json.dumps([{"gpu": GPU[0], "target": TARGET}]), "has no number bytes_per_us"),
        (json.dumps([made_up() | {"properties": {}}]), "properties has no number tie_share"),
    ],
)
def test_a_table_that_is_none_is_refused(text, why):
    with pytest.raises(fc.ScheduleError, match=why) as caught:
        _core.choose_with(CAUSAL.to_json(), TARGET, (1, 1, 1, 1), text, GPU)
    assert "flashcore calibrate" in str(caught.value)


def test_a_table_decides_which_calls_are_split():
    """Of the unsplit kernel and of splits it has the times."""
    problem = 1, 32, 1, 32768
    spec = fc.AttentionSpec(head_dim=128, heads=32, kv_heads=8).to_json()

    def chosen(slow):
        entry = made_up()
        for family in entry[slow].values():
            family["launch_us"] += 1e4
        return _core.decode_choice_with(spec, TARGET, problem, json.dumps([entry]), GPU)

    assert chosen("families") == ("packed", 16, False, False, False)
    assert chosen("decoding") is None


def test_a_table_may_say_how_far_predictions_are_trusted():
    """Without its own, a table has the properties of the first GPU that ships."""
    spec = fc.AttentionSpec(head_dim=128, heads=32, kv_heads=8).to_json()

    def splits(keys=32768, **properties):
        entry = made_up()
        entry["properties"] |= properties
        if not properties:
            del entry["properties"]
        table = json.dumps([entry])
        return _core.decode_choice_with(spec, TARGET, (1, 32, 1, keys), table, GPU) is not None

    assert splits()
    assert not splits(split_gain=1000)
    assert not splits(split_waves=0)
    assert not splits(keys=511)
    assert splits(keys=2048, least_split_keys=2048)
    assert not splits(keys=2047, least_split_keys=2048)

    def chosen(**properties):
        entry = made_up()
        entry["properties"] |= properties
        return _core.choose_with(CAUSAL.to_json(), TARGET, (1, 4, 64, 4096), json.dumps([entry]),
                                 GPU)  # fmt: skip

    assert chosen(tie_share=0.999) != chosen(tie_share=0), "all are alike: the first is taken"
    with pytest.raises(fc.ScheduleError, match="tie_share of the entry of Made-up GPU"):
        chosen(tie_share=1)


def test_explain_says_what_is_predicted():
    kernel = fc.jit(CAUSAL, target=TARGET)
    assert "predicted" not in kernel.explain()
    text = kernel.explain(batch=1, heads=32, q_len=512, kv_len=65536)
    whole = text[text.index("schedules for") - 1 : text.index("keys are left whole")]
    _, title, *lines = whole.split("\n")
    assert title.startswith("schedules for batch 1, 32 heads, 512 query rows and 65536 keys")
    times = [float(line.split(" us")[0].rpartition(" ")[2]) for line in lines if " us" in line]
    assert len(times) > 3
    assert times == sorted(times)
    splits = kernel.explain(batch=1, heads=8, q_len=256, kv_len=65536)
    assert "keys are split, whole" in splits
    assert "splits, 128 rows of one head" in splits
    with pytest.raises(fc.Error, match="q_len"):
        kernel.explain(q_len="long")


def test_explain_says_how_a_batch_with_long_sequences_is_computed():
    """Of packed sequences the mean is given, and how many rows the longest has."""
    packed = fc.AttentionSpec(
        head_dim=128, heads=32, kv_heads=8, layout="thd", mask=fc.causal(), kv_lens=True,
        page_size=64,
    )  # fmt: skip
    kernel = fc.jit(packed, target=TARGET)
    sizes = {"batch": 64, "heads": 32, "q_len": 33, "kv_len": 2048}
    line = kernel.explain(**sizes, max_q_len=2048).splitlines()[-1]
    assert re.fullmatch(
        r"63 of 64 sequences may have one query row: [\d.]+ us if their keys are split and another "
        r"kernel computes the long sequences \(chosen\), [\d.]+ us if one kernel computes all",
        line,
    )
    assert "may have one query row" not in kernel.explain(**sizes), "all are as long as the mean"
    few = kernel.explain(batch=16, heads=32, q_len=500, kv_len=2048, max_q_len=512)
    assert "may have one query row" not in few
