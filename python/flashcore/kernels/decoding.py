"""Query rows too few to fill a GPU over many keys: the keys of a sequence are split over blocks."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from .. import _core
from ..arrays import on_cuda
from ..errors import CacheMissError, CompileError, ScheduleError
from ..pytorch import seam as torch_seam
from ..specs.spec import AttentionSpec
from .decode_kernels import Blocks, DecodeKernels, Ordered
from .launches import Launches
from .module_kernel import ModuleKernel


class Decoding:
    """The modules that calls of a spec with few query rows launch, compiled when they first do."""

    def __init__(
        self, spec: AttentionSpec, target: str, launches: Launches, captured: Sequence[str]
    ):
        self._launches = launches
        self._kernels = DecodeKernels(spec, 0, target, captured)
        self.chooser = _core.DecodeChooser(spec.to_json(), target)
        self._least_keys = self.chooser.least_keys
        self.splits = self._kernels.splits = _core.SplitModules(self.chooser)
        self._packed = spec.layout == "thd"
        self._at_rows = 2 if spec.layout == "bhsd" else 1
        self._refused: set[tuple[Blocks, bool]] = set()  # those whose code cannot be had

    @classmethod
    def of(
        cls, spec: AttentionSpec, target: str, launches: Launches, captured: Sequence[str]
    ) -> Decoding | None:
        """`captured` are the names of the arrays that expressions read. None for a spec whose calls
        are never split: f32, wide heads, and groups of more heads than a tile has rows."""
        if not _core.decodes(spec.to_json(), target):
            return None
        return cls(spec, target, launches, captured)

    def choose(self, q: Any, k: Any, sequences: int = 1) -> Blocks | None:
        """The blocks of a call with these arrays, of so many packed sequences; None where it is
        faster with its keys whole."""
        q_shape, k_shape = q.shape, k.shape
        if self._packed:
            if len(q_shape) != 3 or len(k_shape) != 3 or sequences < 1:
                return None
            # As other choices for packed sequences, by the mean of their lengths.
            rows, keys = -(-q_shape[0] // sequences), -(-k_shape[0] // sequences)
            batch, heads, kv_heads = sequences, q_shape[1], k_shape[1]
        else:
            if len(q_shape) != 4 or len(k_shape) != 4:
                return None
            at = self._at_rows
            batch, heads, kv_heads = q_shape[0], q_shape[3 - at], k_shape[3 - at]
            rows, keys = q_shape[at], k_shape[at]
        if keys < self._least_keys or not on_cuda(q):
            return None
        return self.chooser.choose(batch, heads, kv_heads, rows, keys)

    def launch(
        self,
        blocks: Blocks,
        arrays: tuple[Any, ...],
        scalars: tuple[Any, ...],
        stream: Any,
        with_lse: bool,
    ) -> bool:
        """Arrays and scalars as the kernels of attention take them. False where no code is at hand,
        and none can be compiled: nothing is launched then."""
        found = self._kernels_for(blocks, with_lse, arrays[0])
        if found is None:
            return False
        kernels, order = found
        if self._packed:  # the kernels' order of max_q_len and of numbers
            given = iter(scalars[2:])
            own = {"scale": scalars[0], "max_q_len": scalars[1]}
            scalars = tuple(
                own[name] if name in own else next(given) for name, *_ in kernels.scalars
            )
        self._launches.launch_module(kernels, arrays, scalars, stream, order)
        return True

    def prepare(
        self,
        q_lens: tuple[int, int],
        kv_lens: tuple[int, int],
        with_lse: Sequence[bool],
        device: int | None,
    ) -> list[ModuleKernel]:
        """The kernels for all lengths in these ranges, ends included, compiled, and loaded on a
        device if one is given."""
        if kv_lens[1] < self._least_keys:
            return []

        def make(wanted: tuple[Blocks, bool]) -> ModuleKernel:
            kernels, _ = self._kernels.built(*wanted, compiled=True)
            if device is not None:
                kernels.prepare(device)
            return kernels

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            return list(
                pool.map(make, itertools.product(self.chooser.reachable(*q_lens), with_lse))
            )

    def _kernels_for(self, blocks: Blocks, with_lse: bool, q: Any) -> Ordered | None:
        found = self._kernels.find(blocks, with_lse)
        if found is not None:
            return found
        key = blocks, with_lse
        if key in self._refused or torch_seam.is_capturing(q):  # no time to compile
            return None
        try:
            return self._kernels.built(blocks, with_lse, compiled=True)
        except (CompileError, CacheMissError, ScheduleError):
            self._refused.add(key)
            return None


__all__ = ["Decoding"]
