"""Attention in one call. Kernels are made at the first call of their kind and kept."""

from __future__ import annotations

from typing import Any, Literal

from .errors import SpecError
from .kernel import AttentionKernel, jit
from .spec import AttentionSpec, Mask, causal, dtype_name, full

_kernels: dict[tuple[Any, ...], AttentionKernel] = {}


def _kernel_for(
    q: Any, k: Any, v: Any, mask: Mask, layout: Literal["bhsd", "bshd"]
) -> AttentionKernel:
    # Everything a spec is made of, read off the arrays; lengths and batch are not.
    at_heads = 1 if layout == "bhsd" else 2
    key = (q.shape[-1], v.shape[-1], q.shape[at_heads], k.shape[at_heads], q.dtype, mask, layout,
           getattr(q, "device", None))  # fmt: skip
    kernel = _kernels.get(key)
    if kernel is None:
        head_dim, head_dim_v, heads, kv_heads = key[:4]
        grouped = heads != kv_heads
        kernel = jit(
            AttentionSpec(
                head_dim=head_dim,
                head_dim_v=head_dim_v,
                heads=heads if grouped else None,
                kv_heads=kv_heads if grouped else None,
                dtype=dtype_name(q.dtype),
                mask=mask,
                layout=layout,
            )
        )
        _kernels[key] = kernel
    return kernel


def _check_ranks(call: str, **arrays: Any) -> None:
    for name, array in arrays.items():
        if len(array.shape) != 4:
            raise SpecError(
                call,
                f"{name} has shape {tuple(array.shape)}, which is not 4 dimensions",
                f"add the missing ones, as in {name}[None]",
            )


def attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    mask: Mask | None = None,
    scale: float | None = None,
    layout: Literal["bhsd", "bshd"] = "bhsd",
    out: Any = None,
    return_lse: bool = False,
    stream: Any = None,
) -> Any:
    """softmax(scale q k^T + mask) v; a causal mask is aligned to the bottom right unless it says so."""
    _check_ranks("attention", q=q, k=k, v=v)
    kernel = _kernel_for(q, k, v, mask or full(), layout)
    return kernel(q, k, v, scale=scale, out=out, return_lse=return_lse, stream=stream)


def sdpa(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """torch.nn.functional.scaled_dot_product_attention: its signature, and its top-left causal mask."""
    if attn_mask is not None:
        raise SpecError(
            "sdpa(attn_mask=...)",
            "a mask given as an array is not supported",
            "is_causal=True, or flashcore.attention(..., mask=flashcore.causal())",
        )
    if dropout_p != 0.0:
        raise SpecError(
            f"sdpa(dropout_p={dropout_p})", "dropout is not supported", "dropout_p=0.0"
        )
    _check_ranks("sdpa", query=query, key=key, value=value)
    if not enable_gqa and query.shape[1] != key.shape[1]:
        raise SpecError(
            "sdpa(enable_gqa=False)",
            f"query has {query.shape[1]} heads and key has {key.shape[1]}",
            "enable_gqa=True, if each key head serves several query heads",
        )
    mask = causal("top_left") if is_causal else full()
    return _kernel_for(query, key, value, mask, "bhsd")(query, key, value, scale=scale)


def clear() -> None:
    """Forgets the kernels that :func:`attention` and :func:`sdpa` keep."""
    _kernels.clear()


__all__ = ["attention", "clear", "sdpa"]
