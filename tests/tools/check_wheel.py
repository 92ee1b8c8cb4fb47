"""Checks an installed wheel: needs no library of the distribution, and computes attention."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import files
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


def main() -> None:
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

    command = Path(sys.executable).with_name("flashcore")
    told = subprocess.run([command, "--version"], capture_output=True, text=True, check=True)
    assert fc.__version__ in told.stdout, told.stdout

    q, k, v = np.random.default_rng(0).standard_normal((3, 1, 1, 20, 64)).astype(np.float16)
    weights = np.exp(q.astype(float) @ k.astype(float).swapaxes(-1, -2) / 8)
    expected = weights / weights.sum(-1, keepdims=True) @ v.astype(float)
    assert np.abs(fc.attention(q, k, v) - expected).max() < 2e-3
    kernel = fc.jit(fc.AttentionSpec(head_dim=64), target="sm_90")
    assert kernel.cubin.startswith(b"\x7fELF")
    size = Path(_core.__file__).stat().st_size / 1e6
    print(f"the wheel computes and compiles; its module has {size:.1f} MB, needs {sorted(needed)}")


if __name__ == "__main__":
    main()
