"""Arrays on a GPU go to the GPU, on the right stream. A driver without a GPU stands in."""

import os
import subprocess
import sys
from pathlib import Path

from fake_libraries import DRIVER, with_driver

# The build tree: <build>/python/flashcore/__init__.py beside <build>/tests.
pytestmark = with_driver

SETUP = """
import fake_framework
import numpy as np
import flashcore as fc

class Gpu(fake_framework.Exchange):
    device_type = 2

def arrays(kind=Gpu):
    return [kind(np.zeros((1, 2, 40, 64), np.float16)) for _ in range(4)]

def refused(call):
    try:
        call()
    except (fc.DeviceError, fc.SpecError) as error:
        return str(error)
    raise SystemExit("nothing was refused")

kernel = fc.jit(fc.AttentionSpec(head_dim=64, dtype="f16"))
q, k, v, out = arrays()
"""


def run(program, **environment):
    environment = os.environ | {
        "FLASHCORE_LIBCUDA": str(DRIVER),
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path]),
        **environment,
    }
    done = subprocess.run(
        [sys.executable, "-c", SETUP + program], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_target_is_the_gpus():
    assert run("print(kernel.target)") == "sm_80\n"


def test_the_frameworks_stream_is_asked_for_once_a_call():
    assert (
        run("""
kernel(q, k, v, out=out)
kernel(q, k, v, out=out)
print(fake_framework.streams_asked_for)
""")
        == "[(2, 0), (2, 0)]\n"
    )


def test_a_given_stream_wins():
    assert run("""
class Stream:
    cuda_stream = 77

kernel(q, k, v, out=out, stream=77)
kernel(q, k, v, out=out, stream=Stream())
print(fake_framework.streams_asked_for)
print(refused(lambda: kernel(q, k, v, out=out, stream="fast")))
""") == (
        "[]\nstream\n  why: 'fast' is no CUDA stream\n"
        "  try: pass a stream of torch or CuPy, or its handle as an int\n"
    )


def test_arrays_have_to_be_on_one_device():
    message = run("""
print(refused(lambda: kernel(q, k, v.array, out=out)))
""")
    assert "v" in message
    assert "CPU" in message


def test_a_kernel_for_another_gpu_says_so():
    message = run("""
other = fc.jit(fc.AttentionSpec(head_dim=64, dtype="f16"), target="sm_90")
print(refused(lambda: other(q, k, v, out=out)))
""")
    assert "it was compiled for sm_90" in message
    assert "compile it for sm_80 as well" in message


def test_exporters_are_told_the_stream():
    assert (
        run("""
class Told(fake_framework.Dlpack):
    device_type = 2
    def __dlpack__(self, *, stream=None, max_version=None, **more):
        print(stream)
        return super().__dlpack__(max_version=max_version)

import contextlib
for stream in (None, 5, 0):
    with contextlib.suppress(fc.DeviceError):  # its capsule tells of CPU memory
        kernel(q, Told(k.array), v, out=out, stream=stream)
""")
        == "1\n5\n1\n"
    )


def test_more_batches_or_heads_than_cudas_grid_has():
    assert (
        run("""
import ctypes
import os

driver = ctypes.CDLL(os.environ["FLASHCORE_LIBCUDA"])

def blocks(batch, heads):
    kernel(*(Gpu(np.zeros((batch, heads, 1, 64), np.float16)) for _ in range(3)),
           out=Gpu(np.zeros((batch, heads, 1, 64), np.float16)))
    count, rows = ctypes.c_uint(), ctypes.c_uint()
    assert driver.flashcore_fake_cuda_grid(ctypes.byref(count), ctypes.byref(rows)) == 0
    return count.value, rows.value

print(blocks(2, 65535), blocks(65536, 2), blocks(1, 70000), blocks(2, 3))
""")
        == "(131070, 131070) (131072, 1) (70000, 1) (6, 6)\n"
    )


INTERFACE = """
class OnlyTheInterface:
    def __init__(self, array, **more):
        self.array, self.more = array, more
        self.shape, self.dtype, self.strides = array.shape, array.dtype, array.strides

    @property
    def __cuda_array_interface__(self):
        array = self.array
        about = {"version": 3, "shape": array.shape, "typestr": array.dtype.str, "strides": None,
                 "data": (array.ctypes.data, not array.flags.writeable)}
        return about | self.more

f16 = [np.zeros((1, 2, 40, 64), np.float16) for _ in range(4)]
q, k, v, out = map(OnlyTheInterface, f16)
"""


def test_the_cuda_array_interface():
    assert run(
        INTERFACE
        + """
kernel(q, k, v, out=out)
kernel(q, k, v, out=OnlyTheInterface(f16[3], stream=None, strides=f16[3].strides))
kernel(OnlyTheInterface(f16[0], stream=1), k, OnlyTheInterface(f16[2], stream=77), out=out)

def reason(**more):
    return refused(lambda: kernel(OnlyTheInterface(f16[0], **more), k, v, out=out)).splitlines()[1]

print(reason(typestr=">f2"))
print(reason(mask=k))
print(reason(stream=0))
print(reason(strides=(163840, 5120, 72, 2)))
print(refused(lambda: kernel(q, k, v, out=OnlyTheInterface(f16[3], data=(4096, True)))))
print(refused(lambda: kernel(q, k, v)).splitlines()[0])
"""
    ) == (
        "  why: its dtype is >f2\n"
        "  why: it is a masked array\n"
        "  why: its __cuda_array_interface__ says stream 0, which the interface does not define\n"
        "  why: its stride there is 36 elements (72 bytes), "
        "the kernel needs a multiple of 16 bytes\n"
        "array o\n  why: it is read-only\n  try: pass a writeable output\n"
        "cannot allocate the output\n"
    )


def test_bfloat16_by_the_cuda_array_interface():
    assert (
        run(
            INTERFACE
            + """
import ml_dtypes
bf16 = [np.zeros((1, 2, 40, 64), ml_dtypes.bfloat16) for _ in range(4)]
kernel = fc.jit(fc.AttentionSpec(head_dim=64))
q, k, v, out = map(OnlyTheInterface, bf16)
print(q.__cuda_array_interface__["typestr"])
kernel(q, k, v, out=out)
fc.attention(q, k, v, out=out, score=fc.alibi(OnlyTheInterface(np.ones(2, np.float32))))
unnamed = OnlyTheInterface(bf16[0])
unnamed.dtype = np.dtype("V2")
print(refused(lambda: kernel(unnamed, k, v, out=out)).splitlines()[1])
"""
        )
        == "<V2\n  why: its dtype is <V2\n"
    )


def test_a_missing_driver_leaves_the_emulator():
    out = run(
        """
o = kernel(*arrays(lambda array: array)[:3])
print(kernel.target, o.shape)
print(refused(lambda: kernel(q, k, v, out=out)))
""",
        FLASHCORE_LIBCUDA="/nowhere/libcuda.so",
    )
    assert out.startswith("sm_80 (1, 2, 40, 64)\n")
    assert "/nowhere/libcuda.so" in out
