"""What is compiled ahead is all that calls come to."""

import json
import os
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from fake_libraries import INSTANT_COMPILER

import flashcore as fc
from flashcore import _core
from flashcore.ahead_of_time import reach
from flashcore.host import toolchain

CALLS = """
import json, sys
import numpy as np
import flashcore as fc
spec, target, ranges, draws = json.loads(sys.argv[1])
spec = fc.AttentionSpec.from_json(spec)

class OnGpu(np.ndarray):
    def __dlpack_device__(self):
        return 2, 0

rng = np.random.default_rng(1)
def draw(least, most):
    return int(np.clip(2 ** rng.uniform(np.log2(least), np.log2(most)), least, most))

kernel = fc.AttentionKernel.shipped(spec, target, compiled=False)
seen = set()
for _ in range(draws):
    batch, heads, q_len, kv_len = (draw(*ends) for ends in ranges)
    q, k = (np.broadcast_to(np.float16(0), (batch, heads, n, spec.head_dim)).view(OnGpu)
            for n in (q_len, kv_len))
    variant = kernel.variant(q, k, with_lse=bool(rng.integers(2)))
    assert variant.from_cache
    seen.add(variant)
print(len(seen))
"""


def run_where_compiling_is_forbidden(spec, target, ranges, draws, folder, variables=()):
    arguments = json.dumps([spec.to_json(), target, ranges, draws])
    environment = os.environ | {"FLASHCORE_COMPILE": "forbid", "FLASHCORE_CACHE_DIR": str(folder)}
    environment |= dict(variables)
    return subprocess.run(
        [sys.executable, "-c", CALLS, arguments], env=environment, capture_output=True, text=True
    )


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A cache of its own, of processes that the test starts."""
    return tmp_path / "cache"


def precompile_into(folder, spec, target, variables=(), **ranges):
    script = (
        "import sys, json, flashcore as fc\n"
        "spec, target, ranges = json.loads(sys.argv[1])\n"
        "spec = fc.AttentionSpec.from_json(spec)\n"
        "print(len(fc.precompile(spec, target, **ranges)))\n"
    )
    arguments = json.dumps([spec.to_json(), target, ranges])
    environment = os.environ | {"FLASHCORE_CACHE_DIR": str(folder)} | dict(variables)
    done = subprocess.run(
        [sys.executable, "-c", script, arguments], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def test_no_call_inside_the_ranges_misses_and_one_outside_does(folder):
    spec = fc.AttentionSpec(head_dim=64, mask=fc.causal())
    inside = {"lengths": (1, 3000), "batch": (1, 4), "heads": (1, 16)}
    made = precompile_into(folder, spec, "sm_90a", INSTANT_COMPILER, **inside)
    ranges = [inside["batch"], inside["heads"], inside["lengths"], inside["lengths"]]
    calls = run_where_compiling_is_forbidden(spec, "sm_90a", ranges, 2000, folder, INSTANT_COMPILER)
    assert calls.returncode == 0, calls.stderr
    assert 4 <= int(calls.stdout) <= made


def test_a_call_outside_misses_and_says_what_would_have_compiled_it(folder):
    spec = fc.AttentionSpec(head_dim=64, mask=fc.causal())
    precompile_into(folder, spec, "sm_90a", lengths=64, batch=1, heads=1, lse=False)
    ranges = [(1, 1), (1, 1), (64, 64), (64, 64)]  # calls with and without the log-sum-exp
    missed = run_where_compiling_is_forbidden(spec, "sm_90a", ranges, 30, folder)
    assert "is not in the cache and compiling is forbidden" in missed.stderr
    assert "flashcore.precompile" in missed.stderr


def test_kernels_are_listed_once_and_come_from_the_cache_the_second_time():
    spec = fc.AttentionSpec(head_dim=32)
    first = fc.precompile(spec, ["sm_80", "sm_90a"], lengths=(100, 200), batch=1, heads=2)
    assert {kernel.target for kernel in first} == {"sm_80", "sm_90a"}
    assert {kernel.spec.lse for kernel in first} == {False, True}
    again = fc.precompile(spec, "sm_90a", lengths=150, batch=1, heads=2, lse=False)
    assert all(kernel.from_cache and not kernel.spec.lse for kernel in again)
    schedules = [kernel.schedule for kernel in again]
    assert len(schedules) == len(set(map(repr, schedules)))


def test_a_spec_of_fixed_lengths_has_the_kernels_of_those_alone():
    spec = fc.AttentionSpec(head_dim=64, heads=8, batch=2, q_len=512, kv_len=512)
    lists = _core.reachable_schedules(spec.to_json(), "sm_90a", [(1, 2**31 - 1)] * 4, "")
    call = _core.attention_schedules(spec.to_json(), "sm_90a", 2, 8, 512, 512)
    assert call in lists
    assert len(lists) <= 2


@pytest.mark.parametrize("ranges", [{"lengths": (5, 2)}, {"lengths": "x"}, {"batch": 0},
                                    {"heads": (1, 2, 3)}, {"lse": "both"}, {"targets": 7},
                                    {"targets": []}, {"targets": ["sm_33"]}])  # fmt: skip
def test_what_is_no_range_is_refused(ranges):
    with pytest.raises(fc.Error) as refused:
        fc.precompile(fc.AttentionSpec(head_dim=64), **ranges)
    assert refused.value.why
    assert refused.value.fix


def test_a_batch_beyond_the_grid_is_another_kernel():
    assert not reach.read_ranges().exceed_grid
    assert reach.read_ranges(batch=(1, 70_000)).exceed_grid
    made = fc.precompile(fc.AttentionSpec(head_dim=16), "sm_80", batch=70_000, lse=False)
    assert len(made) == 1
    x = np.zeros((1, 1, 16, 16), ml_dtypes.bfloat16)
    made[0](x, x, x)


def test_kernels_of_another_compiler_serve_where_compiling_is_forbidden(folder, tmp_path):
    spec = fc.AttentionSpec(head_dim=16)
    precompile_into(folder, spec, "sm_80")
    files = [
        file
        for place in toolchain.wheel_places()
        for file in Path(place).glob("nvidia/c*/lib/libnvrtc*.so.*")
    ]
    if not files:
        pytest.skip("NVRTC comes from elsewhere")
    for file in files:
        (tmp_path / file.name).symlink_to(file)
    installed = min(files, key=lambda file: len(file.name))
    other = tmp_path / installed.name
    other.unlink()
    other.write_bytes(installed.read_bytes() + b"another patch level")
    ranges = [(1, 1)] * 4
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FLASHCORE_NVRTC", str(other))
        calls = run_where_compiling_is_forbidden(spec, "sm_80", ranges, 3, folder)
    assert calls.returncode == 0, calls.stderr


def test_preparing_compiles_the_very_kernels_that_calls_launch(folder):
    program = """
import flashcore as fc
from flashcore import _core
loaded = []
_core.Kernel.prepare = lambda core, device: loaded.append(core)
spec = fc.AttentionSpec(head_dim=128)  # two of its lists begin with the same schedule
kernel = fc.jit(spec, target="sm_90a", probe="scores")
kernel.prepare(lengths=(1, 20_000), lse=False)
prepared = {id(variant._core) for variant in kernel._variants.values()}
print(len(prepared) > 1, prepared <= set(map(id, loaded)))
"""
    environment = os.environ | {"FLASHCORE_CACHE_DIR": str(folder)} | INSTANT_COMPILER
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True
    )
    assert done.stdout == "True True\n", done.stderr
