"""Attention in one call. Kernels are made at the first call of their kind and kept."""

from __future__ import annotations

from collections import OrderedDict
from functools import partial
from typing import Any, Literal

import numpy

from .. import _core, arguments
from ..arrays import is_torch_tensor, stored_dtype, without_repeats
from ..errors import SpecError
from ..kernels.attention_kernel import AttentionKernel
from ..kernels.just_in_time import jit
from ..pytorch import seam as torch_seam
from ..pytorch.tensors import corner_of_bias, is_special, products_of
from ..specs.expression import (
    Mask,
    MaskLike,
    Score,
    ScoreLike,
    Sink,
    SinkLike,
    as_mask,
    as_score,
    as_sink,
    bound_arrays,
    in_one_kernel,
)
from ..specs.spec import AttentionSpec, ProductsName, dtype_name
from ..specs.variants import bias, causal, dense_mask, full
from .leading import flat_mask, in_four, shared
from .paged import check_paged

_FULL = full()
_TOP_LEFT = causal("top_left")
_kernels: OrderedDict[tuple[Any, ...], AttentionKernel] = OrderedDict()
_WHOLE_NUMBERS = ("i64", "i32", "i16", "i8", "u8")
_MOST_KERNELS = 256  # of which the one that was not called for longest goes first


def _kernel_for(
    q: Any,
    k: Any,
    v: Any,
    mask: Mask,
    score: Score | None,
    sink: Sink | None,
    layout: Literal["bhsd", "bshd", "thd"],
    q_lens: bool = False,
    kv_lens: bool = False,
    large_scores: bool = False,
    products: ProductsName = "full",
    deterministic: bool = True,
    paged: bool = False,
) -> AttentionKernel | None:
    # Everything a spec is made of, read off the arrays; lengths and batch are not.
    at_heads = 2 if layout == "bshd" else 1
    at_kv_heads = 2 if paged else at_heads
    rank = 3 if layout == "thd" else 4
    q_shape, k_shape, v_shape, dtype = q.shape, k.shape, v.shape, q.dtype
    if len(q_shape) != rank or not len(k_shape) == len(v_shape) == (4 if paged else rank):
        return None
    device = getattr(q, "device", None)
    key = (
        q_shape[-1],
        v_shape[-1],
        q_shape[at_heads],
        k_shape[at_kv_heads],
        dtype,
        mask.key,
        score and score.key,
        sink and sink.key,
        layout,
        q_lens,
        kv_lens,
        large_scores,
        products,
        deterministic,
        k_shape[1] if paged else None,
        device,
    )
    kernel = _kernels.get(key)
    if kernel is None:
        head_dim, head_dim_v, heads, kv_heads = key[:4]
        _check_dtypes(q=q, k=k, v=v)
        grouped = heads != kv_heads
        spec = AttentionSpec(
            head_dim=head_dim,
            head_dim_v=head_dim_v,
            heads=heads if grouped else None,
            kv_heads=kv_heads if grouped else None,
            dtype=dtype_name(dtype),
            products=products,
            # The arrays are given at every call: this kernel is there for others as well.
            mask=mask.unbound(),
            score=score and score.unbound(),
            sink=sink and sink.unbound(),
            layout=layout,
            q_lens=q_lens,
            kv_lens=kv_lens,
            page_size=k_shape[1] if paged else None,
            large_scores=large_scores,
            deterministic=deterministic,
        )
        target = _core.gpu_target()
        if target is None:
            kernel = jit(spec)
        else:
            kernel = AttentionKernel.shipped(spec, target, compiled=False)
        _kernels[key] = kernel
        while len(_kernels) > _MOST_KERNELS:
            _kernels.popitem(last=False)
    else:
        # Another thread may have let go of it; suppress() takes as long as all the rest here.
        try:  # noqa: SIM105
            _kernels.move_to_end(key)
        except KeyError:
            pass
    return kernel


def _check_dtypes(**arrays: Any) -> None:
    for name, array in arrays.items():
        dtype = dtype_name(getattr(array, "dtype", ""))
        if dtype in ("f16", "bf16", "f32"):
            continue
        shown = str(array.dtype).removeprefix("torch.")
        cast = f"{name}.astype(numpy.float16), or ml_dtypes.bfloat16"
        if is_torch_tensor(array):
            cast = f"{name}.to(torch.bfloat16), or torch.float16"
        raise SpecError(
            f"{shown} inputs",
            f"{name} holds {shown}, and tensor cores multiply f16, bf16 or f32",
            f"{cast}, and the same for the other inputs; the output casts back",
        )


def _packed_ranks(**shapes: Any) -> SpecError:
    name, shape = next((name, shape) for name, shape in shapes.items() if len(shape) != 3)
    return SpecError(
        "attention of packed sequences",
        f"{name} has shape {tuple(shape)}, which is not 3 dimensions",
        "[total, heads, head_dim]; batches of one length have layout bhsd or bshd",
    )


def attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    mask: MaskLike | None = None,
    score: ScoreLike | None = None,
    sink: SinkLike | None = None,
    scale: float | None = None,
    layout: Literal["bhsd", "bshd", "thd"] = "bhsd",
    out: Any = None,
    return_lse: bool = False,
    stream: Any = None,
    cu_seqlens_q: Any = None,
    cu_seqlens_k: Any = None,
    max_q_len: int | None = None,
    max_kv_len: int | None = None,
    q_lens: Any = None,
    kv_lens: Any = None,
    checked: bool = False,
    large_scores: bool = False,
    products: ProductsName = "full",
    deterministic: bool = True,
    page_table: Any = None,
) -> Any:
    """softmax(score(scale q k^T) + mask) v; masks, scores and sinks as in :class:`AttentionSpec`.

    Arrays have four dimensions in the order of `layout`, fewer ([length, head_dim], or no batch),
    or more batch dimensions in front; a batch of 1, and one head of k or of v, stand for all. A
    scale may be 0 or negative. A causal mask is bottom-right unless it says so.

    Sequences of different lengths: layout "thd" with cu_seqlens_q, or q_lens and kv_lens of padded
    batches, as in a call of a kernel. `checked` raises SpecError where an expression would read
    outside an array, at the cost of computing every index on the host. `large_scores`, `products`
    and `deterministic` are those of :class:`AttentionSpec`.

    With `page_table`, int32 [batch, pages of a sequence], keys and values lie in pages: k and v are
    [pages, page_size, kv_heads, head_dim] whatever the layout of q, of any page_size, and key i of
    a sequence is row i % page_size of page page_table[b, i // page_size]. `kv_lens` says how many
    keys each sequence has, also where layout "thd" and cu_seqlens_q pack the query rows.
    `max_kv_len` says how many it has at the most: a table often has room for more, and kernels are
    chosen for what they may have to read.
    """
    try:
        if large_scores is not False:
            large_scores = arguments.flag("large_scores", large_scores)
        if deterministic is not True and deterministic is not False:
            deterministic = arguments.flag("deterministic", deterministic)
        if type(q) is not numpy.ndarray and is_special(q):
            return torch_seam.attention(
                q, k, v, mask=mask, score=score, sink=sink, scale=scale, layout=layout, out=out,
                return_lse=return_lse, stream=stream, cu_seqlens_q=cu_seqlens_q,
                cu_seqlens_k=cu_seqlens_k, max_q_len=max_q_len, max_kv_len=max_kv_len,
                q_lens=q_lens, kv_lens=kv_lens,
                checked=checked, large_scores=large_scores, products=products,
                deterministic=deterministic, page_table=page_table,
            )  # fmt: skip
        visible = _FULL if mask is None else as_mask(mask)
        captured = None
        if score is not None or sink is not None or visible.tensors:
            visible, score, sink = in_one_kernel(visible, as_score(score), as_sink(sink))
            captured = bound_arrays(visible, score, sink)
        padded, paged = layout != "thd", page_table is not None
        if paged:
            check_paged(q, k, v, page_table, kv_lens, layout)

        try:
            kernel = _kernel_for(
                q,
                k,
                v,
                visible,
                score,
                sink,
                layout,
                q_lens=padded and q_lens is not None,
                kv_lens=(padded or paged) and kv_lens is not None,
                large_scores=large_scores,
                products=products,
                deterministic=deterministic,
                paged=paged,
            )
            if kernel is not None:
                return kernel(
                    q,
                    k,
                    v,
                    scale=scale,
                    out=out,
                    return_lse=return_lse,
                    stream=stream,
                    captured=captured,
                    cu_seqlens_q=cu_seqlens_q,
                    cu_seqlens_k=cu_seqlens_k,
                    max_q_len=max_q_len,
                    max_kv_len=max_kv_len,
                    q_lens=q_lens,
                    kv_lens=kv_lens,
                    page_table=page_table,
                    checked=checked,
                )
        except SpecError:
            alike = None if paged else shared(q, k, v, layout)
            if alike is None:
                raise
            q, k, v = alike
        else:
            alike = None
        again = partial(
            attention, mask=visible, score=score, sink=sink, scale=scale, layout=layout,
            return_lse=return_lse, stream=stream, cu_seqlens_q=cu_seqlens_q,
            cu_seqlens_k=cu_seqlens_k, max_q_len=max_q_len, max_kv_len=max_kv_len, q_lens=q_lens,
            kv_lens=kv_lens, checked=checked, large_scores=large_scores, products=products,
            deterministic=deterministic,
        )  # fmt: skip
        if alike is not None:
            return again(q, k, v, out=out)
        if not padded:
            raise _packed_ranks(q=q.shape, k=k.shape, v=v.shape)
        return in_four(again, q, k, v, layout, out, return_lse)
    except Exception as error:
        found = arguments.blamed("attention", locals(), error)
        if found is None:
            raise
        raise found from None


def sdpa(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    deterministic: bool = True,
) -> Any:
    """torch.nn.functional.scaled_dot_product_attention: its signature, its top-left mask.

    `attn_mask` broadcasts to [batch, heads, q_len, kv_len]: conditions, or floats to add; together
    with `is_causal`, both hide. Inputs have from two dimensions to any number of batch dimensions
    in front of [heads, length, head_dim]; those of 1 stand for all. `deterministic` is that of
    :class:`AttentionSpec`.
    """
    try:
        if dropout_p != 0.0:
            given = arguments.described(dropout_p)
            raise SpecError(f"sdpa(dropout_p={given})", "dropout is not supported", "dropout_p=0.0")
        if is_causal is not True and is_causal is not False:
            is_causal = arguments.flag("is_causal", is_causal)
        if enable_gqa is not True and enable_gqa is not False:
            enable_gqa = arguments.flag("enable_gqa", enable_gqa)
        if deterministic is not True and deterministic is not False:
            deterministic = arguments.flag("deterministic", deterministic)
        corner = None if attn_mask is None else _corner(attn_mask, is_causal, query, key)
        if corner is None and type(query) is not numpy.ndarray and is_special(query):
            return torch_seam.sdpa(
                query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa,
                deterministic=deterministic,
            )  # fmt: skip
        q_shape, k_shape = query.shape, key.shape
        if (
            not enable_gqa
            and len(q_shape) >= 3 <= len(k_shape)
            and q_shape[-3] != k_shape[-3]
            and q_shape[-3] != 1 != k_shape[-3]
        ):
            raise SpecError(
                "sdpa(enable_gqa=False)",
                f"query has {q_shape[-3]} heads and key has {k_shape[-3]}",
                "enable_gqa=True, if each key head serves several query heads",
            )
        mask = _TOP_LEFT if is_causal else _FULL
        products = products_of(query)
        if corner is None and attn_mask is None:
            try:
                kernel = _kernel_for(
                    query,
                    key,
                    value,
                    mask,
                    None,
                    None,
                    "bhsd",
                    large_scores=True,
                    products=products,
                    deterministic=deterministic,
                )
                if kernel is not None:
                    return kernel(query, key, value, scale=scale)
            except SpecError:
                if shared(query, key, value, "bhsd") is None:
                    raise
        # As torch is: for masks that hide by the smallest number as well.
        any_size = partial(attention, query, key, value, scale=scale, large_scores=True,
                           products=products, deterministic=deterministic)  # fmt: skip
        if corner is not None:
            return any_size(mask=corner)
        if attn_mask is None:
            return any_size(mask=mask)
        attn_mask = without_repeats(flat_mask(attn_mask, query, key, value))
        dtype = stored_dtype(attn_mask)
        if dtype == "i1":
            seen = mask & dense_mask(attn_mask) if is_causal else dense_mask(attn_mask)
            return any_size(mask=seen)
        if dtype in _WHOLE_NUMBERS:
            why = "whole numbers are neither conditions nor what is added to scores"
            fix = "attn_mask.astype(bool) (torch: .bool()) for conditions, or floats to add"
            raise arguments.refusal("attn_mask of sdpa", attn_mask, why, fix)
        return any_size(mask=mask, score=bias(attn_mask))
    except Exception as error:
        found = arguments.blamed("sdpa", locals(), error)
        if found is None:
            raise
        raise found from None


def _corner(attn_mask: Any, is_causal: bool, query: Any, key: Any) -> Mask | None:
    """The mask that an object of torch.nn.attention.bias means; None for any other."""
    align = corner_of_bias(attn_mask)
    if align is None:
        return None
    title = "attn_mask of sdpa"
    if is_causal:
        why, fix = "it is a causal mask itself", "is_causal=False"
        raise arguments.refusal(title, attn_mask, why, fix)
    lengths = (attn_mask.seq_len_q, attn_mask.seq_len_kv)
    if align == "bottom_right" and lengths != (query.shape[-2], key.shape[-2]):
        why = f"it is for lengths of {lengths}, and these are {query.shape[-2], key.shape[-2]}"
        fix = "torch.nn.attention.bias.causal_lower_right(q_len, kv_len)"
        raise arguments.refusal(title, attn_mask, why, fix)
    return causal(align)


torch_seam.instead_of(attention, torch_seam.attention)
torch_seam.instead_of(sdpa, torch_seam.sdpa)


def clear() -> None:
    """Forgets the kernels that :func:`attention` and :func:`sdpa` keep."""
    _kernels.clear()


__all__ = ["attention", "clear", "sdpa"]
