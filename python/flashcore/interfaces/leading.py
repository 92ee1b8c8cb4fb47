"""Arrays of other dimensions than a kernel's four: fewer, more in front, or one that stands for all
of a batch or of the heads, as torch's function takes them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy

from ..arrays import is_torch_tensor
from ..errors import SpecError
from ..kernels import copies

_CORE = 3  # heads, length and head_dim, in the order of the layout


def reshape(array: Any, shape: Sequence[int]) -> Any:
    """A view where strides allow it, else a copy."""
    if isinstance(array, numpy.ndarray) or is_torch_tensor(array):
        return array.reshape(tuple(shape))
    return array.__array_namespace__().reshape(array, tuple(shape))


def broadcast_to(array: Any, shape: Sequence[int]) -> Any:
    if tuple(array.shape) == tuple(shape):
        return array
    if is_torch_tensor(array):
        return array.expand(tuple(shape))
    if isinstance(array, numpy.ndarray):
        return numpy.broadcast_to(array, tuple(shape))
    return array.__array_namespace__().broadcast_to(array, tuple(shape))


def shared(q: Any, k: Any, v: Any, layout: str) -> tuple[Any, Any, Any] | None:
    """q, k and v with one batch and with heads that go together, where dimensions of 1 stand for
    all; None if there are none, or others do not agree. Heads of k and v alike stay as few as they
    are: each serves several of q."""
    if not all(hasattr(array, "shape") for array in (q, k, v)):
        return None
    heads = -2 if layout in ("bshd", "thd") else -3
    shapes = [list(array.shape) for array in (q, k, v)]
    if any(len(shape) != len(shapes[0]) for shape in shapes):
        return None
    batch = 1 if layout == "thd" else _common(shape[0] for shape in shapes)
    key_heads = _common(shape[heads] for shape in shapes[1:])
    if batch is None or key_heads is None:
        return None
    wanted = [list(shape) for shape in shapes]
    for at, shape in enumerate(wanted):
        if layout != "thd":
            shape[0] = batch
        if at or shape[heads] == 1:
            shape[heads] = key_heads
    if wanted == shapes:
        return None
    q, k, v = (broadcast_to(array, shape) for array, shape in zip((q, k, v), wanted, strict=True))
    return q, k, v


def _common(sizes: Iterable[int]) -> int | None:
    """The size that those of 1 stand for; None if others differ."""
    found = 1
    for size in sizes:
        if size != 1 and found != 1 and size != found:
            return None
        found = size if found == 1 else found
    return found


def in_four(
    call: Callable[..., Any], q: Any, k: Any, v: Any, layout: str, out: Any, return_lse: bool
) -> Any:
    """What `call(q, k, v, out=...)` gives for arrays of four dimensions, for arrays of others:
    [length, head_dim], three dimensions without a batch, or more batch dimensions in front."""
    four = [_at_least_four(name, a, layout) for name, a in (("q", q), ("k", k), ("v", v))]
    lead = common_batch([array.shape[:-_CORE] for array in four])
    count = math.prod(lead)
    flat = [
        reshape(broadcast_to(a, (*lead, *a.shape[-_CORE:])), (count, *a.shape[-_CORE:]))
        for a in four
    ]
    rank = max(len(array.shape) for array in (q, k, v))

    def back(result: Any, of_rows: bool = False) -> Any:
        whole = reshape(result, (*lead, *result.shape[1:]))
        if rank >= _CORE + 1:
            return whole
        if rank == _CORE:
            return whole[0]
        return whole[0, 0] if layout == "bhsd" or of_rows else whole[0, :, 0]

    place = None
    if out is not None and len(out.shape) == rank:
        widened = _at_least_four("out", out, layout)
        place = reshape(widened, (count, *widened.shape[-_CORE:]))
        if not _is_view(place, out):
            place = None
    made = call(*flat, out=place)
    result, lse = made if return_lse else (made, None)
    whole = back(result)
    if out is not None:
        if place is None:
            _check_out(out, whole)
            copies.assign(out, whole)
        whole = out
    return (whole, back(lse, of_rows=True)) if return_lse else whole


def _at_least_four(name: str, array: Any, layout: str) -> Any:
    shape = tuple(array.shape)
    if len(shape) < 2:
        raise SpecError(
            f"{name} of shape {shape}",
            "it has no [length, head_dim]",
            "[batch, heads, length, head_dim], or fewer dimensions in front of the length",
        )
    if len(shape) > _CORE:
        return array
    if len(shape) == 2 and layout == "bshd":
        return reshape(array, (1, shape[0], 1, shape[1]))
    return reshape(array, ((1,) * (_CORE + 1 - len(shape)) + shape))


def common_batch(shapes: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """What dimensions in front broadcast to."""
    try:
        return numpy.broadcast_shapes(*map(tuple, shapes))
    except ValueError:
        listed = ", ".join(str(list(shape)) for shape in shapes)
        raise SpecError(
            "batch dimensions that differ", f"they are {listed}", "ones that agree, or are 1"
        ) from None


def flat_mask(mask: Any, *arrays: Any) -> Any:
    """An array that broadcasts to [..., heads, q_len, kv_len], with the batch dimensions of
    `arrays` as one."""
    shape = tuple(getattr(mask, "shape", ()))
    most = max(len(array.shape) for array in arrays)
    if len(shape) > max(most, 2):
        raise SpecError(
            f"attn_mask of shape {shape}",
            f"it has {len(shape)} dimensions, and the inputs have {most}",
            "a mask that broadcasts to [..., heads, q_len, kv_len] of the inputs",
        )
    if len(shape) <= _CORE or most == _CORE + 1:
        return mask
    lead = shape[:-_CORE]
    if math.prod(lead) == 1:
        return reshape(mask, (1, *shape[-_CORE:]))
    whole = common_batch([lead, *(array.shape[:-_CORE] for array in arrays)])
    every = broadcast_to(mask, (*whole, *shape[-_CORE:]))
    return reshape(every, (math.prod(whole), *shape[-_CORE:]))


def _is_view(array: Any, of: Any) -> bool:
    if isinstance(array, numpy.ndarray):
        return numpy.may_share_memory(array, of)
    return is_torch_tensor(array) and array.data_ptr() == of.data_ptr()


def _check_out(out: Any, result: Any) -> None:
    if tuple(out.shape) != tuple(result.shape) or out.dtype != result.dtype:
        raise SpecError(
            f"out of shape {tuple(out.shape)} and {out.dtype}",
            f"the result is {tuple(result.shape)} of {result.dtype}",
            "an output of that shape and dtype, or none: then it is allocated",
        )


__all__ = ["broadcast_to", "common_batch", "flat_mask", "in_four", "reshape", "shared"]
