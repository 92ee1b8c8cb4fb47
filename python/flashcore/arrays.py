"""New arrays in the framework of the caller's."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy

from .errors import DeviceError

_NUMPY = {
    "f16": numpy.dtype(numpy.float16),
    "bf16": numpy.dtype(ml_dtypes.bfloat16),
    "f32": numpy.dtype(numpy.float32),
    "i32": numpy.dtype(numpy.int32),
}
_STANDARD = {"f16": "float16", "bf16": "bfloat16", "f32": "float32", "i32": "int32"}


def empty(like: Any, shape: Sequence[int], dtype: str) -> Any:
    """An uninitialised array beside `like`: same framework, same device."""
    if isinstance(like, numpy.ndarray):
        return numpy.empty(shape, _NUMPY[dtype])
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(like, torch.Tensor):
        return like.new_empty(shape, dtype=getattr(torch, _STANDARD[dtype]))
    namespace = getattr(like, "__array_namespace__", None)
    if namespace is not None:
        xp = namespace()
        kind = getattr(xp, _STANDARD[dtype], None) or _NUMPY[dtype]
        return xp.empty(tuple(shape), dtype=kind, device=like.device)
    raise _refusal(like)


def full(like: Any, shape: Sequence[int], dtype: str, value: float) -> Any:
    """An array beside `like` with one value everywhere, written on the framework's own stream."""
    if isinstance(like, numpy.ndarray):
        return numpy.full(shape, value, _NUMPY[dtype])
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(like, torch.Tensor):
        return like.new_full(tuple(shape), value, dtype=getattr(torch, _STANDARD[dtype]))
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
