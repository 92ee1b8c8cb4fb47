"""The table of winners: what it holds, what it is read for, and what becomes of a bad one."""

import dataclasses
import json
import os
from pathlib import Path

import numpy as np
import pytest

import flashcore as fc
from flashcore import _core
from flashcore.cache import private_files, tuning_table
from flashcore.cache.table_text import table_text
from flashcore.tuning import gpu as tuning_gpu
from made_up_machine import SHAPES, SPEC, TARGET, search

WINNER = fc.Schedule(tiles={"rows": 64, "cols": 48}, stages=1)


@pytest.fixture(autouse=True)
def no_tuned_schedules(tmp_path, monkeypatch):
    monkeypatch.setenv("FLASHCORE_SCHEDULES", str(tmp_path / "schedules.json"))


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
    assert both(plain | {"q_len": 112, "kv_len": 70}, plain | {"q_len": 98, "kv_len": 80})
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

    assert found(2, 16, 8192, 7169)
    assert found(6, 5, 7200, 7200)
    assert not found(2, 16, 8192, 7168)
    assert not found(2, 16, 7168, 8192)
    assert not found(7, 4, 8192, 8192), "28 heads are of the class below that of 32"
    assert not found(1, 2, 8192, 8192), "two heads leave most of the GPU without work"
    assert not found(0, 0, 0, 0)
    write(path, spec)
    assert found(0, 0, 0, 0)
    assert found(40, 16, 100, 100)
    assert not found(20, 16, 100, 100), "320 blocks: how full the last round is counts"
    assert not found(1, 1, 100, 100)


class OnGpu(np.ndarray):
    def __dlpack_device__(self):
        return 2, 0


def arrays_on_gpu(length):
    q = np.broadcast_to(np.float16(0), (64, 16, length, 64)).view(OnGpu)
    return q, q


def test_calls_of_some_lengths_get_their_winner(tmp_path):
    spec = fc.AttentionSpec(head_dim=64)
    write(tuning_table.user_file(), spec, TARGET, problem=(64, 16, 1000, 1000))
    kernel = fc.jit(spec, target=TARGET)
    assert kernel.variant(*arrays_on_gpu(1024)).schedule == WINNER
    assert kernel.variant(*arrays_on_gpu(1025)).schedule != WINNER
    assert kernel.schedule != WINNER
    untuned = fc.AttentionKernel.shipped(spec, TARGET, tuned=False)
    assert untuned.variant(*arrays_on_gpu(1024)).schedule != WINNER


@pytest.mark.parametrize("with_lse", [False, True])
def test_a_call_compiles_the_kernel_that_it_launches_and_no_other(with_lse):
    asked = []
    fc.set_event_hook(lambda event: asked.append(event.kernel))
    try:
        kernel = fc.AttentionKernel.shipped(fc.AttentionSpec(head_dim=64), TARGET, compiled=False)
        assert asked == []
        launched = kernel.variant(*arrays_on_gpu(1024), with_lse=with_lse)
        assert launched._returning_lse() is launched if with_lse else not launched.spec.lse
        assert len(asked) == 1
        assert kernel.variant(*arrays_on_gpu(1024), with_lse=with_lse) is launched
        assert len(asked) == 1
        fc.AttentionKernel.shipped(fc.AttentionSpec(head_dim=64), "sm_80", compiled=False)
        assert len(asked) == 2
    finally:
        fc.set_event_hook(None)


def test_jit_consults_the_table(tmp_path):
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


def test_autotune_writes_where_jit_reads():
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


def test_no_table(monkeypatch):
    monkeypatch.setenv("FLASHCORE_SCHEDULES", "off")
    assert tuning_table.user_file() is None
    assert tuning_table.winner_for(SPEC, TARGET) is None
    tuned, _ = search(write=True, trials=20)
    assert tuned.written_to is None


@pytest.mark.parametrize("text", ["{", "{}", "[" * 100000, "[" * 100 + "]" * 100])
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


UNUSABLE = [
    {"head_dim": 3},
    {"target": "sm_80", "head_dim": 64, "schedule": {"stage": 1}},
    {"target": "sm_80", "head_dim": 64, "schedule": {"stages": 2**40}},
    {"target": "sm_80", "head_dim": 64, "schedule": "fast"},
    7,
    None,
]


def test_entries_that_cannot_be_used_are_left_aside():
    spec, named = fc.AttentionSpec(head_dim=64), tuning_table.user_file()
    write(named, spec, "sm_80")
    whole = json.loads(named.read_text())
    named.write_text(json.dumps([*UNUSABLE[:3], *whole, *UNUSABLE[3:]]))
    lines = []
    fc.set_log_hook(lambda level, text: lines.append((level, text)))
    try:
        for _ in range(2):
            assert tuning_table.winner_for(spec, "sm_80") == WINNER
    finally:
        fc.set_log_hook(None)
    told = [text for level, text in lines if level == "warn" and str(named) in text]
    assert [text.partition("entry ")[2][:1] for text in told] == list("012456")
    assert "stage" in told[1]
    # What somebody wrote there stays when another search ends.
    write(named, spec, "sm_86")
    assert tuning_table.winner_for(spec, "sm_86") == WINNER
    rest = [entry for entry in json.loads(named.read_text()) if entry in UNUSABLE]
    assert rest == [{"head_dim": 3}, 7, None]


def test_shapes_that_are_alike_make_one_entry(tmp_path):
    path, spec = tmp_path / "table.json", fc.AttentionSpec(head_dim=64)
    problems = [(8, 16, 2048, 2048), (6, 20, 2000, 2000), (1, 16, 2048, 2048)]
    keys = [tuning_table.key_for(spec, TARGET, problem) for problem in problems]
    tuning_table.write(path, keys, WINNER, {})
    assert [entry["blocks"] for entry in json.loads(path.read_text())] == ["many", "some"]


def test_a_broken_table_is_not_written_over(tmp_path):
    path = tmp_path / "table.json"
    for broken in ("{", "{}", "[" * 100000):
        path.write_text(broken)
        with pytest.raises(fc.CacheError, match="cannot add to the schedules"):
            write(path, SPEC)
        assert path.read_text() == broken


def test_the_table_that_ships():
    shipped = Path(__file__).parents[2] / "templates/choice/attention_winners.json"
    for entry in json.loads(shipped.read_text()):
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
            blocks = {"few": 1, "some": 200 * 128 // (lengths[0] or 128), "many": 10000}
            problem = (1, entry["heads"] or blocks[entry["blocks"]], *lengths)
            built_in = _core.winning_schedule(spec.to_json(), entry["target"], None, *problem)
            assert fc.Schedule.from_json(built_in) == schedule


def table_of_the_user(folder, monkeypatch):
    """One that is read without being named."""
    folder.chmod(0o700)
    monkeypatch.delenv("FLASHCORE_SCHEDULES", raising=False)
    monkeypatch.setattr(tuning_table, "user_file", lambda: folder / "schedules.json")
    spec = fc.AttentionSpec(head_dim=64)
    write(folder / "schedules.json", spec, TARGET)
    return spec, folder / "schedules.json"


@pytest.mark.parametrize("what", ["file", "folder"])
def test_a_table_that_others_can_write_to_is_left_aside(tmp_path, monkeypatch, what):
    spec, file = table_of_the_user(tmp_path, monkeypatch)
    assert tuning_table.winner_for(spec, TARGET) == WINNER
    (file if what == "file" else tmp_path).chmod(0o777)
    os.utime(file, ns=(1, 1))  # else it is known already
    with pytest.warns(UserWarning, match="others can write to it"):
        assert tuning_table.winner_for(spec, TARGET) is None
    assert tuning_table.winner_for(spec, TARGET, path=file) == WINNER, "it was asked for by name"


def test_a_table_of_another_user_is_left_aside(tmp_path, monkeypatch):
    if os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    spec, file = table_of_the_user(tmp_path, monkeypatch)
    os.chown(file, 12345, 12345)
    with pytest.warns(UserWarning, match="it belongs to user 12345"):
        assert tuning_table.winner_for(spec, TARGET) is None


def test_a_link_in_the_place_of_a_table_is_left_aside(tmp_path, monkeypatch):
    spec, file = table_of_the_user(tmp_path, monkeypatch)
    elsewhere = tmp_path / "elsewhere"
    file.rename(elsewhere)
    file.symlink_to(elsewhere)
    with pytest.warns(UserWarning, match="it is a symbolic link"):
        assert tuning_table.winner_for(spec, TARGET) is None
    assert tuning_table.winner_for(spec, TARGET, path=file) == WINNER, "it was asked for by name"


def test_a_fifo_in_the_place_of_a_table_does_not_hang(tmp_path, monkeypatch):
    spec, file = table_of_the_user(tmp_path, monkeypatch)
    file.unlink()
    os.mkfifo(file, 0o600)
    with pytest.warns(UserWarning, match="no regular file"):
        assert tuning_table.winner_for(spec, TARGET) is None
    with pytest.raises(fc.CacheError, match="no regular file"):
        tuning_table.winner_for(spec, TARGET, path=file)
    with pytest.raises(fc.CacheError, match="no regular file"):
        write(file, spec)


def test_the_lock_of_a_table_empties_nothing_and_waits_with_a_limit(tmp_path, monkeypatch):
    precious = tmp_path / "precious"
    precious.write_text("text")
    lock = tuning_table._lock_of(tmp_path / "schedules.json")
    assert lock.parent == Path(_core.cache_directory_path())
    lock.unlink(missing_ok=True)
    lock.symlink_to(precious)
    with pytest.raises(fc.CacheError):
        write(tmp_path / "schedules.json", fc.AttentionSpec(head_dim=64))
    assert precious.read_text() == "text"
    lock.unlink()

    monkeypatch.setattr(private_files, "_LOCK_SECONDS", 0.1)
    held = private_files.lock(lock, "hold it")
    with held, pytest.raises(fc.CacheError, match="another process has held the lock"):
        write(tmp_path / "schedules.json", fc.AttentionSpec(head_dim=64))
    write(tmp_path / "schedules.json", fc.AttentionSpec(head_dim=64))


def test_a_table_is_written_for_readers():
    numbers = {f"n{i}": i / 8 for i in range(13)}
    assert table_text([{"key": "short"}, {"shape": [1, 2], "numbers": numbers}]) == (
        """[
  {"key": "short"},
  {
    "shape": [1, 2],
    "numbers": {
      "n0": 0.0, "n1": 0.125, "n2": 0.25, "n3": 0.375, "n4": 0.5, "n5": 0.625, "n6": 0.75,
      "n7": 0.875, "n8": 1.0, "n9": 1.125, "n10": 1.25, "n11": 1.375, "n12": 1.5
    }
  }
]"""
    )
