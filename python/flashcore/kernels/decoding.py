"""Few query rows over many keys: the keys of a sequence are split over blocks."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from .. import _core
from ..arrays import on_cuda
from ..errors import CacheMissError, CompileError, ScheduleError
from ..pytorch import seam as torch_seam
from ..specs.module import Module
from ..specs.schedule import Schedule
from ..specs.spec import AttentionSpec
from .launches import Launches
from .module_kernel import ModuleKernel

# Below so many keys no call is split (templates/attention_decode.h, splitting_pays).
_LEAST_KEYS = 512


class Decoding:
    """The modules that calls of a spec with few query rows launch, compiled when they first do."""

    def __init__(
        self, spec: AttentionSpec, target: str, launches: Launches, captured: Sequence[str]
    ):
        self._spec = spec
        self._target = target
        self._launches = launches
        lengths = {"q_lens": spec.q_lens, "kv_lens": spec.kv_lens}
        self._beside = [*(name for name, asked in lengths.items() if asked), *captured]
        self._group = (spec.heads or 1) // (spec.kv_heads or spec.heads or 1)
        self._at_rows = 2 if spec.layout == "bhsd" else 1
        self.most_rows = _core.most_decode_rows() // self._group
        # By rows and whether the log-sum-exp is written: kernels, and which of a call's arrays each
        # of the module's is; None where they cannot be had.
        self._kernels: dict[tuple[int, bool], tuple[ModuleKernel, list[int]] | None] = {}

    @classmethod
    def of(
        cls, spec: AttentionSpec, target: str, launches: Launches, captured: Sequence[str]
    ) -> Decoding | None:
        """`captured` are the names of the arrays that expressions read. None for a spec whose calls
        are never split: packed sequences, f32, wide heads, and groups of more heads than a tile has
        rows."""
        if not _core.decodes(spec.to_json(), target):
            return None
        return cls(spec, target, launches, captured)

    def takes(self, q: Any, k: Any) -> bool:
        """Whether a call with these arrays is faster with its keys split."""
        q_shape, k_shape = q.shape, k.shape
        at = self._at_rows
        if len(q_shape) != 4 or q_shape[at] > self.most_rows or len(k_shape) != 4:
            return False
        if k_shape[at] < _LEAST_KEYS or not on_cuda(q):
            return False
        batch, heads, kv_heads = q_shape[0], q_shape[3 - at], k_shape[3 - at]
        return _core.splitting_pays(batch, heads, kv_heads, q_shape[at], k_shape[at])

    def launch(
        self,
        arrays: tuple[Any, ...],
        scalars: tuple[Any, ...],
        stream: Any,
        with_lse: bool,
    ) -> bool:
        """Arrays and scalars as the kernels of attention take them. False where no code is at hand,
        and none can be compiled: nothing is launched then."""
        q = arrays[0]
        found = self._kernels_for(q.shape[self._at_rows], with_lse, q)
        if found is None:
            return False
        kernels, order = found
        self._launches.launch_module(kernels, arrays, scalars, stream, order)
        return True

    def prepare(
        self,
        q_lens: tuple[int, int],
        kv_lens: tuple[int, int],
        with_lse: Sequence[bool],
        device: int | None,
    ) -> None:
        """Compiles the kernels for all lengths in these ranges, ends included, and loads them on a
        device if one is given."""
        if kv_lens[1] < _LEAST_KEYS:
            return
        q_len = q_lens[0]
        while q_len <= min(q_lens[1], self.most_rows):
            for asked in with_lse:
                kernels, _ = self._built(q_len, asked)
                if device is not None:
                    kernels.prepare(device)
            q_len = self._row_tile(q_len) + 1

    def _kernels_for(
        self, q_len: int, with_lse: bool, q: Any
    ) -> tuple[ModuleKernel, list[int]] | None:
        key = self._row_tile(q_len), with_lse
        try:
            return self._kernels[key]
        except KeyError:
            pass
        if torch_seam.is_capturing(q):  # no time to compile
            return None
        try:
            return self._built(q_len, with_lse)
        except (CompileError, CacheMissError, ScheduleError):
            self._kernels[key] = None
            return None

    def _built(self, q_len: int, with_lse: bool) -> tuple[ModuleKernel, list[int]]:
        key = self._row_tile(q_len), with_lse
        known = self._kernels.get(key)
        if known is None:
            spec = dataclasses.replace(self._spec, lse=with_lse)
            core, texts = _core.attention_decode(spec.to_json(), 0, self._target, key[0])
            schedules = [[Schedule.from_json(text) for text in own] for own in texts]
            kernels = ModuleKernel.first_fitting(Module._of(core), schedules, self._target, True)
            names = ["q", "k", "v", "o", *(["lse"] if with_lse else []), *self._beside]
            known = kernels, [names.index(tensor[0]) for tensor in kernels.tensors]
            self._kernels[key] = known
        return known

    def _row_tile(self, q_len: int) -> int:
        """The query rows that the schedules for `q_len` have room for."""
        rows = 16
        while rows < q_len * self._group:
            rows *= 2
        return max(1, rows // self._group)


__all__ = ["Decoding"]
