"""The tuner without a GPU: its space, its search, and what checks results."""

import dataclasses
import itertools
import json
import os
import random
import re
import subprocess
import sys
import typing
from pathlib import Path

import numpy as np
import pytest

import fake_torch
import flashcore as fc
from flashcore import _core
from flashcore.specs import evaluation
from flashcore.tuning import check as tuning_check
from flashcore.tuning import gpu as tuning_gpu
from flashcore.tuning.autotune import default_shapes
from flashcore.tuning.log import key_of
from flashcore.tuning.search import Effort, ratio_of
from flashcore.tuning.space import FAMILIES, NOT_SEARCHED, Space, flat, searched_fields
from made_up_machine import SHAPES, SLOW, SPEC, TARGET, Machine, search, shipped_for


@pytest.fixture(autouse=True)
def no_tuned_schedules(tmp_path, monkeypatch):
    monkeypatch.setenv("FLASHCORE_SCHEDULES", str(tmp_path / "schedules.json"))


# The space.


def test_every_field_is_searched_or_listed_as_not_searched():
    fields = {field.name for field in dataclasses.fields(fc.Schedule)}
    assert searched_fields() | set(NOT_SEARCHED) == fields
    assert searched_fields() & set(NOT_SEARCHED) == set()


def test_every_value_of_an_enumeration_is_searched():
    for name, kind in typing.get_type_hints(fc.Schedule).items():
        if typing.get_origin(kind) is typing.Literal:
            values = [family.fixed[name] for family in FAMILIES if name in family.fixed]
            for family in FAMILIES:
                values += family.choices[name].values if name in family.choices else ()
            assert set(values) == set(typing.get_args(kind)), name


def test_every_candidate_value_is_one_of_its_field():
    for family in FAMILIES:
        for name, choice in family.choices.items():
            assert len(set(choice.values)) == len(choice.values), name
            for value in choice.values:
                axis = name.partition(".")[2]
                fields = {"tiles": {axis: value}} if axis else {name: value}
                fc.Schedule.from_json(fc.Schedule(**fields).to_json())


@pytest.mark.parametrize("target", ["sm_75", "sm_80", "sm_90a", "sm_120"])
def test_the_space_has_much_that_fits(target):
    spec = fc.AttentionSpec(head_dim=64, dtype="f16", mask=fc.causal())
    space, rng = Space(spec, target), random.Random(1)
    drawn = [space.drawn(rng) for _ in range(60)]
    for schedule in drawn[:5]:
        # How many registers a loop needs, a search leaves to the compile.
        refused = [why for why in spec.why_not(target, schedule) if "registers a thread" not in why]
        assert (space.text(schedule) is None) == bool(refused)
    assert sum(space.text(schedule) is not None for schedule in drawn) >= 10
    assert {schedule.instruction for schedule in drawn} == {
        family.fixed["instruction"] for family in space.families
    }


@pytest.mark.parametrize("target", ["sm_70", "sm_75", "sm_80", "sm_90a", "sm_120"])
@pytest.mark.parametrize("layout", ["bhsd", "thd"])
@pytest.mark.parametrize(
    "mask", [fc.full(), fc.causal(), fc.sliding_window(256)], ids=["full", "causal", "window"]
)
def test_what_ships_lies_in_the_space(target, layout, mask):
    """Else its neighbours are never tried: a search would begin beside it."""
    for head_dim, length in itertools.product([32, 64, 96, 128, 192, 256], [128, 512, 2048, 8192]):
        spec = fc.AttentionSpec(head_dim=head_dim, dtype="f16", mask=mask, layout=layout)
        if spec.why_not(target):
            continue
        space = Space(spec, target)
        problem = max(1, 16384 // length), 16, length, length
        for text in _core.attention_schedules(spec.to_json(), target, *problem):
            shipped = fc.Schedule.from_json(text)
            assert space.text(space.normal(shipped)) == space.text(shipped)
            genes, family = flat(shipped), space.family_of(shipped)
            for name, choice in family.choices.items():
                assert not choice.matters(genes, spec) or genes[name] in choice.values, name


def test_breeding_stays_in_the_space():
    space, rng = Space(SPEC, TARGET), random.Random(1)
    a, b = space.drawn(rng), space.drawn(rng)
    for _ in range(100):
        a, b = space.mutated(a, rng), space.crossed(a, b, rng)
        assert space.normal(a) == a
        assert space.normal(b) == b


def test_what_makes_no_difference_is_one_schedule():
    space = Space(SPEC, TARGET)
    one = fc.Schedule(tiles={"rows": 128, "cols": 64}, warps_m=8, instruction="wgmma", copy="tma",
                      overlap_products=False)  # fmt: skip
    same = dataclasses.replace(one, rescale_before_product=True, last_tiles_first=True, warps_n=2)
    assert space.normal(same) == space.normal(one)


# The search.


def test_a_known_optimum_is_found():
    tuned, machine = search(trials=200)
    assert machine.cost(tuned.schedule) <= 1000 * 0.97 * 1.05
    shipped = fc.Schedule.from_json(shipped_for(SHAPES[0]))
    assert tuned.default == shipped
    assert tuned.ratio == pytest.approx(machine.cost(SLOW) / machine.cost(tuned.schedule))
    assert tuned.spread == pytest.approx((tuned.ratio, tuned.ratio))
    assert f"{tuned.ratio:.3f}x the default's speed" in tuned.summary()


def test_equal_timings_make_equal_searches():
    first, one = search(seed=7, trials=40)
    again, two = search(seed=7, trials=40)
    other, three = search(seed=8, trials=40)
    assert one.compiles == two.compiles != three.compiles
    assert first == again


def test_nothing_is_compiled_twice_or_against_the_resource_model():
    tuned, machine = search()
    # Finalists are asked for again, at the end, which the cache of kernels answers.
    asked = len(set(machine.compiles))
    before_the_end = machine.compiles[:asked]
    assert len(set(before_the_end)) == asked
    assert len(machine.compiles) - asked <= Effort.finalists
    assert tuned.counts["refused"] > 0
    space = Space(SPEC, TARGET)
    texts = [space.text(fc.Schedule(**json.loads(text))) for text in before_the_end]
    assert None not in texts
    assert len(set(texts)) == len(texts)


def test_failures_are_counted_and_never_win():
    def spoil(schedule):
        return "spills" if schedule.persistent else ""

    tuned, machine = search(Machine(spoil))
    assert tuned.counts["failed"] > 0
    assert not tuned.schedule.persistent


def test_wrong_results_are_never_timed_and_reported_loudly(capsys):
    def spoil(schedule):
        return "wrong" if schedule.tiles["cols"] % 32 and schedule.staged_stores else ""

    tuned, machine = search(Machine(spoil), progress=True)
    assert tuned.counts["wrong"] == len(tuned.wrong) > 0
    assert not machine.timed & {key_of(schedule) for schedule, _ in tuned.wrong}
    assert not spoil(tuned.schedule)
    assert "WRONG RESULTS, a bug to report: an error of 3" in tuned.summary()
    assert "WRONG RESULTS" in capsys.readouterr().err


def test_a_wrong_default_is_an_error():
    with pytest.raises(fc.InternalError, match="the schedule that ships gives wrong results"):
        search(Machine(lambda schedule: "wrong"))


def test_a_default_that_does_not_compile_is_an_error():
    class Barren(Machine):
        def default(self):
            raise fc.CompileError("it spills")

    with pytest.raises(fc.CompileError, match="it spills"):
        search(Barren())


def test_the_time_is_a_budget():
    effort = Effort(seconds=20, threads=1)
    _, machine = search(effort=effort)
    assert 18 <= machine.now <= 40


class Noisy(Machine):
    """Every schedule is as fast as any other; luck decides."""

    def __init__(self):
        super().__init__()
        self.rng = random.Random(3)

    def times(self, kernels, rounds):
        self.now += self.seconds
        return [[self.rng.uniform(90, 110)] for _ in kernels]


def test_luck_does_not_win():
    tuned, _ = search(Noisy(), shapes=[(1, 64, 64)])
    assert tuned.is_default
    assert tuned.ratio == 1.0
    assert "nothing beat the schedule that ships" in tuned.summary()


def test_ratios_are_geometric_means():
    assert ratio_of([2.0, 8.0], [1.0, 1.0]) == pytest.approx(4.0)


# Right and wrong results.


def check(spec, shape=(2, 45, 70), schedule=None, spoil=lambda out: None):
    spec = tuning_check.for_any_shapes(spec)
    case = tuning_check.case(spec, shape, heads=2)
    out = np.full(case.exact.shape, np.nan, case.q.dtype)
    fc.jit(spec, schedule=schedule)(case.q, case.k, case.v, out=out, **case.keywords)
    spoil(out)
    return case.complaint(out)


IDS = np.sort(np.random.default_rng(1).integers(0, 3, (4, 90)), axis=1)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"mask": fc.causal(), "layout": "bshd", "heads": 4, "kv_heads": 2},
        {"mask": fc.sliding_window(9) | fc.prefix(5) & ~fc.causal()},
        {"mask": fc.documents(IDS), "score": fc.alibi(np.ones(2) / 4)},
        {"score": fc.softcap(3), "sink": fc.sinks(np.ones(2)), "head_dim_v": 32},
        {
            "score": lambda s, b, h, i, j: fc.where(
                (i // 3) % 2 == j % 2, s * 1.5e0, fc.minimum(s, 0)
            )
        },
        {"layout": "thd", "mask": fc.causal()},
        {"q_lens": True, "kv_lens": True},
        {"dtype": "f16", "kv_lens": True, "layout": "bshd", "mask": fc.causal("top_left")},
    ],
    ids=lambda options: ", ".join(options) or "full",
)
def test_right_results_pass(options):
    assert check(fc.AttentionSpec(**{"head_dim": 64} | options)) == ""


def test_wrong_results_do_not():
    def set_one(value):
        def spoil(out):
            out[0, 1, 3, 5] = value

        return spoil

    spec = fc.AttentionSpec(head_dim=64)
    assert re.match(r"1 of \d+ elements are NaN or", check(spec, spoil=set_one(np.nan)))
    assert re.match(
        r"an error of .*, where .* is the bound, batch 2, 45", check(spec, spoil=set_one(9))
    )
    packed = fc.AttentionSpec(head_dim=64, layout="thd")

    def beyond(out):
        out[-1] = 0

    assert check(packed, spoil=beyond).startswith("it writes behind the last sequence")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1 + 2 * 3 - -4", 11),
        ("7 // 2 + -7 % 4 * 10", 13),
        ("x = 3; y = x * 2; y / 4", 1.5),
        ("1 < 2 & 3 < 2 | 2 == 2", True),
        ("where(q_idx >= 2, 1e-1, max(4, 5))", 0.1),
        ("t[q_idx, 1] + t[9, 0] + t[-1, 0]", 6),
        ("(q_idx == 3) + float(true) + int(-2.5)", 0),
        ("~(q_idx < 3) & ~false", True),
        ("erf(0.5) + round(2.5) + log1p(0) + expm1(0) + atan(0) + cos(0)", 3.5204998778),
    ],
)
def test_expressions(text, value):
    values = {"q_idx": np.int64(3), "t": np.arange(7).reshape(7, 1) + np.array([0, 3])}
    assert evaluation.evaluate(text, values) == pytest.approx(value)


def test_a_spec_without_its_arrays_is_refused():
    spec = fc.AttentionSpec.from_json(
        fc.AttentionSpec(head_dim=64, mask=fc.documents(IDS)).to_json()
    )
    with pytest.raises(fc.SpecError, match="without its arrays"):
        tuning_check.captured_arrays(spec)


# The evaluator of a GPU, with the emulator in its place.


@pytest.fixture
def pretend(monkeypatch):
    def install(**more):
        torch = fake_torch.module(**more)
        monkeypatch.setitem(sys.modules, "torch", torch)
        monkeypatch.setattr(tuning_gpu, "_small_shapes", lambda spec: [((2, 45, 70), 2)])
        return torch

    return install


@pytest.mark.parametrize(
    "options",
    [
        {"mask": fc.documents(IDS)},
        {"layout": "thd", "mask": fc.causal()},
        {"layout": "bshd", "dtype": "f16", "q_lens": True, "kv_lens": True},
    ],
    ids=str,
)
def test_a_search_with_real_kernels(options, pretend, tmp_path):
    pretend()
    effort = Effort(seconds=1e9, trials=2, population=2, rungs=(1, 2), repeats=2, threads=2)
    spec = fc.AttentionSpec(head_dim=64, heads=2, **options)
    log = tmp_path / "log"
    tuned = fc.autotune(
        spec, target="sm_80", shapes=[(2, 40, 60)], log=log, progress=False, effort=effort, seed=4
    )
    assert tuned.wrong == []
    assert tuned.counts["timed"] + tuned.counts.get("failed", 0) >= 3
    assert tuned.machine["gpu"] == "Made-up GPU"
    assert tuned.machine["compiler"].startswith("NVRTC 1")


def test_the_gpu_evaluator_sees_what_is_wrong(pretend):
    pretend()
    spec = fc.AttentionSpec(head_dim=64, heads=2)
    evaluator = tuning_gpu.GpuEvaluator(spec, "sm_80", [(1, 40, 60), (1, 20, 20)])
    kernel = evaluator.compiled(fc.jit(spec, target="sm_80").schedule)
    assert evaluator.wrong(kernel) == ""

    def other(when, change):
        def run(q, k, v, out, **more):
            kernel(q, k, v, out=out, **more)
            if q.shape[2] == when:
                change(out)

        return run

    def set_one(value):
        return lambda out: out.__setitem__((0, 1, 3, 5), value)

    assert "batch 2, 45 queries" in evaluator.wrong(other(45, set_one(7)))
    assert "differs by" in evaluator.wrong(other(20, set_one(7)))
    assert "elements are NaN" in evaluator.wrong(other(40, set_one(np.nan)))
    times = evaluator.times([kernel, kernel, kernel], rounds=2)
    assert [len(per) for per in times] == [2, 2, 2]
    assert min(map(min, times)) > 0


def test_a_kernel_that_never_ends_is_a_device_error(pretend, monkeypatch):
    torch = pretend()
    spec = fc.AttentionSpec(head_dim=64, heads=2)
    evaluator = tuning_gpu.GpuEvaluator(spec, "sm_80", [(1, 20, 20)])
    kernel = evaluator.compiled(fc.jit(spec, target="sm_80").schedule)
    monkeypatch.setattr(tuning_gpu, "PATIENCE_S", 0.01)
    monkeypatch.setattr(
        torch.cuda, "Event", type("Never", (fake_torch.Event,), {"query": lambda e: False})
    )
    with pytest.raises(fc.DeviceError, match="not done after"):
        evaluator.wrong(kernel)

    def query(event):
        raise RuntimeError("an illegal memory access was encountered")

    monkeypatch.setattr(torch.cuda, "Event", type("Lost", (fake_torch.Event,), {"query": query}))
    with pytest.raises(fc.DeviceError, match="illegal memory access"):
        evaluator.wrong(kernel)


# Errors, shapes, the command.


def test_what_is_missing_is_said_plainly(pretend, monkeypatch):
    def refusal():
        with pytest.raises(fc.DeviceError) as caught:
            fc.autotune(SPEC, target=TARGET, progress=False)
        return caught.value

    monkeypatch.setitem(sys.modules, "torch", None)
    assert "it needs PyTorch" in refusal().why
    assert "flashcore[tune]" in refusal().fix
    pretend(available=False)
    assert "there is no GPU" in refusal().why
    pretend(capability=(8, 6))
    assert "Made-up GPU of compute capability 8.6" in refusal().why
    assert "a GPU of 9.0" in refusal().fix


@pytest.mark.parametrize(
    ("shapes", "why"),
    [
        ([], "shapes is empty"),
        ([(1, 2)], "three whole numbers"),
        ([(1, 0, 5)], "three whole numbers"),
        ([(1, 64, 64)], "the spec has kv_len = 128"),
    ],
)
def test_shapes_that_cannot_be(shapes, why):
    with pytest.raises(fc.SpecError, match=why):
        fc.autotune(fc.AttentionSpec(head_dim=64, kv_len=128), shapes=shapes)


def test_a_spec_that_cannot_run_is_refused():
    with pytest.raises(fc.SpecError, match="dtype = f32 and head_dim = 300"):
        fc.autotune(fc.AttentionSpec(head_dim=300, dtype="f32"), target=TARGET)
    with pytest.raises(fc.SpecError, match="autotune of a spec with page_size = 16"):
        fc.autotune(fc.AttentionSpec(head_dim=64, page_size=16, kv_lens=True), target=TARGET)


def test_default_shapes_hold_16384_tokens():
    assert default_shapes(SPEC) == [(16, 1024, 1024), (4, 4096, 4096), (1, 16384, 16384)]
    assert default_shapes(fc.AttentionSpec(head_dim=64, q_len=1, kv_len=900, batch=8)) == [
        (8, 1, 900)
    ]


def test_the_command_names_what_is_missing(tmp_path):
    home = str(Path(fc.__file__).parents[1].absolute())

    def run(*arguments):
        return subprocess.run(
            [sys.executable, "-m", "flashcore.tune", *arguments],
            capture_output=True, text=True, cwd=tmp_path, env=os.environ | {"PYTHONPATH": home},
        )  # fmt: skip

    assert "--head-dim" in run("--help").stdout
    done = run()
    assert done.returncode == 1
    assert (
        done.stderr
        == "tuning nothing\n  why: neither --head-dim nor --spec\n  try: --head-dim 128\n"
    )
    assert "'2' is not batch x length" in run("--head-dim", "64", "--shapes", "2").stderr


def test_small_shapes_follow_compiled_lengths():
    spec = fc.AttentionSpec(head_dim=64, q_len=1, kv_len=1000)
    assert tuning_gpu._small_shapes(spec) == [((2, 1, 1000), 2)]


def test_the_command_goes_on_after_a_crash(monkeypatch, tmp_path, capsys):
    from flashcore import tune

    calls = []

    def run(command, env):
        calls.append((command, env))
        codes = [75, -11, 0, 2]
        return subprocess.CompletedProcess(command, codes[len(calls) - 1])

    monkeypatch.setattr(tune.subprocess, "run", run)
    assert tune.main(["--head-dim", "64", "--each", "--shapes", "2x64", "1x7x9"]) == 2
    assert capsys.readouterr().err.count("going on without the schedule that crashed") == 2
    options = [tune.parser().parse_args(command[3:]) for command, _ in calls]
    assert [one.shapes for one in options] == 3 * [[(2, 64, 64)]] + [[(1, 7, 9)]]
    assert all(one.worker and one.seconds <= 30 for one in options)
    assert len({one.log for one in options}) == 1, "which knows what crashed"
    home = str(Path(fc.__file__).absolute().parents[1])
    assert all(env["PYTHONPATH"].split(os.pathsep)[0] == home for _, env in calls)
