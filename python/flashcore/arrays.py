"""Arrays of any framework: new ones in the caller's, and what a kernel has to know of one."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import ml_dtypes
import numpy

from .errors import DeviceError

_NUMPY = {
    "f16": numpy.dtype(numpy.float16),
    "bf16": numpy.dtype(ml_dtypes.bfloat16),
    "f32": numpy.dtype(numpy.float32),
    "i32": numpy.dtype(numpy.int32),
    "u8": numpy.dtype(numpy.uint8),
}
_CUDA = 2  # DLPack's number for it
_WAYS = ("__dlpack__", "__dlpack_c_exchange_api__", "__cuda_array_interface__")
_STANDARD = {
    "f16": "float16", "bf16": "bfloat16", "f32": "float32", "i32": "int32", "u8": "uint8",
}  # fmt: skip


def makes_arrays(like: Any) -> bool:
    """Whether another array can be made beside `like`."""
    known = isinstance(like, numpy.ndarray) or is_torch_tensor(like)
    return known or hasattr(like, "__array_namespace__")


def empty(like: Any, shape: Sequence[int], dtype: str) -> Any:
    """An uninitialised array beside `like`: same framework, same device."""
    if isinstance(like, numpy.ndarray):
        return numpy.empty(shape, _NUMPY[dtype])
    if is_torch_tensor(like):
        return like.new_empty(shape, dtype=getattr(sys.modules["torch"], _STANDARD[dtype]))
    namespace = getattr(like, "__array_namespace__", None)
    if namespace is not None:
        xp = namespace()
        kind = getattr(xp, _STANDARD[dtype], None) or _NUMPY[dtype]
        return xp.empty(tuple(shape), dtype=kind, device=like.device)
    raise _refusal(like)


def output_like(q: Any, width: int, dtype: str) -> Any:
    """An uninitialised array [..., width] beside q whose dimensions lie in memory in q's order, the
    last one innermost: what is free for q, such as a transpose back, is free for it."""
    numpys = isinstance(q, numpy.ndarray)
    torchs = not numpys and is_torch_tensor(q)
    dense = q.flags.c_contiguous if numpys else not torchs or q.is_contiguous()
    if torchs and dense and q.size(-1) == width:
        return sys.modules["torch"].empty_like(q)  # a q of another dtype is refused
    shape = (*q.shape[:-1], width)
    if dense:
        return empty(q, shape, dtype)
    strides = q.strides if numpys else q.stride()
    if 0 in strides:
        return empty(q, shape, dtype)
    last = len(shape) - 1
    order = (*sorted(range(last), key=lambda dim: -abs(strides[dim])), last)
    if not numpys:
        kind = getattr(sys.modules["torch"], _STANDARD[dtype])
        return sys.modules["torch"].empty_permuted(shape, order, dtype=kind, device=q.device)
    made = numpy.empty([shape[dim] for dim in order], _NUMPY[dtype])
    return made.transpose(numpy.argsort(order))


def lse_like(q: Any, layout: str) -> Any:
    """An uninitialised array beside q for a number of each of its rows: [..., heads, rows]."""
    *batch, a, b, _ = q.shape
    heads, length = (a, b) if layout == "bhsd" else (b, a)
    return empty(q, (*batch, heads, length), "f32")


def full(like: Any, shape: Sequence[int], dtype: str, value: float) -> Any:
    """An array beside `like` with one value everywhere, written on the framework's own stream."""
    if isinstance(like, numpy.ndarray):
        return numpy.full(shape, value, _NUMPY[dtype])
    if is_torch_tensor(like):
        kind = getattr(sys.modules["torch"], _STANDARD[dtype])
        return like.new_full(tuple(shape), value, dtype=kind)
    namespace = getattr(like, "__array_namespace__", None)
    if namespace is not None:
        xp = namespace()
        kind = getattr(xp, _STANDARD[dtype], None) or _NUMPY[dtype]
        return xp.full(tuple(shape), value, dtype=kind, device=like.device)
    raise _refusal(like)


def _refusal(like: Any) -> DeviceError:
    return DeviceError(
        "cannot allocate the output",
        f"{type(like).__module__}.{type(like).__qualname__} is neither a NumPy array nor a torch "
        "tensor and has no __array_namespace__",
        "pass out=",
    )


Dim: TypeAlias = Literal["batch", "heads", "q_len", "kv_len", "length"] | int
"""What a dimension has to be in a call; "length" is the larger of q_len and kv_len."""


@dataclass(frozen=True)
class Captured:
    """A tensor that a mask or a score reads beside q, k and v.

    `unit_stride` promises that neighbours along the last dimension are neighbours in memory, which
    kernels are faster for; a call with another array is refused (DeviceError). `aligned_rows`
    promises beside it that rows along the last dimension begin at multiples of 16 bytes, by which
    the copy engine of some GPUs brings a dense bias or mask in whole tiles; a call that needs this
    of an array with other rows copies it. `fits` is what its dimensions
    have to be in a call, which refuses others (SpecError); None: anything, and what is outside
    reads as 0.
    """

    name: str
    dtype: str
    rank: int
    unit_stride: bool = False
    fits: tuple[Dim, ...] | None = None
    aligned_rows: bool = False

    def as_tuple(self) -> tuple[str, str, int, bool, bool]:
        return self.name, self.dtype, self.rank, self.unit_stride, self.aligned_rows


def captured(name: str, array: Any, dtype: str, fits: tuple[Dim, ...] | None = None) -> Captured:
    """What stands for an array that is there already."""
    unit_stride = _has_unit_stride(array)
    aligned_rows = unit_stride and dtype in ("f16", "bf16", "i1") and _has_rows_apart(array)
    return Captured(name, dtype, len(array.shape), unit_stride, fits, aligned_rows)


def _has_unit_stride(array: Any) -> bool:
    """False also where the array does not say."""
    if len(array.shape) == 0:
        return False
    if is_torch_tensor(array):
        return bool(array.shape[-1] <= 1 or array.stride(-1) == 1)
    strides = getattr(array, "strides", None)  # in bytes
    return strides is not None and bool(strides[-1] == array.dtype.itemsize)


def _has_rows_apart(array: Any) -> bool:
    """Of an array with at least two dimensions: no row lies in the place of another. Where rows
    begin does not matter, since a launch copies those that do not begin where a kernel wants it."""
    if len(array.shape) < 2:
        return False
    strides = array.stride() if is_torch_tensor(array) else getattr(array, "strides", None)
    if strides is None:
        return False
    outer = zip(strides[:-1], array.shape[:-1], strict=True)
    return all(step > 0 for step, size in outer if size > 1)


def without_repeats(array: Any) -> Any:
    """With one of what an expanded array repeats along a dimension."""
    strides = array.stride() if is_torch_tensor(array) else getattr(array, "strides", None)
    if strides is None or all(strides):
        return array
    return array[tuple(slice(0, 1) if step == 0 else slice(None) for step in strides)]


_STORED = {
    "float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64", "int32": "i32",
    "int64": "i64", "int16": "i16", "int8": "i8", "uint8": "u8", "bool": "i1",
}  # fmt: skip


def stored_dtype(array: Any) -> str | None:
    """The dtype of the elements in memory, None for one that kernels do not read."""
    dtype = getattr(array, "dtype", None)
    name = getattr(dtype, "name", None) or str(dtype).removeprefix("torch.")
    return _STORED.get(name)


def memory_of(array: Any) -> tuple[Any, ...]:
    """Equal for arrays that show the same elements of the same memory."""
    if isinstance(array, numpy.ndarray):
        start: Any = array.__array_interface__["data"][0]
        return start, array.shape, array.strides, array.dtype.str, array.dtype.name
    if is_torch_tensor(array):
        return array.data_ptr(), tuple(array.shape), array.stride(), array.dtype, array.device
    if isinstance(array, (int, float)):  # a captured number
        return type(array), array
    return (id(array),)


def gpu_of(array: Any) -> int | None:
    """The number of the GPU in whose memory an array lies; None where the array does not say."""
    says = getattr(array, "__dlpack_device__", None)
    return None if says is None else int(says()[1])


def on_cuda(array: Any) -> bool:
    """Whether it lies on a GPU. Arrays in CPU memory may have no way to say so."""
    if is_torch_tensor(array):
        return bool(array.is_cuda)
    device = getattr(array, "__dlpack_device__", None)
    if device is not None:
        return bool(device()[0] == _CUDA)
    return hasattr(array, "__cuda_array_interface__")


def in_cpu_memory(array: Any) -> bool:
    """Whether it is NumPy's, or torch's in CPU memory: those can be looked into."""
    return isinstance(array, numpy.ndarray) or (
        is_torch_tensor(array) and array.device.type == "cpu"
    )


def is_torch_tensor(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def is_array(value: Any) -> bool:
    """Whether a kernel could read it: NumPy's, torch's, or anything that describes its memory."""
    if isinstance(value, numpy.ndarray) or is_torch_tensor(value):
        return True
    kind = type(value)
    return any(hasattr(kind, way) for way in _WAYS)
