"""Attention in one call. Kernels are made at the first call of their kind and kept."""

from __future__ import annotations

from typing import Any, Literal

from .attention_kernel import AttentionKernel
from .errors import SpecError
from .just_in_time import jit
from .spec import AttentionSpec, Mask, causal, dtype_name, full

_FULL = full()
_TOP_LEFT = causal("top_left")
_kernels: dict[tuple[Any, ...], AttentionKernel] = {}


def _kernel_for(
    q: Any, k: Any, v: Any, mask: Mask, layout: Literal["bhsd", "bshd"]
) -> AttentionKernel:
    # Everything a spec is made of, read off the arrays; lengths and batch are not.
    at_heads = 1 if layout == "bhsd" else 2
    q_shape, k_shape, v_shape = q.shape, k.shape, v.shape
    if not len(q_shape) == len(k_shape) == len(v_shape) == 4:
        _refuse_ranks(q=q_shape, k=k_shape, v=v_shape)
    device = getattr(q, "device", None)
    key = (
        q_shape[3],
        v_shape[3],
        q_shape[at_heads],
        k_shape[at_heads],
        q.dtype,
        mask.text,
        layout,
        device,
    )
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


def _refuse_ranks(**shapes: Any) -> None:
    name, shape = next((name, shape) for name, shape in shapes.items() if len(shape) != 4)
    raise SpecError(
        "attention",
        f"{name} has shape {tuple(shape)}, which is not 4 dimensions",
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
    """softmax(scale q k^T + mask) v; a causal mask is bottom-right unless it says so."""
    kernel = _kernel_for(q, k, v, mask or _FULL, layout)
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
    """torch.nn.functional.scaled_dot_product_attention: its signature, its top-left mask."""
    if attn_mask is not None:
        raise SpecError(
            "sdpa(attn_mask=...)",
            "a mask given as an array is not supported",
            "is_causal=True, or flashcore.attention(..., mask=flashcore.causal())",
        )
    if dropout_p != 0.0:
        raise SpecError(f"sdpa(dropout_p={dropout_p})", "dropout is not supported", "dropout_p=0.0")
    if (
        not enable_gqa
        and len(query.shape) == len(key.shape) == 4
        and query.shape[1] != key.shape[1]
    ):
        raise SpecError(
            "sdpa(enable_gqa=False)",
            f"query has {query.shape[1]} heads and key has {key.shape[1]}",
            "enable_gqa=True, if each key head serves several query heads",
        )
    mask = _TOP_LEFT if is_causal else _FULL
    return _kernel_for(query, key, value, mask, "bhsd")(query, key, value, scale=scale)


def clear() -> None:
    """Forgets the kernels that :func:`attention` and :func:`sdpa` keep."""
    _kernels.clear()


__all__ = ["attention", "clear", "sdpa"]
