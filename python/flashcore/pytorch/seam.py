"""Where calls cross into torch: what torch's compiler traces in place of a function of ours, and
what the function does itself with tensors that torch wants more done with.

The bodies live in calls.py, which imports torch: a call with one of its tensors may.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any


def attention(q: Any, k: Any, v: Any, **options: Any) -> Any:
    from . import calls

    return calls.attention(q, k, v, **options)


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
    from . import calls

    return calls.sdpa(
        query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa, deterministic
    )


def kernel(self: Any, q: Any, k: Any, v: Any, **options: Any) -> Any:
    from . import calls

    return calls.kernel(self, q, k, v, **options)


def with_gradients(self: Any, q: Any, k: Any, v: Any, **options: Any) -> Any:
    from . import autograd

    return autograd.attention(self, q, k, v, **options)


def program(self: Any, **arguments: Any) -> Any:
    from . import calls

    return calls.program(self, **arguments)


def is_capturing(array: Any) -> bool:
    """Whether torch's current stream is being captured into a graph, if the array is torch's."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(array, torch.Tensor):
        return False
    return bool(torch.cuda.is_current_stream_capturing())


def core_text(function: str, *arguments: Any) -> str:
    from . import calls

    text: str = calls.core_text(function, *arguments)
    return text


def instead_of(function: Callable[..., Any], traced: Callable[..., Any]) -> None:
    """torch.compile traces `traced` where `function` is called. It cannot trace ours: they look at
    addresses, and launch. torch need not be there yet when this is said."""
    function._torchdynamo_inline = traced  # type: ignore[attr-defined]
