"""Query rows too few to fill a GPU over many keys: the keys of a sequence are split over blocks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .. import _core
from ..specs.spec import AttentionSpec
from .call_modules import CallModules
from .decode_kernels import Blocks, DecodeKernels
from .launches import Launches


class Decoding(CallModules[Blocks]):
    """The modules that calls of a spec with few query rows launch."""

    def __init__(
        self, spec: AttentionSpec, target: str, launches: Launches, captured: Sequence[str]
    ):
        kernels = DecodeKernels(spec, 0, target, captured)
        super().__init__(spec, launches, kernels)
        self.chooser = _core.DecodeChooser(spec.to_json(), target)
        self._least_keys = self.chooser.least_keys
        self.splits = kernels.splits = _core.SplitModules(self.chooser)

    @classmethod
    def of(
        cls, spec: AttentionSpec, target: str, launches: Launches, captured: Sequence[str]
    ) -> Decoding | None:
        """`captured` are the names of the arrays that expressions read. None for a spec whose calls
        are never split: f32, wide heads, and groups of more heads than a tile has rows."""
        if not _core.decodes(spec.to_json(), target):
            return None
        return cls(spec, target, launches, captured)

    def _choose(self, batch: int, heads: int, kv_heads: int, rows: int, keys: int) -> Blocks | None:
        return self.chooser.choose(batch, heads, rows, keys)

    def _reachable(self, least_rows: int, most_rows: int) -> Iterable[Blocks]:
        return self.chooser.reachable(least_rows, most_rows)


__all__ = ["Decoding"]
