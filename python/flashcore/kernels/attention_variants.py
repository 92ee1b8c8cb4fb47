"""The kernels that calls of one spec of attention come to."""

from __future__ import annotations

import dataclasses
import math
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from .. import _core
from ..arrays import lse_like, on_cuda, output_like
from ..errors import CompileError, ScheduleError
from ..pytorch import seam as torch_seam
from ..specs.program import Program
from ..specs.schedule import Schedule
from ..specs.spec import AttentionSpec
from .captured_values import CapturedValues
from .kernel import Kernel
from .launches import Launches
from .schedule_choice import Dispatch, not_compiled, problem_of
from .shapes import Fitting

Variant = TypeVar("Variant", bound="AttentionVariants")

_dispatching = threading.Lock()


class AttentionVariants(Kernel):
    """A kernel of attention and those that differ from it by their schedule, or by the log-sum-exp
    that they write: which of them a call launches follows from its shapes."""

    _quick: Callable[..., Any] | None  # what the class that is called quickly tries first

    _position_names = {
        "batch": "b",
        "head": "h",
        "rows": "q_idx",
        "cols": "kv_idx",
        "length(rows)": "q_len",
        "length(cols)": "kv_len",
    }

    def __init__(
        self,
        spec: AttentionSpec,
        schedule: Schedule,
        target: str,
        probe: Sequence[str] = (),
        core: _core.Kernel | None = None,
    ):
        program = Program._of(_core.attention_program(spec.to_json()))
        super().__init__(program, schedule, target, probe, core)
        self._spec = spec
        self._scale = 1.0 / math.sqrt(spec.head_dim)
        self._value_dim = spec.head_dim_v or spec.head_dim
        self._lse = spec.lse
        self._needs_lengths = spec.layout == "thd" or spec.q_lens or spec.kv_lens
        self._with_lse: Any = self if spec.lse else None  # the kernel that writes it
        self._safer: tuple[Schedule, ...] = ()
        self._chooses = False  # whether calls do, by how much there is to do
        self._tuned = False
        self._captured = CapturedValues(self.name, spec)
        self._given = self._captured.given
        self._fitting = Fitting(spec, self._captured.arrays)
        self._checked = False
        self._has_alternatives = False  # whether calls may run several kernels in place of one
        self._launches = Launches(spec, self._captured.in_place)
        # Without and with the log-sum-exp: how calls find their kernel; the same where most calls
        # need no more; and by their core the kernels that calls have come to.
        self._dispatches: list[Dispatch | None] = [None, None]
        self._plain_dispatches: list[_core.KernelDispatch | None] = [None, None]
        self._variants: dict[_core.Kernel, Any] = {}

    @classmethod
    def first_fitting(
        cls: type[Variant],
        spec: AttentionSpec,
        schedules: Sequence[Schedule],
        target: str,
        compiled: bool = True,
    ) -> Variant:
        """Under the first of the schedules that can run, and, compiled, whose code does not
        spill."""
        refusal: CompileError | ScheduleError | None = None
        for i, schedule in enumerate(schedules):
            try:
                kernel = cls(spec, schedule, target)
                if compiled:
                    if _core.compile_mode() == "tiered":
                        kernel._core.set_safer([other.to_json() for other in schedules[i + 1 :]])
                    kernel.compile()
            except (CompileError, ScheduleError) as error:
                refusal = refusal or error
            else:
                kernel._safer = tuple(schedules[i + 1 :])
                return kernel
        assert refusal is not None
        raise refusal

    @property
    def spec(self) -> AttentionSpec:
        return self._spec

    def with_probes(self: Variant, probe: Sequence[str]) -> Variant:
        """The same kernel under the first of its schedules that has room for what a call returns
        besides."""
        if not probe:
            return self
        for schedule in (self._schedule, *self._safer):
            try:
                kernel = type(self)(self._spec, schedule, self._target, probe)
                break
            except ScheduleError:
                if schedule is (self._safer or (self._schedule,))[-1]:
                    raise
        kernel.compile()
        kernel._tuned = self._tuned
        kernel._chooses = self._chooses
        return kernel

    @property
    def is_optimised(self) -> bool:
        """False while code that was compiled fast serves, or a kernel for other lengths than a
        call's (:func:`set_compile_mode`)."""
        building = any(dispatch.core.is_building() for dispatch in self._dispatches if dispatch)
        return super().is_optimised and not building

    def wait_until_optimised(self) -> None:
        """Waits until the kernels that calls wanted so far are compiled; calls run them from then
        on. Raises CompileError as :meth:`Kernel.wait_until_optimised` does."""
        for dispatch in self._dispatches:
            if dispatch:
                dispatch.core.wait_until_built()
        super().wait_until_optimised()

    def variant(
        self: Variant,
        q: Any,
        k: Any,
        sequences: int = 1,
        with_lse: bool = False,
        page_table: Any = None,
    ) -> Variant:
        """The kernel that a call with these arrays is to launch: short sequences, and few of them,
        want other schedules than long ones. Compiles it if no call before wanted it; calls do not
        wait for that, and launch another meanwhile. `sequences` is how many lie packed in the
        arrays of layout "thd"; how long each is only the GPU knows. `page_table` is that of a spec
        with pages."""
        if not self._chooses or not on_cuda(q):
            return self
        problem = problem_of(self._spec, q, k, sequences, page_table)
        dispatch = self._dispatch(with_lse).core
        texts = dispatch.schedules(problem)
        if torch_seam.is_capturing(q):
            core = dispatch.built_kernel(texts)
            if core is None:
                raise not_compiled(self.name, problem)
        else:
            core = dispatch.kernel(texts)
        return self._variant_of(core, texts)

    def _variant_of(self: Variant, core: _core.Kernel, texts: Sequence[str]) -> Variant:
        """The kernel with this core, which is under the first of these schedules that fits."""
        if core is self._core:
            return self
        variant: Variant | None = self._variants.get(core)
        if variant is None:
            schedules = [Schedule.from_json(text) for text in texts]
            schedule = Schedule.from_json(core.schedule)
            lse = any(name == "lse" for name, *_ in core.tensors)
            spec = dataclasses.replace(self._spec, lse=lse)
            variant = type(self)(spec, schedule, self._target, core=core)
            variant._safer = tuple(schedules[schedules.index(schedule) + 1 :])
            variant = self._variants.setdefault(core, variant.with_probes(self._probe))
        return variant

    def _dispatch(self, with_lse: bool) -> Dispatch:
        """How calls find their kernel, by the table of winners as it is."""
        with_lse = with_lse or self._spec.lse
        dispatch = self._dispatches[with_lse]
        if dispatch is None:
            made = Dispatch(
                self._home(with_lse), self._fitting, schedules=self._chooses, tuned=self._tuned,
                alternatives=self._has_alternatives,
            )  # fmt: skip
            with _dispatching:
                dispatch = self._dispatches[with_lse] = self._dispatches[with_lse] or made
                if not self._launches.always_copies and not self._probe:
                    self._plain_dispatches[with_lse] = dispatch.core
                    self._quick = self._quick_call()
        dispatch.look_at_winners()
        return dispatch

    def _quick_call(self) -> Callable[..., Any] | None:
        """What does without Python a call that needs nothing but a launch."""
        if self._checked or self._given is None or self._spec.lse:
            return None
        arrays, numbers = self._given
        plain, with_lse = self._plain_dispatches
        width, dtype, layout = self._value_dim, self._spec.dtype, self._spec.layout
        return _core.quick_call(
            plain, with_lse, arrays, numbers, self._scale, width,
            lambda q: output_like(q, width, dtype), lambda q: lse_like(q, layout),
        )  # fmt: skip

    def _home(self: Variant, with_lse: bool) -> Variant:
        """The kernel for arrays that lie on no GPU, and where calls do not choose for all."""
        if not self._chooses:
            return self._returning_lse() if with_lse else self
        if with_lse == self._spec.lse and not self._probe:
            return self
        spec = dataclasses.replace(self._spec, lse=with_lse)
        schedules = (self._schedule, *self._safer)
        return type(self).first_fitting(spec, schedules, self._target, compiled=False)

    def _returning_lse(self: Variant) -> Variant:
        """The kernel under the same schedule that writes the log-sum-exp as well."""
        kernel: Variant | None = self._with_lse
        if kernel is None:
            spec = dataclasses.replace(self._spec, lse=True)
            if self._safer:
                schedules = (self._schedule, *self._safer)
                kernel = type(self).first_fitting(spec, schedules, self._target)
            else:
                kernel = type(self)(spec, self._schedule, self._target, self._probe)
            self._with_lse = kernel
        return kernel


__all__ = ["AttentionVariants"]
