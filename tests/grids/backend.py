"""Arrays of NumPy or of torch, with one set of names for what suites draw and compute."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

EPSILON = {"f16": 2.0**-10, "bf16": 2.0**-7}
_NAMES = {
    "f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64", "i32": "int32",
    "i64": "int64", "bool": "bool",
}  # fmt: skip


class NumpyArrays:
    """Of one case: `seed` alone decides what is drawn."""

    xp = np
    device = "cpu"

    def __init__(self, seed: int):
        self._rng = np.random.default_rng(seed)

    def dtype(self, name: str) -> Any:
        return np.dtype(ml_dtypes.bfloat16 if name == "bf16" else _NAMES[name])

    def normal(self, shape: tuple[int, ...], dtype: str, size: float = 1.0) -> Any:
        return (self._rng.standard_normal(shape, np.float32) * size).astype(self.dtype(dtype))

    def uniform(self, shape: tuple[int, ...], dtype: str) -> Any:
        return self._rng.random(shape, np.float32).astype(self.dtype(dtype))

    def integers(self, low: int, high: int, shape: tuple[int, ...], dtype: str = "i32") -> Any:
        return self._rng.integers(low, high, shape).astype(self.dtype(dtype))

    def full(self, shape: tuple[int, ...], value: float, dtype: str) -> Any:
        return np.full(shape, value, self.dtype(dtype))

    def count(self, start: int, size: int) -> Any:
        return np.arange(start, start + size)

    def array(self, values: Any, dtype: str) -> Any:
        return np.asarray(values, self.dtype(dtype))

    def cast(self, array: Any, dtype: str) -> Any:
        return array.astype(self.dtype(dtype))

    def repeat(self, array: Any, times: int, axis: int) -> Any:
        return np.repeat(array, times, axis=axis)

    def expand(self, array: Any, shape: tuple[int, ...]) -> Any:
        return np.broadcast_to(array, shape)

    def permute(self, array: Any, order: tuple[int, ...]) -> Any:
        return array.transpose(order)

    def strided(self, shape: Any, strides: Any, offset: int, dtype: str) -> Any:
        """A view with these strides, in elements, into memory drawn for it."""
        memory = self.normal((_reach(shape, strides, offset),), dtype)
        steps = [stride * memory.itemsize for stride in strides]
        return np.lib.stride_tricks.as_strided(memory[offset:], shape, steps)

    def largest(self, array: Any) -> Any:
        """Of the absolute values, in fp64."""
        return np.abs(array).max(initial=0.0).astype(np.float64)

    def synchronize(self) -> None:
        pass


class TorchArrays:
    """The same on a device that torch knows; on its meta device, shapes alone."""

    def __init__(self, seed: int, device: str = "cpu"):
        import torch

        self.xp, self.device = torch, device
        self._generator = None  # tensors of the meta device hold no numbers
        if device != "meta":
            self._generator = torch.Generator(device).manual_seed(seed)

    def dtype(self, name: str) -> Any:
        return getattr(self.xp, _NAMES[name])

    def normal(self, shape: tuple[int, ...], dtype: str, size: float = 1.0) -> Any:
        drawn = self._drawn(self.xp.randn, shape)
        return (drawn * size).to(self.dtype(dtype))

    def uniform(self, shape: tuple[int, ...], dtype: str) -> Any:
        return self._drawn(self.xp.rand, shape).to(self.dtype(dtype))

    def integers(self, low: int, high: int, shape: tuple[int, ...], dtype: str = "i32") -> Any:
        return self._drawn(self.xp.randint, low, high, shape).to(self.dtype(dtype))

    def _drawn(self, draw: Any, *arguments: Any) -> Any:
        if self._generator is None:
            return self.xp.empty(arguments[-1], device=self.device)
        return draw(*arguments, generator=self._generator, device=self.device)

    def full(self, shape: tuple[int, ...], value: float, dtype: str) -> Any:
        return self.xp.full(shape, value, dtype=self.dtype(dtype), device=self.device)

    def count(self, start: int, size: int) -> Any:
        return self.xp.arange(start, start + size, device=self.device)

    def array(self, values: Any, dtype: str) -> Any:
        return self.xp.as_tensor(values, dtype=self.dtype(dtype), device=self.device)

    def cast(self, array: Any, dtype: str) -> Any:
        return array.to(self.dtype(dtype))

    def repeat(self, array: Any, times: int, axis: int) -> Any:
        return array.repeat_interleave(times, dim=axis)

    def expand(self, array: Any, shape: tuple[int, ...]) -> Any:
        return array.expand(shape)

    def permute(self, array: Any, order: tuple[int, ...]) -> Any:
        return array.permute(order)

    def strided(self, shape: Any, strides: Any, offset: int, dtype: str) -> Any:
        memory = self.normal((_reach(shape, strides, offset),), dtype)
        return memory.as_strided(shape, strides, offset)

    def largest(self, array: Any) -> Any:
        return self.cast(array.abs().max(), "f64") if array.numel() else self.full((), 0.0, "f64")

    def synchronize(self) -> None:
        if self.device == "cuda":
            self.xp.cuda.synchronize()


def _reach(shape: Any, strides: Any, offset: int) -> int:
    return offset + 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))


Arrays = NumpyArrays | TorchArrays
