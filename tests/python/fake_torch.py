"""As much of PyTorch on a GPU as the tuner asks for, over NumPy: kernels run in the emulator."""

from __future__ import annotations

import contextlib
import time
import types

import ml_dtypes
import numpy as np


class Tensor(np.ndarray):
    def new_empty(self, size, dtype):
        return tensor(np.empty(size, dtype))

    def cuda(self):
        return self

    cpu = detach = cuda

    def numpy(self):
        return self.view(np.ndarray)

    def float(self):
        return self.astype(np.float32)

    def isnan(self):
        return np.isnan(self)

    def abs(self):
        return np.abs(self)

    def amax(self, dim, keepdim):
        return self.max(dim, keepdims=keepdim)

    def fill_(self, value):
        self.fill(value)
        return self

    def zero_(self):
        return self.fill_(0)


class Parameter(Tensor):
    pass


class Event:
    def __init__(self, enable_timing=False):
        self.at = 0.0

    def record(self):
        self.at = time.perf_counter()

    def query(self):
        return True

    def elapsed_time(self, other):
        return 1e3 * (other.at - self.at) + 1e-3


class Graph:
    """Keeps nothing: a replay takes no time, and what was captured has run already."""

    def replay(self):
        pass


class Generator:
    def __init__(self, device):
        assert device == "cuda"

    def manual_seed(self, seed):
        self.numbers = np.random.default_rng(seed)
        return self


def tensor(array, dtype=None):
    return np.asarray(array).astype(dtype or np.asarray(array).dtype).view(Tensor)


def module(capability=(8, 0), available=True, l2_bytes=1 << 20):
    cuda = types.SimpleNamespace(
        is_available=lambda: available,
        get_device_capability=lambda: capability,
        get_device_name=lambda: "Made-up GPU",
        get_device_properties=lambda device: types.SimpleNamespace(L2_cache_size=l2_bytes),
        current_device=lambda: 0,
        Event=Event,
        CUDAGraph=Graph,
        graph=lambda graph: contextlib.nullcontext(),
        synchronize=lambda: None,
        _sleep=lambda cycles: None,
    )
    torch = types.ModuleType("torch")
    torch.cuda = cuda
    torch.nn = types.SimpleNamespace(Parameter=Parameter)
    torch._C = types.SimpleNamespace(
        _len_torch_dispatch_stack=lambda: 0, _is_any_autocast_enabled=lambda: False
    )
    torch.Tensor, torch.Generator = Tensor, Generator
    torch.is_grad_enabled = lambda: False
    torch.bfloat16, torch.float16 = np.dtype(ml_dtypes.bfloat16), np.dtype(np.float16)
    torch.float32, torch.get_float32_matmul_precision = np.dtype(np.float32), lambda: "highest"
    torch.int8, torch.int16, torch.int32 = map(np.dtype, (np.int8, np.int16, np.int32))
    torch.from_numpy = tensor
    torch.uint8, torch.empty_like = np.dtype(np.uint8), lambda like: tensor(np.empty_like(like))
    torch.empty = lambda size, dtype, device: tensor(np.empty(size, dtype))
    torch.full = lambda size, value, dtype, device: tensor(np.full(size, value), dtype)
    torch.arange = lambda end, dtype, device: tensor(np.arange(end), dtype)
    torch.randn = lambda size, generator, device, dtype: tensor(
        generator.numbers.standard_normal(size), dtype
    )
    return torch
