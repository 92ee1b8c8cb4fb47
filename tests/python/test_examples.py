"""Every example runs as it stands."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[2] / "examples" / "python").glob("*.py"))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_example(example):
    done = subprocess.run([sys.executable, example], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_the_demo_shows_both_targets_and_the_cache():
    demo = next(path for path in EXAMPLES if path.stem == "demo")
    out = subprocess.run([sys.executable, demo], capture_output=True, text=True, check=True).stdout
    assert "sm_80" in out
    assert "sm_90" in out
    assert "kernel from the cache after" in out
