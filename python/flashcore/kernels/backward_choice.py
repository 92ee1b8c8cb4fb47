"""Which kernels compute the gradients of attention: by how many products, under which schedules."""

from __future__ import annotations

from bisect import bisect_left
from typing import NamedTuple

from .. import _core
from ..specs.module import Module
from ..specs.spec import AttentionSpec

Range = tuple[int, int]
"""From the least to the most, both included."""


class BackwardKind(NamedTuple):
    """What problems have in common whose gradients the same kernels compute."""

    adding: bool
    """By five products, whose blocks add up dQ in the order of their work; otherwise by seven."""
    bound: int
    """The schedules are those for sequences of up to so many rows and keys."""


class BackwardChoice:
    """The kinds of a spec's problems."""

    def __init__(self, spec: AttentionSpec, target: str, adding: bool | None = None):
        """`adding`: for problems of any length; None: where the spec allows it and it is faster."""
        self._spec = spec.to_json()
        self._target = target
        self._adding = adding
        self._adding_from = _core.adding_lengths(self._spec, target)
        self._bounds = length_bounds()

    def kind(self, length: int, keys: int) -> BackwardKind:
        """That of sequences with so many rows or keys, whichever are more, and so many keys."""
        bound = self._bounds[bisect_left(self._bounds, length)]
        if self._adding is not None:
            return BackwardKind(self._adding, bound)
        if self._adding_from is None:
            return BackwardKind(False, bound)
        longer, least_keys = self._adding_from
        return BackwardKind(length >= longer and keys >= least_keys, bound)

    def reachable(self, rows: Range, keys: Range) -> list[BackwardKind]:
        """Those of all problems in these ranges, and perhaps of some others."""
        least, most = (max(ends) for ends in zip(rows, keys, strict=True))
        bounds = length_bounds(least, most)
        if self._adding is not None or self._adding_from is None:
            return [BackwardKind(bool(self._adding), bound) for bound in bounds]
        longer, least_keys = self._adding_from
        kinds = []
        for below, bound in zip([0, *self._bounds[:-1]], self._bounds, strict=True):
            if bound not in bounds:
                continue
            if max(least, below + 1) < longer or keys[0] < least_keys:
                kinds.append(BackwardKind(False, bound))
            if min(most, bound) >= longer and keys[1] >= least_keys:
                kinds.append(BackwardKind(True, bound))
        return kinds

    def module(self, adding: bool) -> Module:
        """The programs that compute the gradients, in one launch."""
        return Module._of(_core.attention_backward(self._spec, adding))

    def schedule_lists(self, kind: BackwardKind) -> list[list[str]]:
        """The schedules of each program, the best first. Where five products are chosen for their
        speed, the others of their lists are slower than seven products, and left out."""
        lists = _core.attention_backward_schedules(
            self._spec, self._target, kind.adding, kind.bound
        )
        if kind.adding and self._adding is None:
            return [own[:1] for own in lists]
        return lists


def length_bounds(least: int = 0, most: int | None = None) -> list[int]:
    """Lengths that stand for all between `least` and `most`: the schedules for each are those for
    every length above the one in front of it."""
    bounds = _core.backward_length_bounds()
    end = bounds[-1] if most is None else max(1, most)
    below = [0, *bounds[:-1]]
    return [b for before, b in zip(below, bounds, strict=True) if least <= b and before < end]


__all__ = ["BackwardChoice", "BackwardKind", "Range", "length_bounds"]
