"""Masks, scores and sinks that people ask for by name; dsl/variants.cpp has their expressions."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeVar

from . import _core
from .arrays import Captured, captured, is_array, stored_dtype
from .errors import SpecError
from .expression import Expression, Mask, Score, Sink, of_core

Align = Literal["bottom_right", "top_left"]
Kind = TypeVar("Kind", bound=Expression)


def _captured(name: str, array: Any) -> Captured:
    dtype = stored_dtype(array) if is_array(array) else None
    if dtype is None:
        kind = f"array of {array.dtype}" if is_array(array) else type(array).__qualname__
        raise SpecError(
            name, f"it is a {kind}", "an array of floats, integers or conditions of NumPy or torch"
        )
    return captured(_core.captured_name(name), array, dtype)


def _check(what: str, align: Align) -> None:
    if align not in ("bottom_right", "top_left"):
        raise SpecError(what, f'align = {align!r} is not one of "bottom_right", "top_left"')


def _made(
    kind: type[Kind], name: str, numbers: Sequence[float] = (), arrays: Mapping[str, Any] = {}
) -> Kind:
    tensors = [_captured(wish, array) for wish, array in arrays.items()]
    made = _core.variant(name, list(numbers), [tensor.as_tuple() for tensor in tensors])
    return of_core(kind, made, dict(zip((t.name for t in tensors), arrays.values(), strict=True)))


def full() -> Mask:
    """Every row sees every key."""
    return _made(Mask, "full")


def causal(align: Align = "bottom_right") -> Mask:
    """Row i sees keys up to its diagonal: i + kv_len - q_len, or i (top_left, as torch)."""
    _check("a causal mask", align)
    return _made(Mask, "causal", [align == "top_left"])


def sliding_window(left: int | None, right: int | None = 0, align: Align = "bottom_right") -> Mask:
    """Keys at most `left` before and `right` after the diagonal; None: any distance."""
    _check("a sliding window", align)
    for name, reach in (("left", left), ("right", right)):
        if reach is not None and reach < 0:
            raise SpecError(
                "a sliding window", f"{name} = {reach}", "0 or more; None: any distance"
            )
    before, after = (-1 if reach is None else reach for reach in (left, right))
    return _made(Mask, "sliding_window", [before, after, align == "top_left"])


def prefix(length: Any) -> Mask:
    """The first `length` keys, a number or an array [batch]: with `| causal()` a prefix LM."""
    if not is_array(length):
        return _made(Mask, "prefix", [operator.index(length)])
    return _made(Mask, "prefix", arrays={"lengths": length})


def documents(ids: Any, kv_ids: Any = None) -> Mask:
    """Rows and keys of the same document. `ids` are [length] or [batch, length], of the rows alone
    where the keys have their own."""
    arrays = {"ids": ids} if kv_ids is None else {"q_ids": ids, "kv_ids": kv_ids}
    return _made(Mask, "documents", arrays=arrays)


def chunked(size: int) -> Mask:
    """Rows and keys of the same chunk of `size` positions."""
    return _made(Mask, "chunked", [operator.index(size)])


def dilated(step: int) -> Mask:
    """Keys a multiple of `step` away from the row."""
    return _made(Mask, "dilated", [operator.index(step)])


def dense_mask(array: Any) -> Mask:
    """A mask given as an array of conditions that broadcasts to [batch, heads, q_len, kv_len]."""
    tensor = _captured("visible", array)
    if tensor.dtype != "i1":
        raise SpecError("a dense mask", f"its dtype is {tensor.dtype}", "bool; score=bias(array)")
    return Mask(_element(tensor.name, array), [tensor], [array])


def alibi(slopes: Any, align: Align = "bottom_right") -> Score:
    """score - slopes[h] * how far the key lies before the diagonal; slopes [heads]."""
    _check("alibi", align)
    return _made(Score, "alibi", [align == "top_left"], {"slopes": slopes})


def softcap(cap: float) -> Score:
    """cap * tanh(score / cap)."""
    return _made(Score, "softcap", [cap])


def relative_bias(table: Any) -> Score:
    """score + table[h, kv_idx - q_idx + n]; table [heads, 2 n + 1]. Beyond the table, nothing."""
    rank = _captured("table", table).rank
    span = (table.shape[-1] - 1) // 2 if rank else 0
    return _made(Score, "relative_bias", [span], {"table": table})


def bias(array: Any) -> Score:
    """score + an array that broadcasts to [batch, heads, q_len, kv_len]."""
    tensor = _captured("bias", array)
    if tensor.dtype == "i1":
        raise SpecError("a bias", "its dtype is bool", "mask=dense_mask(array)")
    return Score(f"score + {_element(tensor.name, array)}", [tensor], [array])


def _element(name: str, array: Any) -> str:
    shape = tuple(array.shape)
    if not 1 <= len(shape) <= 4:
        raise SpecError(
            name,
            f"it has {len(shape)} dimensions",
            "up to four that broadcast to [batch, heads, q_len, kv_len]",
        )
    places = ("b", "h", "q_idx", "kv_idx")[-len(shape) :]
    at = ["0" if size == 1 else place for size, place in zip(shape, places, strict=True)]
    return f"{name}[{', '.join(at)}]"


def sinks(logits: Any) -> Sink:
    """A learned score a head that takes its share of every softmax; logits [heads]."""
    return _made(Sink, "sinks", arrays={"logits": logits})


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
