"""Checks an installed wheel: it needs no library of the distribution, and computes attention.

python check_wheel.py --without-compiler   where NVRTC is not found
python check_wheel.py                      where it is; leaves a bundle for the other

Run with FLASHCORE_CACHE=off, so that no kernel comes from elsewhere.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from importlib.metadata import files, version
from pathlib import Path

import numpy as np

import flashcore as fc
from flashcore import _core

# What manylinux allows, and nothing of Debian's.
ALLOWED = {
    "libstdc++.so.6",
    "libgcc_s.so.1",
    "libm.so.6",
    "libc.so.6",
    "ld-linux-x86-64.so.2",
    "libpthread.so.0",
    "libdl.so.2",
}
MOST_BYTES = 5_000_000  # of the file that pip downloads
# Kernels that are compiled on one host and used on another.
BUNDLE = Path("shipped.fcb")


def check_files() -> None:
    assert "site-packages" in fc.__file__, fc.__file__
    dynamic = subprocess.run(
        ["readelf", "-d", _core.__file__], capture_output=True, text=True, check=True
    ).stdout
    needed = set(re.findall(r"NEEDED.*\[(.*)\]", dynamic))
    assert needed <= ALLOWED, needed - ALLOWED

    shipped = [str(file) for file in files("flashcore") or []]
    assert "flashcore/py.typed" in shipped
    assert "flashcore/_core.pyi" in shipped
    own = ("flashcore/", "flashcore-", "../../../bin/flashcore")
    strangers = [f for f in shipped if not f.startswith(own)]
    assert not strangers, strangers


def check_command() -> None:
    command = Path(sys.executable).with_name("flashcore")
    told = subprocess.run([command, "--version"], capture_output=True, text=True, check=True)
    assert fc.__version__ in told.stdout, told.stdout
    assert version("flashcore") == fc.__version__


def check_emulator() -> None:
    q, k, v = np.random.default_rng(0).standard_normal((3, 1, 1, 20, 64)).astype(np.float16)
    weights = np.exp(q.astype(float) @ k.astype(float).swapaxes(-1, -2) / 8)
    expected = weights / weights.sum(-1, keepdims=True) @ v.astype(float)
    assert np.abs(fc.attention(q, k, v) - expected).max() < 2e-3


PROGRAM = """
#include "dsl/export.h"
flashcore::Exported doubled(const flashcore::Arguments&) {
  flashcore::ProgramBuilder b("doubled");
  const flashcore::Extent length("N");
  const flashcore::Axis n = b.parallel_tiles("n", length);
  const flashcore::Tensor x = b.input("x", flashcore::DType::f32, {length});
  const flashcore::Tensor y = b.output("y", flashcore::DType::f32, {length});
  store(y(n), load(x(n)) * 2);
  return {b.finish(), [](const flashcore::Target&) {
            return flashcore::Schedule{.tiles = {{"n", 32}}, .warps_m = 1};
          }};
}
FLASHCORE_EXPORT_PROGRAM(doubled)
"""


def own_program() -> fc.Program:
    """One that is compiled with the headers and libraries of the wheel."""
    source = Path("doubled.cpp")
    source.write_text(PROGRAM)
    return fc.load(source).doubled()


def check_without_compiler() -> None:
    """A kernel is refused by the name of the extra, and a bundle is as good as ever."""
    assert own_program().name == "doubled"
    spec = fc.AttentionSpec(head_dim=64)
    why = ""
    try:
        fc.jit(spec, target="sm_90")
    except fc.CompileError as error:
        why = error.fix
    assert "pip install 'flashcore[nvrtc]'" in why, why
    command = Path(sys.executable).with_name("flashcore")
    told = subprocess.run([command, "doctor"], capture_output=True, text=True, check=False)
    assert "flashcore[nvrtc]" in told.stdout, told.stdout
    if BUNDLE.exists():
        fc.use_bundle(BUNDLE)
        assert fc.jit(spec, target="sm_90").cubin.startswith(b"\x7fELF")


def check_compiler() -> None:
    kernel = fc.jit(fc.AttentionSpec(head_dim=64), target="sm_90")
    assert kernel.cubin.startswith(b"\x7fELF")
    kernel.save(BUNDLE)
    x = np.arange(40, dtype=np.float32)
    assert (fc.jit(own_program(), target="sm_80")(x=x) == 2 * x).all()


def check_size(wheel: Path) -> None:
    assert wheel.stat().st_size < MOST_BYTES, f"{wheel.name} has {wheel.stat().st_size} bytes"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without-compiler", action="store_true")
    parser.add_argument("--wheel", type=Path, help="the file it was installed from")
    options = parser.parse_args()
    check_files()
    check_command()
    check_emulator()
    if options.without_compiler:
        check_without_compiler()
    else:
        check_compiler()
    if options.wheel:
        check_size(options.wheel)
    print("the wheel is right", "without a compiler" if options.without_compiler else "with one")


if __name__ == "__main__":
    main()
