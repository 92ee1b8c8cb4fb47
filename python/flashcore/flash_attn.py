"""The functions of the flash-attn package, by its names, arguments and defaults. Torch's autograd
goes back through those without a cache.

    from flashcore.flash_attn import flash_attn_func  # in place of: from flash_attn import ...

Tensors are [batch, length, heads, head_dim]; those of varlen functions [total, heads, head_dim].
Causal masks and windows end in the bottom right corner. What has no counterpart here is refused by
name: dropout, rotary embeddings.

Differences: a row that sees no key has a log-sum-exp of -inf, where flash-attn returns +inf; the
third result of return_attn_probs, which flash-attn fills for its tests of dropout, is None.
"""

from __future__ import annotations

import functools
import sys
from typing import Any

import numpy

from .arguments import refusal
from .arrays import captured, is_array, is_torch_tensor, stored_dtype
from .errors import SpecError
from .interfaces.functional import attention
from .specs.expression import Mask, Score
from .specs.variants import alibi, causal, full, sliding_window, softcap

Window = tuple[int, int]
_NO_WINDOW: Window = (-1, -1)
_POSITION = "q_idx + (kv_len - q_len) - kv_idx"


@functools.lru_cache(maxsize=256)
def _mask(is_causal: bool, left: int, right: int) -> Mask:
    """A window of -1 has no end on that side; a causal one ends at the diagonal."""
    right = 0 if is_causal else right
    if left < 0 and right < 0:
        return full()
    if left < 0 and right == 0:
        return causal()
    return sliding_window(None if left < 0 else left, None if right < 0 else right)


_softcap = functools.lru_cache(maxsize=64)(softcap)


def _score(cap: float, slopes: Any, sees_past_only: bool, batch: int, heads: int) -> Score | None:
    """The cap first, then what ALiBi takes away for the distance from the diagonal."""
    softcapped = _softcap(float(cap)) if cap else None
    if slopes is None:
        return softcapped
    shape = tuple(slopes.shape) if is_array(slopes) else type(slopes).__name__
    if shape not in ((heads,), (batch, heads)):
        raise SpecError(
            "alibi_slopes", f"it is {shape}", f"an array [{heads}] or [{batch}, {heads}]"
        )
    if softcapped is None and sees_past_only and len(shape) == 1:
        return alibi(slopes)
    distance = _POSITION if sees_past_only else f"abs({_POSITION})"
    at = "h" if len(shape) == 1 else "b, h"
    before = f"({softcapped.text})" if softcapped else "score"
    tensor = captured("slopes", slopes, stored_dtype(slopes) or "f32")
    return Score(f"{before} - slopes[{at}] * float({distance})", [tensor], [slopes])


def _refuse(what: str, given: Any, fix: str) -> None:
    raise refusal(what, given, "FlashCore computes no such attention", fix)


def _attend(
    q: Any,
    k: Any,
    v: Any,
    *,
    scale: float | None,
    is_causal: bool,
    window: Window,
    cap: float,
    slopes: Any,
    dropout: float = 0.0,
    returns_lse: bool = False,
    batch: int | None = None,
    mask: Mask | None = None,
    deterministic: bool = True,
    **lengths: Any,
) -> Any:
    if dropout != 0.0:
        _refuse("dropout_p", dropout, "dropout_p=0.0")
    left, right = window
    visible = _mask(bool(is_causal), left, right)
    if mask is not None:
        visible = visible & mask
    score = None
    if cap or slopes is not None:
        past_only = bool(is_causal) or right == 0
        score = _score(cap, slopes, past_only, q.shape[0] if batch is None else batch, q.shape[-2])
    return attention(
        q, k, v, mask=visible, score=score, scale=scale, return_lse=returns_lse,
        deterministic=bool(deterministic), **lengths,
    )  # fmt: skip


def flash_attn_func(
    q: Any,
    k: Any,
    v: Any,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Window = _NO_WINDOW,
    softcap: float = 0.0,
    alibi_slopes: Any = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Any:
    """softmax(scale q k^T) v for q [batch, q_len, heads, head_dim] and k, v [batch, kv_len,
    kv_heads, head_dim]; heads of q share those of k in groups.

    `alibi_slopes` [heads] or [batch, heads] take slope * |distance from the diagonal| from a score.
    With `return_attn_probs` (out, lse [batch, heads, q_len], None). With `deterministic` gradients
    have the same bits at every call; outputs always do.
    """
    made = _attend(
        q, k, v, scale=softmax_scale, is_causal=causal, window=window_size, cap=softcap,
        slopes=alibi_slopes, dropout=dropout_p, returns_lse=return_attn_probs, layout="bshd",
        deterministic=deterministic,
    )  # fmt: skip
    return (*made, None) if return_attn_probs else made


def flash_attn_kvpacked_func(q: Any, kv: Any, *args: Any, **kwargs: Any) -> Any:
    """:func:`flash_attn_func` with k and v in one array [batch, kv_len, 2, kv_heads, head_dim]."""
    return flash_attn_func(q, kv[:, :, 0], kv[:, :, 1], *args, **kwargs)


def flash_attn_qkvpacked_func(qkv: Any, *args: Any, **kwargs: Any) -> Any:
    """:func:`flash_attn_func` with all in one array [batch, length, 3, heads, head_dim]."""
    return flash_attn_func(qkv[:, :, 0], qkv[:, :, 1], qkv[:, :, 2], *args, **kwargs)


def flash_attn_varlen_func(
    q: Any,
    k: Any,
    v: Any,
    cu_seqlens_q: Any,
    cu_seqlens_k: Any,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Window = _NO_WINDOW,
    softcap: float = 0.0,
    alibi_slopes: Any = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
    block_table: Any = None,
    *,
    seqused_k: Any = None,
) -> Any:
    """Sequences one behind the other: q [total_q, heads, head_dim], k and v [total_k, kv_heads,
    head_dim]; cu_seqlens (int32, [sequences + 1]) say where each begins.

    With `block_table`, int32 [sequences, pages of a sequence], k and v are pages [pages, page_size,
    kv_heads, head_dim], and `seqused_k`, int32 [sequences], says how many keys each sequence has,
    as in FlashAttention 3; without it cu_seqlens_k does.
    With `return_attn_probs` (out, lse [heads, total_q], None).
    """
    keys: dict[str, Any] = {"cu_seqlens_k": cu_seqlens_k}
    if block_table is not None:
        if seqused_k is None and cu_seqlens_k is None:
            raise SpecError(
                "block_table without seqused_k and cu_seqlens_k",
                "a table of pages does not say where a sequence ends",
                "seqused_k=, int32 [sequences]: how many keys each sequence has",
            )
        lens = cu_seqlens_k[1:] - cu_seqlens_k[:-1] if seqused_k is None else seqused_k
        keys = {"kv_lens": lens, "page_table": block_table}
    elif seqused_k is not None:
        _refuse("seqused_k", seqused_k, "cu_seqlens_k of the keys that are there, or block_table")
    made = _attend(
        q, k, v, scale=softmax_scale, is_causal=causal, window=window_size, cap=softcap,
        slopes=alibi_slopes, dropout=dropout_p, returns_lse=return_attn_probs, layout="thd",
        batch=cu_seqlens_q.shape[0] - 1, cu_seqlens_q=cu_seqlens_q, max_q_len=int(max_seqlen_q),
        max_kv_len=int(max_seqlen_k), deterministic=deterministic, **keys,
    )  # fmt: skip
    return (*made, None) if return_attn_probs else made


def flash_attn_varlen_kvpacked_func(q: Any, kv: Any, *args: Any, **kwargs: Any) -> Any:
    """:func:`flash_attn_varlen_func` with k and v in one array [total_k, 2, kv_heads, head_dim]."""
    return flash_attn_varlen_func(q, kv[:, 0], kv[:, 1], *args, **kwargs)


def flash_attn_varlen_qkvpacked_func(
    qkv: Any, cu_seqlens: Any, max_seqlen: int, *args: Any, **kwargs: Any
) -> Any:
    """:func:`flash_attn_varlen_func` with all in one array [total, 3, heads, head_dim]."""
    q, k, v = (qkv[:, i] for i in range(3))
    return flash_attn_varlen_func(
        q, k, v, cu_seqlens, cu_seqlens, max_seqlen, max_seqlen, *args, **kwargs
    )


def _like(cache: Any, values: Any) -> Any:
    """Whole numbers as an int32 array beside the cache."""
    if is_torch_tensor(cache):
        torch = sys.modules["torch"]
        return torch.as_tensor(values, dtype=torch.int32, device=cache.device)
    return numpy.asarray(values, numpy.int32)


def _append(cache: Any, new: Any, ends: Any, table: Any = None) -> None:
    """Writes each sequence's new rows behind its end, in place; with a table, into its pages."""
    sequences, count = new.shape[:2]
    first = _like(cache, range(sequences))[:, None]
    at = ends[:, None] + _like(cache, range(count))[None, :]
    if table is not None:
        size = cache.shape[1]
        first, at = table[first, at // size], at % size
    cache[first, at] = new


def flash_attn_with_kvcache(
    q: Any,
    k_cache: Any,
    v_cache: Any,
    k: Any = None,
    v: Any = None,
    rotary_cos: Any = None,
    rotary_sin: Any = None,
    cache_seqlens: Any = None,
    cache_batch_idx: Any = None,
    cache_leftpad: Any = None,
    block_table: Any = None,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Window = _NO_WINDOW,
    softcap: float = 0.0,
    rotary_interleaved: bool = True,
    alibi_slopes: Any = None,
    num_splits: int = 0,
    return_softmax_lse: bool = False,
) -> Any:
    """Attention of q [batch, q_len, heads, head_dim] over caches [batch, cache_len, kv_heads,
    head_dim], of which sequence i holds `cache_seqlens[i]` rows (int32 [batch], or one number).

    k and v [batch, new, kv_heads, head_dim], if given, are first written into the caches behind
    those rows, in place. `cache_leftpad` (int32 [batch]) hides as many first rows of each sequence.
    """
    for name, given, fix in (
        ("rotary_cos", rotary_cos, "rotate q and k before the call"),
        ("rotary_sin", rotary_sin, "rotate q and k before the call"),
        ("cache_batch_idx", cache_batch_idx, "k_cache[cache_batch_idx], v_cache[cache_batch_idx]"),
    ):
        if given is not None:
            _refuse(name, given, fix)
    if (k is None) != (v is None):
        raise SpecError("k and v", "one of them is None", "both, or none of them")
    ends = None
    if cache_seqlens is not None:
        each = cache_seqlens if is_array(cache_seqlens) else [cache_seqlens] * q.shape[0]
        ends = _like(k_cache, each)
    if k is not None:
        if ends is None:
            raise SpecError(
                "cache_seqlens", "k and v are to be appended, and where is not said",
                "cache_seqlens=, int32 [batch]: how many rows each sequence holds",
            )  # fmt: skip
        _append(k_cache, k, ends, block_table)
        _append(v_cache, v, ends, block_table)
        ends = ends + k.shape[1]
    if block_table is not None and ends is None:
        raise SpecError(
            "cache_seqlens", "a table of pages does not say where a sequence ends",
            "cache_seqlens=, int32 [batch]: how many rows each sequence holds",
        )  # fmt: skip
    mask = None
    if cache_leftpad is not None:
        tensor = captured("leftpad", cache_leftpad, stored_dtype(cache_leftpad) or "i32")
        mask = Mask("kv_idx >= leftpad[b]", [tensor], [cache_leftpad])
    return _attend(
        q, k_cache, v_cache, scale=softmax_scale, is_causal=causal, window=window_size, cap=softcap,
        slopes=alibi_slopes, returns_lse=return_softmax_lse, mask=mask, layout="bshd", kv_lens=ends,
        page_table=block_table,
    )  # fmt: skip


__all__ = [
    "flash_attn_func",
    "flash_attn_kvpacked_func",
    "flash_attn_qkvpacked_func",
    "flash_attn_varlen_func",
    "flash_attn_varlen_kvpacked_func",
    "flash_attn_varlen_qkvpacked_func",
    "flash_attn_with_kvcache",
]
