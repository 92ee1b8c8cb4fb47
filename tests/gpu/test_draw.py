"""What the scripts of this folder draw and list, checked without a GPU and without torch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from draw import CHOICES, Config, draw_case, draw_config, starts
from random_cases import is_bug
from sanitize import launches

import flashcore as fc

HERE = Path(__file__).resolve().parent


def has_lengths(spec: fc.AttentionSpec) -> bool:
    return spec.layout == "thd" or spec.q_lens or spec.kv_lens


@pytest.mark.parametrize("family", ["wgmma", "mma", "all"])
def test_a_draw_depends_on_seed_family_and_number_alone(family: str) -> None:
    assert [str(draw_config(1, i, family)) for i in range(20)] == [
        str(draw_config(1, i, family)) for i in range(20)
    ]
    assert str(draw_config(1, 0, family)) != str(draw_config(2, 0, family))


def test_the_family_of_warpgroups() -> None:
    configs = [draw_config(3, i, "wgmma") for i in range(100)]
    drawn = [config.changes for config in configs if config.changes]
    assert {(c["instruction"], c["copy"]) for c in drawn} == {("wgmma", "tma")}
    assert {c["warps_m"] for c in drawn} == {4, 8, 12}
    assert {c["stages"] for c in drawn} == {2, 3, 4}
    assert all(c["tiles"]["rows"] == 16 * c["warps_m"] for c in drawn)
    assert {c["tiles"]["cols"] % 16 for c in drawn} == {0}
    assert max(c["tiles"]["cols"] for c in drawn) > 160
    for name in {*CHOICES, "grid_order"} - {"keep_operands"}:
        assert len({c[name] for c in drawn}) == 2, name
    refused = [c for c in configs if c.spec.why_not("sm_90a", c.changes or None)]
    assert len(refused) < 0.4 * len(configs)


def test_all_draws_both_families() -> None:
    drawn = {draw_config(1, i, "all").changes.get("instruction") for i in range(100)}
    assert drawn == {None, "wgmma", "mma_m16n8k16", "wmma"}


def test_cases_have_the_lengths_of_their_spec() -> None:
    seen: set[str] = set()
    packed_lengths: set[int] = set()
    for i in range(400):
        spec = draw_config(1, i % 80, "all").spec
        case = draw_case(1, i, spec, 300)
        assert has_lengths(spec) or not case.sequences
        assert len(case.sequences) in (0, case.batch)
        for rows, keys in case.sequences:
            assert 0 <= rows <= case.q_len <= 300
            assert 0 <= keys <= case.kv_len <= 300
            assert spec.q_lens or spec.layout == "thd" or rows == case.q_len
            assert spec.kv_lens or spec.layout == "thd" or keys == case.kv_len
            assert not case.one_starts or rows == keys
        if spec.layout == "thd":
            seen.add("packed")
            packed_lengths |= {n for pair in case.sequences for n in pair}
            assert case.q_len == max((rows for rows, _ in case.sequences), default=0)
        elif case.sequences:
            seen.add("padded")
    assert seen == {"packed", "padded"}
    assert {0, 1} <= packed_lengths


def test_which_refusals_are_bugs() -> None:
    drawn = Config(fc.AttentionSpec(head_dim=64), {"stages": 3})
    shipped = Config(drawn.spec, {})
    spills = fc.CompileError("it spills registers", "8 bytes", "smaller tiles")
    failed = "NVRTC 13.0 refuses attention_forward for sm_90a"
    assert is_bug(spills, shipped) == "a shipped schedule"
    assert is_bug(spills, drawn) is None
    assert is_bug(fc.ScheduleError("no"), drawn) == "without a reason"
    crowded = "attention_forward for sm_90a has a product that does not fit in registers"
    assert is_bug(fc.CompileError(crowded, "(C7602) Insufficient registers"), drawn) is None
    assert is_bug(fc.CompileError(failed, "error: expected a ;"), drawn)


def test_packed_sequences_lie_one_behind_the_other() -> None:
    assert starts([4, 0, 2], 3) == [3, 7, 7, 9]
    assert starts([], 3) == [3]


def test_no_launch_under_the_sanitizer_is_refused() -> None:
    every = launches()
    assert len({launch.name for launch in every}) == len(every)
    for launch in every:
        assert launch.spec_of().why_not("sm_90a", launch.schedule) == [], launch.name
        case = launch.case(0)
        assert len(case.sequences) in (0, case.batch)
        assert bool(case.sequences) == has_lengths(launch.spec_of())


@pytest.mark.parametrize(
    "command",
    [
        "random_cases.py --dry --family wgmma --kernels 20 --cases 50",
        "sanitize.py --dry --only wgmma",
        "sanitize.py --list",
    ],
)
def test_a_dry_run_needs_nothing(command: str) -> None:
    script, *arguments = command.split()
    done = subprocess.run(
        [sys.executable, str(HERE / script), *arguments], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
