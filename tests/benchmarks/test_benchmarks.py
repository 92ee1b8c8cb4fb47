"""The benchmarks start, and say what they need where they cannot run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

from report import BEGIN, END, Row, summary, write_markdown  # noqa: E402


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
    done = run("compile.py", "--targets", "sm_80", "--head-dims", "64", "--json", str(results))
    assert done.returncode == 0, done.stderr
    rows = json.loads(results.read_text())["rows"]
    assert [row["mask"] for row in rows] == ["full", "causal"]
    assert all(0 < row["warm_ms"] < row["compile_ms"] for row in rows)


@pytest.mark.skipif(has_gpu(), reason="here they run")
@pytest.mark.parametrize("script", ["attention.py", "launch.py", "variants.py"])
def test_without_a_gpu_a_script_says_so(script: str) -> None:
    done = run(script)
    assert done.returncode != 0
    assert done.stderr.startswith("this benchmark needs")
    assert "Traceback" not in done.stderr


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
