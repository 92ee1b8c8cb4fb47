"""A crash, a hang and an error are one case's failure each, and the others are judged."""

import sys
import time
from pathlib import Path

import pytest
import workers

CHILD = """
import os, sys, time
import workers

def judge(task):
    print("said aside")
    os.write(2, b"last words\\n")
    if task == "crash":
        os.abort()
    if task == "hang":
        time.sleep(100)
    if task == "raise":
        raise ValueError("of the judge")
    if task == "read":
        return sys.stdin.read()
    return [task, os.getpid()]

workers.serve(judge)
"""


@pytest.fixture
def child(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(workers.__file__).parent))
    script = tmp_path / "child.py"
    script.write_text(CHILD)
    return [sys.executable, str(script)]


def test_one_case_fails_and_the_others_are_judged(child):
    shares = [[1, "crash", 2, "hang", 3], [4, "raise", 5, "read"]]
    answers = {a.task: a for a in workers.run(child, shares, jobs=2, seconds=3)}
    assert {task: answers[task].outcome[0] for task in range(1, 6)} == {n: n for n in range(1, 6)}
    assert answers["read"].outcome == ""
    assert "crashed, exit -6" in answers["crash"].error
    assert "last words" in answers["crash"].error
    assert "hangs for 3 s" in answers["hang"].error
    assert "ValueError: of the judge" in answers["raise"].error
    assert answers[4].outcome[1] == answers[5].outcome[1]
    assert answers[1].outcome[1] != answers[2].outcome[1]


def test_shares_have_processes_of_their_own_if_asked(child):
    for renew, processes in ((False, 1), (True, 3)):
        answers = list(workers.run(child, [[1, 2], [3], [4, 5]], 1, 30, renew=renew))
        assert [answer.task for answer in answers] == [1, 2, 3, 4, 5]
        assert len({answer.outcome[1] for answer in answers}) == processes


def test_no_case_begins_after_the_time_given(child):
    assert list(workers.run(child, [[1, 2], [3]], 2, 30, until=time.monotonic())) == []


def test_a_child_that_does_not_start_is_an_error():
    command = [sys.executable, "-c", "raise SystemExit('no such module')"]
    with pytest.raises(RuntimeError, match="no such module"):
        list(workers.run(command, [[1]], 1, 30))
