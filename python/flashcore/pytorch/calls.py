"""Calls with torch's tensors that are more than a launch.

Everything here is run in two ways: as it stands, with fake tensors and under modes that watch, and
traced by torch.compile, to which it is a call of one operator.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from types import CodeType, FunctionType, ModuleType
from typing import Any, Literal

import torch
from torch.nn.attention.bias import CausalBias, CausalVariant

from ..errors import DeviceError, SpecError
from ..interfaces import functional
from ..kernels.attention_kernel import AttentionKernel
from ..kernels.program_kernel import ProgramKernel
from ..specs import expression
from ..specs.expression import Expression, Mask, Score, Sink, as_mask, as_score, as_sink
from ..specs.spec import Layout, ProductsName
from ..specs.variants import causal
from . import nested, ops
from .tensors import is_watched

_LIBRARIES = {"torch", "numpy", "math", "flashcore"}


@torch.compiler.disable(
    reason="flashcore runs this call as it stands: see 'torch.compile' in its docs/python.md"
)
def _untraced(function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    return function(*arguments, **options)


def attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    mask: Any = None,
    score: Any = None,
    sink: Any = None,
    scale: float | None = None,
    layout: Layout = "bhsd",
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
    given = {"scale": scale, "out": out, "return_lse": return_lse, "stream": stream,
             "cu_seqlens_q": cu_seqlens_q, "cu_seqlens_k": cu_seqlens_k, "max_q_len": max_q_len,
             "max_kv_len": max_kv_len, "q_lens": q_lens, "kv_lens": kv_lens}  # fmt: skip
    if page_table is not None:
        options = {"mask": mask, "score": score, "sink": sink, "layout": layout,
                   "checked": checked, "page_table": page_table, "large_scores": large_scores,
                   "products": products, **given}  # fmt: skip
        return _over_pages(q, k, v, options)
    if torch.compiler.is_compiling():
        parts = _known(Mask, mask), _known(Score, score), _known(Sink, sink)
        if checked or _has_to_run(q, k, v, parts, stream):
            return _untraced(functional.attention, q, k, v, mask=mask, score=score, sink=sink,
                             layout=layout, checked=checked, large_scores=large_scores,
                             products=products, deterministic=deterministic, **given)  # fmt: skip
    else:
        parts = None if mask is None else as_mask(mask), as_score(score), as_sink(sink)
    if q.is_nested or _is_nested(k) or _is_nested(v):
        mask, score, sink = parts
        return nested.attention(functional.attention, q, k, v, mask=mask, score=score, sink=sink,
                                layout=layout, checked=checked, large_scores=large_scores,
                                products=products, deterministic=deterministic,
                                **given)  # fmt: skip
    q, k, v = _cast(q, k, v)
    if _is_launch(q):
        mask, score, sink = parts
        with torch._C._DisableAutocast():
            return functional.attention(q, k, v, mask=mask, score=score, sink=sink, layout=layout,
                                        checked=checked, large_scores=large_scores,
                                        products=products, deterministic=deterministic,
                                        **given)  # fmt: skip
    if checked:
        raise _unchecked("attention")
    what = ops.text_of_attention(layout, large_scores, products, *parts)
    arrays = [array for part in parts if part is not None for array in part._arrays]
    arrays = ops.as_tensors(arrays)
    return _operator(q, k, v, what, layout, arrays, **given)


def _over_pages(q: Any, k: Any, v: Any, options: dict[str, Any]) -> Any:
    if torch.compiler.is_compiling():
        return _untraced(functional.attention, q, k, v, **options)
    q, k, v = _cast(q, k, v)
    if not _is_launch(q):
        raise _watched_pages()
    with torch._C._DisableAutocast():
        return functional.attention(q, k, v, **options)


def sdpa(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
    enable_gqa: bool,
    deterministic: bool,
) -> Any:
    if torch.compiler.is_compiling():
        corner = None
        has_to_run = _has_to_run(query, key, value) or dropout_p != 0.0
        if not has_to_run and isinstance(attn_mask, CausalBias):
            corner = _traced_corner(attn_mask, query, key, is_causal, enable_gqa)
            has_to_run = corner is None
        if has_to_run:
            return _untraced(functional.sdpa, query, key, value, attn_mask, dropout_p, is_causal,
                             scale, enable_gqa, deterministic=deterministic)  # fmt: skip
        if corner is not None:
            return attention(query, key, value, mask=causal(corner), scale=scale, large_scores=True)
    if query.is_nested or _is_nested(key) or _is_nested(value):
        return _nested_sdpa(query, key, value, attn_mask, is_causal, scale, enable_gqa,
                            deterministic)  # fmt: skip
    query, key, value = _cast(query, key, value)
    if attn_mask is not None:
        (attn_mask,) = _cast(attn_mask)
    if _is_launch(query):
        with torch._C._DisableAutocast():
            return functional.sdpa(query, key, value, attn_mask, dropout_p, is_causal, scale,
                                   enable_gqa, deterministic=deterministic)  # fmt: skip
    what = ops.text_of_sdpa(is_causal, enable_gqa)
    arrays = [] if attn_mask is None else ops.as_tensors([attn_mask])
    return _operator(query, key, value, what, "bhsd", arrays, scale=scale)


def _traced_corner(
    mask: CausalBias, query: Any, key: Any, is_causal: bool, enable_gqa: bool
) -> Literal["top_left", "bottom_right"] | None:
    """Of a mask of torch.nn.attention.bias, whose memory holds nothing; None where the call is
    refused, which has to be run."""
    if is_causal or (not enable_gqa and query.shape[:-2] != key.shape[:-2]):
        return None
    if mask.variant == CausalVariant.UPPER_LEFT:
        return "top_left"
    fits = mask.seq_len_q == query.shape[-2] and mask.seq_len_kv == key.shape[-2]
    return "bottom_right" if fits else None


def _nested_sdpa(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any,
    is_causal: bool,
    scale: float | None,
    enable_gqa: bool,
    deterministic: bool,
) -> Any:
    if attn_mask is not None:
        raise SpecError(
            "sdpa(attn_mask=...) of nested tensors",
            "one array cannot say what sequences of different lengths see",
            "flashcore.attention(..., mask=a function of b, h, q_idx and kv_idx)",
        )
    if nested.is_along_dense_lengths(query, key, value):
        return nested.of_dense_lengths(
            functional.sdpa, query, key, value, is_causal=is_causal, scale=scale,
            deterministic=deterministic,
        )  # fmt: skip
    if not enable_gqa and query.shape[1] != key.shape[1]:
        raise SpecError(
            "sdpa(enable_gqa=False)",
            f"query has {query.shape[1]} heads and key has {key.shape[1]}",
            "enable_gqa=True, if each key head serves several query heads",
        )
    mask = causal("top_left") if is_causal else None
    return nested.attention(
        functional.attention, query, key, value, mask=mask, scale=scale, large_scores=True,
        deterministic=deterministic,
    )  # fmt: skip


def _is_nested(array: Any) -> bool:
    return isinstance(array, torch.Tensor) and array.is_nested


def kernel(
    self: AttentionKernel,
    q: Any,
    k: Any,
    v: Any,
    *,
    captured: Any = None,
    stream: Any = None,
    checked: bool | None = None,
    **given: Any,
) -> Any:
    tracing = torch.compiler.is_compiling()
    checked = self._checked if checked is None else checked
    if self._spec.page_size is not None:
        if tracing:
            return _untraced(self, q, k, v, captured=captured, stream=stream, checked=checked,
                             **given)  # fmt: skip
        raise _watched_pages()
    given.pop("page_table", None)
    if tracing and (self._probe or checked or _has_to_run(q, k, v, (), stream)):
        return _untraced(self, q, k, v, captured=captured, stream=stream, checked=checked, **given)
    if self._probe or q.is_nested:
        raise _refusal(self, q)
    if checked:
        raise _unchecked(self.name)
    self._captured.with_given(captured or {})
    arrays = ops.as_tensors((self._captured.own | dict(captured or {})).values())
    what = ops.text_of_kernel(self)
    return _operator(q, k, v, what, self._spec.layout, arrays, **given)


def program(self: ProgramKernel, **arguments: Any) -> Any:
    return _untraced(self, **arguments)


def _operator(
    q: Any,
    k: Any,
    v: Any,
    what: str,
    layout: str,
    captured: list[Any],
    *,
    scale: float | None = None,
    out: Any = None,
    return_lse: bool = False,
    stream: Any = None,
    cu_seqlens_q: Any = None,
    cu_seqlens_k: Any = None,
    max_q_len: int | None = None,
    max_kv_len: int | None = None,
    q_lens: Any = None,
    kv_lens: Any = None,
) -> Any:
    made = torch.ops.flashcore.attention(q, k, v, what, layout, captured, cu_seqlens_q,
                                         cu_seqlens_k, q_lens, kv_lens, scale, max_q_len,
                                         return_lse)  # fmt: skip
    result = made[0]
    if out is not None:
        out.copy_(result)
        result = out
    return (result, made[1]) if return_lse else result


def _known(kind: type[Expression], given: Any) -> Any:
    """While torch.compile traces: the expression of a function that reads only its arguments.
    Others stay functions: they may read what torch.compile has no guard for."""
    if given is None or isinstance(given, Expression):
        return given
    if not isinstance(given, FunctionType) or given.__closure__ is not None:
        return given
    text = _text_of_pure(kind, given)
    return given if text is None else kind(text)


@torch.compiler.assume_constant_result
def _text_of_pure(kind: type[Expression], function: Any) -> str | None:
    makers: dict[type[Expression], Any] = {Mask: as_mask, Score: as_score, Sink: as_sink}
    return makers[kind](function).text if _reads_nothing(function) else None


@torch.compiler.assume_constant_result
def core_text(function: str, *arguments: Any) -> str:
    """Of constants: torch.compile cannot look into the core."""
    return expression.core_text(function, *arguments)


def _reads_nothing(function: FunctionType) -> bool:
    """Whether its arguments, numbers it writes out and libraries are all that it knows."""
    if function.__closure__ or function.__defaults__ or function.__kwdefaults__:
        return False
    pending = [function.__code__]
    names: set[str] = set()
    while pending:
        code = pending.pop()
        names.update(code.co_names)
        pending += [part for part in code.co_consts if isinstance(part, CodeType)]
    known = (function.__globals__[name] for name in names & function.__globals__.keys())
    return all(isinstance(value, ModuleType) and value.__name__ in _LIBRARIES for value in known)


def _has_to_run(q: Any, k: Any, v: Any, parts: tuple[Any, ...] = (), stream: Any = None) -> bool:
    """While torch.compile traces: whether the graph has to end, as the call can only be run."""
    for array in (q, k, v):
        if not isinstance(array, torch.Tensor) or array.is_nested:
            return True
        if array.requires_grad and torch.is_grad_enabled():
            return True
    for part in parts:
        if part is None:
            continue
        if not isinstance(part, Expression):
            return True
        for array in part._arrays:
            if not isinstance(array, torch.Tensor):
                return True
    return stream is not None


def _is_launch(q: Any) -> bool:
    """Whether nothing is left to do but what a call does."""
    return not torch.compiler.is_compiling() and not is_watched(q)


def _cast(*tensors: Any) -> tuple[Any, ...]:
    """As autocast does for torch's function: floats of other dtypes, but for float64."""
    first = tensors[0]
    device = first.device.type if isinstance(first, torch.Tensor) else "meta"
    if device == "meta" or not torch.is_autocast_enabled(device):
        return tensors
    dtype = torch.get_autocast_dtype(device)
    return tuple(
        tensor.to(dtype)
        if isinstance(tensor, torch.Tensor)
        and tensor.is_floating_point()
        and tensor.dtype != torch.float64
        and tensor.device.type == device
        else tensor
        for tensor in tensors
    )


def _refusal(self: AttentionKernel, q: Any) -> DeviceError:
    if q.is_nested:
        return DeviceError(
            f"calling {self.name}",
            "q is a nested tensor, and a kernel takes arrays",
            "flashcore.attention or flashcore.sdpa, or q.values() and q.offsets() of layout thd",
        )
    return DeviceError(
        f"calling {self.name}",
        "it has probes, and torch watches the call or gave a tensor without memory",
        "a call with plain tensors, outside of torch's modes and exports",
    )


def _watched_pages() -> DeviceError:
    return DeviceError(
        "attention over pages",
        "torch watches the call or gave a tensor without memory",
        "a call with plain tensors, outside of torch's modes and exports",
    )


def _unchecked(name: str) -> DeviceError:
    return DeviceError(
        f"calling {name} with checked=True",
        "torch watches the call or gave a tensor without memory, and an index is checked by what "
        "arrays hold",
        "a call with plain tensors, outside of torch's modes and exports",
    )


def _skip_frames() -> None:
    """Where a graph has ended at a call of ours, torch.compile leaves our frames alone."""
    with contextlib.suppress(ImportError, AttributeError):
        from torch._C._dynamo.eval_frame import set_code_exec_strategy
        from torch._dynamo.types import FrameAction, FrameExecStrategy

        skip = FrameExecStrategy(FrameAction.SKIP, FrameAction.SKIP)
        for function in (
            functional.attention,
            functional.sdpa,
            AttentionKernel.__call__,
            ProgramKernel.__call__,
        ):
            set_code_exec_strategy(function.__code__, skip)


_skip_frames()
