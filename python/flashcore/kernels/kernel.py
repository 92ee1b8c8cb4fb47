"""The attributes and methods that all kernels have."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .. import _core
from ..arguments import is_text, refusal, whole
from ..arrays import full
from ..errors import DeviceError
from ..host import sass
from ..specs.program import Program
from ..specs.schedule import Schedule

if TYPE_CHECKING:
    from ..ahead_of_time.bundle import Bundle


class Kernel:
    """A program generated for one target. Its kinds differ in how they are called."""

    # What explain() calls positions and lengths, where not by their axes.
    _position_names: dict[str, str] = {}

    def __init__(
        self,
        program: Program,
        schedule: Schedule,
        target: str,
        probe: Sequence[str] = (),
        core: _core.Kernel | None = None,
    ):
        if probe:
            program = program.with_probes(probe)
        self._core = core or _core.Kernel(program._core, schedule.to_json(), target)
        self._launch = self._core.launch
        self._schedule = schedule
        self._target = target
        self._program = program
        self._probe = tuple(probe)

    def _probe_arrays(self, arrays: Sequence[Any], stream: Any) -> tuple[Any, ...]:
        """What a launch with `arrays` needs besides them: the outputs of the probes."""
        if stream is not None:
            raise DeviceError(
                f"a launch of {self.name} with probes on a given stream",
                "what a probe shows of tiles that are not visited is written before the launch, on "
                "the stream that the arrays' framework works on",
                "make that stream the framework's current one, and leave out stream=",
            )
        sizes: dict[int | str, int] = {}
        for (_, _, _, dims), array in zip(self._core.tensors, arrays, strict=False):
            sizes.update(zip(dims, array.shape, strict=False))
        unwritten = self._core.unwritten
        return tuple(
            full(
                arrays[0],
                [dim if isinstance(dim, int) else sizes[dim] for dim in dims],
                dtype,
                unwritten[name],
            )
            for name, dtype, _, dims in self._core.tensors[len(arrays) :]
        )

    def compile(self) -> None:
        """Compiles now rather than at the first launch. Needs no GPU."""
        self._core.compile()

    @property
    def is_optimised(self) -> bool:
        """False while code that was compiled fast serves (:func:`set_compile_mode`)."""
        return self._core.is_optimised

    def wait_until_optimised(self) -> None:
        """Waits until the optimised code is there and puts it in place; does nothing where it is.
        Raises CompileError if it cannot be, and the fast code serves on."""
        self._core.wait_until_optimised()

    def prepare(self, device: int = 0) -> None:
        """Loads the code on a GPU now, so that the first launch can be captured into a graph.
        Raises DeviceError and CompileError."""
        fix = "the number of a GPU, from 0 on"
        self._core.prepare(whole("device of prepare", device, fix))

    def save(
        self, path: str | os.PathLike[str], *, gradients: bool = False, **ranges: Any
    ) -> Bundle:
        """Writes the kernel to a file, compiled if need be: a bundle, for :func:`load_kernel`.

        Of an attention kernel whose schedule calls choose, all that they can launch; `ranges` are
        those of :func:`precompile`. `gradients`: also what :meth:`AttentionKernel.backward`
        launches. Raises CacheError and CompileError.
        """
        from ..ahead_of_time import bundle

        return bundle.save(self, path, gradients, ranges)

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
        if not is_text(when):
            fix = '"built", or "after:" and the name of a pass, as in "after:simplify"'
            raise refusal("when of ir", when, "passes are called by name", fix)
        return self._core.ir_after(when.removeprefix("after:"))

    def explain(self) -> str:
        """What code generation derived from the masks: the tiles that a loop visits, and masks."""
        return self._core.explain(self._position_names)

    def __repr__(self) -> str:
        return f"<flashcore.{type(self).__name__} {self.name} for {self.target}>"
