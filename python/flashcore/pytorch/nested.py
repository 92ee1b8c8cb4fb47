"""torch's nested tensors of layout torch.jagged, as the packed sequences that they hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from ..errors import SpecError


class _Packed(NamedTuple):
    """Sequences one behind the other, and where each begins."""

    values: Any  # [total, heads, head_dim]
    offsets: Any  # [batch + 1]
    longest: int | None
    shortest: int | None


def attention(
    call: Callable[..., Any],
    q: Any,
    k: Any,
    v: Any,
    *,
    layout: str = "bhsd",
    out: Any = None,
    return_lse: bool = False,
    **options: Any,
) -> Any:
    """`call` with layout "thd" for q, k and v of [batch, heads, j, head_dim], or in layout "bshd"
    of [batch, j, heads, head_dim], where j is the length of each sequence. What it returns is
    nested likewise, the log-sum-exp as [batch, heads, j]."""
    _check(layout, out, {"q": q, "k": k, "v": v}, options)
    at = 2 if layout == "bhsd" else 1
    queries, keys, values = (_packed(name, x, at) for name, x in (("q", q), ("k", k), ("v", v)))
    if not _same(keys.offsets, values.offsets):
        raise _refusal("k and v have sequences of different lengths", "keys and values in pairs")
    begins = [x.offsets.to(torch.int32) for x in (queries, keys)]
    made = call(
        queries.values,
        keys.values,
        values.values,
        layout="thd",
        cu_seqlens_q=begins[0],
        cu_seqlens_k=begins[1],
        max_q_len=queries.longest,
        max_kv_len=keys.longest,
        return_lse=return_lse,
        **options,
    )
    if not return_lse:
        return _nested(made, queries, at)
    return _nested(made[0], queries, at), _nested(made[1].transpose(0, 1), queries, 2)


def of_dense_lengths(call: Callable[..., Any], q: Any, k: Any, v: Any, **options: Any) -> Any:
    """For [batch, j, length, head_dim], of which torch attends along the length: j are batches."""
    rows, keys, values = (x.values().unsqueeze(1) for x in (q, k, v))
    made = call(rows, keys, values, **options)
    return _like(made.squeeze(1), q)


def is_along_dense_lengths(q: Any, k: Any, v: Any) -> bool:
    return all(_is_jagged(x) and x.dim() == 4 and x._ragged_idx == 1 for x in (q, k, v))


def _is_jagged(x: Any) -> bool:
    return isinstance(x, torch.Tensor) and x.is_nested and x.layout == torch.jagged


def _check(layout: str, out: Any, tensors: dict[str, Any], options: dict[str, Any]) -> None:
    for name, x in tensors.items():
        if not _is_jagged(x):
            kind = "of layout torch.strided" if getattr(x, "is_nested", False) else "not nested"
            raise _refusal(
                f"{name} is {kind}, and others are nested",
                "torch.nested.nested_tensor(sequences, layout=torch.jagged) for q, k and v",
            )
    if layout == "thd":
        raise _refusal('layout = "thd" is for sequences that are packed already', "layout bhsd")
    given = [name for name in _LENGTHS if options.pop(name, None) is not None]
    if out is not None:
        given.append("out")
    if given:
        raise _refusal(
            f"{', '.join(given)} was given, and nested tensors have lengths of their own",
            'leave it out, or pass .values() and .offsets() in layout "thd"',
        )


_LENGTHS = ("cu_seqlens_q", "cu_seqlens_k", "max_q_len", "max_kv_len", "q_lens", "kv_lens")


def _packed(name: str, x: Any, at: int) -> _Packed:
    if x.dim() != 4 or x._ragged_idx != at:
        shown = ", ".join("j" if dim == x._ragged_idx else str(n) for dim, n in enumerate(x.shape))
        wanted = "[batch, heads, j, head_dim]" if at == 2 else "[batch, j, heads, head_dim]"
        raise _refusal(f"{name} has shape [{shown}], with sequences of lengths j", wanted)
    sequences = x.transpose(1, 2) if at == 2 else x
    if sequences.lengths() is not None:  # a part of a buffer, with holes
        sequences = sequences.contiguous()
    return _Packed(
        sequences.values(),
        sequences.offsets(),
        None if x.is_meta else sequences._get_max_seqlen(),
        sequences._maybe_min_seqlen,
    )


def _same(a: Any, b: Any) -> bool:
    return a is b or (a.shape == b.shape and (a.is_meta or torch.equal(a, b)))


def _nested(values: Any, like: _Packed, at: int) -> Any:
    made = torch.nested.nested_tensor_from_jagged(
        values, like.offsets, jagged_dim=1, min_seqlen=like.shortest, max_seqlen=like.longest
    )
    return made.transpose(1, 2) if at == 2 else made


def _like(values: Any, q: Any) -> Any:
    return torch.nested.nested_tensor_from_jagged(
        values,
        q.offsets(),
        lengths=q.lengths(),
        jagged_dim=1,
        min_seqlen=q._maybe_min_seqlen,
        max_seqlen=q._maybe_max_seqlen,
    )


def _refusal(why: str, fix: str) -> SpecError:
    return SpecError("attention of nested tensors", why, fix)
