"""The log of a search: the next one goes on from it."""

import dataclasses
import json

import pytest

import flashcore as fc
from flashcore.tuning.log import TuningLog
from made_up_machine import SHAPES, Machine, search


@pytest.fixture(autouse=True)
def no_tuned_schedules(tmp_path, monkeypatch):
    monkeypatch.setenv("FLASHCORE_SCHEDULES", str(tmp_path / "schedules.json"))


def test_a_search_goes_on_from_its_log(tmp_path):
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


def test_a_log_is_for_one_problem(tmp_path):
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


def test_a_crash_is_told_and_left_out_by_the_next_search(tmp_path):
    log = tmp_path / "log.jsonl"

    def spoil(schedule):
        return "crashes" if schedule.tiles["cols"] % 64 == 16 else ""

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


def test_a_log_that_cannot_be_written_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(fc.CacheError, match="tuning log .*file/log"):
        search(log=tmp_path / "file" / "log")
