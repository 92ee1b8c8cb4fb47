"""FlashInfer's decoding over pages, measured beside the others where its package is installed."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

WORKSPACE_BYTES = 512 << 20


class FlashInfer:
    """Its kernels for tensor cores. What they need to know of the lengths is planned on the host
    before they are timed."""

    def __init__(self, torch: Any, module: Any):
        self._torch = torch
        self._wrapper = module.BatchDecodeWithPagedKVCacheWrapper
        # All calls follow each other on one stream, and share it.
        self._workspace = torch.zeros(WORKSPACE_BYTES, dtype=torch.uint8, device="cuda")

    def call(
        self, q: Any, k: Any, v: Any, page_table: Any, lens: Sequence[int]
    ) -> Callable[[], Any]:
        """q is [batch, heads, 1, head_dim], k and v are [pages, page_size, kv_heads, head_dim], and
        page_table [batch, max_pages] has `lens` keys of each sequence."""
        torch = self._torch
        page_size, kv_heads = k.shape[1], k.shape[2]
        batch, heads, _, head_dim = q.shape
        counts = [-(-length // page_size) for length in lens]
        rows = [page_table[b, :count] for b, count in enumerate(counts)]
        last = [(length - 1) % page_size + 1 if length else 0 for length in lens]
        as_list = torch.IntTensor
        wrapper = self._wrapper(self._workspace, "NHD", use_tensor_cores=True, backend="fa2")
        wrapper.plan(
            as_list([0, *itertools.accumulate(counts)]), torch.cat(rows).int(), as_list(last),
            heads, kv_heads, head_dim, page_size, q_data_type=q.dtype, kv_data_type=k.dtype,
            o_data_type=q.dtype,
        )  # fmt: skip
        rows_of_heads = q.view(batch, heads, head_dim)
        return lambda: wrapper.run(rows_of_heads, (k, v))


def find_flashinfer(torch: Any) -> FlashInfer | None:
    """None where its package cannot be imported."""
    try:
        import flashinfer
    except ImportError:
        return None
    return FlashInfer(torch, flashinfer)
