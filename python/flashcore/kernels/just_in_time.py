"""jit: makes a kernel of a spec or a program."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, overload

from .. import _core, arguments
from ..errors import SpecError
from ..specs.module import Module
from ..specs.program import Program
from ..specs.schedule import Schedule, merge
from ..specs.spec import AttentionSpec
from .attention_kernel import AttentionKernel
from .kernel import Kernel
from .module_kernel import ModuleKernel
from .program_kernel import ProgramKernel

# What arrays in CPU memory are computed with where there is no GPU to ask.
_EMULATED_TARGET = "sm_80"


def default_target() -> str:
    """The target of the current GPU; without one, the target that the emulator runs."""
    return _core.gpu_target() or _EMULATED_TARGET


def read(path: str | os.PathLike[str]) -> AttentionSpec:
    """A spec that was saved with ``Path(path).write_text(spec.to_json())``."""
    name = arguments.path("the file of a spec", path, "a file written with spec.to_json()")
    try:
        text = Path(name).read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it holds no text"
        fix = "the file of a spec, written with spec.to_json(), or an AttentionSpec"
        if name in _core.targets():
            fix = f'jit(spec, target="{name}"): what to compile comes first'
        raise SpecError(f"the spec {name!r}", f"{reason}: {name}", fix) from None
    return AttentionSpec.from_json(text)


@overload
def jit(
    what: AttentionSpec | str | os.PathLike[str],
    target: str | None = None,
    schedule: Schedule | Mapping[str, Any] | None = None,
    *,
    probe: str | Sequence[str] = (),
    checked: bool = False,
) -> AttentionKernel: ...


@overload
def jit(
    what: Program,
    target: str | None = None,
    schedule: Schedule | Mapping[str, Any] | None = None,
    *,
    probe: str | Sequence[str] = (),
) -> ProgramKernel: ...


@overload
def jit(
    what: Module,
    target: str | None = None,
    schedule: Mapping[str, Schedule | Mapping[str, Any]] | None = None,
) -> ModuleKernel: ...


def jit(
    what: AttentionSpec | Program | Module | str | os.PathLike[str],
    target: str | None = None,
    schedule: Schedule | Mapping[str, Any] | None = None,
    *,
    probe: str | Sequence[str] = (),
    checked: bool = False,
) -> Any:
    """A kernel for a spec, for a program, for a module, or for a spec saved as a .json file.

    `target` is "sm_80", "sm_90", ...; by default that of the current GPU. `schedule` is a whole
    one, or the fields to change in the one that ships: ``jit(spec, schedule={"stages": 3})``; where
    that one cannot run with them, in the next that ships and can; of a module, one of these by the
    name of each program that does not get what ships with it. Without it, a spec gets what
    :func:`autotune` found for its kind, else what ships. It is compiled here if there is a GPU or a
    target is named, else when its machine code is first asked for. `probe` names values of the
    program that a call returns as well. `checked` makes every call of an attention kernel raise
    SpecError where an expression would read outside a captured array; it is slow.
    """
    if isinstance(what, (str, os.PathLike)):
        what = read(what)
    if isinstance(what, Module):
        return _of_module(what, target, schedule, probe, checked)
    if not isinstance(what, (AttentionSpec, Program)):
        raise arguments.refusal(
            "what jit is given",
            what,
            "it is no spec, no program and no module",
            "flashcore.AttentionSpec(head_dim=64), a flashcore.Program, or the file of a spec",
        )
    probe = arguments.names("probe", probe)
    if arguments.flag("checked", checked) and not isinstance(what, AttentionSpec):
        raise SpecError(
            "jit(program, checked=True)",
            "what is checked are the arrays that expressions of an AttentionSpec read",
            "checked=False; the emulator checks what programs do (arrays in CPU memory)",
        )
    kernel: Kernel
    compile_now = target is not None or _core.gpu_target() is not None
    target = default_target() if target is None else arguments.target_name(target)
    if isinstance(what, AttentionSpec) and schedule is None and compile_now:
        kernel = AttentionKernel.shipped(what, target).with_probes(probe)
        kernel._checked = checked
        return kernel
    if not isinstance(schedule, Schedule):
        changes = {} if schedule is None else schedule
        if isinstance(what, AttentionSpec):
            schedule = what.changed_schedule(target, changes)
        else:
            schedule = merge(what.schedule_for(target), changes)
    if isinstance(what, AttentionSpec):
        kernel = AttentionKernel(what, schedule, target, probe)
        kernel._checked = checked
    else:
        kernel = ProgramKernel(what, schedule, target, probe)
    if compile_now:
        kernel.compile()
    return kernel


def _of_module(
    module: Module, target: str | None, schedule: Any, probe: Any, checked: Any
) -> ModuleKernel:
    if probe or checked:
        raise SpecError(
            f"jit({module.name}, probe or checked)",
            "probes and checks are those of one kernel",
            "jit(program, probe=...) of one of module.programs",
        )
    given = {} if schedule is None else schedule
    names = [program.name for program in module.programs]
    if not isinstance(given, Mapping) or not given.keys() <= set(names):
        fix = f"schedules, or fields of them, by the names of programs: {', '.join(names)}"
        raise arguments.refusal(f"the schedule of {module.name}", schedule, "it is none", fix)
    compiled = target is not None or _core.gpu_target() is not None
    target = default_target() if target is None else arguments.target_name(target)
    chosen = []
    for program in module.programs:
        own = given.get(program.name, {})
        if not isinstance(own, Schedule):
            own = merge(program.schedule_for(target), own)
        chosen.append([own])
    return ModuleKernel.first_fitting(module, chosen, target, compiled)
