"""torch.nn.attention.flex_attention.flex_attention, by its arguments."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import partial
from typing import Any

from ..errors import SpecError
from ..specs.expression import MaskLike, ScoreLike
from .functional import attention

# Torch's kernels are right for scores of any size, such as those that a score_mod of -1e9 hides.
_of_any_size = partial(attention, large_scores=True)


def flex_attention(
    query: Any,
    key: Any,
    value: Any,
    score_mod: ScoreLike | None = None,
    block_mask: MaskLike | Any = None,
    scale: float | None = None,
    enable_gqa: bool = False,
    return_lse: bool = False,
    kernel_options: Mapping[str, Any] | None = None,
    *,
    return_aux: Any = None,
) -> Any:
    """FlexAttention's function: query [batch, heads, q_len, head_dim], key and value alike, the
    output like query.

    `score_mod` is a function (score, b, h, q_idx, kv_idx) or a score of this package; `block_mask`
    a BlockMask, which is taken by its mask_mod, a function (b, h, q_idx, kv_idx) or a mask of this
    package. With `return_lse` also the log-sum-exp [batch, heads, q_len] in f32; `return_aux` is
    torch's AuxRequest, of which max_scores is refused. `kernel_options` choose among torch's
    kernels and are ignored. Query, key and value have gradients, arrays that functions read have
    none.
    """
    if not enable_gqa and len(query.shape) == len(key.shape) == 4:
        heads, kv_heads = query.shape[1], key.shape[1]
        if heads != kv_heads:
            raise SpecError(
                "flex_attention(enable_gqa=False)",
                f"query has {heads} heads and key has {kv_heads}",
                "enable_gqa=True, if each key head serves several query heads",
            )
    if kernel_options is not None and not isinstance(kernel_options, Mapping):
        raise SpecError(
            f"flex_attention(kernel_options={type(kernel_options).__qualname__})",
            "options are a dictionary",
            "leave them out: they choose among torch's kernels",
        )
    if return_aux is not None:
        return _with_aux(
            return_aux, return_lse, query, key, value, mask=block_mask, score=score_mod, scale=scale
        )
    return _of_any_size(
        query, key, value, mask=block_mask, score=score_mod, scale=scale, return_lse=return_lse
    )


def _with_aux(request: Any, return_lse: bool, *arrays: Any, **options: Any) -> Any:
    if return_lse:
        raise SpecError(
            "flex_attention(return_lse=True, return_aux=...)",
            "torch takes one of them",
            "return_aux=AuxRequest(lse=True)",
        )
    if getattr(request, "max_scores", False):
        raise SpecError(
            "flex_attention(return_aux=AuxRequest(max_scores=True))",
            "kernels subtract the largest score of a row and do not store it",
            "AuxRequest(lse=True), or fc.jit(spec, probe=['row_max'])",
        )
    lse = bool(getattr(request, "lse", False))
    result = _of_any_size(*arrays, return_lse=lse, **options)
    output = sys.modules[type(request).__module__].AuxOutput
    return (result[0], output(lse=result[1])) if lse else (result, output())


__all__ = ["flex_attention"]
