"""Attention as one operator of torch, which its compilers and exporters see as a whole.

What it computes is a string, so that a graph kept on disk means the same in another process.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy
import torch

from ..arrays import Captured, output_like, stored_dtype
from ..errors import DeviceError
from ..interfaces import functional
from ..interfaces.leading import in_four, shared
from ..kernels.attention_kernel import AttentionKernel
from ..specs.expression import Expression, Mask, Score, Sink, bound_arrays, taken_apart

_SCHEMA = (
    "(Tensor q, Tensor k, Tensor v, str what, str layout, Tensor[] captured, "
    "Tensor? cu_seqlens_q, Tensor? cu_seqlens_k, Tensor? q_lens, Tensor? kv_lens, "
    "float? scale, SymInt? max_q_len, bool lse) -> Tensor[]"
)

# Defined by parts: torch.library.custom_op would add 12 us to every call.
_library = torch.library.Library("flashcore", "DEF")
_library.define(
    f"attention{_SCHEMA}",
    tags=(torch.Tag.pt2_compliant_tag, torch.Tag.needs_fixed_stride_order),
)


@torch.library.impl(_library, "attention", "CompositeExplicitAutograd")
def attention(
    q: Any,
    k: Any,
    v: Any,
    what: str,
    layout: str,
    captured: Sequence[Any],
    cu_seqlens_q: Any,
    cu_seqlens_k: Any,
    q_lens: Any,
    kv_lens: Any,
    scale: float | None,
    max_q_len: int | None,
    lse: bool,
) -> list[Any]:
    """The output, and with `lse` the log-sum-exp; `what` is a text of those below."""
    if torch.is_grad_enabled():
        _refuse_gradients(q=q, k=k, v=v)
    given = {"cu_seqlens_q": cu_seqlens_q, "cu_seqlens_k": cu_seqlens_k, "max_q_len": max_q_len,
             "q_lens": q_lens, "kv_lens": kv_lens}  # fmt: skip
    options = {name: _plain(value) for name, value in given.items() if value is not None}
    if lse:
        options["return_lse"] = True
    with _no_casts(q.device.type):
        made = _call_of(what)(
            *map(_plain, (q, k, v)), [_plain(array) for array in captured], scale=scale, **options
        )
    return list(made) if lse else [made]


@torch.library.register_fake("flashcore::attention", lib=_library)
def _shapes(
    q: Any, k: Any, v: Any, what: str, layout: str, captured: Any, *lengths: Any, **more: Any
) -> list[Any]:
    lse = more.get("lse", lengths[-1] if lengths else False)
    made = _empty_results(q, k, v, layout, lse)
    return list(made) if lse else [made]


def _empty_results(q: Any, k: Any, v: Any, layout: str, lse: bool, out: Any = None) -> Any:
    # Strides as well: torch's compilers count on those that they are told here.
    if layout != "thd" and not len(q.shape) == len(k.shape) == len(v.shape) == 4:
        again = functools.partial(_empty_results, layout=layout, lse=lse)
        return in_four(again, q, k, v, layout, out, lse)
    q, k, v = shared(q, k, v, layout) or (q, k, v)
    result = output_like(q, v.shape[-1], _DTYPES[q.dtype])
    if not lse:
        return result
    *batch, a, b, _ = q.shape
    heads, length = (a, b) if layout == "bhsd" else (b, a)
    return result, q.new_empty((*batch, heads, length), dtype=torch.float32)


_DTYPES = {torch.float16: "f16", torch.bfloat16: "bf16", torch.float32: "f32"}


def _refuse_gradients(**arrays: Any) -> None:
    # Calls with gradients are run as they stand, outside of graphs; a graph was made without.
    for name, array in arrays.items():
        if array.requires_grad:
            raise DeviceError(
                f"array {name}",
                "it requires a gradient, and the operator of a graph has no backward pass",
                "a call of flashcore itself, or a graph traced with tensors that require gradients",
            )


def _plain(value: Any) -> Any:
    kinds = (torch.Tensor, torch.nn.Parameter)
    special = isinstance(value, torch.Tensor) and type(value) not in kinds
    return value.as_subclass(torch.Tensor) if special else value


@contextlib.contextmanager
def _no_casts(device: str) -> Iterator[None]:
    if not torch._C._is_any_autocast_enabled():
        yield
        return
    with torch.autocast(device, enabled=False):
        yield


def as_tensors(captured: Iterable[Any]) -> list[Any]:
    """Arrays of NumPy and numbers as tensors: an operator takes nothing else."""
    return [_as_tensor(value) for value in captured]


def _as_tensor(value: Any) -> Any:
    if isinstance(value, (int, float)):
        return torch.tensor(value)
    if not isinstance(value, numpy.ndarray):
        return value
    if stored_dtype(value) == "bf16":
        return torch.from_numpy(value.view(numpy.int16)).view(torch.bfloat16)
    return torch.from_numpy(value)


def _value(tensor: Captured, given: Any) -> Any:
    return given if tensor.rank else given.item()


# One line: torch's compiler writes what an operator is given into comments of its own code. No
# expression holds the sign between the parts.
_BETWEEN = "@"


def text_of_sdpa(is_causal: bool, enable_gqa: bool) -> str:
    return _BETWEEN.join(["sdpa", str(int(is_causal)), str(int(enable_gqa))])


def text_of_kernel(kernel: AttentionKernel) -> str:
    return _BETWEEN.join(["kernel", kernel._description])


def text_of_attention(
    layout: str, large_scores: bool, products: str, mask: Any, score: Any, sink: Any
) -> str:
    """Of expressions, or None; the arrays that they read are passed beside it, in this order."""
    keys = [
        part._key.replace("\n", " ") if part is not None else "" for part in (mask, score, sink)
    ]
    return _BETWEEN.join(["attention", layout, str(int(large_scores)), products, *keys])


@functools.lru_cache(maxsize=256)
def _call_of(what: str) -> Callable[..., Any]:
    kind, rest = what.split(_BETWEEN, 1)
    makers = {"sdpa": _sdpa_of, "attention": _attention_of, "kernel": _kernel_of}
    return makers[kind](rest)


def _sdpa_of(text: str) -> Callable[..., Any]:
    causal, grouped = (bool(int(part)) for part in text.split(_BETWEEN))

    def call(q: Any, k: Any, v: Any, captured: Sequence[Any], scale: float | None) -> Any:
        mask = captured[0] if captured else None
        return functional.sdpa(q, k, v, mask, is_causal=causal, scale=scale, enable_gqa=grouped)

    return call


def _attention_of(text: str) -> Callable[..., Any]:
    layout, large, products, *keys = text.split(_BETWEEN)
    kinds: dict[str, type[Expression]] = {"mask": Mask, "score": Score, "sink": Sink}
    parts = [taken_apart(key) if key else None for key in keys]

    def call(q: Any, k: Any, v: Any, captured: Sequence[Any], **options: Any) -> Any:
        left = iter(captured)
        described: dict[str, Any] = {
            role: None if part is None else kind(*part, [_value(t, next(left)) for t in part[1]])
            for (role, kind), part in zip(kinds.items(), parts, strict=True)
        }
        described |= {"layout": layout, "large_scores": large == "1", "products": products}
        return functional.attention(q, k, v, **described, **options)

    return call


def _kernel_of(text: str) -> Callable[..., Any]:
    kernel = AttentionKernel.described(text)
    names = list(bound_arrays(*kernel.spec.expressions))
    described = {t.name: t for part in kernel.spec.expressions if part for t in part.tensors}
    tensors = [described[name] for name in names]

    def call(q: Any, k: Any, v: Any, captured: Sequence[Any], **options: Any) -> Any:
        given = {
            name: _value(tensor, array)
            for name, tensor, array in zip(names, tensors, captured, strict=True)
        }
        return kernel(q, k, v, captured=given or None, **options)

    return call
