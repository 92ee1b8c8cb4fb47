"""Every example runs as it stands."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

EXAMPLES = sorted((Path(__file__).parents[2] / "examples" / "python").glob("*.py"))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_example(example):
    done = subprocess.run([sys.executable, example], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout


DEMO = next(path for path in EXAMPLES if path.stem == "demo")


def run_demo(**environment):
    environment = {**os.environ, **environment}
    command = [sys.executable, DEMO]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)


def test_the_demo_says_what_it_ran_that_it_passed_and_what_is_next():
    done = run_demo()
    assert done.returncode == 0, done.stderr
    assert "sm_80" in done.stdout
    assert "sm_90" in done.stdout
    assert "2. Ran attention_forward for sm_" in done.stdout
    assert "kernel from the cache after" in done.stdout
    passed, following = done.stdout.split("PASSED: ")
    assert passed.count("FAILED") == 0
    for path in re.findall(r"\b(?:docs|examples)/[\w/.]*", following):
        assert (DEMO.parents[2] / path).exists(), path


def test_the_demo_fails_if_it_cannot_compile(tmp_path):
    done = run_demo(FLASHCORE_NVRTC=str(tmp_path / "none.so"), FLASHCORE_CACHE_DIR=str(tmp_path))
    assert done.returncode == 1
    assert "FAILED: " in done.stdout
    assert "try: " in done.stdout
    assert "PASSED" not in done.stdout
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("wrong", [0.5, np.nan])
def test_the_demo_fails_if_the_numbers_are_wrong(monkeypatch, capsys, wrong):
    spec = importlib.util.spec_from_file_location("demo", DEMO)
    demo = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(demo)
    right = demo.reference
    monkeypatch.setattr(demo, "reference", lambda q, k, v: right(q, k, v) + wrong)
    assert demo.main() == 1
    shown = capsys.readouterr().out
    assert "FAILED: the error is more than rounding explains" in shown
    assert "PASSED" not in shown
