"""The modules of decoding for one spec, by what a block of theirs computes."""

from __future__ import annotations

from collections.abc import Sequence

from .. import _core
from ..specs.spec import AttentionSpec
from .call_kernels import CallKernels, Ordered

Blocks = tuple[str, int, bool]
"""Which query rows a block of the first program has, how many, and whether one of the second has a
tile of rows (templates/attention_decode.h)."""


class DecodeKernels(CallKernels[Blocks]):
    """Where there are pages, calls have a page_table behind o and lse."""

    def __init__(self, spec: AttentionSpec, page_size: int, target: str, captured: Sequence[str]):
        """`page_size` 0: keys are contiguous."""
        super().__init__(spec, target, captured, ["page_table"] if page_size else [])
        self._page_size = page_size
        self._group = (spec.heads or 1) // (spec.kv_heads or spec.heads or 1)
        # Where calls without the log-sum-exp find them without Python.
        self.splits: _core.SplitModules | None = None

    def _make(self, spec: AttentionSpec, blocks: Blocks) -> tuple[_core.Module, list[list[str]]]:
        return _core.attention_decode(spec.to_json(), self._page_size, self._target, blocks)

    def _note(self, blocks: Blocks, with_lse: bool, built: Ordered) -> None:
        if self.splits is not None and not with_lse:
            kernels, order = built
            self.splits.add(blocks, kernels._core, order)

    def packed_blocks(self, q_len: int) -> Blocks:
        """Tiles of a group's rows, with room for `q_len` of each head if a tile has as many."""
        rows = 16
        while rows < min(q_len * self._group, _core.most_decode_rows()):
            rows *= 2
        return "packed", rows, False


__all__ = ["Blocks", "DecodeKernels", "Ordered"]
