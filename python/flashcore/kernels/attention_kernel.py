"""Kernels of attention."""

from __future__ import annotations

import json
import weakref
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeVar, overload

import numpy

from .. import _core, arguments
from ..arrays import lse_like, output_like
from ..pytorch import seam as torch_seam
from ..pytorch.tensors import is_watched, records_gradients
from ..specs.schedule import Schedule
from ..specs.spec import AttentionSpec
from . import copies
from .attention_variants import AttentionVariants
from .copies import LEAST_SCALE, MOST_SCALE
from .gradients import WithGradients
from .index_check import check_indices
from .lengths import lengths
from .schedule_choice import explain_choice, schedules_for

Array = TypeVar("Array")

_living: weakref.WeakValueDictionary[str, AttentionKernel] = weakref.WeakValueDictionary()


@_core.calls_quickly
class AttentionKernel(_core.QuickCallable, WithGradients, AttentionVariants):
    """Attention for one spec, called with q, k and v."""

    def __init__(
        self,
        spec: AttentionSpec,
        schedule: Schedule,
        target: str,
        probe: Sequence[str] = (),
        core: _core.Kernel | None = None,
    ):
        super().__init__(spec, schedule, target, probe, core)
        self._describe(schedule.to_json(), probe)

    @classmethod
    def shipped(
        cls, spec: AttentionSpec, target: str, tuned: bool = True, compiled: bool = True
    ) -> AttentionKernel:
        """Under the schedules that ship; it takes others for calls that want them.

        Unless `tuned` is false, those that the user's searches found go before. Unless `compiled`,
        nothing is where calls choose the schedule: the first of them compiles what it launches.
        """
        calls_choose = _core.schedules_depend_on_problems(target)
        schedules = [Schedule.from_json(text) for text in schedules_for(spec, target, tuned)]
        kernel = cls.first_fitting(spec, schedules, target, compiled or not calls_choose)
        kernel._tuned = tuned
        kernel._chooses = calls_choose
        kernel._has_alternatives = True
        kernel._describe("tuned" if tuned else "shipped")
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

    def explain(
        self,
        *,
        batch: int | None = None,
        heads: int | None = None,
        q_len: int | None = None,
        kv_len: int | None = None,
        max_q_len: int | None = None,
    ) -> str:
        """What code generation derived from the masks. With a size given, also why a call of that
        size gets its schedule: the microseconds that are predicted for it and for the others. Of
        packed sequences `q_len` and `kv_len` are means, and `max_q_len` is what the longest has;
        None: the mean."""
        sizes = {"batch": batch, "heads": heads, "q_len": q_len, "kv_len": kv_len}
        sizes["max_q_len"] = max_q_len
        return super().explain() + explain_choice(self._spec, self._target, sizes)

    def prepare(
        self,
        device: int = 0,
        *,
        lengths: Any = None,
        q_lengths: Any = None,
        batch: Any = None,
        heads: Any = None,
        lse: bool | None = None,
        gradients: bool = False,
    ) -> None:
        """Loads on a GPU the kernels that calls launch, and compiles those that are not in the
        cache: no call inside the ranges compiles or loads anything then, so that it can be
        captured into a graph.

        A range is a number or a pair, both ends included. `lengths` are those of k, and of q unless
        `q_lengths` is given; of packed sequences the means. `batch` is how many sequences there
        are. None: any length, and any batch and number of heads up to 65,535; several kernels then,
        some seconds each unless they are in the cache. `lse` is whether calls ask for the
        log-sum-exp; None: some do. `gradients`: also those of :meth:`backward`, for any lengths.
        Raises DeviceError and CompileError.
        """
        from ..ahead_of_time import reach

        fix = "the number of a GPU, from 0 on"
        number = arguments.whole("device of prepare", device, fix)
        wanted = reach.read_ranges(lengths, q_lengths, batch, heads)
        if lse is not None:
            lse = arguments.flag("lse", lse)
        with_gradients = arguments.flag("gradients", gradients)
        reach.build_kernels(self, wanted, lse, number)
        reach.build_modules(self, wanted, lse, with_gradients, number)

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
        max_kv_len: int | None = None,
        q_lens: Array | None = None,
        kv_lens: Array | None = None,
        page_table: Array | None = None,
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
        max_kv_len: int | None = None,
        q_lens: Array | None = None,
        kv_lens: Array | None = None,
        page_table: Array | None = None,
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
        max_kv_len: int | None = None,
        q_lens: Array | None = None,
        kv_lens: Array | None = None,
        page_table: Array | None = None,
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
        max_kv_len: int | None = None,
        q_lens: Any = None,
        kv_lens: Any = None,
        page_table: Any = None,
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
        started for sequences as long as q. `max_kv_len` is the same of k, for the gradients of k
        and v: without it max_q_len, where one array has the starts of both, or else as long as k.
        A spec with q_lens or kv_lens: i32 [batch], how long each sequence is.

        A spec with page_size: k and v are [pages, page_size, kv_heads, head_dim], and key i of
        sequence b is row i % page_size of page `page_table`[b, i // page_size], i32 [batch, pages
        of a sequence]. Of layout "thd" cu_seqlens_q has the query rows and kv_lens the keys. No
        sequence has more than `max_kv_len` keys, or than the table has room for: kernels are chosen
        for that many.

        `checked` raises SpecError where an expression would read outside an array; that is computed
        on the host before the launch, and slow. None: as :func:`jit` was told.
        """
        try:
            if type(q) is not numpy.ndarray and is_watched(q):
                return torch_seam.kernel(
                    self, q, k, v, scale=scale, out=out, return_lse=return_lse, stream=stream,
                    captured=captured, cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k,
                    max_q_len=max_q_len, max_kv_len=max_kv_len, q_lens=q_lens, kv_lens=kv_lens,
                    page_table=page_table, checked=checked,
                )  # fmt: skip
            if return_lse is not True and return_lse is not False:
                return_lse = arguments.flag("return_lse", return_lse)
            if records_gradients(q, k, v):
                if self._spec.page_size is not None:
                    self.check_derivative()  # which says that pages have none
                return torch_seam.with_gradients(
                    self, q, k, v, scale=scale, out=out, return_lse=return_lse, stream=stream,
                    captured=captured, cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k,
                    max_q_len=max_q_len, max_kv_len=max_kv_len, q_lens=q_lens, kv_lens=kv_lens,
                    checked=checked,
                )  # fmt: skip
            if max_q_len is not None and type(max_q_len) is not int:
                fix = "the length of the longest sequence of q, or more"
                max_q_len = arguments.whole("max_q_len", max_q_len, fix)
            given = self._given
            if captured is not None or given is None:
                given = self._captured.with_given({} if captured is None else captured)
            arrays, numbers = given
            if scale is None:
                scale = self._scale
            elif type(scale) is not float or not LEAST_SCALE <= scale <= MOST_SCALE:
                q, scale = copies.with_sign_of(scale, q, stream)
            scalars: tuple[Any, ...] = (scale, *numbers) if numbers else (scale,)
            # Most specs need no lengths, and most calls give none: those look no further.
            none_given = cu_seqlens_q is max_q_len is max_kv_len is q_lens is kv_lens is None
            none_given = none_given and cu_seqlens_k is page_table is None
            every = arrays
            if not none_given or self._needs_lengths:
                own = lengths(
                    self._spec,
                    q,
                    k,
                    cu_seqlens_q,
                    cu_seqlens_k,
                    max_q_len,
                    q_lens,
                    kv_lens,
                    max_kv_len,
                    page_table,
                )
                every, scalars = own.arrays + arrays, (scale, *own.scalars, *numbers)
            if self._checked if checked is None else checked:
                values = self._captured.own | dict(captured or {})
                check_indices(self._spec, q, k, values, cu_seqlens_q, cu_seqlens_k, q_lens, kv_lens)
            if out is None:
                out = output_like(q, self._value_dim, self._spec.dtype)
            with_lse = return_lse or self._lse
            if with_lse:
                lse = lse_like(q, self._spec.layout)
                every = (q, k, v, out, lse, *every)
            else:
                every = (q, k, v, out, *every) if every else (q, k, v, out)
            longest = -1 if max_q_len is None else max_q_len
            dispatch = self._plain_dispatches[with_lse]
            probes = None
            sequences = 1 if cu_seqlens_q is None else cu_seqlens_q.shape[0] - 1
            if dispatch is None or not dispatch.try_launch(every, scalars, stream, longest):
                self._fitting.check(q, k, arrays, sequences, max_q_len)
                probes = self._launch_closely(
                    every, scalars, stream, with_lse, sequences, page_table
                )
            if return_lse:
                return (out, lse) if probes is None else (out, lse, probes)
            return out if probes is None else (out, probes)
        except Exception as error:
            found = arguments.blamed(self.name, locals(), error)
            if found is None:
                raise
            raise found from None

    def _launch_closely(
        self,
        arrays: tuple[Any, ...],
        scalars: tuple[Any, ...],
        stream: Any,
        with_lse: bool,
        sequences: int,
        page_table: Any,
    ) -> dict[str, Any] | None:
        """A launch that may need copies, or to look at the table of winners before; what probes
        saw."""
        if not self._probe:
            self._launches.launch(self._dispatch(with_lse), arrays, scalars, stream)
            return None
        kernel = self.variant(arrays[0], arrays[1], sequences, with_lse, page_table)
        if with_lse:
            kernel = kernel._returning_lse()
        probes = kernel._probe_arrays(arrays, stream)
        self._launches.launch(kernel._core, arrays + probes, scalars, stream)
        return dict(zip(kernel._probe, probes, strict=True))


torch_seam.instead_of(AttentionKernel.__call__, torch_seam.kernel)
