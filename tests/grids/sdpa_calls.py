"""Call sites of `fc.sdpa`, each with what torch documents for it; sdpa.py has their parameters."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from backend import Arrays
from cases import Sizes
from judge import Problem

import flashcore as fc


def _causal(b: Any, h: Any, i: Any, j: Any) -> Any:
    return j <= i


def _of_heads(mask: Any, b: Any, h: Any) -> Any:
    """Its part for these batches and heads, where it has such."""
    mask = mask.reshape((*(1,) * (4 - len(mask.shape)), *mask.shape))
    mask = mask[b.reshape(-1)] if mask.shape[0] > 1 else mask
    return mask[:, h.reshape(-1)] if mask.shape[1] > 1 else mask


def _problem(
    arrays: Arrays,
    dtype: str,
    q: Any,
    k: Any,
    v: Any,
    *,
    attn_mask: Any = None,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Problem:
    """fc.sdpa with these, and what torch documents for them."""
    given: dict[str, Any] = {"is_causal": is_causal, "scale": scale}
    if attn_mask is not None:
        given["attn_mask"] = attn_mask
    if enable_gqa:
        given["enable_gqa"] = True
    ranks = len(q.shape)

    def canonical(x: Any) -> Any:
        if ranks == 4:
            return x
        return x[None] if ranks == 3 else x.reshape(-1, *x.shape[-3:])

    # A batch of 1 and, but for groups, one head stand for all.
    own = 3 if enable_gqa else 2
    leading = (*np.broadcast_shapes(*(x.shape[:-own] for x in (q, k, v))), *q.shape[-own:-2])
    boolean = attn_mask is not None and attn_mask.dtype == arrays.dtype("bool")
    mask = score = None
    if boolean or is_causal:
        mask = _causal if not boolean else lambda b, h, *_: _of_heads(attn_mask, b, h)
    if attn_mask is not None and not boolean:
        score = lambda s, b, h, *_: s + arrays.cast(_of_heads(attn_mask, b, h), "f64")  # noqa: E731
    return Problem(
        call=lambda: fc.sdpa(q, k, v, **given),
        dtype=dtype,
        q=canonical(q), k=canonical(k), v=canonical(v),
        scale=scale, mask=mask, score=score, heads_first=canonical,
        shape=(*leading, q.shape[-2], v.shape[-1]),
    )  # fmt: skip


def of_sizes(
    arrays: Arrays, sizes: Sizes, *, batch: int, q_len: int, kv_len: int, head_dim: int,
    dtype: str, is_causal: bool = False, scale: str | None = None, heads: tuple[int, int] = (4, 4),
    mask: str | None = None,
) -> Problem:  # fmt: skip
    n, m, b = sizes.length(q_len), sizes.length(kv_len), sizes.batch(batch)
    heads = (sizes.heads(heads[0]), sizes.heads(heads[0]) * heads[1] // heads[0])
    if heads[1] == 0:
        heads = (heads[0], 1)
    q = arrays.uniform((b, heads[0], n, head_dim), dtype)
    k = arrays.uniform((b, heads[1], m, head_dim), dtype)
    v = arrays.uniform((b, heads[1], m, head_dim), dtype)
    return _problem(
        arrays, dtype, q, k, v,
        attn_mask=arrays.uniform((n, m), dtype) if mask == "floats" else None,
        is_causal=is_causal,
        scale=1 / head_dim if scale == "l1" else None,
        enable_gqa=heads[0] != heads[1],
    )  # fmt: skip


def projection(
    arrays: Arrays, sizes: Sizes, *, batch: int, length: int, heads: int, head_dim: int,
    dtype: str, is_causal: bool, contiguous: bool = False,
) -> Problem:  # fmt: skip
    """q, k and v are thirds of one projection, [batch, length, 3 heads dim]."""
    b, n, h = sizes.batch(batch), sizes.length(length), sizes.heads(heads)
    x = arrays.normal((b, n, 3 * h * head_dim), dtype)
    width = h * head_dim
    parts = [
        arrays.permute(x[:, :, i * width : (i + 1) * width].reshape(b, n, h, head_dim)
                       if contiguous or arrays.xp.__name__ == "numpy"
                       else x[:, :, i * width : (i + 1) * width].view(b, n, h, head_dim),
                       (0, 2, 1, 3))
        for i in range(3)
    ]  # fmt: skip
    if contiguous:
        parts = [arrays.xp.zeros_like(p) + p for p in parts]
    return _problem(arrays, dtype, *parts, is_causal=is_causal)


def mask_shapes(rank: int) -> list[tuple[bool, ...]]:
    """Which dimensions are whole, the others being 1."""
    found: list[tuple[bool, ...]] = [()]
    for _ in range(rank):
        found = [(*whole, more) for whole in found for more in (True, False)]
    return found


def masked(
    arrays: Arrays, sizes: Sizes, *, whole: tuple[bool, ...], boolean: bool, dtype: str,
    batch: int = 2, heads: int = 3, q_len: int = 267, kv_len: int = 514, head_dim: int = 8,
    memory: str = "dense", mask_dtype: str | None = None,
) -> Problem:  # fmt: skip
    b, h = sizes.batch(batch), sizes.heads(heads)
    n, m = sizes.length(q_len), sizes.length(kv_len)
    q = arrays.permute(arrays.normal((b, n, h, head_dim), dtype), (0, 2, 1, 3))
    k, v = (
        arrays.permute(arrays.normal((b, m, h, head_dim), dtype), (0, 2, 1, 3)) for _ in range(2)
    )
    full = (b, h, n, m)[4 - len(whole) :]
    shape = tuple(size if is_whole else 1 for size, is_whole in zip(full, whole, strict=True))
    last_two = (*range(len(shape) - 2), len(shape) - 1, len(shape) - 2)

    def drawn(shape: tuple[int, ...]) -> Any:
        if boolean:
            return arrays.integers(0, 2, shape, "bool")
        return arrays.normal(shape, mask_dtype or dtype)

    if memory == "transposed":
        mask = arrays.permute(drawn(tuple(shape[i] for i in last_two)), last_two)
    elif memory == "sliced":
        mask = drawn((*shape[:-1], 2 * shape[-1] + 3))[..., 1 : 1 + 2 * shape[-1] : 2]
    elif memory == "expanded":
        mask = arrays.expand(drawn(shape), full)
    elif memory == "offset":
        mask = drawn((*shape[:-1], shape[-1] + 5))[..., 5:]
    else:
        mask = drawn(shape)
    return _problem(arrays, dtype, q, k, v, attn_mask=mask)


def band(arrays: Arrays, sizes: Sizes, *, dtype: str) -> Problem:
    n = sizes.length(600)
    xp = arrays.xp
    q, k, v = (arrays.permute(arrays.normal((1, n, 2, 8), dtype), (0, 2, 1, 3)) for _ in range(3))
    hidden = arrays.full((n, n), -math.inf, dtype)
    zero = arrays.full((n, n), 0.0, dtype)
    rows = arrays.array(list(range(n)), "i32")
    apart = rows[:, None] - rows[None, :]
    mask = xp.where((apart < 0) | (apart >= 10), hidden, zero)
    return _problem(arrays, dtype, q, k, v, attn_mask=mask)


def hidden_rows(arrays: Arrays, sizes: Sizes, *, dtype: str, boolean: bool, rows: Any) -> Problem:
    """Whole rows are masked; they give zeros."""
    n = 8
    q, k, v = (arrays.normal((1, 2, n, 16), dtype) for _ in range(3))
    at = arrays.array(list(range(n)), "i32")
    hidden = (at >= n - rows)[:, None] & (at >= 0)[None, :]
    if boolean:
        return _problem(arrays, dtype, q, k, v, attn_mask=~hidden)
    mask = arrays.xp.where(
        hidden, arrays.full((1,), -math.inf, dtype), arrays.full((1,), 0.0, dtype)
    )
    return _problem(arrays, dtype, q, k, v, attn_mask=mask)


def scaled(arrays: Arrays, sizes: Sizes, *, dtype: str, scale: float) -> Problem:
    x = arrays.normal((1, 3, 64, 64), dtype)
    return _problem(arrays, dtype, x, x, x, scale=scale)


def shaped(
    arrays: Arrays, sizes: Sizes, *, shapes: tuple[tuple[int, ...], ...], dtype: str,
    is_causal: bool, mask: tuple[int, ...] | None = None,
) -> Problem:  # fmt: skip
    q, k, v = (arrays.normal(shape, dtype) for shape in shapes)
    given = None if mask is None else arrays.integers(0, 2, mask, "bool")
    return _problem(
        arrays, dtype, q, k, v, attn_mask=given, is_causal=is_causal,
        enable_gqa=len(shapes[0]) > 3 and shapes[0][-3] != shapes[1][-3],
    )  # fmt: skip


def memory(arrays: Arrays, sizes: Sizes, *, dtype: str, kind: str, head_dim: int) -> Problem:
    """q, k and v as they come out of slices, transposes and expansions."""
    b, h, n, d = 2, 2, 24, head_dim

    def one() -> Any:
        if kind == "last_dim_stepped":
            return arrays.strided((b, h, n, d), (2 * h * n * d, 2 * n * d, 2 * d, 2), 0, dtype)
        if kind == "last_two_exchanged":
            return arrays.permute(arrays.normal((b, h, d, n), dtype), (0, 1, 3, 2))
        if kind == "all_strides_two":
            return arrays.strided((b, h, n, d), (2, 2, 2, 2), 0, dtype)
        if kind == "rows_of_odd_stride":
            return arrays.normal((b, h, n, d + 1), dtype)[..., :d]
        if kind == "odd_offset":
            return arrays.strided((b, h, n, d), (h * n * d, n * d, d, 1), 3, dtype)
        if kind == "expanded_heads":
            return arrays.expand(arrays.normal((b, 1, n, d), dtype), (b, h, n, d))
        if kind == "expanded_batch":
            return arrays.expand(arrays.normal((1, h, n, d), dtype), (b, h, n, d))
        if kind == "length_first":
            return arrays.permute(arrays.normal((n, b, h, d), dtype), (1, 2, 0, 3))
        if kind == "head_first":
            return arrays.permute(arrays.normal((h, b, n, d), dtype), (1, 0, 2, 3))
        if kind == "batch_last":
            return arrays.permute(arrays.normal((n, h, d, b), dtype), (3, 1, 0, 2))
        return arrays.normal((b, h, n, d), dtype)

    return _problem(arrays, dtype, one(), one(), one())


def one_head_dim_singleton(arrays: Arrays, sizes: Sizes, *, dtype: str) -> Problem:
    """A last dimension of one element, whose stride means nothing."""
    q, k, v = (arrays.strided((1, 2, 16, 1), (32, 16, 1, 7), 0, dtype) for _ in range(3))
    return _problem(arrays, dtype, q, k, v)


def large(arrays: Arrays, sizes: Sizes, *, dtype: str, value: float) -> Problem:
    q, k, v = (arrays.full((1, 1, 1, 64), value, dtype) for _ in range(3))
    return _problem(arrays, dtype, q, k, v)


def values_apart(arrays: Arrays, sizes: Sizes, *, dtype: str, head_dim: int, head_dim_v: int,
                  is_causal: bool) -> Problem:  # fmt: skip
    n = sizes.length(640)
    q, k = (arrays.normal((1, 4, n, head_dim), dtype) for _ in range(2))
    v = arrays.normal((1, 4, n, head_dim_v), dtype)
    return _problem(arrays, dtype, q, k, v, is_causal=is_causal)


def refused(arrays: Arrays, sizes: Sizes, *, what: str) -> Problem:
    """Calls at which torch raises."""
    shape = (2, 2, 3, 16)
    q, k, v = (arrays.normal(shape, "f16") for _ in range(3))
    more: dict[str, Any] = {}
    if what == "dtypes_differ":
        q = arrays.normal(shape, "f32")
    elif what == "one_dimension":
        q = arrays.normal((4,), "f16")
    elif what == "heads_differ":
        q, k, v = (arrays.normal((2, h, 3, 16), "f16") for h in (4, 2, 2))
    elif what == "heads_do_not_divide":
        q, k, v = (arrays.normal((2, h, 3, 16), "f16") for h in (9, 5, 5))
        more["enable_gqa"] = True
    elif what == "head_dims_differ":
        k = arrays.normal((2, 2, 3, 8), "f16")
    elif what == "kv_lengths_differ":
        v = arrays.normal((2, 2, 4, 16), "f16")
    elif what == "batches_differ":
        k = arrays.normal((3, 2, 3, 16), "f16")
    elif what == "mask_does_not_broadcast":
        more["attn_mask"] = arrays.integers(0, 2, (3, 4), "bool")
    elif what == "mask_of_integers":
        more["attn_mask"] = arrays.integers(0, 2, (3, 3), "i32")
    elif what == "i32":
        q, k, v = (arrays.integers(-3, 4, shape, what) for _ in range(3))
    return Problem(call=lambda: fc.sdpa(q, k, v, **more), dtype="f16", refused_by_peer=True)


def missing(arrays: Arrays, sizes: Sizes, *, what: str) -> Problem:
    """What torch has, and FlashCore says that it has not."""
    dtype = what if what == "f64" else "f16"
    shape = (2, 2, 3, 513 if what == "head_dim_513" else 16)
    q, k, v = (arrays.cast(arrays.normal(shape, "f32"), dtype) for _ in range(3))
    more = {"dropout_p": 0.22} if what == "dropout" else {}
    return Problem(call=lambda: fc.sdpa(q, k, v, **more), dtype=dtype, q=q, k=k, v=v)


def bias_object(arrays: Arrays, sizes: Sizes, *, q_len: int, kv_len: int, corner: str,
                 dtype: str) -> Problem:  # fmt: skip
    """torch.nn.attention.bias: an attn_mask that is a causal mask with a corner."""
    from torch.nn.attention.bias import causal_lower_right, causal_upper_left

    n, m = sizes.length(q_len), sizes.length(kv_len)
    q, k, v = (arrays.normal((1, 2, length, 16), dtype) for length in (n, m, m))
    make = causal_upper_left if corner == "upper_left" else causal_lower_right
    shift = 0 if corner == "upper_left" else m - n
    problem = _problem(arrays, dtype, q, k, v)
    problem.call = lambda: fc.sdpa(q, k, v, attn_mask=make(n, m))
    problem.mask = lambda b, h, i, j: j <= i + shift
    return problem


def nested(arrays: Arrays, sizes: Sizes, *, lengths: tuple[int, ...], kv_lengths: Any,
            heads: int, head_dim: int, dtype: str, is_causal: bool) -> Problem:  # fmt: skip
    """Jagged tensors, [batch, j, heads, dim] with heads and j exchanged."""
    torch = arrays.xp
    counts = (lengths, kv_lengths or lengths, kv_lengths or lengths)
    rows = [[arrays.normal((n, heads, head_dim), dtype) for n in own] for own in counts]
    offsets = [torch.tensor([0, *own], device=arrays.device).cumsum(0) for own in counts]
    if kv_lengths is None:
        offsets = [offsets[0]] * 3
    else:
        offsets[2] = offsets[1]
    q, k, v = (
        torch.nested.nested_tensor_from_jagged(torch.cat(own), at).transpose(1, 2)
        for own, at in zip(rows, offsets, strict=True)
    )
    parts = []
    for i, own in enumerate(zip(*rows, strict=True)):
        inputs = tuple(x.transpose(0, 1)[None] for x in own)
        parts.append(
            (inputs, lambda out, i=i: out.transpose(1, 2).unbind()[i].transpose(0, 1)[None])
        )
    return Problem(
        call=lambda: fc.sdpa(q, k, v, is_causal=is_causal), dtype=dtype,
        mask=_causal if is_causal else None, parts=tuple(parts),
    )  # fmt: skip
