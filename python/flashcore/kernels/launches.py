"""Launches of an attention kernel: with copies where it takes them, and known where they repeat."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import _core
from ..errors import LayoutError
from ..specs.spec import AttentionSpec
from . import copies
from .kernel import Kernel

_STEP = 8  # of head_dim in memory: AttentionSpec::stored_dim


class Launches:
    """`known`: what calls launch once their shapes were met, without and with the log-sum-exp."""

    def __init__(self, spec: AttentionSpec, captured: Sequence[str]):
        dims = spec.head_dim, spec.head_dim_v or spec.head_dim
        padded = any(dim % _STEP for dim in dims)
        self._widths = (dims[0], dims[0], dims[1], dims[1]) if padded else ()
        # Whether captured arrays are dense was told when the spec was made.
        self._captured = captured
        # Of packed sequences, rows that belong to none are left as they are.
        self._packed = spec.layout == "thd"
        self.known: list[_core.LaunchTable | None] = [None, None]

    def launch(
        self, kernel: Kernel, arrays: tuple[Any, ...], scalars: tuple[Any, ...], stream: Any
    ) -> bool:
        """Whether it went without copies."""
        if not self._widths:
            try:
                kernel._launch(arrays, scalars, stream)
                return True
            except LayoutError:
                pass
        copies.launch(
            kernel._core, arrays, scalars, stream, self._widths, self._captured, self._packed
        )
        return False

    def remember(
        self,
        kernel: Kernel,
        with_lse: bool,
        arrays: tuple[Any, ...],
        scalars: tuple[Any, ...],
        longest: int,
        of_any_shape: bool,
    ) -> None:
        """The launch that went without copies, for calls of these shapes, or of any."""
        table = self.known[with_lse]
        if table is None:
            table = self.known[with_lse] = _core.LaunchTable(kernel._core, of_any_shape)
        table.add(arrays, scalars, longest, kernel._core)


__all__ = ["Launches"]
