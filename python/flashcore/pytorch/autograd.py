"""Calls of attention whose gradients torch will ask for."""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd.function import once_differentiable

from ..errors import DeviceError, SpecError
from ..kernels.attention_kernel import AttentionKernel
from .tensors import refuse_transforms

_LENGTHS = ("cu_seqlens_q", "cu_seqlens_k", "q_lens", "kv_lens")
_ELSEWHERE = {*_LENGTHS, "captured", "checked"}  # saved for the backward pass, or not of it


class _Attention(torch.autograd.Function):  # type: ignore[misc]
    """(output, log-sum-exp) of q, k and v, and the gradients of these."""

    @staticmethod
    def forward(
        ctx: Any, kernel: AttentionKernel, given: dict[str, Any], q: Any, k: Any, v: Any
    ) -> Any:
        out, lse = kernel(q, k, v, return_lse=True, **given)
        lengths = {name: given[name] for name in _LENGTHS if name in given}
        captured = given.get("captured", {})
        arrays = {name: a for name, a in captured.items() if isinstance(a, torch.Tensor)}
        ctx.save_for_backward(q, k, v, out, lse, *lengths.values(), *arrays.values())
        ctx.kernel = kernel
        ctx.given = {name: value for name, value in given.items() if name not in _ELSEWHERE}
        ctx.length_names = list(lengths)
        ctx.captured = {name: a for name, a in captured.items() if name not in arrays}
        ctx.captured_names = list(arrays)
        ctx.set_materialize_grads(False)
        return out, lse

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dout: Any, dlse: Any) -> Any:
        if dlse is not None:
            raise SpecError(
                "the gradient of attention's log-sum-exp",
                "a loss depends on it, and only the output's gradient is computed",
                "lse.detach(), where the loss should not reach q and k through it",
            )
        if dout is None:
            return None, None, None, None, None
        q, k, v, out, lse, *held = ctx.saved_tensors
        lengths = dict(zip(ctx.length_names, held, strict=False))
        arrays = dict(zip(ctx.captured_names, held[len(lengths) :], strict=True))
        gradients = ctx.kernel.backward(
            q, k, v, out, lse, dout, captured=ctx.captured | arrays, **lengths, **ctx.given
        )
        wanted = ctx.needs_input_grad[2:]
        return None, None, *(g if w else None for g, w in zip(gradients, wanted, strict=True))


def attention(
    kernel: AttentionKernel,
    q: Any,
    k: Any,
    v: Any,
    *,
    return_lse: bool = False,
    out: Any = None,
    stream: Any = None,
    captured: Any = None,
    **given: Any,
) -> Any:
    """A call of the kernel that torch's autograd can go back through."""
    refuse_transforms(q=q, k=k, v=v)
    for name, value in {"out": out, "stream": stream}.items():
        if value is not None:
            raise DeviceError(
                f"calling {kernel.name} with {name}= while torch records gradients",
                "the output is torch's to keep, on its current stream, until it goes back",
                f"leave {name} out, or call under torch.no_grad()",
            )
    if kernel._probe:
        raise DeviceError(
            f"calling {kernel.name} with probes while torch records gradients",
            "what probes show has no gradient",
            "call under torch.no_grad()",
        )
    values = kernel._captured.own | dict(captured or {})
    for name, value in values.items():
        if isinstance(value, torch.Tensor) and value.requires_grad:
            raise DeviceError(
                f"array {name}",
                "it requires a gradient, and only those of q, k and v are computed",
                "pass .detach(), where it is no parameter",
            )
    kernel.check_derivative()
    given = {name: value for name, value in given.items() if value is not None}
    if values:
        given["captured"] = values
    result, lse = _Attention.apply(kernel, given, q, k, v)
    return (result, lse) if return_lse else result


__all__ = ["attention"]
