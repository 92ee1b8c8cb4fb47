"""Schedules on a GPU, by way of PyTorch: compiled, checked, and timed fairly.

What only a long input shows (a wait that never ends, a wrong turn of a ring) is looked for at the
timed shapes as well, against the schedule that ships.
"""

from __future__ import annotations

import functools
import math
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .. import _core
from ..cache.tuning_table import Problem
from ..errors import DeviceError, Error
from ..kernels.attention_kernel import AttentionKernel
from ..specs.schedule import Schedule
from ..specs.spec import AttentionSpec
from .check import Case, captured_arrays, case, for_any_shapes, heads_of, to_numpy
from .stopwatch import Stopwatch

Shape = tuple[int, int, int]
"""batch, q_len, kv_len"""

MODEL_WIDTH = 2048  # heads * head_dim, where a spec leaves the heads open
PATIENCE_S = 20.0  # for a kernel that should take milliseconds


def require_torch(target: str) -> Any:
    """torch with a GPU that runs the target. Raises DeviceError, with what to do."""
    what = f"timing schedules for {target}"
    try:
        import torch
    except ImportError:
        raise DeviceError(
            what,
            "it needs PyTorch, which is not installed: it holds the arrays and takes the time",
            "pip install 'flashcore[tune]'",
        ) from None
    if not torch.cuda.is_available():
        raise DeviceError(
            what,
            "there is no GPU: torch.cuda.is_available() is false",
            "run it on the machine whose GPU the schedule is for; the file that it writes can be "
            "copied (FLASHCORE_SCHEDULES)",
        )
    major, minor = torch.cuda.get_device_capability()
    wanted = _core.target_facts(target)["capability"]
    if 10 * major + minor != wanted:
        raise DeviceError(
            what,
            f"the GPU is a {torch.cuda.get_device_name()} of compute capability {major}.{minor}",
            f"target={_core.gpu_target()!r}, or a GPU of {wanted // 10}.{wanted % 10}",
        )
    return torch


def machine(torch: Any) -> dict[str, str]:
    """What a figure depends on besides the spec."""
    try:
        text = Path("/proc/driver/nvidia/version").read_text()
        found = re.search(r"\b(\d{3}\.\d+(?:\.\d+)?)\b", text)
    except OSError:
        found = None
    return {
        "gpu": torch.cuda.get_device_name(),
        "driver": found[1] if found else "unknown",
        "compiler": f"NVRTC {_core.nvrtc_version()}",
    }


def problem_of(spec: AttentionSpec, shape: Shape) -> Problem:
    """The shape with heads."""
    batch, q_len, kv_len = shape
    return batch, heads_of(spec, max(1, MODEL_WIDTH // spec.head_dim))[0], q_len, kv_len


class GpuEvaluator:
    """An evaluator of search.py on the current GPU."""

    def __init__(self, spec: AttentionSpec, target: str, shapes: Sequence[Shape], seed: int = 0):
        self._torch = torch = require_torch(target)
        self._spec = spec = for_any_shapes(spec)
        self._target = target
        self._captured = {name: self._on_gpu(a) for name, a in captured_arrays(spec).items()}
        self._cases = [self._small(shape, heads, seed) for shape, heads in _small_shapes(spec)]
        self._watch = Stopwatch(torch, self.wait)
        self._long = [_Long(self, shape, seed) for shape in shapes]

    # What _Long asks for.

    @property
    def spec(self) -> AttentionSpec:
        return self._spec

    @property
    def torch(self) -> Any:
        return self._torch

    @property
    def watch(self) -> Stopwatch:
        return self._watch

    # The evaluator.

    def default(self) -> AttentionKernel:
        return AttentionKernel.shipped(self._spec, self._target, tuned=False)

    def compiled(self, schedule: Schedule) -> AttentionKernel:
        kernel = AttentionKernel(self._spec, schedule, self._target)
        kernel.compile()
        return kernel

    def wrong(self, kernel: AttentionKernel) -> str:
        for small, inputs, keywords in self._cases:
            out = self._poisoned(small.exact.shape)
            self._launch(kernel, inputs, out, keywords)
            self.wait()
            if complaint := small.complaint(to_numpy(out)):
                return complaint
        for long in self._long:
            if complaint := long.complaint(kernel):
                return complaint
        return ""

    def times(self, kernels: Sequence[AttentionKernel], rounds: int) -> list[list[float]]:
        per_shape = [long.times(kernels, rounds) for long in self._long]
        return [list(times) for times in zip(*per_shape, strict=True)]

    # Arrays and launches.

    def _on_gpu(self, array: Any) -> Any:
        if isinstance(array, (int, float)):  # passed by value
            return array
        if str(array.dtype) == "bfloat16":  # of ml_dtypes, which torch does not know
            return self._on_gpu(array.view("int16")).view(self._torch.bfloat16)
        return self._torch.from_numpy(array.copy()).cuda()

    def _small(self, shape: Shape, heads: int, seed: int) -> tuple[Case, list[Any], dict[str, Any]]:
        small = case(self._spec, shape, heads, seed)
        keywords = {
            name: value if isinstance(value, int) else self._on_gpu(value)
            for name, value in small.keywords.items()
        }
        return small, [self._on_gpu(x) for x in (small.q, small.k, small.v)], keywords

    def _poisoned(self, shape: Sequence[int]) -> Any:
        dtype = _dtype_of(self._torch, self._spec)
        return self._torch.full(tuple(shape), math.nan, dtype=dtype, device="cuda")

    def _launch(
        self, kernel: AttentionKernel, inputs: Sequence[Any], out: Any, keywords: dict[str, Any]
    ) -> None:
        kernel(*inputs, out=out, captured=self._captured or None, **keywords)

    def wait(self, seconds: float = 0.0) -> None:
        """For queued work that should take that long, but not for ever: a kernel may wait for
        itself."""
        patience = PATIENCE_S + 20 * seconds
        event = self._torch.cuda.Event()
        event.record()
        start = time.monotonic()
        try:
            while not event.query():
                if time.monotonic() - start > patience:
                    raise DeviceError(
                        "a kernel on the GPU", f"it is not done after {patience:.0f} seconds"
                    )
                time.sleep(1e-4)
        except RuntimeError as error:  # of torch: an illegal access, and the like
            if isinstance(error, Error):
                raise
            raise DeviceError("a kernel on the GPU", str(error)) from error


class _Long:
    """One timed shape: its inputs, and what the first kernel makes of them."""

    def __init__(self, owner: GpuEvaluator, shape: Shape, seed: int):
        self._owner = owner
        spec, torch = owner.spec, owner.torch
        batch, q_len, kv_len = shape
        heads, kv_heads = heads_of(spec, max(1, MODEL_WIDTH // spec.head_dim))
        dims = spec.head_dim, spec.head_dim_v or spec.head_dim
        self._title = f"batch {batch}, {q_len} queries, {kv_len} keys"
        sizes = [self._size(*parts) for parts in ((batch, q_len, heads, dims[0]),
                 (batch, kv_len, kv_heads, dims[0]), (batch, kv_len, kv_heads, dims[1]),
                 (batch, q_len, heads, dims[1]))]  # fmt: skip
        set_bytes = (4 if spec.dtype == "f32" else 2) * sum(map(math.prod, sizes))
        self._sets = owner.watch.sets(set_bytes)
        generator = torch.Generator(device="cuda").manual_seed(seed)
        dtype = _dtype_of(torch, spec)
        self._inputs = [
            [
                torch.randn(size, generator=generator, device="cuda", dtype=dtype)
                for size in sizes[:3]
            ]
            for _ in range(self._sets)
        ]
        self._out = owner._poisoned(sizes[3])
        self._keywords = self._lengths(shape)
        self._expected: Any = None

    def _size(self, batch: int, length: int, heads: int, dim: int) -> tuple[int, ...]:
        layout = self._owner.spec.layout
        if layout == "thd":
            return batch * length, heads, dim
        return (batch, length, heads, dim) if layout == "bshd" else (batch, heads, length, dim)

    def _lengths(self, shape: Shape) -> dict[str, Any]:
        spec, torch = self._owner.spec, self._owner.torch
        batch, q_len, kv_len = shape
        whole = {"dtype": torch.int32, "device": "cuda"}
        keywords: dict[str, Any] = {}
        if spec.layout == "thd":
            keywords = {
                "cu_seqlens_q": torch.arange(batch + 1, **whole) * q_len,
                "cu_seqlens_k": torch.arange(batch + 1, **whole) * kv_len,
                "max_q_len": q_len,
            }
        if spec.q_lens:
            keywords["q_lens"] = torch.full((batch,), q_len, **whole)
        if spec.kv_lens:
            keywords["kv_lens"] = torch.full((batch,), kv_len, **whole)
        return keywords

    def _run(self, kernel: AttentionKernel, index: int = 0) -> None:
        self._owner._launch(kernel, self._inputs[index], self._out, self._keywords)

    def complaint(self, kernel: AttentionKernel) -> str:
        self._run(kernel)
        if isinstance(kernel, AttentionKernel):  # another may serve these lengths until then
            kernel.wait_until_optimised()
        self._out.fill_(math.nan)
        self._run(kernel)
        self._owner.wait()
        out = self._out.float()
        if self._expected is None:
            self._expected = out
            return f"NaN in the output, {self._title}" if bool(out.isnan().any()) else ""
        if bool(out.isnan().any()):
            return f"elements are NaN or were not written, {self._title}"
        # Two right answers differ by the rounding of probabilities and of the output. By rows: the
        # more keys one sees, the smaller are its numbers.
        epsilon = 2**-8 if self._owner.spec.dtype == "bf16" else 2**-11
        bound = 4 * epsilon * self._expected.abs().amax(-1, keepdim=True)
        error = (out - self._expected).abs()
        if bool((error > bound).any()):
            worst = float(error.max())
            return f"it differs by {worst:.3g} from the schedule that ships, {self._title}"
        return ""

    def times(self, kernels: Sequence[AttentionKernel], rounds: int) -> list[float]:
        """The median of each kernel in microseconds."""
        runs = [functools.partial(self._run, kernel) for kernel in kernels]
        return self._owner.watch.times(runs, rounds, self._sets)


def _dtype_of(torch: Any, spec: AttentionSpec) -> Any:
    return getattr(torch, {"bf16": "bfloat16", "f16": "float16", "f32": "float32"}[spec.dtype])


def _small_shapes(spec: AttentionSpec) -> list[tuple[Shape, int]]:
    """Shapes with heads: tiles of every kind and their ends, more blocks than a GPU runs at once,
    rows without keys, one row."""
    shapes: list[tuple[Shape, int]] = [((3, 301, 523), 16), ((1, 130, 45), 2), ((2, 1, 259), 3)]
    fixed = spec.batch, spec.q_len, spec.kv_len
    if any(fixed):
        # The compiled lengths. For long ones fp64 is too slow: the default has to do for those.
        batch, q_len, kv_len = (a or b for a, b in zip(fixed, (2, 301, 523), strict=True))
        shapes = [((batch, q_len, kv_len), 2)] if q_len * kv_len <= 1 << 24 else []
    return shapes


__all__ = ["GpuEvaluator", "Shape", "machine", "problem_of", "require_torch"]
