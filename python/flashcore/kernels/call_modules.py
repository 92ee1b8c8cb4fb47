"""Launches of modules in place of one kernel, for the calls that want them."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Generic

from .. import _core
from ..arrays import gpu_of, on_cuda
from ..errors import CacheMissError, CompileError, Error, ScheduleError
from ..pytorch import seam as torch_seam
from ..specs.spec import AttentionSpec
from .call_kernels import CallKernels, Ordered, Way
from .launches import Launches
from .module_kernel import ModuleKernel


class CallModules(Generic[Way]):
    """The modules that calls of one spec launch. Each is compiled when a call first wants it: in
    the background where another kernel serves meanwhile."""

    # What calls launch without going through Python; None: all of them do.
    splits: _core.SplitModules | None = None
    _least_keys = 0  # of a call that launches a module

    def __init__(self, spec: AttentionSpec, launches: Launches, kernels: CallKernels[Way]):
        self._launches = launches
        self._kernels = kernels
        self._packed = spec.layout == "thd"
        self._at_rows = 2 if spec.layout == "bhsd" else 1
        self._refused: set[tuple[Way, bool]] = set()  # those whose code cannot be had
        # A thread for each that is built while another kernel serves. None survives a fork.
        self._builders: dict[tuple[Way, bool], threading.Thread] = {}
        self._starting = threading.Lock()

    def choose(self, q: Any, k: Any, sequences: int = 1) -> Way | None:
        """The module of a call with these arrays, of so many packed sequences; None where one
        kernel is faster."""
        q_shape, k_shape = q.shape, k.shape
        if self._packed:
            if len(q_shape) != 3 or len(k_shape) != 3 or sequences < 1:
                return None
            # As other choices for packed sequences, by the mean of their lengths.
            rows, keys = -(-q_shape[0] // sequences), -(-k_shape[0] // sequences)
            batch, heads, kv_heads = sequences, q_shape[1], k_shape[1]
        else:
            if len(q_shape) != 4 or len(k_shape) != 4:
                return None
            at = self._at_rows
            batch, heads, kv_heads = q_shape[0], q_shape[3 - at], k_shape[3 - at]
            rows, keys = q_shape[at], k_shape[at]
        if keys < self._least_keys or not on_cuda(q):
            return None
        return self._choose(batch, heads, kv_heads, rows, keys)

    def _choose(self, batch: int, heads: int, kv_heads: int, rows: int, keys: int) -> Way | None:
        raise NotImplementedError

    def launch(
        self,
        way: Way,
        arrays: tuple[Any, ...],
        scalars: tuple[Any, ...],
        stream: Any,
        with_lse: bool,
        another_serves: Callable[[bool], bool] = lambda with_lse: False,
    ) -> bool:
        """Arrays and scalars as the kernels of attention take them. False where no code is at hand,
        and none can be compiled, or it is compiled in the background because another kernel serves
        meanwhile, which is asked where no module is there: nothing is launched then."""
        found = self._kernels_for(way, with_lse, arrays[0], another_serves)
        if found is None:
            return False
        kernels, order = found
        if self._packed:  # the kernels' order of max_q_len and of numbers
            given = iter(scalars[2:])
            own = {"scale": scalars[0], "max_q_len": scalars[1]}
            scalars = tuple(
                own[name] if name in own else next(given) for name, *_ in kernels.scalars
            )
        self._launches.launch_module(kernels, arrays, scalars, stream, order)
        return True

    def prepare(
        self,
        q_lens: tuple[int, int],
        kv_lens: tuple[int, int],
        with_lse: Sequence[bool],
        device: int | None,
    ) -> list[ModuleKernel]:
        """The kernels for all lengths in these ranges, ends included, compiled, and loaded on a
        device if one is given."""
        if kv_lens[1] < self._least_keys:
            return []

        def make(wanted: tuple[Way, bool]) -> ModuleKernel:
            kernels, _ = self._kernels.built(*wanted, compiled=True)
            if device is not None:
                kernels.prepare(device)
            return kernels

        wanted = [(way, lse) for way in self._reachable(*q_lens) for lse in with_lse]
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            return list(pool.map(make, wanted))

    def _reachable(self, least_rows: int, most_rows: int) -> Iterable[Way]:
        raise NotImplementedError

    @property
    def is_building(self) -> bool:
        """Whether another kernel serves some calls meanwhile."""
        return any(builder.is_alive() for builder in list(self._builders.values()))

    def wait_until_built(self) -> None:
        for builder in list(self._builders.values()):
            builder.join()

    def _kernels_for(
        self, way: Way, with_lse: bool, q: Any, another_serves: Callable[[bool], bool]
    ) -> Ordered | None:
        found = self._kernels.find(way, with_lse)
        if found is not None:
            return found
        if torch_seam.is_capturing(q):  # no time to compile, but a graph lasts: worth a wait
            builder = self._builders.get((way, with_lse))
            if builder is not None:
                builder.join()
            return self._kernels.find(way, with_lse)
        if (way, with_lse) in self._refused:
            return None
        if another_serves(with_lse) and _core.compile_mode() not in ("eager", "forbid"):
            self._build_beside(way, with_lse, gpu_of(q))
            return None
        return self._build(way, with_lse)

    def _build(self, way: Way, with_lse: bool, device: int | None = None) -> Ordered | None:
        try:
            return self._kernels.built(way, with_lse, compiled=True, device=device)
        except (CompileError, CacheMissError, ScheduleError):
            self._refused.add((way, with_lse))
            return None

    def _build_beside(self, way: Way, with_lse: bool, device: int | None) -> None:
        key = way, with_lse
        with self._starting:
            before = self._builders.get(key)
            if before is None or not before.is_alive():
                builder = threading.Thread(
                    target=self._build_for_later, args=(way, with_lse, device)
                )
                self._builders[key] = builder
                builder.start()

    def _build_for_later(self, way: Way, with_lse: bool, device: int | None) -> None:
        try:
            self._build(way, with_lse, device)
        except Error as error:  # loading failed, as where memory is short
            self._refused.add((way, with_lse))
            _core.log_missing_module(str(error))


__all__ = ["CallModules"]
