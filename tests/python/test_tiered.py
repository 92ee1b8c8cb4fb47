"""Code that was compiled fast serves until the optimised is there. GPUs: test_gpu.py."""

import os
import subprocess
import sys

import pytest

import flashcore as fc

PROGRAM = """
import hashlib
import sys
import flashcore as fc
fc.set_compile_mode(sys.argv[1])
for target in ("sm_80", "sm_90a", "sm_120"):
    kernel = fc.jit(fc.AttentionSpec(head_dim=64, mask=fc.causal()), target=target)
    fast = kernel.cubin if not kernel.is_optimised else b""
    kernel.wait_until_optimised()
    assert kernel.is_optimised and kernel.cubin != fast
    print(target, hashlib.sha256(kernel.cubin).hexdigest())
    print(target, bool(fast), file=sys.stderr)
"""


def run(mode, folder):
    variables = os.environ | {
        "PYTHONPATH": os.pathsep.join(sys.path),
        "FLASHCORE_CACHE_DIR": str(folder),
    }
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, mode],
        env=variables,
        capture_output=True,
        text=True,
        check=True,
    )


def test_the_optimised_code_is_that_of_a_process_that_compiles_nothing_fast(tmp_path):
    tiered = run("tiered", tmp_path / "a")
    # Hopper's kernels hand registers on, which code that was compiled fast cannot.
    assert tiered.stderr.splitlines() == ["sm_80 True", "sm_90a False", "sm_120 True"]
    assert tiered.stdout == run("allow", tmp_path / "b").stdout
    # And it is what the cache keeps.
    assert run("tiered", tmp_path / "a").stderr.splitlines()[0] == "sm_80 False"


def test_modes_are_words_that_are_known():
    with pytest.raises(fc.CacheError, match="allow, warn, tiered, eager or forbid"):
        fc.set_compile_mode("never")
    with pytest.raises(fc.SpecError, match="it is no word"):
        fc.set_compile_mode(1)
    fc.set_compile_mode("allow")
    fc.set_compile_mode(None)
    kernel = fc.jit(fc.AttentionSpec(head_dim=64), target="sm_80")
    assert kernel.is_optimised
    kernel.wait_until_optimised()
