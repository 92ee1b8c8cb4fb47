"""Kernels of attention."""

from __future__ import annotations

import dataclasses
import json
import math
import weakref
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeVar, overload

import numpy

from .. import _core, arguments
from ..arrays import empty, on_cuda, output_like
from ..errors import CompileError, ScheduleError
from ..pytorch import seam as torch_seam
from ..pytorch.tensors import is_watched
from ..specs.program import Program
from ..specs.schedule import Schedule
from ..specs.spec import AttentionSpec
from . import copies
from .captured_values import CapturedValues
from .index_check import check_indices
from .kernel import Kernel
from .launches import Launches
from .lengths import lengths
from .schedule_choice import ScheduleChoice, not_compiled, problem_of, schedules_for
from .shapes import Fitting

Array = TypeVar("Array")

_MOST_SHAPES = 4096
_LEAST_SCALE, _MOST_SCALE = 2.0**-149, 3.4028234663852886e38
_living: weakref.WeakValueDictionary[str, AttentionKernel] = weakref.WeakValueDictionary()


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
        self._lse = spec.lse
        self._needs_lengths = spec.layout == "thd" or spec.q_lens or spec.kv_lens
        self._with_lse: AttentionKernel | None = self if spec.lse else None
        self._safer: tuple[Schedule, ...] = ()
        # Where schedules depend on how much there is to do: kernels by schedule and by whether they
        # write the log-sum-exp, and by that and the shapes of q and k of the calls seen so far.
        self._variants: dict[tuple[str, bool], AttentionKernel] | None = None
        self._tuned = False
        # What chooses among them, and by what it chose, and by whether the log-sum-exp is written.
        self._choice: ScheduleChoice | None = None
        self._chosen: dict[tuple[tuple[int, int], bool], AttentionKernel] = {}
        self._texts: list[str] = []  # the schedules that it is the first fitting one of
        self._by_shapes: dict[tuple[Any, ...], AttentionKernel] = {}
        self._describe(schedule.to_json(), probe)
        self._captured = CapturedValues(self.name, spec)
        self._given = self._captured.given
        fitting = Fitting(spec, self._captured.arrays)
        self._fitting = fitting if fitting else None
        self._checked = False
        self._launches = Launches(spec, self._captured.arrays)
        self._known_launches = self._launches.known

    @classmethod
    def first_fitting(
        cls, spec: AttentionSpec, schedules: Sequence[Schedule], target: str, compiled: bool = True
    ) -> AttentionKernel:
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

    @classmethod
    def shipped(
        cls, spec: AttentionSpec, target: str, tuned: bool = True, compiled: bool = True
    ) -> AttentionKernel:
        """Under the schedules that ship; it takes others for calls that want them.

        Unless `tuned` is false, those that the user's searches found go before. Unless `compiled`,
        nothing is where calls choose the schedule: the first of them compiles what it launches.
        """
        texts = schedules_for(spec, target, tuned)
        calls_choose = _core.schedules_depend_on_problems(target)
        schedules = [Schedule.from_json(text) for text in texts]
        kernel = cls.first_fitting(spec, schedules, target, compiled or not calls_choose)
        kernel._tuned = tuned
        kernel._texts = texts
        kernel._describe("tuned" if tuned else "shipped")
        if calls_choose:
            kernel._variants = {(texts[0], spec.lse): kernel} if compiled else {}
        return kernel

    def _describe(self, schedule: str, probe: Sequence[str] = ()) -> None:
        # What `described` makes an equal kernel of, in this process or another.
        self._description = json.dumps([self._target, schedule, self._spec.to_json(), list(probe)])
        _living[self._description] = self

    @classmethod
    def described(cls, text: str) -> AttentionKernel:
        """The kernel whose description this is, or one like it."""
        living = _living.get(text)
        if living is not None:
            return living
        target, schedule, spec_text, probe = json.loads(text)
        spec = AttentionSpec.from_json(spec_text)
        if schedule in ("tuned", "shipped"):
            return cls.shipped(spec, target, schedule == "tuned")
        return cls(spec, Schedule.from_json(schedule), target, probe)

    @property
    def spec(self) -> AttentionSpec:
        return self._spec

    def with_probes(self, probe: Sequence[str]) -> AttentionKernel:
        """The same kernel under the same schedules, and what a call returns besides."""
        if not probe:
            return self
        kernel = AttentionKernel(self._spec, self._schedule, self._target, probe)
        kernel.compile()
        kernel._tuned = self._tuned
        kernel._texts = self._texts
        if self._variants is not None:
            kernel._variants = {key: kernel for key, own in self._variants.items() if own is self}
        return kernel

    def variant(
        self, q: Any, k: Any, sequences: int = 1, with_lse: bool = False
    ) -> AttentionKernel:
        """The kernel that a call with these arrays launches: short sequences, and few of them, want
        other schedules than long ones. Compiles it if no call before wanted it. `sequences` is how
        many lie packed in the arrays of layout "thd"; how long each is only the GPU knows."""
        kernel = self
        if self._variants is not None and on_cuda(q):
            problem = problem_of(self._spec, q, k, sequences)
            if self._choice is None:
                self._choice = ScheduleChoice(self._spec, self._target, self._tuned)
            wanted = self._choice.choose(problem)
            key = wanted, with_lse or self._spec.lse
            chosen = self._chosen.get(key)
            if chosen is not None:
                return chosen
            texts = self._choice.schedules(wanted)
            known = (texts[0], key[1]) in self._variants
            if not known and torch_seam.is_capturing(q):
                raise not_compiled(self.name, problem)
            kernel = self._chosen[key] = self._variant_of(texts, with_lse)
        return kernel

    def _variant_of(self, texts: Sequence[str], with_lse: bool) -> AttentionKernel:
        """The kernel under the first of these schedules that fits."""
        assert self._variants is not None
        key = texts[0], with_lse or self._spec.lse
        if key not in self._variants:
            self._variants.setdefault(key, self._with_schedules(texts, with_lse))
        return self._variants[key]

    def _with_schedules(self, texts: Sequence[str], with_lse: bool) -> AttentionKernel:
        """A new kernel of the spec under the first of these schedules that fits."""
        schedules = [Schedule.from_json(text) for text in texts]
        spec = dataclasses.replace(self._spec, lse=with_lse or self._spec.lse)
        made = self.first_fitting(spec, schedules, self._target).with_probes(self._probe)
        made._texts = list(texts)
        return made

    def prepare(
        self,
        device: int = 0,
        *,
        lengths: Any = None,
        q_lengths: Any = None,
        batch: Any = None,
        heads: Any = None,
        lse: bool | None = None,
    ) -> None:
        """Loads on a GPU the kernels that calls launch, and compiles those that are not in the
        cache: no call inside the ranges compiles or loads anything then, so that it can be
        captured into a graph.

        A range is a number or a pair, both ends included. `lengths` are those of k, and of q unless
        `q_lengths` is given; of packed sequences the means. `batch` is how many sequences there
        are. None: any length, and any batch and number of heads up to 65,535; several kernels then,
        some seconds each unless they are in the cache. `lse` is whether calls ask for the
        log-sum-exp; None: some do. Raises DeviceError and CompileError.
        """
        from ..ahead_of_time import reach

        fix = "the number of a GPU, from 0 on"
        number = arguments.whole("device of prepare", device, fix)
        wanted = reach.read_ranges(lengths, q_lengths, batch, heads)
        if lse is not None:
            lse = arguments.flag("lse", lse)
        reach.build_kernels(self, wanted, lse, number)

    def _for_shapes(
        self,
        q: Any,
        k: Any,
        sequences: int,
        arrays: Sequence[Any],
        max_q_len: int | None,
        with_lse: bool,
    ) -> AttentionKernel:
        """The same, once captured arrays are found to fit; known for shapes that were met."""
        shapes: tuple[Any, ...] = (q.shape, k.shape, sequences, with_lse)
        fitting = self._fitting
        if fitting is not None:
            shapes = (*shapes, max_q_len, fitting.shapes(arrays))
        known = self._by_shapes.get(shapes)
        if known is not None:
            return known
        if fitting is not None:
            fitting.check(q, k, arrays, sequences, max_q_len)
        kernel = self.variant(q, k, sequences, with_lse)
        if len(self._by_shapes) >= _MOST_SHAPES:
            self._by_shapes.clear()
        self._by_shapes[shapes] = kernel
        return kernel

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
        captured: Mapping[str, Any] | None = None,
        cu_seqlens_q: Array | None = None,
        cu_seqlens_k: Array | None = None,
        max_q_len: int | None = None,
        q_lens: Array | None = None,
        kv_lens: Array | None = None,
        checked: bool | None = None,
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
        captured: Mapping[str, Any] | None = None,
        cu_seqlens_q: Array | None = None,
        cu_seqlens_k: Array | None = None,
        max_q_len: int | None = None,
        q_lens: Array | None = None,
        kv_lens: Array | None = None,
        checked: bool | None = None,
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
        captured: Mapping[str, Any] | None = None,
        cu_seqlens_q: Array | None = None,
        cu_seqlens_k: Array | None = None,
        max_q_len: int | None = None,
        q_lens: Array | None = None,
        kv_lens: Array | None = None,
        checked: bool | None = None,
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
        captured: Mapping[str, Any] | None = None,
        cu_seqlens_q: Any = None,
        cu_seqlens_k: Any = None,
        max_q_len: int | None = None,
        q_lens: Any = None,
        kv_lens: Any = None,
        checked: bool | None = None,
    ) -> Any:
        """softmax(score(scale q k^T) + mask) v; with `return_lse`, also every row's log-sum-exp; of
        a kernel with probes, last, a dictionary of what they saw.

        `scale` is 1/sqrt(head_dim) unless given. The work is queued on `stream`, or on the stream
        that the arrays' framework works on, and not waited for. `captured` has arrays by name, to
        be read in place of those that the spec's expressions captured.

        Layout "thd": sequence i is rows cu_seqlens_q[i] to cu_seqlens_q[i + 1] of q and the output,
        and rows cu_seqlens_k[i] to cu_seqlens_k[i + 1] of k and v (cu_seqlens_q, if not given).
        `max_q_len` is at least the length of the longest sequence of q; without it, blocks are
        started for sequences as long as q. A spec with q_lens or kv_lens: i32 [batch], how long
        each sequence is.

        `checked` raises SpecError where an expression would read outside an array; that is computed
        on the host before the launch, and slow. None: as :func:`jit` was told.
        """
        try:
            if type(q) is not numpy.ndarray and is_watched(q):
                return torch_seam.kernel(
                    self, q, k, v, scale=scale, out=out, return_lse=return_lse, stream=stream,
                    captured=captured, cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k,
                    max_q_len=max_q_len, q_lens=q_lens, kv_lens=kv_lens, checked=checked,
                )  # fmt: skip
            if return_lse is not True and return_lse is not False:
                return_lse = arguments.flag("return_lse", return_lse)
            if max_q_len is not None and type(max_q_len) is not int:
                fix = "the length of the longest sequence of q, or more"
                max_q_len = arguments.whole("max_q_len", max_q_len, fix)
            given = self._given
            if captured is not None or given is None:
                given = self._captured.with_given({} if captured is None else captured)
            arrays, numbers = given
            if scale is None:
                scale = self._scale
            elif type(scale) is not float or not _LEAST_SCALE <= scale <= _MOST_SCALE:
                q, scale = copies.with_sign_of(scale, q, stream)
            scalars: tuple[Any, ...] = (scale, *numbers) if numbers else (scale,)
            # Most specs need no lengths, and most calls give none: those look no further.
            none_given = cu_seqlens_q is cu_seqlens_k is max_q_len is q_lens is kv_lens is None
            every = arrays
            if not none_given or self._needs_lengths:
                own = lengths(
                    self._spec, q, k, cu_seqlens_q, cu_seqlens_k, max_q_len, q_lens, kv_lens
                )
                every, scalars = own.arrays + arrays, (scale, *own.scalars, *numbers)
            if self._checked if checked is None else checked:
                values = self._captured.own | dict(captured or {})
                check_indices(self._spec, q, k, values, cu_seqlens_q, cu_seqlens_k, q_lens, kv_lens)
            if out is None:
                out = output_like(q, self._value_dim, self._spec.dtype)
            with_lse = return_lse or self._lse
            if with_lse:
                lse = self._empty_lse(q)
                every = (q, k, v, out, lse, *every)
            else:
                every = (q, k, v, out, *every) if every else (q, k, v, out)
            longest = -1 if max_q_len is None else max_q_len
            launches = self._known_launches[with_lse]
            probes = None
            if launches is None or not launches.launch(every, scalars, stream, longest):
                sequences = 1 if cu_seqlens_q is None else cu_seqlens_q.shape[0] - 1
                kernel = self._for_shapes(q, k, sequences, arrays, max_q_len, with_lse)
                probes = self._launch_first(kernel, with_lse, every, scalars, stream, longest)
            if return_lse:
                return (out, lse) if probes is None else (out, lse, probes)
            return out if probes is None else (out, probes)
        except Exception as error:
            found = arguments.blamed(self.name, locals(), error)
            if found is None:
                raise
            raise found from None

    def _launch_first(
        self,
        kernel: AttentionKernel,
        with_lse: bool,
        arrays: tuple[Any, ...],
        scalars: tuple[Any, ...],
        stream: Any,
        longest: int,
    ) -> dict[str, Any] | None:
        """A launch of `kernel`, or of its like with the log-sum-exp, that calls of the same shapes
        will find in the table; what probes saw."""
        if with_lse:
            kernel = kernel._returning_lse()
        probes = kernel._probe_arrays(arrays, stream) if kernel._probe else ()
        every = arrays + probes
        fits = self._launches.launch(kernel, every, scalars, stream)
        if kernel._probe:
            return dict(zip(kernel._probe, probes, strict=True))
        if fits:
            any_shape = self._variants is None and self._fitting is None
            self._launches.remember(kernel, with_lse, every, scalars, longest, any_shape)
        return None

    def _empty_lse(self, q: Any) -> Any:
        *batch, a, b, _ = q.shape
        heads, length = (a, b) if self._spec.layout == "bhsd" else (b, a)
        return empty(q, (*batch, heads, length), "f32")

    def _returning_lse(self) -> AttentionKernel:
        """The kernel under the same schedule that writes the log-sum-exp as well."""
        if self._with_lse is None:
            spec = dataclasses.replace(self._spec, lse=True)
            if self._safer:
                schedules = (self._schedule, *self._safer)
                self._with_lse = AttentionKernel.first_fitting(spec, schedules, self._target)
            else:
                self._with_lse = AttentionKernel(spec, self._schedule, self._target, self._probe)
        return self._with_lse


torch_seam.instead_of(AttentionKernel.__call__, torch_seam.kernel)
