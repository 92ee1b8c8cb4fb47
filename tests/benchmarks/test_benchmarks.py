"""The benchmarks start, and say what they need where they cannot run."""

from __future__ import annotations

import json
import math
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import flashcore as fc

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import compare_builds  # noqa: E402
import gpu_timing  # noqa: E402
import hopper  # noqa: E402
import mixed_decoding  # noqa: E402
import packed  # noqa: E402
import paged_prefill  # noqa: E402
import random_problems  # noqa: E402
import schedule_choice  # noqa: E402
from contest import peer_runs, row_of  # noqa: E402
from fa3_peer import find_fa3  # noqa: E402
from gpu_timing import GRAPH_CALLS, Timer  # noqa: E402
from report import BEGIN, END, Row, cells, summary, write_markdown  # noqa: E402


def run(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(BENCHMARKS / script), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def has_gpu() -> bool:
    try:
        import torch
    except ImportError:
        return False
    return torch.cuda.is_available()


def test_compile_times_a_cold_and_a_warm_kernel(tmp_path: Path) -> None:
    results = tmp_path / "results.json"
    shown = ["--head-dims", "64", "--kinds", "full,softcap", "--json", str(results)]
    done = run("compile.py", "--targets", "sm_80", *shown)
    assert done.returncode == 0, done.stderr
    rows = json.loads(results.read_text())["rows"]
    assert [row["kind"] for row in rows] == ["full", "softcap"]
    assert all(0 < row["warm_ms"] < row["compile_ms"] for row in rows)


@pytest.mark.skipif(has_gpu(), reason="here they run")
@pytest.mark.parametrize(
    "script",
    [
        "attention.py",
        "compare_builds.py",
        "backward.py",
        "decoding.py",
        "dense_masks.py",
        "float32.py",
        "hopper.py",
        "host_time.py",
        "launch.py",
        "linear_attention.py",
        "matmul.py",
        "mixed_decoding.py",
        "paged_prefill.py",
        "orderings.py",
        "packed.py",
        "random_problems.py",
        "schedule_choice.py",
        "variants.py",
    ],
)
def test_without_a_gpu_a_script_says_so(script: str) -> None:
    builds = ("--before", ".", "--after", ".") if script == "compare_builds.py" else ()
    done = run(script, *builds)
    assert done.returncode != 0
    assert done.stderr.startswith("this benchmark needs")
    assert "Traceback" not in done.stderr


def test_products_over_pages_are_those_that_a_causal_mask_leaves() -> None:
    for batch in ([(3, 5)], [(1, 4), (4, 4)]):
        seen = sum(k - q + 1 + row for q, k in batch for row in range(q))
        assert paged_prefill.products(2, batch) == 4 * 2 * paged_prefill.HEAD_DIM * seen


def test_mixed_lengths_have_the_mean_that_is_asked_for() -> None:
    for kind in mixed_decoding.KINDS:
        lens = mixed_decoding.lengths_of(kind, 256, 1000)
        assert lens == mixed_decoding.lengths_of(kind, 256, 1000)
        assert len(lens) == 256
        assert 0.85 < sum(lens) / 256 / 1000 < 1.15
        assert (max(lens) > 1500) == (kind != "equal")


def test_random_problems_are_those_of_their_seed() -> None:
    rows = random_problems.draw(random.Random(3), 300)
    assert rows[:100] == random_problems.draw(random.Random(3), 100)
    assert {row.head_dim for row in rows} == set(random_problems.HEAD_DIMS)
    assert 0 < sum(row.length % 128 == 0 for row in rows) < len(rows)
    for row in rows:
        whole = 4 * row.batch * row.heads * row.length**2 * row.head_dim
        assert whole <= random_problems.MOST_OPERATIONS


def test_random_problems_tell_where_a_peer_is_faster() -> None:
    rows = [
        Row("bf16", 128, "full", 1037, 200.0, {"cudnn": 100.0, "flash": 160.0}, batch=6, heads=16),
        Row("bf16", 64, "causal", 77, 90.0, {"cudnn": 100.0, "flash": 50.0}, batch=2, heads=3),
        Row("bf16", 64, "full", 77, math.nan),
    ]
    lines = random_problems.report(rows)
    assert lines[0] == (
        "FlashAttention 2 / ours: 1.500 in the mean, 1.250 at least, 0 below 1, 0 below 0.97 of 2"
    )
    assert lines[2] == "FlashAttention 3 / ours: no problems"
    assert lines[3] == (
        "best peer / ours: 1.061 in the mean, 0.900 at least, 1 below 1, 1 below 0.97 of 2"
    )
    assert lines[-1] == (
        "  B2 H3 S77 D64 causal: 0.900, TFLOP/s 90, cuDNN 100, FlashAttention 2 50"
    )


def test_float32_counts_products_that_are_seen() -> None:
    from float32 import flops

    shape = (2, 3, 4, 8)
    assert flops(shape, causal=False) == 2 * 3 * 2 * (2 * 4 * 4 * 8)
    assert flops(shape, causal=True) == 2 * 3 * 2 * (2 * 10 * 8)


def test_float32_holds_errors_against_the_largest_value() -> None:
    torch = pytest.importorskip("torch")
    from float32 import error, exact_head

    q, k, v = (torch.randn(1, 1, 5, 8) for _ in range(3))
    exact = exact_head(torch, q, k, v, causal=True)
    assert torch.allclose(exact[0], v[0, 0, 0].double())
    out = exact[None, None].float()
    assert error(out, exact) < 1e-6
    out[0, 0, 2, 3] += exact.abs().max()
    assert abs(error(out, exact) - 1) < 1e-5


def test_the_peer_of_linear_attention_computes_the_same() -> None:
    torch = pytest.importorskip("torch")
    from linear_attention import CHUNKS, in_chunks

    torch.manual_seed(0)
    q, k, v = torch.randn(3, 1, 2, 512, 16, dtype=torch.float64)
    expected = (q @ k.mT).tril() @ v
    for chunk in CHUNKS:
        assert torch.allclose(in_chunks(chunk)(q, k, v), expected)


def test_the_summary_is_a_geometric_mean_and_a_minimum() -> None:
    rows = [
        Row("bf16", 64, "full", 512, ours=200.0, peers={"flash": 100.0}),
        Row("bf16", 64, "full", 1024, ours=50.0, peers={"flash": 100.0, "cudnn": 100.0}),
    ]
    last = summary(rows, ["flash", "cudnn"]).splitlines()[-1]
    assert last.replace(" ", "") == "|all||2|1.00|0.50|0.50|0.50|"


def test_markdown_goes_between_its_comments(tmp_path: Path) -> None:
    file = tmp_path / "page.md"
    file.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    write_markdown(file, "new\n")
    assert file.read_text() == f"before\n{BEGIN}\nnew\n{END}\nafter\n"


def test_the_best_peer_is_the_fastest_one_that_ran() -> None:
    row = Row("bf16", 64, "full", 512, ours=300.0, peers={"flash": 200.0, "cudnn": 400.0})
    assert (row.speed("best"), row.ratio("best"), row.ratio("fa3")) == (400.0, 0.75, None)
    assert cells(row, ["fa3", "best"])[-4:] == ["-", "-", "400", "0.75"]
    failed = Row("bf16", 64, "full", 512, ours=math.nan, peers={"flash": 200.0})
    assert cells(failed, ["flash"])[-3:] == ["nan", "200", "-"]
    assert "-" in summary([failed], ["flash"])  # no ratio, and no mean of none


def test_a_row_counts_its_operations() -> None:
    full, causal = (row_of("bf16", 128, mask, 4096, 16384) for mask in ("full", "causal"))
    assert (full.batch, full.heads) == (4, 16)
    assert full.operations == 4 * 4 * 16 * 4096**2 * 128 == 2 * causal.operations
    assert row_of("bf16", 128, "full", 32768, 16384).batch == 1


def test_inputs_exceed_the_cache_or_differ_in_every_call_of_a_graph() -> None:
    timer = Timer.__new__(Timer)
    timer.l2_bytes = 60 << 20
    assert timer.sets(61 << 20) == 1
    assert timer.sets(60 << 20) == 3
    assert timer.sets(1 << 20) == GRAPH_CALLS


class FakeClock:
    """A torch whose GPU takes as long for a call as `run` says."""

    def __init__(self) -> None:
        self.cuda, self.ms = self, 0.0

    def Event(self, enable_timing: bool) -> FakeEvent:
        return FakeEvent(self)

    def synchronize(self) -> None: ...


class FakeEvent:
    def __init__(self, clock: FakeClock):
        self._clock = clock

    def record(self) -> None:
        self.ms = self._clock.ms

    def synchronize(self) -> None: ...

    def elapsed_time(self, other: FakeEvent) -> float:
        return other.ms - self.ms


def test_sustained_times_are_those_of_a_clock_that_has_settled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first calls behind another contender's are quick."""
    monkeypatch.setattr(gpu_timing, "PAUSE_S", 0)
    torch = FakeClock()
    timer = Timer.__new__(Timer)
    timer._torch, timer._sustained_ms = torch, 40
    calls: dict[str, list[int]] = {"slow": [], "quick": []}

    def contender(name: str, settled_ms: float) -> Callable[[int], None]:
        def run(index: int) -> None:
            others = sum(len(found) for other, found in calls.items() if other != name)
            since = calls[name][-1] if calls[name] else -1
            calls[name].append(others)
            in_a_row = calls[name].count(others) if since == others else 1
            torch.ms += settled_ms if in_a_row > 8 else settled_ms / 2

        return run

    found = timer.interleaved([contender("slow", 2.0), contender("quick", 1.0)], budget_ms=1)
    assert found == [2.0, 1.0]


class FakeFa3:
    def takes(self, dtype: str, head_dim: int) -> bool:
        return dtype == "bf16" and head_dim == 128

    def forward(self, q: str, k: str, v: str, causal: bool) -> Callable[[], str]:
        return lambda: f"{q}{k}{v} {causal}"


def test_flash_attention_3_is_among_the_peers_where_it_is_there_and_has_the_kernel() -> None:
    row = Row("bf16", 128, "causal", 2048, math.nan)
    inputs = [["q", "k", "v"], ["x", "y", "z"]]
    found = peer_runs(None, row, inputs, [], FakeFa3())
    assert [found["fa3"](index) for index in (0, 1)] == ["qkv True", "xyz True"]
    assert not peer_runs(None, row, inputs, [], None)
    assert not peer_runs(None, Row("fp16", 128, "full", 64, math.nan), inputs, [], FakeFa3())


def test_a_folder_without_flash_attention_3_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLASHCORE_FA3", str(tmp_path))
    with pytest.raises(SystemExit, match=f"{tmp_path}: that folder has no fa3.py"):
        find_fa3(None)
    (tmp_path / "fa3.py").write_text("def load(path): return path")
    assert find_fa3(None).takes("bf16", 256)


def test_the_page_of_the_hopper_benchmark() -> None:
    rows = [
        Row("bf16", 128, "full", 8192, 600.0, {"cudnn": 500.0}),
        Row("bf16", 64, "full", 8192, 300.0, {"cudnn": 400.0}),
        Row("bf16", 64, "causal", 8192, math.nan),
    ]
    # 4 * 8 * 512^2 * 64 operations at 100 TFLOP/s take 5.37 us.
    small = Row("bf16", 64, "full", 512, 100.0, {"flash": 125.0}, batch=1, heads=8)
    assert hopper.small_cells(small) == ["B1 H8 S512 D64", "full", "5.37", "-", "4.29", "1.25"]
    softcap = hopper.VARIANTS[-1].name
    variants = [hopper.VariantRow(softcap, 64, 4096, 2.0, 3.0, 1.6), hopper.VariantRow("x", 64, 1)]
    results = hopper.Results("here", rows, [small], variants, products=[900.0, 750.0, 600.0])
    results.problems.append("a row failed")
    page = hopper.markdown(results)
    for line in (
        "- ours / best peer: geometric mean 0.949, least 0.750",
        "- least row: bf16 64 full 8192 at 0.750",
        "- bf16 head_dim 128 full 8k: 0.800 of the product",
        "- bf16 head_dim 64 full 8k: 0.400 of the product",
        "- ours / best: most 1.250",
        "- FlexAttention / ours, times: geometric mean 1.500, least 1.500",
        f"- {softcap}: at most 1.250 of the time of plain causal",
        "- a row failed",
    ):
        assert line in page.splitlines()
    assert len(hopper.markdown(results, every_row=False)) < len(page)
    assert hopper.forward_lines(hopper.Results("here"))[0] == "ours / best peer: no rows"


def choice(whole: dict[str, float], chosen: str, **more: Any) -> schedule_choice.Choice:
    return schedule_choice.Choice(64, "causal", 0, (1, 2, 3, 4), "", whole, chosen, **more)


def test_a_choice_is_held_against_the_best() -> None:
    good = choice({"a": 10.0, "b": 20.0}, "a")
    far = choice({"a": 10.0, "b": 12.0}, "b", split={"b": 12.0, "a": 10.0, "16 rows": 6.0},
                 chosen_call="16 rows")  # fmt: skip
    assert (good.loss, far.loss, far.call_loss) == (1.0, 1.2, 1.0)
    lines = schedule_choice.report([good, far])
    assert "  all: 1.095 in the mean, 1.20 at most, above 1.15: 1 of 2" in lines
    assert "  groups: no problems" in lines
    assert "  whose keys are split: 1.000 in the mean, 1.00 at most, above 1.15: 0 of 1" in lines
    assert lines[-3] == "causal D64 B1 H2 3 rows, 4 keys, keys whole: 1.200"
    assert [line.split()[-1] for line in lines[-2:]] == ["a", "b"]
    badly_split = choice(
        {"a": 10.0}, "a", split={"a": 10.0, "16 rows": 15.0}, chosen_call="16 rows"
    )
    lines = schedule_choice.report([good, badly_split, choice({"a": 10.0, "b": 12.0}, "b")])
    assert lines[1] == "  all: 1.216 in the mean, 1.50 at most, above 1.15: 2 of 3"
    assert lines[-6:-5] + lines[-3:-2] == [
        "causal D64 B1 H2 3 rows, 4 keys, calls: 1.500",
        "causal D64 B1 H2 3 rows, 4 keys, calls: 1.200",
    ]


def test_every_second_problem_has_groups() -> None:
    drawn = schedule_choice.draw(random.Random(0), 48, [64, 128], ["full", "causal"])
    grouped = [one.spec for one in drawn if one.spec.kv_heads]
    assert len(grouped) == 24
    assert all(spec.heads % spec.kv_heads == 0 and spec.heads <= 64 for spec in grouped)
    assert len({one.spec.to_json() for one in drawn}) <= 8  # each has kernels of its own


def test_problems_are_drawn_under_the_masks_that_are_asked_for() -> None:
    known = list(schedule_choice.masks(fc))
    drawn = schedule_choice.draw(random.Random(0), 4 * len(known), [64], known)
    assert {one.mask for one in drawn} == set(known)
    assert all(str(one.spec.mask) == str(schedule_choice.masks(fc)[one.mask]) for one in drawn)
    window, chunks = (
        schedule_choice.Choice(64, mask, 0, (1, 2, 3, 4), "", {"a": 1.0}, "a")
        for mask in ("window_128", "chunked_512")
    )
    lines = schedule_choice.report([window, chunks])
    assert "  window_128: 1.000 in the mean, 1.00 at most, above 1.15: 0 of 1" in lines
    assert not any(line.startswith("  full") for line in lines)


def test_builds_are_compared_over_every_table_once() -> None:
    cases = [case for name in compare_builds.SECTIONS for case in compare_builds.cases_of(name, [])]
    names = [case.name for case in cases]
    assert len(cases) == 72 + 10 + 40 + 36 + 270 + 138
    assert len(set(names)) == len(names)
    assert all(case.head_dim == 128 for case in compare_builds.cases_of("forward", [128]))


def test_packed_sequences_fill_the_tokens() -> None:
    lengths = packed.patterns(16384)
    assert all(sum(pattern) == 16384 for pattern in lengths.values())
    assert min(map(len, lengths.values())) == 4
    texts = lengths[max(lengths, key=lambda name: "texts" in name)]
    assert len(set(texts)) > 10
    assert max(texts) > 4 * sum(texts) / len(texts)  # few are long


def test_a_causal_product_of_packed_sequences_counts_half() -> None:
    full, causal = (packed.Packed([3, 5], 64, causal) for causal in (False, True))
    assert full.operations(backward=False) == 4 * 64 * 32 * (9 + 25)
    assert causal.operations(backward=True) == 10 * 64 * 32 * (9 + 25) / 2


def test_outputs_of_two_builds_are_apart_by_the_size_of_the_first() -> None:
    assert compare_builds.apart([3.0, 4.0], [3.0, 4.0]) == 0
    assert compare_builds.apart([3.0, 4.0], [3.0, 4.5]) == pytest.approx(0.1)
    assert compare_builds.apart([3.0, 4.0], [3.0, math.nan]) == math.inf


def test_builds_take_turns_there_and_back() -> None:
    assert compare_builds.turns(2, 1) == [0, 1, 1, 0]
    assert compare_builds.turns(3, 2) == [0, 1, 2, 2, 1, 0, 1, 2, 0, 0, 2, 1]


class _Scripted:
    """A build whose times are given."""

    def __init__(self, code: str, ms: float):
        self._code, self._ms = code, ms

    def ask(self, **command: Any) -> dict[str, Any]:
        return {"code": self._code, "seen": [1.0], "ms": self._ms}


def test_a_control_shows_the_noise_of_a_ratio() -> None:
    case = compare_builds.cases_of("small", [])[0]
    builds: Any = [_Scripted("a", 3.0), _Scripted("b", 2.0), _Scripted("a", 4.0)]
    result = compare_builds.compare(builds, "small", case, rounds=1, timing={})
    assert (result.ratio, result.control) == (1.5, 0.75)
    alone = compare_builds.compare(builds[:2], "small", case, rounds=1, timing={})
    assert math.isnan(alone.control)


def test_a_build_that_ends_is_told_rather_than_waited_for(tmp_path: Path) -> None:
    build = compare_builds.Build(str(tmp_path / "nothing"), str(tmp_path))
    with pytest.raises((RuntimeError, BrokenPipeError)):
        build.ask(do="time", budget_ms=1.0)
