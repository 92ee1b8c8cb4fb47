"""Few query rows over many keys: the keys of a sequence are split over blocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import _core
from ..arrays import on_cuda
from ..errors import CacheMissError, CompileError, ScheduleError
from ..pytorch import seam as torch_seam
from ..specs.spec import AttentionSpec
from .decode_kernels import DecodeKernels, Ordered
from .launches import Launches

_LEAST_KEYS = _core.least_keys_split()


class Decoding:
    """The modules that calls of a spec with few query rows launch, compiled when they first do."""

    def __init__(
        self, spec: AttentionSpec, target: str, launches: Launches, captured: Sequence[str]
    ):
        self._launches = launches
        self._kernels = DecodeKernels(spec, 0, target, captured)
        self._at_rows = 2 if spec.layout == "bhsd" else 1
        self.most_rows = self._kernels.most_rows
        self._refused: set[tuple[int, bool]] = set()  # tiles of rows whose code cannot be had

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
                kernels, _ = self._kernels.built(q_len, asked, compiled=True)
                if device is not None:
                    kernels.prepare(device)
            q_len = self._kernels.rows_of_tile(q_len) + 1

    def _kernels_for(self, q_len: int, with_lse: bool, q: Any) -> Ordered | None:
        found = self._kernels.find(q_len, with_lse)
        if found is not None:
            return found
        key = self._kernels.rows_of_tile(q_len), with_lse
        if key in self._refused or torch_seam.is_capturing(q):  # no time to compile
            return None
        try:
            return self._kernels.built(q_len, with_lse, compiled=True)
        except (CompileError, CacheMissError, ScheduleError):
            self._refused.add(key)
            return None


__all__ = ["Decoding"]
