"""The tuner without a GPU: a made-up machine whose best schedule is known."""

import dataclasses
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
from flashcore import _core, tuning_check, tuning_gpu, tuning_table
from flashcore.tuning import autotune, default_shapes
from flashcore.tuning_log import TuningLog, key_of
from flashcore.tuning_search import Effort, ratio_of
from flashcore.tuning_space import FAMILIES, NOT_SEARCHED, Space, searched_fields

SPEC = fc.AttentionSpec(head_dim=120)  # of a kind that no shipped winner is for
TARGET = "sm_90a"
SHAPES = [(2, 8192, 8192), (16, 1024, 1024)]


def shipped_for(shape):
    problem = tuning_gpu.problem_of(SPEC, shape)
    return _core.attention_schedules(SPEC.to_json(), TARGET, *problem)[0]


SLOW = fc.Schedule(tiles={"rows": 64, "cols": 32}, stages=4)


class Machine:
    """Fastest with wgmma, 176 columns, 2 stages, 8 warps, persistent."""

    def __init__(self, spoil=lambda schedule: "", seconds=0.01):
        self.spoil = spoil
        self.seconds = seconds
        self.now = 0.0
        self.compiles = []
        self.timed = set()

    def clock(self):
        return self.now

    def default(self):
        return SLOW  # almost any candidate is faster, whatever ships

    def compiled(self, schedule):
        self.compiles.append(key_of(schedule))
        if self.spoil(schedule) == "spills":
            raise fc.CompileError("it spills")
        return schedule

    def wrong(self, kernel):
        self.now += self.seconds
        if self.spoil(kernel) == "crashes":
            raise fc.DeviceError("an illegal access")
        return "an error of 3" if self.spoil(kernel) == "wrong" else ""

    def times(self, kernels, rounds):
        self.now += self.seconds * len(kernels) * rounds / 4
        self.timed |= {key_of(kernel) for kernel in kernels}
        return [[self.cost(kernel), 0.1 * self.cost(kernel)] for kernel in kernels]

    @staticmethod
    def cost(s):
        cost = 1000.0
        cost *= 1.0 if s.instruction == "wgmma" else 1.6
        cost *= 1 + abs(s.tiles["cols"] - 176) / 400
        cost *= 1 + 0.1 * abs(s.stages - 2)
        cost *= {8: 1.0, 12: 1.05}.get(s.warps_m, 1.2)
        return cost * (0.97 if s.persistent else 1.0)


@pytest.fixture
def search(tmp_path):
    def run(machine=None, trials=60, **more):
        machine = machine or Machine()
        more = {"write": False, "progress": False, "shapes": SHAPES, "target": TARGET} | more
        effort = more.pop("effort", None) or Effort(seconds=1e9, trials=trials, threads=1)
        spec = more.pop("spec", SPEC)
        tuned = autotune(spec, evaluator=machine, clock=machine.clock, effort=effort, **more)
        return tuned, machine

    return run


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
        assert (space.text(schedule) is None) == bool(spec.why_not(target, schedule))
    assert sum(space.text(schedule) is not None for schedule in drawn) >= 10
    assert {schedule.instruction for schedule in drawn} == {
        family.fixed["instruction"] for family in space.families
    }


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
    same = dataclasses.replace(one, scale_late=True, peel_masks=True, warps_n=2)
    assert space.normal(same) == space.normal(one)


# The search.


def test_a_known_optimum_is_found(search):
    tuned, machine = search(trials=200)
    assert machine.cost(tuned.schedule) <= 1000 * 0.97 * 1.05
    shipped = fc.Schedule.from_json(shipped_for(SHAPES[0]))
    assert tuned.default == shipped
    assert tuned.ratio == pytest.approx(machine.cost(SLOW) / machine.cost(tuned.schedule))
    assert tuned.spread == pytest.approx((tuned.ratio, tuned.ratio))
    assert f"{tuned.ratio:.3f}x the default's speed" in tuned.summary()


def test_equal_timings_make_equal_searches(search):
    first, one = search(seed=7, trials=40)
    again, two = search(seed=7, trials=40)
    other, three = search(seed=8, trials=40)
    assert one.compiles == two.compiles != three.compiles
    assert first == again


def test_nothing_is_compiled_twice_or_against_the_resource_model(search):
    tuned, machine = search()
    # Finalists are asked for again, which the cache of kernels answers.
    before_the_end = machine.compiles[: tuned.counts["timed"]]
    assert len(set(before_the_end)) == len(before_the_end)
    assert tuned.counts["refused"] > 0
    space = Space(SPEC, TARGET)
    texts = [space.text(fc.Schedule(**json.loads(text))) for text in before_the_end]
    assert None not in texts
    assert len(set(texts)) == len(texts)


def test_failures_are_counted_and_never_win(search):
    def spoil(schedule):
        return "spills" if schedule.persistent else ""

    tuned, machine = search(Machine(spoil))
    assert tuned.counts["failed"] > 0
    assert not tuned.schedule.persistent


def test_wrong_results_are_never_timed_and_reported_loudly(search, capsys):
    def spoil(schedule):
        return "wrong" if schedule.tiles["cols"] % 32 and schedule.staged_stores else ""

    tuned, machine = search(Machine(spoil), progress=True)
    assert tuned.counts["wrong"] == len(tuned.wrong) > 0
    assert not machine.timed & {key_of(schedule) for schedule, _ in tuned.wrong}
    assert not spoil(tuned.schedule)
    assert "WRONG RESULTS, a bug to report: an error of 3" in tuned.summary()
    assert "WRONG RESULTS" in capsys.readouterr().err


def test_a_wrong_default_is_an_error(search):
    with pytest.raises(fc.InternalError, match="the schedule that ships gives wrong results"):
        search(Machine(lambda schedule: "wrong"))


def test_a_default_that_does_not_compile_is_an_error(search):
    class Barren(Machine):
        def default(self):
            raise fc.CompileError("it spills")

    with pytest.raises(fc.CompileError, match="it spills"):
        search(Barren())


def test_the_time_is_a_budget(search):
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


def test_luck_does_not_win(search):
    tuned, _ = search(Noisy(), shapes=[(1, 64, 64)])
    assert tuned.is_default
    assert tuned.ratio == 1.0
    assert "nothing beat the schedule that ships" in tuned.summary()


def test_ratios_are_geometric_means():
    assert ratio_of([2.0, 8.0], [1.0, 1.0]) == pytest.approx(4.0)


# The log.


def test_a_search_goes_on_from_its_log(search, tmp_path):
    log = tmp_path / "deep" / "log.jsonl"
    first, one = search(log=log, trials=50)
    assert log.read_text().count("\n") > 100
    second, two = search(log=log, trials=30)
    # Of what the log holds, only the default and what is compared at the end is needed once more.
    assert len(set(two.compiles) & set(one.compiles)) <= 4
    assert two.cost(second.schedule) <= one.cost(first.schedule)
    assert second.counts["timed"] > first.counts["timed"]
    # It is as good a start as the search that wrote it was an end.
    third, three = search(log=log, trials=1)
    assert three.cost(third.schedule) <= two.cost(second.schedule)


def test_a_log_is_for_one_problem(search, tmp_path):
    log = tmp_path / "log.jsonl"
    search(log=log, trials=30)
    other, machine = search(log=log, trials=30, shapes=[(1, 100, 100)])
    assert len(machine.compiles) >= 30
    problems = [json.loads(line) for line in log.read_text().splitlines()]
    problems = [line for line in problems if "schedule" not in line]
    assert [line["shapes"] for line in problems] == [[list(s) for s in SHAPES], [[1, 100, 100]]]
    assert {"problem", "spec", "target", "gpu"} <= set(problems[0])


def test_a_line_that_was_cut_off_is_skipped(tmp_path):
    path, schedule = tmp_path / "log", fc.Schedule(tiles={"rows": 64, "cols": 64})
    TuningLog(path, {"a": 1}).add(schedule, "failed", why="it spills")
    with path.open("a") as file:
        file.write('{"problem": "')
    log = TuningLog(path, {"a": 1})
    assert log.known(schedule)["why"] == "it spills"
    log.add(dataclasses.replace(schedule, stages=3), "failed")
    assert TuningLog(path, {"a": 1}).known(dataclasses.replace(schedule, stages=3))


def test_a_crash_is_told_and_left_out_by_the_next_search(search, tmp_path):
    log = tmp_path / "log.jsonl"

    def spoil(schedule):
        return "crashes" if schedule.tiles["cols"] % 64 == 48 else ""

    told = []
    while len(told) < 100:
        try:
            tuned, _ = search(Machine(spoil), log=log, trials=40)
            break
        except fc.DeviceError as error:
            told.append(error)
    assert all("an illegal access" in error.why and "same log=" in error.fix for error in told)
    assert 0 < len(told) < 100
    assert tuned.counts["crashed"] == len(told)


def test_what_ran_when_the_process_died_is_left_out(tmp_path):
    path, schedule = tmp_path / "log", fc.Schedule(tiles={"rows": 64, "cols": 64})
    log = TuningLog(path, {})
    log.add(schedule, "started")
    other = dataclasses.replace(schedule, stages=4)
    log.add(other, "started")
    log.add(other, "right")
    log = TuningLog(path, {})
    assert log.known(schedule)["outcome"] == "crashed"
    assert log.known(other) is None


def test_a_log_that_cannot_be_written_is_told(search, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(fc.CacheError, match="tuning log .*file/log"):
        search(log=tmp_path / "file" / "log")


# The table.

WINNER = fc.Schedule(tiles={"rows": 64, "cols": 48}, stages=1)


def write(path, spec, target=TARGET, schedule=WINNER, measured=None, problem=tuning_table.ANY):
    key = tuning_table.key_for(spec, target, problem)
    tuning_table.write(path, [key], schedule, measured or {})


def test_a_table_gives_back_what_was_written(tmp_path):
    path = tmp_path / "table.json"
    specs = [
        SPEC,
        fc.AttentionSpec(head_dim=64, mask=fc.causal()),
        fc.AttentionSpec(head_dim=64, mask=fc.sliding_window(100)),
        fc.AttentionSpec(head_dim=64, mask=fc.documents(np.zeros(9, np.int32))),
        fc.AttentionSpec(head_dim=64, score=fc.alibi(np.ones(4))),
        fc.AttentionSpec(head_dim=64, score=fc.softcap(30)),
        fc.AttentionSpec(head_dim=64, sink=fc.sinks(np.ones(4))),
        fc.AttentionSpec(head_dim=64, kv_lens=True),
        fc.AttentionSpec(head_dim=64, layout="thd"),
        fc.AttentionSpec(head_dim=64, q_len=1, kv_len=900),
    ]
    for i, spec in enumerate(specs):
        assert tuning_table.winner_for(spec, TARGET, path=path) is None
        write(path, spec, schedule=dataclasses.replace(WINNER, stages=i + 1))
    for i, spec in enumerate(specs):
        assert tuning_table.winner_for(spec, TARGET, path=path).stages == i + 1
        assert tuning_table.winner_for(spec, "sm_80", path=path) is None
    write(path, SPEC, measured={"ratio": 1.5})
    assert tuning_table.winner_for(SPEC, TARGET, path=path) == WINNER
    entries = json.loads(path.read_text())
    assert len(entries) == len(specs)
    assert [entry["measured"] for entry in entries if entry["measured"]] == [{"ratio": 1.5}]


def test_what_a_winner_is_for(tmp_path):
    path = tmp_path / "table.json"

    def both(a, b):
        path.unlink(missing_ok=True)
        write(path, fc.AttentionSpec(**a))
        return tuning_table.winner_for(fc.AttentionSpec(**b), TARGET, path=path) is not None

    plain = {"head_dim": 64}
    assert both(plain, plain | {"dtype": "f16", "layout": "bshd", "heads": 8, "kv_heads": 2})
    assert both(plain, plain | {"head_dim_v": 64, "lse": True, "batch": 3})
    assert both(plain, plain | {"q_len": 77}), "a guess that is better than none"
    assert not both(plain | {"q_len": 77}, plain)
    assert both(plain | {"q_len": 100, "kv_len": 70}, plain | {"q_len": 77, "kv_len": 128})
    assert not both(plain | {"q_len": 100}, plain | {"q_len": 300})
    assert not both(plain, plain | {"head_dim_v": 128})
    assert both(plain | {"mask": fc.causal()}, plain | {"mask": fc.causal("top_left")})
    window = fc.sliding_window
    assert not both(plain | {"mask": window(64)}, plain | {"mask": window(128)})
    assert both(plain | {"score": fc.softcap(30)}, plain | {"score": fc.softcap(1e-05)})
    named = lambda b, h, q_idx, kv_idx: ids[kv_idx] == 0  # noqa: E731
    ids = np.zeros(5, np.int32)
    other = lambda b, h, q_idx, kv_idx: pages[kv_idx] == 0  # noqa: E731
    pages = np.zeros(6, np.int32)
    assert both(plain | {"mask": named}, plain | {"mask": other})


def test_a_winner_for_some_lengths(tmp_path):
    path, spec = tmp_path / "table.json", fc.AttentionSpec(head_dim=64)
    write(path, spec, problem=(2, 16, 8000, 8192))

    def found(*problem):
        return tuning_table.winner_for(spec, TARGET, problem, path) is not None

    assert found(2, 16, 8192, 4097)
    assert found(7, 3, 5000, 5000)
    assert not found(2, 16, 8192, 4096)
    assert not found(2, 16, 4096, 8192)
    assert not found(1, 2, 8192, 8192), "two heads leave most of the GPU without work"
    assert not found(0, 0, 0, 0)
    write(path, spec)
    assert found(0, 0, 0, 0)
    assert found(20, 16, 100, 100)
    assert not found(1, 1, 100, 100)


def test_calls_of_some_lengths_get_their_winner(tmp_path):
    spec = fc.AttentionSpec(head_dim=64)
    write(tuning_table.user_file(), spec, TARGET, problem=(64, 16, 1000, 1000))

    class OnGpu(np.ndarray):
        def __dlpack_device__(self):
            return 2, 0

    def arrays(length):
        return [np.broadcast_to(np.float16(0), (64, 16, length, 64)).view(OnGpu) for _ in range(2)]

    kernel = fc.jit(spec, target=TARGET)
    assert kernel.variant(*arrays(1024)).schedule == WINNER
    assert kernel.variant(*arrays(1025)).schedule != WINNER
    assert kernel.schedule != WINNER
    untuned = fc.AttentionKernel.shipped(spec, TARGET, tuned=False)
    assert untuned.variant(*arrays(1024)).schedule != WINNER


def test_jit_consults_the_table(search, tmp_path):
    spec = fc.AttentionSpec(head_dim=64)
    shipped = fc.jit(spec, target="sm_80").schedule
    write(tuning_table.user_file(), spec, "sm_80")
    assert fc.jit(spec, target="sm_80").schedule == WINNER != shipped
    assert fc.jit(spec, target="sm_80", schedule={"stages": 2}).schedule.tiles == shipped.tiles
    assert fc.jit(spec, target="sm_86").schedule != WINNER


def test_a_winner_that_does_not_fit_gives_way(monkeypatch):
    spec = fc.AttentionSpec(head_dim=64)
    shipped = fc.jit(spec, target="sm_80").schedule
    bad = dataclasses.replace(WINNER, stages=99)
    write(tuning_table.user_file(), spec, "sm_80", bad)
    assert fc.jit(spec, target="sm_80").schedule == shipped


def test_autotune_writes_where_jit_reads(search):
    tuned, _ = search(write=True, trials=40)
    assert tuned.written_to == tuning_table.user_file()
    for shape in SHAPES:
        problem = tuning_gpu.problem_of(SPEC, shape)
        assert tuning_table.winner_for(SPEC, TARGET, problem) == tuned.schedule
    assert tuning_table.winner_for(SPEC, TARGET) is None
    entry, other = json.loads(tuned.written_to.read_text())
    assert {entry["kv_len"], other["kv_len"]} == {1024, 8192}
    assert entry["measured"]["ratio"] == pytest.approx(tuned.ratio, abs=1e-3)
    assert entry["measured"]["shapes"] == [list(shape) for shape in SHAPES]


def test_no_table(search, monkeypatch):
    monkeypatch.setenv("FLASHCORE_SCHEDULES", "off")
    assert tuning_table.user_file() is None
    assert tuning_table.winner_for(SPEC, TARGET) is None
    tuned, _ = search(write=True, trials=20)
    assert tuned.written_to is None


UNKNOWN_FIELD = '[{"target": "sm_80", "head_dim": 64, "schedule": {"stage": 1}}]'


@pytest.mark.parametrize("text", ["{", "{}", '[{"head_dim": 3}]', UNKNOWN_FIELD])
def test_a_table_that_cannot_be_read(text, tmp_path, monkeypatch):
    spec = fc.AttentionSpec(head_dim=64)
    named = tuning_table.user_file()
    named.write_text(text)
    with pytest.raises(fc.CacheError, match="cannot use the schedules of") as caught:
        fc.jit(spec, target="sm_80")
    assert "FLASHCORE_SCHEDULES" in caught.value.fix
    # The one that nobody asked for is left aside.
    monkeypatch.delenv("FLASHCORE_SCHEDULES")
    monkeypatch.setenv("FLASHCORE_CACHE_DIR", str(tmp_path))
    assert tuning_table.user_file() == named
    monkeypatch.setattr(tuning_table, "_told", set())
    with pytest.warns(UserWarning, match="cannot use the schedules"):
        assert tuning_table.winner_for(spec, "sm_80") is None


def test_a_broken_table_is_not_written_over(tmp_path):
    path = tmp_path / "table.json"
    path.write_text("{")
    with pytest.raises(fc.CacheError, match="cannot add to the schedules"):
        write(path, SPEC)
    assert path.read_text() == "{"


def test_the_table_that_ships():
    text = (Path(__file__).parents[2] / "templates" / "attention_winners.json").read_text()
    for entry in json.loads(text):
        assert tuning_table._key(entry).items() <= entry.items(), "every field of the key is there"
        assert {"gpu", "date", "shapes"} <= set(entry["measured"])
        masks = {"full": fc.full(), "causal": fc.causal()}
        if entry["mask"] in masks and not entry["score"] and not entry["sink"]:
            spec = fc.AttentionSpec(
                head_dim=entry["head_dim"],
                head_dim_v=entry["head_dim_v"],
                mask=masks[entry["mask"]],
                layout="thd" if entry["lengths"] == "packed" else "bhsd",
                kv_lens=entry["lengths"] == "padded",
            )
            schedule = fc.Schedule.from_json(json.dumps(entry["schedule"]))
            assert spec.why_not(entry["target"], schedule) == []
            lengths = (entry["q_len"] or 0, entry["kv_len"] or 0)
            problem = (1, 1 if entry["few"] else 10000, *lengths)
            built_in = _core.winning_schedule(spec.to_json(), entry["target"], None, *problem)
            assert fc.Schedule.from_json(built_in) == schedule


# Right and wrong results.


def check(spec, shape=(2, 45, 70), schedule=None, spoil=lambda out: None):
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
    ids=str,
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
    ],
)
def test_expressions(text, value):
    values = {"q_idx": np.int64(3), "t": np.arange(7).reshape(7, 1) + np.array([0, 3])}
    assert tuning_check.evaluate(fc.Mask(text), values) == pytest.approx(value)


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
    with pytest.raises(fc.SpecError, match="dtype = f32"):
        fc.autotune(fc.AttentionSpec(head_dim=64, dtype="f32"), target=TARGET)


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
