"""The gradients of attention."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .. import _core
from ..arrays import full, output_like
from ..specs.module import Module
from ..specs.schedule import Schedule
from ..specs.spec import AttentionSpec
from . import copies
from .captured_values import CapturedValues
from .lengths import lengths
from .module_kernel import ModuleKernel


def schedule_lists(
    spec: AttentionSpec, target: str, bound: int, adding: bool = False
) -> list[list[str]]:
    """The schedules of each program, the best first, for sequences of `bound` rows and keys."""
    return _core.attention_backward_schedules(spec.to_json(), target, adding, bound)


def length_bounds(least: int = 0, most: int | None = None) -> list[int]:
    """Lengths that stand for all between `least` and `most`: the schedules for each are those for
    every length above the one in front of it."""
    bounds = _core.backward_length_bounds()
    end = bounds[-1] if most is None else max(1, most)
    below = [0, *bounds[:-1]]
    return [b for before, b in zip(below, bounds, strict=True) if least <= b and before < end]


class AttentionBackward:
    """The kernels that compute the gradients of q, k and v for one spec, compiled at first use."""

    def __init__(self, spec: AttentionSpec, target: str, adding: bool = False):
        """`adding`: by five products, whose blocks add up dQ in the order of their work.

        Raises SpecError for a spec that has no derivative, or too large a head_dim for that.
        """
        self._spec = spec
        self._target = target
        self._adding = adding
        self._module = Module._of(_core.attention_backward(spec.to_json(), adding))
        self._captured = CapturedValues(self._module.name, spec)
        self._bounds = length_bounds()
        self._kernels: dict[int, ModuleKernel] = {}  # by the bound of the length
        self._built: dict[tuple[tuple[str, ...], ...], ModuleKernel] = {}  # by the schedules

    def kernels(self, compiled: bool, length: int) -> ModuleKernel:
        """The module's kernels for sequences of so many rows or keys, whichever are more, in the
        mean; `compiled`: those whose code fits."""
        bound = next(bound for bound in self._bounds if length <= bound)
        if bound not in self._kernels:
            self._kernels[bound] = self._build(compiled, bound)
        return self._kernels[bound]

    def _build(self, compiled: bool, bound: int) -> ModuleKernel:
        lists = schedule_lists(self._spec, self._target, bound, self._adding)
        key = tuple(map(tuple, lists))
        if key not in self._built:
            schedules = [[Schedule.from_json(text) for text in own] for own in lists]
            self._built[key] = ModuleKernel.first_fitting(
                self._module, schedules, self._target, compiled
            )
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
        spec = self._spec
        given = self._captured.own | dict(captured or {})
        arrays, _ = self._captured.with_given(given)
        named = dict(zip(self._captured.arrays, arrays, strict=True))
        own = lengths(
            spec, q, k, cu_seqlens_q, cu_seqlens_k, max_q_len, q_lens, kv_lens, max_kv_len
        )
        kernels = self.kernels(compiled, self._length_of(q, k, cu_seqlens_q))
        if spec.layout == "thd":
            named |= zip(("cu_seqlens_q", "cu_seqlens_k"), own.arrays, strict=True)
        else:
            present = [
                n for n, asked in (("q_lens", spec.q_lens), ("kv_lens", spec.kv_lens)) if asked
            ]
            named |= zip(present, own.arrays, strict=True)
        positive_q, positive = copies.with_sign_of(scale, q, stream)
        made = [self._gradient_like(array, stream) for array in (q, k, v)]
        named |= {"q": positive_q, "k": k, "v": v, "o": out, "lse": lse, "dout": dout}
        named |= zip(("dq", "dk", "dv"), made, strict=True)
        scalars = given | {"scale": positive}
        if own.scalars:
            scalars |= {"max_q_len": own.scalars[0], "max_kv_len": own.longest_keys}
        every = tuple(named[name] for name, *_ in kernels.tensors)
        wide = {"q", "k", "v", "o", "dout", "dq", "dk", "dv"}
        widths = [named[name].shape[-1] if name in wide else None for name, *_ in kernels.tensors]
        copies.launch(
            kernels,
            every,
            tuple(scalars[name] for name, *_ in kernels.scalars),
            stream,
            widths,
            self._captured.arrays,
            spec.layout == "thd",
        )
        if scale < 0:
            with copies.on_stream(q, stream):
                made[0] = -made[0]
        elif scale == 0:  # nothing depends on q
            with copies.on_stream(q, stream):
                made[0] = full(q, q.shape, spec.dtype, 0)
        return made[0], made[1], made[2]

    def _length_of(self, q: Any, k: Any, starts: Any) -> int:
        if self._spec.layout == "thd":
            sequences = max(1, int(starts.shape[0]) - 1)
            return -(-max(int(q.shape[0]), int(k.shape[0])) // sequences)
        at = 2 if self._spec.layout == "bhsd" else 1
        return max(0, *(int(x.shape[at]) for x in (q, k) if len(x.shape) == 4))

    def _gradient_like(self, array: Any, stream: Any) -> Any:
        # Of packed sequences, rows that belong to none are not written.
        with copies.on_stream(array, stream):
            if self._spec.layout == "thd":
                return full(array, array.shape, self._spec.dtype, 0)
            return output_like(array, array.shape[-1], self._spec.dtype)


__all__ = ["AttentionBackward", "length_bounds", "schedule_lists"]
