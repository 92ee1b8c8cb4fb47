"""Modules that calls of attention launch in place of one kernel, built when the first does."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Sequence
from typing import Generic, TypeVar

from .. import _core
from ..specs.module import Module
from ..specs.schedule import Schedule
from ..specs.spec import AttentionSpec
from .module_kernel import ModuleKernel

Way = TypeVar("Way", bound=Hashable)
"""What a spec's modules differ in."""
Ordered = tuple[ModuleKernel, list[int]]
"""Kernels, and which of a call's arrays each of the module's is."""


class CallKernels(Generic[Way]):
    """Arrays of a call come in the order q, k, v, o, lse if it is asked for, `beside`, lengths, and
    what the expressions captured."""

    def __init__(
        self, spec: AttentionSpec, target: str, captured: Sequence[str], beside: Sequence[str] = ()
    ):
        """`captured` are names, in their order."""
        self._spec = spec
        self._target = target
        lengths = {
            "cu_seqlens_q": spec.layout == "thd",
            "cu_seqlens_k": spec.layout == "thd",
            "q_lens": spec.q_lens,
            "kv_lens": spec.kv_lens,
        }
        asked = [name for name, asked in lengths.items() if asked]
        self._beside = [*beside, *asked, *captured]
        self._built: dict[tuple[Way, bool], Ordered] = {}

    def _make(self, spec: AttentionSpec, way: Way) -> tuple[_core.Module, list[list[str]]]:
        raise NotImplementedError

    def find(self, way: Way, with_lse: bool) -> Ordered | None:
        """None where they are not built yet."""
        return self._built.get((way, with_lse))

    def built(self, way: Way, with_lse: bool, compiled: bool, device: int | None = None) -> Ordered:
        """Raises CompileError and ScheduleError; `compiled`: those whose code fits. Loaded on a
        device before any call finds them, if one is given."""
        found = self.find(way, with_lse)
        if found is None:
            core, texts = self._make(dataclasses.replace(self._spec, lse=with_lse), way)
            schedules = [[Schedule.from_json(text) for text in own] for own in texts]
            kernels = ModuleKernel.first_fitting(
                Module._of(core), schedules, self._target, compiled
            )
            if device is not None:
                for kernel in kernels.kernels:
                    kernel._core.prepare_beside_captures(device)
            names = ["q", "k", "v", "o", *(["lse"] if with_lse else []), *self._beside]
            found = kernels, [names.index(tensor[0]) for tensor in kernels.tensors]
            self._built[way, with_lse] = found
            self._note(way, with_lse, found)
        return found

    def _note(self, way: Way, with_lse: bool, built: Ordered) -> None:
        """What else is told of kernels that are built."""


__all__ = ["CallKernels", "Ordered", "Way"]
