"""Every file is as the formatters leave it (`make format`), and the linter and mypy have nothing to
say."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = Path(sys.executable).parent


def run(tool: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """One of tools/requirements.txt, of this environment."""
    path = shutil.which(tool, path=str(ENVIRONMENT))
    if path is None:
        pytest.skip(f"{tool} is not installed beside {sys.executable}")
    return subprocess.run([path, *arguments], cwd=ROOT, capture_output=True, text=True)


def test_cpp_is_formatted() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "*.h", "*.cpp", "*.cuh"], cwd=ROOT, capture_output=True, text=True
    )
    if listed.returncode:
        pytest.skip("not a checkout: there is no list of files")
    done = run("clang-format", "--dry-run", "--Werror", *listed.stdout.split())
    assert done.returncode == 0, done.stderr[:2000]


def test_python_is_formatted() -> None:
    done = run("ruff", "format", "--check", ".")
    assert done.returncode == 0, done.stdout


def test_python_has_no_lint() -> None:
    done = run("ruff", "check", "--output-format=concise", ".")
    assert done.returncode == 0, done.stdout


def test_python_types_fit() -> None:
    done = run("mypy", "--cache-dir", os.devnull)
    assert done.returncode == 0, done.stdout
