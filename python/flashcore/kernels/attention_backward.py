"""The gradients of attention."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..arrays import full, output_like
from ..errors import CompileError, LayoutError, ScheduleError, SpecError
from ..specs.schedule import Schedule
from ..specs.spec import AttentionSpec
from . import copies
from .backward_choice import BackwardChoice, BackwardKind, Range
from .captured_values import CapturedValues
from .copies import LEAST_SCALE, MOST_SCALE
from .lengths import lengths
from .module_kernel import ModuleKernel


class AttentionBackward:
    """The kernels that compute the gradients of q, k and v for one spec, compiled at first use."""

    def __init__(self, spec: AttentionSpec, target: str, adding: bool | None = None):
        """`adding`: by five products, whose blocks add up dQ in the order of their work, at any
        length; None: where the spec allows that and it is faster.

        Raises SpecError for a spec that has no derivative, or too large a head_dim for five
        products.
        """
        self._spec = spec
        self._target = target
        self._choice = BackwardChoice(spec, target, adding)
        self._adding = adding
        module = self._choice.module(bool(adding))
        self._modules = {bool(adding): module}
        self._captured = CapturedValues(module.name, spec)
        # In the order in which `lengths` has their arrays.
        self._needs_lengths = [n for n in ("q_lens", "kv_lens") if getattr(spec, n)]
        if spec.layout == "thd":
            self._needs_lengths = ["cu_seqlens_q", "cu_seqlens_k"]
        self._kernels: dict[BackwardKind, ModuleKernel] = {}
        self._built: dict[tuple[bool, tuple[tuple[str, ...], ...]], ModuleKernel] = {}

    def kernels(self, compiled: bool, length: int, keys: int | None = None) -> ModuleKernel:
        """The module's kernels for sequences of so many rows or keys, whichever are more, in the
        mean, and so many keys, unless there are as many; `compiled`: those whose code fits."""
        return self._of_kind(compiled, self._choice.kind(length, length if keys is None else keys))

    def reachable(self, compiled: bool, rows: Range, keys: Range) -> list[ModuleKernel]:
        """Those for all sequences with so many rows and keys, each once."""
        kinds = self._choice.reachable(rows, keys)
        return list(dict.fromkeys(self._of_kind(compiled, kind) for kind in kinds))

    def _of_kind(self, compiled: bool, kind: BackwardKind) -> ModuleKernel:
        if kind not in self._kernels:
            self._kernels[kind] = self._build(compiled, kind)
        return self._kernels[kind]

    def _build(self, compiled: bool, kind: BackwardKind) -> ModuleKernel:
        lists = self._choice.schedule_lists(kind)
        key = kind.adding, tuple(map(tuple, lists))
        if key not in self._built:
            if kind.adding not in self._modules:
                self._modules[kind.adding] = self._choice.module(kind.adding)
            schedules = [[Schedule.from_json(text) for text in own] for own in lists]
            try:
                self._built[key] = ModuleKernel.first_fitting(
                    self._modules[kind.adding], schedules, self._target, compiled
                )
            except (CompileError, ScheduleError):
                if not kind.adding or self._adding:
                    raise
                self._built[key] = self._of_kind(compiled, kind._replace(adding=False))
        return self._built[key]

    def __call__(
        self,
        q: Any,
        k: Any,
        v: Any,
        out: Any,
        lse: Any,
        dout: Any,
        *,
        scale: float,
        compiled: bool,
        stream: Any = None,
        captured: Mapping[str, Any] | None = None,
        cu_seqlens_q: Any = None,
        cu_seqlens_k: Any = None,
        max_q_len: int | None = None,
        max_kv_len: int | None = None,
        q_lens: Any = None,
        kv_lens: Any = None,
    ) -> tuple[Any, Any, Any]:
        spec, values = self._spec, self._captured
        given = values.own | dict(captured) if captured else values.own
        arrays, _ = values.with_given(given) if captured or not values.given else values.given
        kernels = self.kernels(compiled, *self._lengths_of(q, k, cu_seqlens_q))
        positive_q, positive = q, scale
        if type(scale) is not float or not LEAST_SCALE <= scale <= MOST_SCALE:
            positive_q, positive = copies.with_sign_of(scale, q, stream)
        with copies.on_stream(q, stream):
            made = [self._gradient_like(array) for array in (q, k, v)]
        named = {"q": positive_q, "k": k, "v": v, "o": out, "lse": lse, "dout": dout}
        named |= zip(("dq", "dk", "dv"), made, strict=True)
        if arrays:
            named |= zip(values.arrays, arrays, strict=True)
        scalars = given | {"scale": positive}
        each = (cu_seqlens_q, cu_seqlens_k, max_q_len, max_kv_len, q_lens, kv_lens)
        if self._needs_lengths or any(length is not None for length in each):
            own = lengths(
                spec, q, k, cu_seqlens_q, cu_seqlens_k, max_q_len, q_lens, kv_lens, max_kv_len
            )
            named |= zip(self._needs_lengths, own.arrays, strict=True)
            if own.scalars:
                scalars |= {"max_q_len": own.scalars[0], "max_kv_len": own.longest_keys}
        tensor_names, scalar_names = kernels.argument_names
        every = tuple([named[name] for name in tensor_names])
        numbers = tuple([scalars[name] for name in scalar_names])
        try:
            kernels.launch(every, numbers, stream)  # most calls need no copies
        except (LayoutError, SpecError):
            own_widths = dict.fromkeys(("q", "k", "dq", "dk"), spec.head_dim)
            own_widths |= dict.fromkeys(("v", "o", "dout", "dv"), spec.head_dim_v or spec.head_dim)
            widths = [own_widths.get(name) for name in tensor_names]
            copies.launch(
                kernels, every, numbers, stream, widths, values.arrays, spec.layout == "thd"
            )
        if positive is not scale and scale <= 0:
            with copies.on_stream(q, stream):
                # Of a scale of 0 nothing depends on q.
                made[0] = -made[0] if scale < 0 else full(q, q.shape, spec.dtype, 0)
        return made[0], made[1], made[2]

    def _lengths_of(self, q: Any, k: Any, starts: Any) -> tuple[int, int]:
        """How many rows or keys sequences have in the mean, whichever are more, and the keys."""
        if self._spec.layout == "thd":
            sequences = max(1, int(starts.shape[0]) - 1)
            rows, keys = (-(-int(x.shape[0]) // sequences) for x in (q, k))
        else:
            at = 2 if self._spec.layout == "bhsd" else 1
            rows, keys = (int(x.shape[at]) if len(x.shape) == 4 else 0 for x in (q, k))
        return max(rows, keys), keys

    def _gradient_like(self, array: Any) -> Any:
        # Of packed sequences, rows that belong to none are not written.
        if self._spec.layout == "thd":
            return full(array, array.shape, self._spec.dtype, 0)
        return output_like(array, array.shape[-1], self._spec.dtype)


__all__ = ["AttentionBackward"]
