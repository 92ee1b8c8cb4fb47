"""What lies between the kernels of a call stays for the next one on its stream.

A driver without a GPU stands in. That results are right: tests/python/test_gpu.py."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from fake_libraries import DRIVER, with_driver

pytestmark = with_driver

SETUP = """
import contextlib, ctypes, os, sys, types
import numpy as np
import fake_framework, fake_torch
import flashcore as fc

driver = ctypes.CDLL(os.environ["FLASHCORE_LIBCUDA"])
allocated, allocated_on = [], []

class Tensor(fake_framework.OnHopper):
    is_cuda, device = True, types.SimpleNamespace(type="cuda")
    dtype = property(lambda self: self.array.dtype)

    def new_empty(self, size, dtype):
        shape = size if isinstance(size, tuple) else (size,)
        allocated.append(shape[0])
        allocated_on.append(queued_on[-1])
        return Tensor(*shape, dtype=dtype.type)

torch = fake_torch.module()
torch.Tensor = Tensor
torch.cuda.is_current_stream_capturing = lambda: False
queued_on = [None]  # torch's current stream; the last is the innermost

@contextlib.contextmanager
def stream_context(stream):
    queued_on.append(stream)
    yield
    queued_on.pop()

torch.cuda.Stream = type("Stream", (), {})
torch.cuda.ExternalStream = lambda handle, device: handle
torch.cuda.stream = stream_context
sys.modules["torch"] = torch
fc.set_compile_mode("eager")  # no call is served by another kernel
kernel = fc.jit(fc.AttentionSpec(head_dim=64, dtype="f16"), target="sm_90a")

def call(keys=4096, heads=1, stream=None):
    q, k, v, out = (Tensor(1, heads, n, 64) for n in (1, keys, keys, 1))
    assert kernel(q, k, v, out=out, stream=stream) is out

def allocates(*arguments, **more):
    before = len(allocated)
    call(*arguments, **more)
    return [size >> 20 for size in allocated[before:]]

call()  # which makes the kernels, by Python
call()
allocated.clear(), allocated_on.clear()
"""


@pytest.fixture
def run(tmp_path):
    def run(program):
        environment = os.environ | {
            "FLASHCORE_LIBCUDA": str(DRIVER),
            "FLASHCORE_CACHE_DIR": str(tmp_path),
            "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path]),
        }
        done = subprocess.run(
            [sys.executable, "-c", SETUP + program], env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    return run


def test_calls_on_a_stream_share_one_piece_of_memory(run):
    assert run("""
print(allocates(), allocates(keys=1024), allocates(heads=2))
fake_framework.answered_streams.append(64)
print(allocates(), allocates())
fake_framework.answered_streams.append(None)
print(allocates())
""") == ["[] [] []", "[16] []", "[]"]


def test_a_stream_that_calls_name_has_memory_of_its_own(run):
    """Allocated where it is torch's current one: there its memory is free for others in time."""
    assert run("""
print(allocates(stream=64), allocates(stream=64), allocates(), allocated_on)
driver.flashcore_fake_cuda_capture(1)
print(allocates(stream=64), allocated_on)
driver.flashcore_fake_cuda_capture(0)
fake_framework.answered_streams.append(64)
print(allocates())
""") == ["[16] [] [] [64]", "[0] [64, 64]", "[]"]


@pytest.mark.parametrize(
    ("layout", "shape"), [("bhsd", (2, 8, 40, 64)), ("bshd", (2, 40, 8, 64)), ("thd", (40, 8, 64))]
)
def test_the_log_sum_exp_is_an_array_beside_q(run, layout, shape):
    """[batch, heads, rows], or without batch; from the second call on without Python."""
    starts = "cu_seqlens_q=Tensor(3, dtype=np.int32)" if layout == "thd" else ""
    rows = (*shape[:-3], 8, 40)
    lines = run(f"""
kernel = fc.jit(fc.AttentionSpec(head_dim=64, dtype="f16", layout="{layout}"), target="sm_90a")
q, k, v, out = (Tensor(*{shape}) for _ in range(4))
for _ in range(2):
    given, lse = kernel(q, k, v, out=out, return_lse=True, {starts})
    print(given is out, lse.array.shape, lse.dtype)
    type(kernel).__call__ = None  # which later calls do without
""")
    assert lines == [f"True {rows} float32"] * 2


def test_a_captured_call_has_memory_of_its_own(run):
    assert run("""
driver.flashcore_fake_cuda_capture(1)
print(allocates(), allocates())
driver.flashcore_fake_cuda_capture(0)
print(allocates())
""") == ["[0] [0]", "[]"]


def test_one_more_stream_than_are_kept_takes_the_memory_of_the_first(run):
    assert run("""
for stream in range(64, 64 + 8 * 64, 64):
    fake_framework.answered_streams.append(stream)
    call()
print(len(allocated), allocates())
fake_framework.answered_streams.append(None)
print(allocates())
""") == ["8 []", "[16]"]
