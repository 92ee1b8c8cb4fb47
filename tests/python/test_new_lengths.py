"""A call of lengths that no call had before finds its kernel as any other does, and compiles
nothing: on a driver without a GPU behind it. C++: tests/runtime/dispatcher_test.cpp."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from fake_libraries import DRIVER, INSTANT_COMPILER, with_driver

pytestmark = with_driver

SETUP = """
import time
import numpy as np
import flashcore as fc
from fake_framework import OnHopper

messages = []
fc.set_log_hook(lambda level, text: messages.append((level, text)))
rng = np.random.default_rng(3)

def arrays(batch, heads, rows, keys, dim=64):
    return [OnHopper(batch, heads, n, dim) for n in (rows, keys, keys, rows)]

def call(kernel, *problem, **more):
    q, k, v, out = arrays(*problem)
    return kernel(q, k, v, out=out, **more)

def draw(heads=4, length=12):
    return [int(2 ** rng.uniform(0, top)) for top in (heads, heads, length, length)]

def compiled():
    return fc.cache_stats().compiled

def loads():
    return sum(text.startswith("loaded") for _, text in messages)

# What the background says comes when its lock is free, which may be after what waits for it.
def wait_for(condition, seconds=30):
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)

def lists(kernel, *problem):
    return kernel._dispatch(False).core.schedules(problem)

spec = fc.AttentionSpec(head_dim=64, dtype="f16", mask=fc.causal())
few, many = (1, 1, 64, 64), (8, 16, 4096, 4096)
"""


@pytest.fixture
def run(tmp_path):
    """Runs a program on the fake driver with a cache of its own, or that of another's."""

    def run(program, folder=tmp_path / "cache", **variables):
        environment = os.environ | {
            "FLASHCORE_LIBCUDA": str(DRIVER),
            "FLASHCORE_CACHE_DIR": str(folder),
            "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path]),
            **variables,
        }
        done = subprocess.run(
            [sys.executable, "-c", SETUP + program],
            env=environment,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def test_ten_thousand_random_lengths_compile_nothing_after_prepare(run):
    out = run(
        """
kernel = fc.jit(spec, target="sm_90a")
kernel.prepare(2, lengths=(1, 4096), batch=(1, 16), heads=(1, 16), lse=False)
before, told = compiled(), len(messages)
taken = []
for _ in range(10_000):
    q, k, v, out = arrays(*draw())
    start = time.perf_counter()
    kernel(q, k, v, out=out)
    taken.append(time.perf_counter() - start)
assert compiled() == before
assert kernel.is_optimised
assert len(messages) == told, messages[told:]
# Most of it is these arrays, which answer in Python, and what else the machine does.
assert np.median(taken) < 1e-3, np.median(taken)
print(len(kernel._dispatch(False).core.reachable([(1, 16), (1, 16), (1, 4096), (1, 4096)])) > 3)
""",
        **INSTANT_COMPILER,
    )
    assert out == "True\n"


def test_another_kernel_serves_until_the_best_is_compiled(run):
    out = run("""
kernel = fc.jit(spec, target="sm_90a")
before = compiled()
assert lists(kernel, *few)[0] != lists(kernel, *many)[0]
start = time.perf_counter()
call(kernel, *few)
waited = time.perf_counter() - start
print(kernel.is_optimised, compiled() - before)
kernel.wait_until_optimised()
print(kernel.is_optimised, compiled() - before)
wait_for(lambda: loads() == 2)
told = loads()
call(kernel, *few)
call(kernel, *few)
print(told, loads() - told)
assert waited < 0.2, waited
assert not [text for level, text in messages if level == "warn"]
""")
    assert out == "False 0\nTrue 1\n2 0\n"  # the second is loaded where it is compiled


def test_the_first_call_waits_for_its_own_kernel_and_so_does_every_eager_one(run):
    out = run("""
first = fc.AttentionKernel.shipped(spec, "sm_90a", compiled=False)
call(first, *few)
print(compiled(), first.is_optimised)
fc.set_compile_mode("eager")
call(first, *many)
print(compiled(), first.is_optimised)
""")
    assert out == "1 True\n2 True\n"


def test_where_compiling_is_forbidden_no_other_kernel_serves(run):
    out = run("""
kernel = fc.jit(spec, target="sm_90a")
fc.freeze()
call(kernel, *many)
for _ in range(2):
    try:
        call(kernel, *few)
    except fc.CacheMissError as error:
        print(error.what)
fc.freeze(False)
call(kernel, *few)
kernel.wait_until_optimised()
fc.freeze()
call(kernel, *few)
""")
    why = "attention_forward for sm_90a is not in the cache and compiling is forbidden\n"
    assert out == 2 * why


def test_the_log_sum_exp_is_prepared_as_well(run):
    out = run(
        """
kernel = fc.jit(spec, target="sm_90a")
kernel.prepare(2, lengths=(1, 512), batch=(1, 4), heads=(1, 4))
before, dispatch = compiled(), kernel._dispatch(True)
for _ in range(50):
    batch, heads, rows, keys = draw(heads=2, length=9)
    lse = OnHopper(batch, heads, rows, dtype=np.float32)
    dispatch.launch((*arrays(batch, heads, rows, keys), lse), (0.125,), None)
print(compiled() - before, dispatch.core.is_building())
""",
        **INSTANT_COMPILER,
    )
    assert out == "0 False\n"


def test_a_spec_that_has_the_log_sum_exp_has_no_other_kernels(run):
    out = run(
        """
import dataclasses
kernel = fc.jit(dataclasses.replace(spec, lse=True), target="sm_90a")
kernel.prepare(2, lengths=(1, 512), batch=(1, 4), heads=(1, 4))
made = fc.precompile(kernel.spec, "sm_90a", lengths=(1, 512), batch=(1, 4), heads=(1, 4))
print({one.spec.lse for one in made}, all(one.from_cache for one in made))
before, dispatch = compiled(), kernel._dispatch(True)
assert dispatch is kernel._dispatch(False)
for _ in range(50):
    batch, heads, rows, keys = draw(heads=2, length=9)
    lse = OnHopper(batch, heads, rows, dtype=np.float32)
    dispatch.launch((*arrays(batch, heads, rows, keys), lse), (0.125,), None)
print(compiled() - before, dispatch.core.is_building())
""",
        **INSTANT_COMPILER,
    )
    assert out == "{True} True\n0 False\n"


def test_threads_share_what_finds_their_kernels(run):
    out = run(
        """
import threading
kernel = fc.AttentionKernel.shipped(spec, "sm_90a", compiled=False)
start = threading.Barrier(8)
problems = [draw(heads=2, length=9) for _ in range(400)]

def work():
    start.wait()
    for problem in problems:
        call(kernel, *problem)

threads = [threading.Thread(target=work) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
kernel.wait_until_optimised()
print(compiled() <= len(kernel._dispatch(False).core.reachable([(1, 4)] * 2 + [(1, 512)] * 2)))
print(kernel._plain_dispatches[0] is kernel._dispatch(False).core)
""",
        **INSTANT_COMPILER,
    )
    assert out == "True\nTrue\n"


def test_another_table_of_winners_is_met_by_the_next_call(run, tmp_path):
    out = run(
        """
from flashcore.cache import tuning_table
kernel = fc.jit(spec, target="sm_90a")
kernel.prepare(2, lengths=(1, 4096), batch=(1, 16), heads=(1, 16), lse=False)
call(kernel, *few)
was = lists(kernel, *few)
other = next(s for s in kernel._dispatch(False).core.reachable([(1, 16)] * 2 + [(1, 4096)] * 2)
             if s[0] != was[0])
key = tuning_table.key_for(spec, "sm_90a", few)
tuning_table.write(tuning_table.user_file(), [key], fc.Schedule.from_json(other[0]), {})
before = compiled()
call(kernel, *few)
print(lists(kernel, *few) == other, compiled() - before)
""",
        FLASHCORE_SCHEDULES=str(tmp_path / "schedules.json"),
        **INSTANT_COMPILER,
    )
    assert out == "True 0\n"


def test_captured_arrays_are_checked_at_every_call(run):
    out = run("""
biased = fc.AttentionSpec(head_dim=64, dtype="f16", score=fc.bias(np.zeros((1, 1, 64), np.float32)))
kernel = fc.jit(biased, target="sm_80")
x = np.zeros((1, 1, 64, 64), np.float16)
bias = lambda n: {"bias": np.zeros((1, 1, n), np.float32)}
for n in (64, 32, 64, 16):
    y = x[:, :, :n]
    kernel(y, y, y, captured=bias(n))
    try:
        kernel(y, y, y, captured=bias(n + 1))
    except fc.SpecError as error:
        print(error.why)
""")
    assert out.splitlines() == [
        f"dimension 2 is {n + 1}, and kv_len is {n}" for n in (64, 32, 64, 16)
    ]


# ---- calls whose keys are split: alternatives to a kernel (runtime/alternatives_at_hand.h)

DECODING = """
class Arrays:
    uint8 = np.uint8

    @staticmethod
    def empty(shape, dtype, device):
        return OnGpu(*shape, dtype=dtype)

class OnGpu(OnHopper):
    device = None

    def __dlpack_device__(self):
        return self.device_type, self.device_id

    def __array_namespace__(self):
        return Arrays

def arrays(batch, heads, rows, keys, dim=64):
    return [OnGpu(batch, heads, n, dim) for n in (rows, keys, keys, rows)]

split = 4, 4, 6, 3343

def built(kernel):
    core = kernel._dispatch(False).core
    return core.has_alternative(core.alternative(split, 108))
"""


def test_another_kernel_serves_until_a_module_is_built(run):
    out = run(
        DECODING
        + """
kernel = fc.jit(spec, target="sm_90a")
call(kernel, *many)
kernel.wait_until_optimised()
start = time.perf_counter()
call(kernel, *split)
seconds = time.perf_counter() - start
print(built(kernel), kernel.is_optimised)
kernel.wait_until_optimised()
before = loads()
call(kernel, *split)
print(built(kernel), kernel.is_optimised, loads() - before, seconds < 0.2)
"""
    )
    assert out == "False False\nTrue True 0 True\n"


def test_a_module_is_built_in_the_call_where_nothing_else_is_there(run):
    out = run(
        DECODING
        + """
kernel = fc.AttentionKernel.shipped(spec, "sm_90a", compiled=False)
call(kernel, *split)
print(built(kernel), kernel.is_optimised)
fc.set_compile_mode("eager")
kernel = fc.jit(spec, target="sm_90a")
call(kernel, *many)
call(kernel, *split)
print(built(kernel), kernel.is_optimised)
""",
        **INSTANT_COMPILER,
    )
    assert out == "True True\nTrue True\n"


def test_a_capture_waits_for_a_module_that_is_being_built(run):
    out = run(
        DECODING
        + """
import ctypes, os
driver = ctypes.CDLL(os.environ["FLASHCORE_LIBCUDA"])
kernel = fc.jit(spec, target="sm_90a")
call(kernel, *split[:3], 64)  # whose kernel serves, also a capture
kernel.wait_until_optimised()
call(kernel, *split[:3], 64)
call(kernel, *split)
print(built(kernel))
driver.flashcore_fake_cuda_capture(1)
call(kernel, *split)
print(built(kernel))
"""
    )
    assert out == "False\nTrue\n"


def test_a_prepared_module_compiles_nothing(run):
    out = run(
        DECODING
        + """
kernel = fc.jit(spec, target="sm_90a")
kernel.prepare(2, lengths=(1, 4096), batch=(1, 4), heads=(1, 4))
before = compiled(), loads()
call(kernel, *split)
print(built(kernel), compiled() - before[0], loads() - before[1])
""",
        **INSTANT_COMPILER,
    )
    assert out == "True 0 0\n"


def test_lengths_of_sequences_go_past_python(run):
    """On a GPU nobody reads their numbers. What is missing, of another dtype or not the spec's is
    left to the call, which says so. Results: tests/python/test_gpu.py."""
    out = run(
        DECODING
        + """
fields = dict(head_dim=64, dtype="f16")
def numbers(count, dtype=np.int32):
    array = OnGpu(count, dtype=dtype)
    array.dtype = np.dtype(dtype)
    return array

lens, starts = numbers(2), numbers(3)

def quickly(kernel, q, k, v, out, *lengths):
    return kernel._quick(q, k, v, out, None, None, *lengths, None, None, False) is out

padded = fc.jit(fc.AttentionSpec(**fields, q_lens=True, kv_lens=True), target="sm_90a")
x = arrays(2, 4, 64, 128)
padded(*x[:3], out=x[3], q_lens=lens, kv_lens=lens)
none = [None] * 3
print(quickly(padded, *x, *none, lens, lens), quickly(padded, *x, *none, None, lens),
      quickly(padded, *x, starts, None, None, lens, lens),
      quickly(padded, *x, *none, lens, numbers(2, np.int64)))
packed = fc.jit(fc.AttentionSpec(**fields, layout="thd"), target="sm_90a")
x = [OnGpu(100, 4, 64) for _ in range(4)]
packed(*x[:3], out=x[3], cu_seqlens_q=starts)
print(*(quickly(packed, *x, starts, keys, longest, None, None)
        for keys in (None, starts) for longest in (None, 0, 70, 5000, -1, 2**40, 7.0)))
try:
    packed(*x[:3], out=x[3], cu_seqlens_q=starts, max_q_len=-1)
except fc.SpecError as error:
    print(error.what)
""",
        **INSTANT_COMPILER,
    )
    each = "True True True True False False False"
    assert out.splitlines()[:2] == ["True False False False", f"{each} {each}"]
    assert "max_q_len" in out.splitlines()[2]
