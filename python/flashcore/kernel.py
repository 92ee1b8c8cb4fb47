"""Kernels: generated, compiled, launched."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from . import _core, sass
from .arrays import empty
from .errors import DeviceError, SpecError
from .program import Program
from .schedule import Schedule, merge
from .spec import AttentionSpec

# What arrays in CPU memory are computed with where there is no GPU to ask.
_EMULATED_TARGET = "sm_80"


class Kernel:
    """A program compiled for one target. Called with the program's arguments by name.

    Arrays in CPU memory run in the emulator, arrays on a GPU run there. Outputs that are not given are
    allocated beside the inputs and returned: one array, or a tuple in the program's order.
    """

    def __init__(self, program: Program, schedule: Schedule, target: str):
        self._core = _core.Kernel(program._core, schedule.to_json(), target)
        self._launch = self._core.launch
        self._schedule = schedule
        self._target = target
        self._program = program

    def __call__(self, *, stream: Any = None, **arguments: Any) -> Any:
        scalars = tuple(self._take(arguments, name) for name, _, _ in self._core.scalars)
        extents: dict[str, int] = {}
        tensors = self._core.tensors
        arrays: dict[str, Any] = {}
        for name, _, output, dims in tensors:
            if output and arguments.get(name) is None:
                arguments.pop(name, None)
                continue
            arrays[name] = self._take(arguments, name)
            for extent, size in zip(dims, arrays[name].shape, strict=False):
                if isinstance(extent, str):
                    extents.setdefault(extent, size)
        if arguments:
            raise self._refusal(f"takes no {', '.join(arguments)}")
        made = []
        for name, dtype, _, dims in tensors:
            if name not in arrays:
                shape = [self._size(name, dim, extents) for dim in dims]
                arrays[name] = empty(next(iter(arrays.values())), shape, dtype)
                made.append(arrays[name])
        self._launch(tuple(arrays[tensor[0]] for tensor in tensors), scalars, stream)
        return made[0] if len(made) == 1 else tuple(made) if made else None

    def _take(self, arguments: dict[str, Any], name: str) -> Any:
        if name not in arguments:
            raise self._refusal(f"needs {name}")
        return arguments.pop(name)

    def _size(self, name: str, dim: int | str, extents: Mapping[str, int]) -> int:
        if isinstance(dim, int):
            return dim
        if dim not in extents:
            raise self._refusal(f"cannot allocate {name}: no input carries its length {dim}")
        return extents[dim]

    def _refusal(self, why: str) -> DeviceError:
        scalars = [f"{name}: {dtype}" for name, dtype, _ in self._core.scalars]
        tensors = [
            f"{name}: {dtype}[{', '.join(map(str, dims))}]{' (output)' if output else ''}"
            for name, dtype, output, dims in self._core.tensors
        ]
        return DeviceError(
            f"calling {self.name}", f"it {why}", f"its arguments are {', '.join(tensors + scalars)}"
        )

    def compile(self) -> None:
        """Compiles now rather than at the first launch. Needs no GPU."""
        self._core.compile()

    def prepare(self, device: int = 0) -> None:
        """Loads the code on a GPU now, so that the first launch can be captured into a graph."""
        self._core.prepare(device)

    @property
    def name(self) -> str:
        return self._core.name

    @property
    def program(self) -> Program:
        return self._program

    @property
    def schedule(self) -> Schedule:
        return self._schedule

    @property
    def target(self) -> str:
        return self._target

    @property
    def source(self) -> str:
        """The generated CUDA C++: one file without includes."""
        return self._core.source

    @property
    def ptx(self) -> str:
        return self._core.ptx

    @property
    def cubin(self) -> bytes:
        return self._core.cubin

    @property
    def sass(self) -> str:
        """The machine code as text; raises CompileError where no disassembler is installed."""
        return sass.disassemble(self.cubin)

    @property
    def resources(self) -> dict[str, int]:
        """Registers, stack and spills a thread; shared memory and barriers a block."""
        return self._core.resources | {"threads": self._core.threads}

    @property
    def from_cache(self) -> bool:
        return self._core.from_cache

    @property
    def generate_ms(self) -> float:
        return self._core.generate_ms

    @property
    def compile_ms(self) -> float:
        """Time spent in the compiler; 0 when the kernel came from the cache."""
        return self._core.compile_ms

    def ir(self, when: str = "built") -> str:
        """The program as text: "built", or after a pass, as in "after:simplify"."""
        return self._core.ir_after(when.removeprefix("after:"))

    def __repr__(self) -> str:
        return f"<flashcore.{type(self).__name__} {self.name} for {self.target}>"


class AttentionKernel(Kernel):
    """Attention for one spec, called with q, k and v."""

    def __init__(self, spec: AttentionSpec, schedule: Schedule, target: str):
        super().__init__(Program._of(_core.attention_program(spec.to_json())), schedule, target)
        self._spec = spec
        self._scale = 1.0 / math.sqrt(spec.head_dim)
        self._value_dim = spec.head_dim_v or spec.head_dim
        self._with_lse: AttentionKernel | None = self if spec.lse else None

    @property
    def spec(self) -> AttentionSpec:
        return self._spec

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
        """softmax(scale q k^T + mask) v; with `return_lse`, also the log-sum-exp of every row.

        `scale` is 1/sqrt(head_dim) unless given. The work is queued on `stream`, or on the stream that
        the arrays' framework works on, and not waited for.
        """
        if return_lse or self._spec.lse:
            return self._call_with_lse(q, k, v, scale, out, return_lse, stream)
        if out is None:
            out = empty(q, (*q.shape[:-1], self._value_dim), self._spec.dtype)
        self._launch((q, k, v, out), (self._scale if scale is None else scale,), stream)
        return out

    def _call_with_lse(
        self, q: Any, k: Any, v: Any, scale: float | None, out: Any, return_lse: bool, stream: Any
    ) -> Any:
        kernel = self._with_lse
        if kernel is None:
            spec = dataclasses.replace(self._spec, lse=True)
            kernel = self._with_lse = AttentionKernel(spec, self._schedule, self._target)
        if out is None:
            out = empty(q, (*q.shape[:-1], self._value_dim), self._spec.dtype)
        batch, a, b, _ = q.shape
        heads, length = (a, b) if self._spec.layout == "bhsd" else (b, a)
        lse = empty(q, (batch, heads, length), "f32")
        kernel._launch((q, k, v, out, lse), (self._scale if scale is None else scale,), stream)
        return (out, lse) if return_lse else out


def default_target() -> str:
    """The target of the current GPU; without one, the target that the emulator runs."""
    return _core.gpu_target() or _EMULATED_TARGET


def read(path: str | os.PathLike[str]) -> AttentionSpec:
    """A spec that was saved with ``Path(path).write_text(spec.to_json())``."""
    try:
        return AttentionSpec.from_json(Path(path).read_text())
    except OSError as error:
        raise SpecError(f"cannot read {path}", str(error)) from None


def jit(
    what: AttentionSpec | Program | str | os.PathLike[str],
    target: str | None = None,
    schedule: Schedule | Mapping[str, Any] | None = None,
) -> Any:
    """A kernel for a spec, for a program, or for a spec saved as a .json file.

    `target` is "sm_80", "sm_90", ...; by default that of the current GPU. `schedule` is a whole one, or
    the fields to change in the one that ships: ``jit(spec, schedule={"stages": 3})``. It is compiled
    here if there is a GPU or a target is named, else when its machine code is first asked for.
    """
    if isinstance(what, (str, os.PathLike)):
        what = read(what)
    compile_now = target is not None or _core.gpu_target() is not None
    target = target or default_target()
    if not isinstance(schedule, Schedule):
        changes = schedule or {}
        if isinstance(what, AttentionSpec):
            schedule = Schedule.from_json(_core.attention_schedule(what.to_json(), target))
        else:
            schedule = what.schedule_for(target)
        schedule = merge(schedule, changes)
    kernel: Kernel
    if isinstance(what, AttentionSpec):
        kernel = AttentionKernel(what, schedule, target)
    else:
        kernel = Kernel(what, schedule, target)
    if compile_now:
        kernel.compile()
    return kernel
