"""Launches with copies: of arrays that a kernel cannot address where they lie, and of those whose
rows are shorter than its tiles.

A copy is made in the arrays' own framework, on the stream of the launch, so nothing is waited for.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Collection, Sequence
from typing import Any

import numpy

from .. import _core, arguments
from ..arrays import empty, full, is_torch_tensor, makes_arrays, stored_dtype
from ..errors import DeviceError, LayoutError, SpecError

_ROW_STEP = 16  # bytes: what the copy engine wants rows to begin at
LEAST_SCALE, MOST_SCALE = 2.0**-149, 3.4028234663852886e38  # of fp32
_LOST = ", and every score would be infinite or NaN"


def launch(
    core: Any,
    arrays: Sequence[Any],
    scalars: tuple[Any, ...],
    stream: Any,
    widths: Sequence[int | None] = (),
    in_place: Collection[str] = (),
    partly: bool = False,
) -> None:
    """`core.launch`, with copies of arrays that it refuses (LayoutError), all but those that
    `in_place` names.

    `widths` are the last dimensions of the first arrays, as callers have them, None of those whose
    rows are as they are; where the program has longer ones, inputs are filled up with zeros, and
    outputs are cut. `partly`: the kernel may leave rows of an output as they are, which a copy then
    has to hold.
    """
    tensors = core.tensors

    def fresh(at: int, width: int) -> Any:
        _, dtype, output, _ = tensors[at]
        return _fresh(arrays[at], width, dtype if output and not partly else None)

    with on_stream(arrays[0], stream):
        given = list(arrays)
        for at, width in enumerate(widths):
            if width is None:
                continue
            name, dtype, _, dims = tensors[at]
            _check_width(core.name, name, arrays[at], width, dtype)
            if dims[-1] != width:
                given[at] = fresh(at, dims[-1])
        while True:
            try:
                core.launch(tuple(given), scalars, stream)
                break
            except LayoutError as error:
                name = tensors[error.tensor][0]
                array = arrays[error.tensor]
                copied = given[error.tensor] is not array
                if copied or name in in_place or not makes_arrays(array):
                    raise
                given[error.tensor] = fresh(error.tensor, array.shape[-1])
        for array, written, (_, _, output, _) in zip(arrays, given, tensors, strict=True):
            if output and written is not array:
                assign(array, written[..., : array.shape[-1]])


def _check_width(kernel: str, name: str, array: Any, width: int, dtype: str) -> None:
    shape = tuple(array.shape)
    if not shape or shape[-1] != width:
        raise SpecError(
            f"{kernel}: the last dimension of {name} is {shape[-1] if shape else 'missing'}",
            f"it is {list(shape)}, and the kernel was compiled for {width}",
            "pass that length, or compile a spec with the other",
        )
    if stored_dtype(array) != dtype:
        raise SpecError(
            f"{kernel}: {name} has the wrong element type",
            f"it holds {stored_dtype(array) or array.dtype}, the kernel was compiled for {dtype}",
            "convert it",
        )


def _fresh(array: Any, width: int, dtype: str | None) -> Any:
    """An array of these rows, as long as `width` and filled up with zeros, each at a multiple of 16
    bytes; with a dtype, dense rows that are not filled at all."""
    if dtype is not None:
        return empty(array, (*array.shape[:-1], width), dtype)
    room = width + -width % max(1, _ROW_STEP // _itemsize(array))
    missing = room - array.shape[-1]
    if isinstance(array, numpy.ndarray):
        made = numpy.zeros((*array.shape[:-1], room), array.dtype.newbyteorder("="))
        made[..., : array.shape[-1]] = array
    elif is_torch_tensor(array):
        torch = sys.modules["torch"]
        if missing:
            made = torch.nn.functional.pad(array, (0, missing)).contiguous()
        else:
            made = array.clone(memory_format=torch.contiguous_format)
    else:
        zeros = full(array, (*array.shape[:-1], missing), stored_dtype(array) or "", 0)
        made = array.__array_namespace__().concat([array, zeros], axis=-1)
    return made if room == width else made[..., :width]


def _itemsize(array: Any) -> int:
    if is_torch_tensor(array):
        return int(array.element_size())
    return int(getattr(array.dtype, "itemsize", _ROW_STEP))


def assign(array: Any, values: Any) -> None:
    """Writes values of the same framework into an array."""
    if is_torch_tensor(array):
        array.copy_(values)
    else:
        array[...] = values


def with_sign_of(scale: Any, q: Any, stream: Any) -> tuple[Any, float]:
    """q and a positive scale that mean the same as q and `scale`: a kernel moves the scale through
    the maximum of a row, which only a positive one allows."""
    fix = "a number up to 3.4e38, or None: 1/sqrt(head_dim)"
    number = arguments.number("scale", scale, fix, so=_LOST)
    if not abs(number) <= MOST_SCALE:
        why = f"it is beyond 32 bits{_LOST}"
        raise arguments.refusal("scale", scale, why, fix)
    if number >= LEAST_SCALE:
        return q, number
    with on_stream(q, stream):
        if number <= -LEAST_SCALE:
            return -q, -number
        return q * 0, 1.0


def on_stream(array: Any, stream: Any) -> Any:
    """A context in which the array's framework queues its work on `stream`; None: where it does so
    anyway."""
    if stream is None or isinstance(array, numpy.ndarray):
        return contextlib.nullcontext()
    if is_torch_tensor(array):
        if not array.is_cuda:
            return contextlib.nullcontext()
        cuda = sys.modules["torch"].cuda
        if not isinstance(stream, cuda.Stream):
            stream = cuda.ExternalStream(_core.stream_handle(stream), device=array.device)
        return cuda.stream(stream)
    if type(array).__module__.partition(".")[0] == "cupy":
        return sys.modules["cupy"].cuda.ExternalStream(_core.stream_handle(stream))
    raise DeviceError(
        "a launch on a given stream",
        f"an array has to be copied first, and how {type(array).__module__} is told of a stream is "
        "not known",
        "arrays whose rows are dense and start at multiples of 16 bytes, or no stream=",
    )


def allocate_bytes(beside: Any, size: int, stream: Any) -> Any:
    """An array of `size` bytes on the device of `beside`, for what one kernel of a call writes and
    the next one reads; None where `beside` is of no framework that makes arrays."""
    if not makes_arrays(beside):
        return None
    with on_stream(beside, stream):
        return empty(beside, (size,), "u8")


__all__ = [
    "LEAST_SCALE",
    "MOST_SCALE",
    "allocate_bytes",
    "assign",
    "launch",
    "on_stream",
    "with_sign_of",
]
