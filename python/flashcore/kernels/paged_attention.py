"""Attention over keys and values that lie in pages."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ..arrays import empty, on_cuda, output_like
from ..errors import SpecError
from ..pytorch.tensors import records_gradients
from ..specs.spec import AttentionSpec
from . import copies
from .captured_values import CapturedValues
from .decode_kernels import DecodeKernels
from .launches import Launches
from .lengths import lengths


class PagedAttention:
    """Attention for one spec and one size of pages; compiled at the first call, for each of three
    numbers of query rows that a block computes together."""

    def __init__(self, spec: AttentionSpec, page_size: int, target: str):
        self._spec = spec
        self._page_size = page_size
        self._captured = CapturedValues("attention_decode", spec)
        self._launches = Launches(spec, self._captured.in_place)
        self._kernels = DecodeKernels(spec, page_size, target, self._captured.arrays)

    def __call__(
        self,
        q: Any,
        k: Any,
        v: Any,
        page_table: Any,
        kv_lens: Any,
        *,
        q_lens: Any = None,
        scale: float | None = None,
        out: Any = None,
        return_lse: bool = False,
        stream: Any = None,
        captured: Mapping[str, Any] | None = None,
    ) -> Any:
        spec = self._spec
        if records_gradients(q, k, v):
            raise SpecError(
                "attention over pages with tensors that require gradients",
                "its kernels are for decoding, and have no backward pass",
                "a call under torch.no_grad(), or keys and values that are contiguous",
            )
        arrays, numbers = self._captured.with_given(self._captured.own | dict(captured or {}))
        scale = 1.0 / math.sqrt(spec.head_dim) if scale is None else scale
        q, scale = copies.with_sign_of(scale, q, stream)
        # Lengths are checked against what the table has room for.
        room = _Room(page_table.shape[1] * self._page_size)
        own = lengths(spec, q, room, None, None, None, q_lens, kv_lens)
        out = output_like(q, v.shape[-1], spec.dtype) if out is None else out
        at = 2 if spec.layout == "bhsd" else 1
        with_lse = return_lse or spec.lse
        lse = empty(q, (q.shape[0], q.shape[3 - at], q.shape[at]), "f32") if with_lse else None
        results = (out, lse) if with_lse else (out,)
        every = (q, k, v, *results, page_table, *own.arrays, *arrays)
        kernels, order = self._kernels.built(
            self._kernels.packed_blocks(q.shape[0], q.shape[at]), with_lse, compiled=on_cuda(q)
        )
        self._launches.launch_module(kernels, every, (scale, *numbers), stream, order)
        return (out, lse) if return_lse else out


def check_ranks(q: Any, k: Any, v: Any, page_table: Any) -> None:
    """Raises SpecError for the first array that has not as many dimensions as it should."""
    for name, array, rank, shape in (
        ("q", q, 4, "[batch, heads, q_len, head_dim] in the order of the layout"),
        ("k", k, 4, "[pages, page_size, kv_heads, head_dim]"),
        ("v", v, 4, "[pages, page_size, kv_heads, head_dim]"),
        ("page_table", page_table, 2, "[batch, pages of a sequence], int32"),
    ):
        if len(array.shape) != rank:
            raise SpecError(
                "attention over pages",
                f"{name} has shape {tuple(array.shape)}, which is not {rank} dimensions",
                f"{name} {shape}",
            )


class _Room:
    """Keys as long as a table has pages for, in any layout: what lengths are checked against."""

    def __init__(self, length: int):
        self.shape = (1, length, length, 1)


__all__ = ["PagedAttention", "check_ranks"]
