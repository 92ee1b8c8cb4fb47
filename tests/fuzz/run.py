"""Searches with libFuzzer for bytes that a reader does not refuse as it should.

    make fuzz                                      all targets, 10 minutes each
    python tests/fuzz/run.py --seconds 60 --only spec,entry
    python tests/fuzz/run.py --keep                and add what was found to the kept corpora

Exits with 1 if a target crashed, hung or broke a promise; what did it lies beside the build. Needs
clang 16 or newer with its run-time library: apt-get install clang-16 libclang-rt-16-dev.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tarfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
BUILD = ROOT / "build" / "fuzz"


def build() -> None:
    compiler = os.environ.get("CXX", "clang++-16")
    environment = os.environ | {"CXX": compiler}
    subprocess.run(
        ["cmake", "--preset", "fuzz"], cwd=ROOT, env=environment, check=True, stdout=sys.stderr
    )
    targets = [f"fuzz_{name}" for name in names()]
    subprocess.run(
        ["cmake", "--build", BUILD, "--target", *targets], cwd=ROOT, check=True, stdout=sys.stderr
    )


def names() -> list[str]:
    return sorted(folder.name for folder in (HERE / "corpus").iterdir() if folder.is_dir())


def unpacked(name: str) -> Path:
    """What earlier searches found, in a folder that this one adds to."""
    folder = BUILD / "corpus" / name
    folder.mkdir(parents=True, exist_ok=True)
    archive = HERE / "corpus" / f"{name}.tar.xz"
    if archive.exists():
        with tarfile.open(archive) as kept:
            kept.extractall(folder, filter="data")
    return folder


def search(name: str, seconds: int) -> tuple[str, int, str]:
    log = BUILD / f"{name}.log"
    with log.open("w") as output:
        done = subprocess.run(
            [BUILD / "tests" / "fuzz" / f"fuzz_{name}", f"-max_total_time={seconds}", "-timeout=25",
             "-rss_limit_mb=4096", "-print_final_stats=1", f"-artifact_prefix={BUILD}/{name}-",
             unpacked(name), HERE / "corpus" / name],
            stdout=output, stderr=output,
        )  # fmt: skip
    counts = [line for line in log.read_text(errors="replace").splitlines() if "executed_u" in line]
    return name, done.returncode, counts[-1].split()[-1] if counts else "?"


def keep(name: str) -> None:
    """The part of the corpus that reaches all that the whole of it reaches, as one archive."""
    smallest = BUILD / "kept" / name
    smallest.mkdir(parents=True, exist_ok=True)
    for old in smallest.iterdir():
        old.unlink()
    subprocess.run(
        [BUILD / "tests" / "fuzz" / f"fuzz_{name}", "-merge=1", smallest, HERE / "corpus" / name,
         unpacked(name)],
        check=True, capture_output=True,
    )  # fmt: skip
    with tarfile.open(HERE / "corpus" / f"{name}.tar.xz", "w:xz") as archive:
        for file in sorted(smallest.iterdir()):
            entry = tarfile.TarInfo(file.name)
            entry.size = file.stat().st_size
            with file.open("rb") as content:
                archive.addfile(entry, content)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=int, default=600, help="of each target")
    parser.add_argument("--only", default=",".join(names()), help="targets, commas between")
    parser.add_argument("--keep", action="store_true", help="add what was found to the corpora")
    options = parser.parse_args()
    wanted = options.only.split(",")
    build()
    failed = False
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for name, code, count in pool.map(lambda n: search(n, options.seconds), wanted):
            print(f"{name}: {count} inputs, {'no finding' if code == 0 else f'exit {code}'}")
            if code:
                failed = True
                print(f"  see {BUILD / name}.log and {BUILD}/{name}-*")
    if options.keep:
        for name in wanted:
            keep(name)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
