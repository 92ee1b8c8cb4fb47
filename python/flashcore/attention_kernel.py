"""Kernels of attention."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, Literal, TypeVar, overload

from . import _core
from .arrays import empty
from .errors import CompileError
from .kernel import Kernel
from .program import Program
from .schedule import Schedule
from .spec import AttentionSpec

Array = TypeVar("Array")


class AttentionKernel(Kernel):
    """Attention for one spec, called with q, k and v."""

    _position_names = {
        "batch": "b",
        "head": "h",
        "rows": "q_idx",
        "cols": "kv_idx",
        "length(rows)": "q_len",
        "length(cols)": "kv_len",
    }

    def __init__(
        self, spec: AttentionSpec, schedule: Schedule, target: str, probe: Sequence[str] = ()
    ):
        program = Program._of(_core.attention_program(spec.to_json()))
        super().__init__(program, schedule, target, probe)
        self._spec = spec
        self._scale = 1.0 / math.sqrt(spec.head_dim)
        self._value_dim = spec.head_dim_v or spec.head_dim
        self._with_lse: AttentionKernel | None = self if spec.lse else None
        self._safer: tuple[Schedule, ...] = ()

    @classmethod
    def first_fitting(
        cls, spec: AttentionSpec, schedules: Sequence[Schedule], target: str
    ) -> AttentionKernel:
        """Compiled, under the first of the schedules whose code does not spill."""
        refusal: CompileError | None = None
        for i, schedule in enumerate(schedules):
            kernel = cls(spec, schedule, target)
            try:
                kernel.compile()
            except CompileError as error:
                refusal = refusal or error
            else:
                kernel._safer = tuple(schedules[i + 1 :])
                return kernel
        assert refusal is not None
        raise refusal

    @property
    def spec(self) -> AttentionSpec:
        return self._spec

    @overload
    def __call__(
        self,
        q: Array,
        k: Array,
        v: Array,
        *,
        scale: float | None = None,
        out: Array | None = None,
        return_lse: Literal[False] = False,
        stream: Any = None,
    ) -> Array: ...

    @overload
    def __call__(
        self,
        q: Array,
        k: Array,
        v: Array,
        *,
        scale: float | None = None,
        out: Array | None = None,
        return_lse: Literal[True],
        stream: Any = None,
    ) -> tuple[Array, Array]: ...

    @overload
    def __call__(
        self,
        q: Array,
        k: Array,
        v: Array,
        *,
        scale: float | None = None,
        out: Array | None = None,
        return_lse: bool,
        stream: Any = None,
    ) -> Array | tuple[Array, Array]: ...

    def __call__(
        self,
        q: Any,
        k: Any,
        v: Any,
        *,
        scale: float | None = None,
        out: Any = None,
        return_lse: bool = False,
        stream: Any = None,
    ) -> Any:
        """softmax(scale q k^T + mask) v; with `return_lse`, also the log-sum-exp of every row; of a
        kernel with probes, last, a dictionary of what they saw.

        `scale` is 1/sqrt(head_dim) unless given. The work is queued on `stream`, or on the stream
        that the arrays' framework works on, and not waited for.
        """
        if return_lse or self._spec.lse:
            return self._call_with_lse(q, k, v, scale, out, return_lse, stream)
        if out is None:
            out = empty(q, (*q.shape[:-1], self._value_dim), self._spec.dtype)
        if self._probe:
            return self._launch_with_probes((q, k, v, out), scale, stream)
        self._launch((q, k, v, out), (self._scale if scale is None else scale,), stream)
        return out

    def _launch_with_probes(
        self, arrays: tuple[Any, ...], scale: float | None, stream: Any, returned: int = 1
    ) -> tuple[Any, ...]:
        probes = self._probe_arrays(arrays, stream)
        self._launch(arrays + probes, (self._scale if scale is None else scale,), stream)
        return (*arrays[3 : 3 + returned], dict(zip(self._probe, probes, strict=True)))

    def _call_with_lse(
        self, q: Any, k: Any, v: Any, scale: float | None, out: Any, return_lse: bool, stream: Any
    ) -> Any:
        kernel = self._with_lse
        if kernel is None:
            spec = dataclasses.replace(self._spec, lse=True)
            if self._safer:
                schedules = (self._schedule, *self._safer)
                kernel = AttentionKernel.first_fitting(spec, schedules, self._target)
            else:
                kernel = AttentionKernel(spec, self._schedule, self._target, self._probe)
            self._with_lse = kernel
        if out is None:
            out = empty(q, (*q.shape[:-1], self._value_dim), self._spec.dtype)
        batch, a, b, _ = q.shape
        heads, length = (a, b) if self._spec.layout == "bhsd" else (b, a)
        lse = empty(q, (batch, heads, length), "f32")
        if self._probe:
            returned = 2 if return_lse else 1
            return kernel._launch_with_probes((q, k, v, out, lse), scale, stream, returned)
        kernel._launch((q, k, v, out, lse), (self._scale if scale is None else scale,), stream)
        return (out, lse) if return_lse else out
