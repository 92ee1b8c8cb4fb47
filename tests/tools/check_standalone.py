"""Every source compiles by itself.

The release build compiles several sources as one, behind a precompiled header, and does not notice
when one of them lacks an include; the presets dev, asan and ubsan do.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
COMPILER = os.environ.get("CXX", "c++")
# As CMakeLists.txt defines it, and where kernels that run on the host find the prelude.
OPTIONS = ["-std=c++20", "-fsyntax-only", '-DFLASHCORE_VERSION="0"', "-I.", "-Icodegen/prelude"]
FOLDERS = sorted({
    path.parent.relative_to(ROOT).as_posix()
    for part in ("dsl", "codegen", "runtime", "templates", "c")
    for path in (ROOT / part).rglob("*.cpp")
})  # fmt: skip


def errors_of(source: Path, root: Path) -> list[str]:
    done = subprocess.run(
        [COMPILER, *OPTIONS, str(source)], cwd=root, capture_output=True, text=True, check=False
    )
    return [line for line in done.stderr.splitlines() if "error:" in line]


@pytest.mark.skipif(not shutil.which(COMPILER), reason="there is no C++ compiler")
@pytest.mark.parametrize("folder", FOLDERS)
def test_every_source_compiles_by_itself(folder: str) -> None:
    sources = sorted((ROOT / folder).glob("*.cpp"))
    assert [error for source in sources for error in errors_of(source, ROOT)] == []


@pytest.mark.skipif(not shutil.which(COMPILER), reason="there is no C++ compiler")
def test_a_missing_include_is_found(tmp_path: Path) -> None:
    source = tmp_path / "length.cpp"
    source.write_text("std::string name() { return {}; }\n")
    (error, *_) = errors_of(source, tmp_path)
    assert "string" in error
