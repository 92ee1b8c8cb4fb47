"""The gradients of what a kernel of attention computes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .. import arguments
from ..arrays import on_cuda
from ..specs.spec import AttentionSpec
from .attention_backward import AttentionBackward


class WithGradients:
    """The method `backward` of a kernel of attention."""

    _spec: AttentionSpec
    _target: str
    _scale: float
    _backward: AttentionBackward | None = None

    def backward(
        self,
        q: Any,
        k: Any,
        v: Any,
        out: Any,
        lse: Any,
        dout: Any,
        *,
        scale: float | None = None,
        stream: Any = None,
        captured: Mapping[str, Any] | None = None,
        cu_seqlens_q: Any = None,
        cu_seqlens_k: Any = None,
        max_q_len: int | None = None,
        max_kv_len: int | None = None,
        q_lens: Any = None,
        kv_lens: Any = None,
    ) -> tuple[Any, Any, Any]:
        """The gradients of q, k and v: (dq, dk, dv), each like its array, given `dout`, that of the
        output.

        `out` and `lse` are what a call with the same arguments returned with ``return_lse=True``.
        The same bits at every call, unless the spec is not deterministic: then terms may be summed
        in the order in which blocks happen to come, where that is faster.
        Tensors of torch that require gradients need no such call, as torch's autograd makes it.
        Raises SpecError for a spec that has no derivative.
        """
        try:
            return self._derivative()(
                q, k, v, out, lse, dout,
                scale=self._scale if scale is None else scale,
                compiled=on_cuda(q), stream=stream, captured=captured, cu_seqlens_q=cu_seqlens_q,
                cu_seqlens_k=cu_seqlens_k, max_q_len=max_q_len, max_kv_len=max_kv_len,
                q_lens=q_lens, kv_lens=kv_lens,
            )  # fmt: skip
        except Exception as error:
            found = arguments.blamed("attention_backward", locals(), error)
            if found is None:
                raise
            raise found from None

    def check_derivative(self) -> None:
        """Raises SpecError where :meth:`backward` would, for a spec that has no derivative."""
        self._derivative()

    def _derivative(self) -> AttentionBackward:
        if self._backward is None:
            self._backward = AttentionBackward(self._spec, self._target)
        return self._backward


__all__ = ["WithGradients"]
