"""BlockMask of torch.nn.attention.flex_attention: taken by the function that it was made of.

Which blocks are empty is found by the kernel itself, so the lists of blocks are not needed. Where
they say more than the function, there is no function to take.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from typing import Any

from ..errors import SpecError

_MODULE = "torch.nn.attention.flex_attention"
_whole: weakref.WeakSet[Any] = weakref.WeakSet()


def is_block_mask(value: Any) -> bool:
    module = sys.modules.get(_MODULE)
    return module is not None and isinstance(value, module.BlockMask)


def mask_of_blocks(block_mask: Any) -> Callable[..., Any]:
    """Its mask_mod. Raises SpecError where its blocks hide what that function shows."""
    function: Callable[..., Any] = block_mask.mask_mod
    name = getattr(function, "__name__", "")
    if name == "_sliced_mask_mod_error":
        raise SpecError(
            "mask=BlockMask",
            "it is a part of another BlockMask, which has no mask_mod any more",
            "the function that the whole one was made of, with an index that is shifted",
        )
    if name == "noop_mask" and block_mask not in _whole:
        if not bool(block_mask.to_dense().all()):
            raise SpecError(
                "mask=BlockMask",
                "its blocks hide keys, and its mask_mod none: it was made of blocks alone",
                "a function (b, h, q_idx, kv_idx), or flashcore.dense_mask of an array",
            )
        _whole.add(block_mask)
    return function


__all__ = ["is_block_mask", "mask_of_blocks"]
