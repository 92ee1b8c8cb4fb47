"""The modules of decoding for one spec, by what a block of theirs computes."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from .. import _core
from ..specs.module import Module
from ..specs.schedule import Schedule
from ..specs.spec import AttentionSpec
from .module_kernel import ModuleKernel

Blocks = tuple[str, int, bool, bool, bool]
"""Which query rows a block of the split program has, how many, whether a block that combines has a
tile of rows, whether splits are balanced over sequences, and whether those with many query rows
have another kernel (templates/attention_decode.h)."""
Ordered = tuple[ModuleKernel, list[int]]
"""Kernels, and which of a call's arrays each of the module's is."""


class DecodeKernels:
    """Arrays of a call come in the order q, k, v, o, lse if it is asked for, page_table where there
    are pages, lengths, and what the expressions captured."""

    def __init__(self, spec: AttentionSpec, target: str, captured: Sequence[str]):
        """`captured` are names, in their order."""
        self._spec = spec
        self._target = target
        lengths = {
            "page_table": spec.page_size,
            "cu_seqlens_q": spec.layout == "thd",
            "cu_seqlens_k": spec.layout == "thd" and not spec.page_size,
            "q_lens": spec.q_lens,
            "kv_lens": spec.kv_lens,
        }
        self._beside = [*(name for name, asked in lengths.items() if asked), *captured]
        self._built: dict[tuple[Blocks, bool], Ordered] = {}

    def built(self, blocks: Blocks, with_lse: bool, compiled: bool) -> Ordered:
        """Raises CompileError and ScheduleError; `compiled`: those whose code fits."""
        found = self._built.get((blocks, with_lse))
        if found is None:
            text = dataclasses.replace(self._spec, lse=with_lse).to_json()
            core, texts = _core.attention_decode(text, self._target, blocks)
            schedules = [[Schedule.from_json(text) for text in own] for own in texts]
            kernels = ModuleKernel.first_fitting(
                Module._of(core), schedules, self._target, compiled
            )
            names = ["q", "k", "v", "o", *(["lse"] if with_lse else []), *self._beside]
            found = kernels, [names.index(tensor[0]) for tensor in kernels.tensors]
            self._built[blocks, with_lse] = found
        return found


__all__ = ["Blocks", "DecodeKernels", "Ordered"]
