"""f32 in full accuracy where wgmma multiplies: kernels in front split q, k and v in their parts
(templates/attention_in_parts.h)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from .. import _core
from ..specs.spec import AttentionSpec
from .call_kernels import CallKernels
from .call_modules import CallModules
from .launches import Launches

Way = Literal["in parts"]
_MOST_IN_A_GRID = 65_535  # of blocks along a dimension that is not the first


class _Kernels(CallKernels[Way]):
    def _make(self, spec: AttentionSpec, way: Way) -> tuple[_core.Module, list[list[str]]]:
        return _core.attention_in_parts(spec.to_json(), self._target)


class InParts(CallModules[Way]):
    """The module that calls of a spec launch."""

    def __init__(
        self, spec: AttentionSpec, target: str, launches: Launches, captured: Sequence[str]
    ):
        super().__init__(spec, launches, _Kernels(spec, target, captured))
        self._spec = spec
        self._least_rows, self._least_keys = _core.least_in_parts()

    @classmethod
    def of(
        cls, spec: AttentionSpec, target: str, launches: Launches, captured: Sequence[str]
    ) -> InParts | None:
        """`captured` are the names of the arrays that expressions read. None for other products,
        and for targets without wgmma."""
        if not _core.attends_in_parts(spec.to_json(), target):
            return None
        return cls(spec, target, launches, captured)

    def _choose(self, batch: int, heads: int, kv_heads: int, rows: int, keys: int) -> Way | None:
        pays = rows * heads >= self._least_rows * kv_heads
        return "in parts" if pays and max(batch, heads) <= _MOST_IN_A_GRID else None

    def _reachable(self, least_rows: int, most_rows: int) -> Iterable[Way]:
        return ["in parts"] if is_reachable(self._spec, most_rows, self._least_keys) else []


def is_reachable(spec: AttentionSpec, most_rows: int, most_keys: int) -> bool:
    """Whether calls of a spec that multiplies in parts may do so, with up to so many rows and
    keys."""
    rows, keys = _core.least_in_parts()
    group = (spec.heads or 1) // (spec.kv_heads or spec.heads or 1)
    return most_rows * group >= rows and most_keys >= keys


__all__ = ["InParts", "is_reachable"]
