"""Launches of an attention kernel: with copies where it takes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import LayoutError
from ..specs.spec import AttentionSpec
from . import copies
from .module_kernel import ModuleKernel

_STEP = 8  # of head_dim in memory: AttentionSpec::stored_dim


class Launches:
    """Of kernels of one spec; `in_place` are the names of arrays that are not copied."""

    def __init__(self, spec: AttentionSpec, in_place: Sequence[str]):
        dims = spec.head_dim, spec.head_dim_v or spec.head_dim
        padded = any(dim % _STEP for dim in dims)
        self._widths = (dims[0], dims[0], dims[1], dims[1]) if padded else ()
        # Whether captured arrays are dense was told when the spec was made.
        self._in_place = in_place
        # Of packed sequences, rows that belong to none are left as they are.
        self._packed = spec.layout == "thd"

    @property
    def always_copies(self) -> bool:
        """Whether the rows of the program's arrays are longer than those of a call's."""
        return bool(self._widths)

    def launch(
        self,
        core: Any,
        arrays: tuple[Any, ...],
        scalars: tuple[Any, ...],
        stream: Any,
    ) -> None:
        if not self._widths:
            try:
                core.launch(arrays, scalars, stream)
                return
            except LayoutError:
                pass
        copies.launch(core, arrays, scalars, stream, self._widths, self._in_place, self._packed)

    def launch_module(
        self,
        kernels: ModuleKernel,
        arrays: tuple[Any, ...],
        scalars: tuple[Any, ...],
        stream: Any,
        order: Sequence[int],
    ) -> None:
        """A launch of a module that takes the arrays in another order."""
        own = tuple([arrays[at] for at in order])
        widths: Sequence[int | None] = ()
        if not self._widths:
            try:
                kernels.launch(own, scalars, stream)
                return
            except LayoutError:
                pass
        else:
            widths = [self._widths[at] if at < len(self._widths) else None for at in order]
        copies.launch(kernels, own, scalars, stream, widths, self._in_place, self._packed)


__all__ = ["Launches"]
