"""FlashInfer's attention over pages, measured beside the others where its package is installed."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

WORKSPACE_BYTES = 512 << 20


class FlashInfer:
    """Its kernels for tensor cores. What they need to know of the lengths is planned on the host
    before they are timed. Those of decoding and of its FA2 backend are for every GPU, those of its
    FA3 backend for Hopper."""

    def __init__(self, torch: Any, module: Any):
        self._torch = torch
        self._wrapper = module.BatchDecodeWithPagedKVCacheWrapper
        self._prefill_wrapper = module.BatchPrefillWithPagedKVCacheWrapper
        # All calls follow each other on one stream, and share it.
        self._workspace = torch.zeros(WORKSPACE_BYTES, dtype=torch.uint8, device="cuda")

    def call(
        self, q: Any, k: Any, v: Any, page_table: Any, lens: Sequence[int]
    ) -> Callable[[], Any]:
        """q is [batch, heads, 1, head_dim], k and v are [pages, page_size, kv_heads, head_dim], and
        page_table [batch, max_pages] has `lens` keys of each sequence."""
        batch, heads, _, head_dim = q.shape
        wrapper = self._wrapper(self._workspace, "NHD", use_tensor_cores=True, backend="fa2")
        wrapper.plan(
            *self._pages(page_table, lens, k.shape[1]), heads, k.shape[2], head_dim, k.shape[1],
            q_data_type=q.dtype, kv_data_type=k.dtype, o_data_type=q.dtype,
        )  # fmt: skip
        rows_of_heads = q.view(batch, heads, head_dim)
        return lambda: wrapper.run(rows_of_heads, (k, v))

    def prefill(
        self, q: Any, k: Any, v: Any, page_table: Any, rows: Sequence[int], lens: Sequence[int],
        backend: str, out: Any,
    ) -> Callable[[], Any]:  # fmt: skip
        """The same of packed query rows under a causal mask: q and out are [total, heads,
        head_dim], of which each sequence has `rows`. `backend` is "fa2" or "fa3"."""
        starts = self._torch.IntTensor([0, *itertools.accumulate(rows)])
        wrapper = self._prefill_wrapper(self._workspace, "NHD", backend=backend)
        wrapper.plan(
            starts, *self._pages(page_table, lens, k.shape[1]), q.shape[1], k.shape[2], q.shape[2],
            k.shape[1], causal=True, q_data_type=q.dtype, kv_data_type=k.dtype,
            o_data_type=q.dtype,
        )  # fmt: skip
        return lambda: wrapper.run(q, (k, v), out=out)

    def _pages(self, page_table: Any, lens: Sequence[int], page_size: int) -> tuple[Any, Any, Any]:
        """Where the pages of each sequence begin, their numbers, and how full the last ones are."""
        torch = self._torch
        counts = [-(-length // page_size) for length in lens]
        own = [page_table[b, :count] for b, count in enumerate(counts)]
        last = [(length - 1) % page_size + 1 if length else 0 for length in lens]
        starts = torch.IntTensor([0, *itertools.accumulate(counts)])
        return starts, torch.cat(own).int(), torch.IntTensor(last)


def find_flashinfer(torch: Any) -> FlashInfer | None:
    """None where its package cannot be imported."""
    try:
        import flashinfer
    except ImportError:
        return None
    return FlashInfer(torch, flashinfer)
