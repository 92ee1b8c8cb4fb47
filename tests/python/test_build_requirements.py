"""What a build says where a library is missing."""

import shutil
import subprocess
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(shutil.which("cmake") is None, reason="no cmake")


def configure(folder, *options):
    command = ["cmake", "-S", SOURCES, "-B", folder, *options]
    return subprocess.run(command, capture_output=True, text=True)


def test_all_missing_packages_are_named_at_once(tmp_path):
    hidden = [f"-DCMAKE_DISABLE_FIND_PACKAGE_{name}=ON" for name in ("fmt", "sodium")]
    done = configure(tmp_path, "-DFLASHCORE_TESTS=OFF", *hidden)
    assert done.returncode != 0
    assert "apt-get install libfmt-dev libsodium-dev\n" in done.stderr
    assert "dnf install fmt-devel libsodium-devel libsodium-static\n" in done.stderr
