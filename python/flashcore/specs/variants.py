"""Masks, scores and sinks that people ask for by name; dsl/variants.cpp has their expressions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeVar, get_args

from .. import _core, arguments
from ..arrays import Captured, Dim, captured, is_array, stored_dtype
from ..errors import SpecError
from .expression import Expression, Mask, Score, Sink, core_text, of_core

Align = Literal["bottom_right", "top_left"]
Kind = TypeVar("Kind", bound=Expression)


Shapes = tuple[tuple[Dim, ...], ...]
"""The shapes that an array may have, of different ranks."""


def _captured(name: str, array: Any, shapes: Shapes) -> Captured:
    dtype = stored_dtype(array) if is_array(array) else None
    if dtype is None:
        why = f"kernels read no {array.dtype}" if is_array(array) else "it is no array"
        fix = "an array of floats, integers or conditions of NumPy or torch"
        raise arguments.refusal(name, array, why, fix)
    fits = next((shape for shape in shapes if len(shape) == len(array.shape)), None)
    return captured(_core.captured_name(name), array, dtype, fits)


def _check(what: str, align: Align) -> None:
    arguments.one_of(f"align of {what}", align, get_args(Align))


def _made(
    kind: type[Kind],
    name: str,
    numbers: Sequence[float] = (),
    arrays: Mapping[str, tuple[Any, Shapes]] = {},
) -> Kind:
    if not arrays:
        return kind(core_text("variant", name, tuple(numbers)))
    tensors = [_captured(wish, array, shapes) for wish, (array, shapes) in arrays.items()]
    made = _core.variant(name, list(numbers), [tensor.as_tuple() for tensor in tensors])
    bound = {t.name: array for t, (array, _) in zip(tensors, arrays.values(), strict=True)}
    return of_core(kind, made, tensors, bound)


def full() -> Mask:
    """Every row sees every key."""
    return _made(Mask, "full")


def causal(align: Align = "bottom_right") -> Mask:
    """Row i sees keys up to its diagonal: i + kv_len - q_len, or i (top_left, as torch)."""
    _check("a causal mask", align)
    return _made(Mask, "causal", [align == "top_left"])


def _reach(name: str, reach: int | None) -> int:
    """-1: any distance."""
    if reach is None:
        return -1
    title, fix = f"{name} of a sliding window", "0 or more; None or -1: any distance"
    distance = arguments.whole(title, reach, fix)
    if distance < -1:
        raise arguments.refusal(title, reach, "it is below 0", fix)
    return distance


def sliding_window(left: int | None, right: int | None = 0, align: Align = "bottom_right") -> Mask:
    """Keys at most `left` before and `right` after the diagonal; None, or -1 as in flash-attn: any
    distance."""
    _check("a sliding window", align)
    before, after = (_reach(name, reach) for name, reach in (("left", left), ("right", right)))
    return _made(Mask, "sliding_window", [before, after, align == "top_left"])


def prefix(length: Any) -> Mask:
    """The first `length` keys, a number or an array [batch]: with `| causal()` a prefix LM."""
    if not is_array(length) or length.shape == ():
        fix = "a number of keys, or an array of numbers [batch]"
        return _made(Mask, "prefix", [arguments.whole("length of a prefix", length, fix)])
    return _made(Mask, "prefix", arrays={"lengths": (length, (("batch",),))})


def documents(ids: Any, kv_ids: Any = None) -> Mask:
    """Rows and keys of the same document. `ids` are [length] or [batch, length], of the rows alone
    where the keys have their own."""

    def of(ids: Any, length: Dim) -> tuple[Any, Shapes]:
        if is_array(ids) and len(ids.shape) == 2 and ids.shape[0] == 1:
            ids = ids[0]  # the same for every batch
        return ids, ((length,), ("batch", length))

    if kv_ids is None:
        return _made(Mask, "documents", arrays={"ids": of(ids, "length")})
    arrays = {"q_ids": of(ids, "q_len"), "kv_ids": of(kv_ids, "kv_len")}
    return _made(Mask, "documents", arrays=arrays)


def chunked(size: int) -> Mask:
    """Rows and keys of the same chunk of `size` positions."""
    return _made(
        Mask, "chunked", [arguments.whole("size of chunks", size, "a number of positions")]
    )


def dilated(step: int) -> Mask:
    """Keys a multiple of `step` away from the row."""
    return _made(
        Mask, "dilated", [arguments.whole("step of a dilated mask", step, "a whole number")]
    )


def dense_mask(array: Any) -> Mask:
    """A mask given as an array of conditions that broadcasts to [batch, heads, q_len, kv_len]."""
    tensor = _captured("visible", array, _broadcast(array))
    if tensor.dtype != "i1":
        raise SpecError("a dense mask", f"its dtype is {tensor.dtype}", "bool; score=bias(array)")
    return Mask(_element(tensor), [tensor], [array])


def alibi(slopes: Any, align: Align = "bottom_right") -> Score:
    """score - slopes[h] * how far the key lies before the diagonal; slopes [heads] or
    [batch, heads]."""
    _check("alibi", align)
    shapes: Shapes = (("heads",), ("batch", "heads"))
    return _made(Score, "alibi", [align == "top_left"], {"slopes": (slopes, shapes)})


def softcap(cap: float) -> Score:
    """cap * tanh(score / cap)."""
    return _made(Score, "softcap", [arguments.number("the cap", cap, "a number, as softcap(30)")])


def relative_bias(table: Any) -> Score:
    """score + table[h, kv_idx - q_idx + n]; table [heads, 2 n + 1]. Beyond the table, nothing."""
    width = table.shape[-1] if is_array(table) and len(table.shape) else 1
    if width % 2 == 0:
        raise SpecError(
            "relative_bias(table)",
            f"the table has {width} columns, and none of them is the one in the middle",
            "[heads, 2 n + 1]: a column for every distance from -n to n",
        )
    shapes: Shapes = (("heads", width),)
    return _made(Score, "relative_bias", [(width - 1) // 2], {"table": (table, shapes)})


def bias(array: Any) -> Score:
    """score + an array that broadcasts to [batch, heads, q_len, kv_len]."""
    tensor = _captured("bias", array, _broadcast(array))
    if tensor.dtype == "i1":
        raise SpecError("a bias", "its dtype is bool", "mask=dense_mask(array)")
    return Score(f"score + {_element(tensor)}", [tensor], [array])


_PLACES: tuple[tuple[str, Dim], ...]
_PLACES = (("b", "batch"), ("h", "heads"), ("q_idx", "q_len"), ("kv_idx", "kv_len"))


def _broadcast(array: Any) -> Shapes:
    """What broadcasts to [batch, heads, q_len, kv_len]: any of them, or 1."""
    shape = tuple(array.shape) if is_array(array) else ()
    dims = (dim for _, dim in _PLACES[-len(shape) :])
    if not 1 <= len(shape) <= 4:
        return ()
    return (tuple(1 if size == 1 else dim for size, dim in zip(shape, dims, strict=True)),)


def _element(tensor: Captured) -> str:
    if tensor.fits is None:
        raise SpecError(
            tensor.name,
            f"it has {tensor.rank} dimensions",
            "one to four that broadcast to [batch, heads, q_len, kv_len]",
        )
    places = (place for place, _ in _PLACES[-tensor.rank :])
    at = ["0" if dim == 1 else place for dim, place in zip(tensor.fits, places, strict=True)]
    return f"{tensor.name}[{', '.join(at)}]"


def sinks(logits: Any) -> Sink:
    """A learned score a head that takes its share of every softmax; logits [heads]."""
    return _made(Sink, "sinks", arrays={"logits": (logits, (("heads",),))})


__all__ = [
    "alibi",
    "bias",
    "causal",
    "chunked",
    "dense_mask",
    "dilated",
    "documents",
    "full",
    "prefix",
    "relative_bias",
    "sinks",
    "sliding_window",
    "softcap",
]
