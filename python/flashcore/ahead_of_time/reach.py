"""Every kernel that calls of a spec can launch, for whole ranges of lengths.

Which schedule a call takes depends on how much there is to do. The rules that choose are run here
for all problems of a range at once, so that nothing inside it is left out; some kernels may be
listed that no problem of the range takes.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from .. import _core, arguments
from ..arrays import is_array
from ..cache import tuning_table
from ..errors import SpecError
from ..kernels.attention_kernel import AttentionKernel
from ..kernels.backward_choice import BackwardChoice
from ..kernels.just_in_time import default_target
from ..kernels.module_kernel import ModuleKernel
from ..specs.module import Module
from ..specs.spec import AttentionSpec

Range = int | tuple[int, int] | None
_LONGEST = 2**31 - 1
_MOST_IN_A_GRID = 65_535  # of blocks along a dimension of CUDA's grid that is not the first


@dataclass(frozen=True)
class Problems:
    """Problems whose numbers lie in these ranges, both ends included. `batch` is that of the
    arrays, or how many sequences are packed in them; of those, lengths are the mean."""

    batch: tuple[int, int]
    heads: tuple[int, int]
    q_lengths: tuple[int, int]
    lengths: tuple[int, int]

    @property
    def exceed_grid(self) -> bool:
        """Whether some problem has more blocks along a dimension than CUDA's grid; those launch
        the kernel of a schedule with `flat_grid`."""
        return max(self.batch[1], self.heads[1]) > _MOST_IN_A_GRID

    def as_list(self) -> list[tuple[int, int]]:
        return [self.batch, self.heads, self.q_lengths, self.lengths]


def read_ranges(
    lengths: Range = None, q_lengths: Range = None, batch: Range = None, heads: Range = None
) -> Problems:
    """Ranges as callers write them; None: any length that q may have is that of k as well, and any
    batch or number of heads that fits a grid."""
    keys = _range("lengths", lengths, _LONGEST)
    return Problems(
        _range("batch", batch, _MOST_IN_A_GRID),
        _range("heads", heads, _MOST_IN_A_GRID),
        keys if q_lengths is None else _range("q_lengths", q_lengths, _LONGEST),
        keys,
    )


def _range(name: str, given: Any, most: int) -> tuple[int, int]:
    fix = f"{name}=4096, or {name}=(1, 8192) from the least to the most"
    if given is None:
        return 1, most
    pair = tuple(given) if isinstance(given, (list, tuple)) else (given, given)
    if len(pair) != 2 or any(is_array(end) for end in pair):
        raise arguments.refusal(name, given, "it is neither a number nor a pair of them", fix)
    least, greatest = (arguments.whole(name, end, fix) for end in pair)
    if not 1 <= least <= greatest:
        raise arguments.refusal(name, given, f"nothing lies from {least} to {greatest}", fix)
    return least, greatest


def build_kernels(
    kernel: AttentionKernel, wanted: Problems, lse: bool | None, device: int | None = None
) -> list[AttentionKernel]:
    """The kernels that calls of `kernel` launch, compiled, and loaded on a device if one is given.
    `lse` is whether calls ask for the log-sum-exp; None: some do."""
    asked = _asked(kernel.spec, lse)
    if kernel._chooses:
        every = [(texts, lse) for lse in asked
                 for texts in kernel._dispatch(lse).core.reachable(wanted.as_list())]  # fmt: skip
    else:
        every = [([], lse) for lse in asked]

    def make(texts: list[str], with_lse: bool) -> AttentionKernel:
        if texts:
            dispatch = kernel._dispatch(with_lse).core
            made = kernel._variant_of(dispatch.kernel(texts), texts)
            if device is not None and not kernel._probe:
                dispatch.prepare(texts, device)
        else:
            made = kernel._returning_lse() if with_lse else kernel
        made._core.compile()
        if device is not None:
            made._core.prepare(device)
        if wanted.exceed_grid:
            made._core.prepare_flat(-1 if device is None else device)
        return made

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(dict.fromkeys(pool.map(make, *zip(*every, strict=True))))


def build_modules(
    kernel: AttentionKernel,
    wanted: Problems,
    lse: bool | None,
    gradients: bool,
    device: int | None = None,
) -> list[ModuleKernel]:
    """What calls launch beside those: alternatives, as where keys are split, and, with `gradients`,
    what computes those of the inputs."""
    every = [
        (dispatch, number)
        for dispatch in (kernel._dispatch(lse).core for lse in _asked(kernel.spec, lse))
        for number in dispatch.reachable_alternatives(wanted.as_list())
    ]

    def make(dispatch: _core.KernelDispatch, number: int) -> ModuleKernel:
        module, cores = dispatch.prepare_alternative(number, -1 if device is None else device)
        return ModuleKernel.of_cores(Module._of(module), cores, kernel.target)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        made = list(pool.map(make, *zip(*every, strict=True))) if every else []
    if gradients:
        derivative = kernel._derivative()
        for backward in derivative.reachable(True, wanted.q_lengths, wanted.lengths):
            if device is not None:
                backward.prepare(device)
            made.append(backward)
    return made


def read_targets(targets: str | Sequence[str] | None) -> list[str]:
    """Names of targets as callers write them; None: that of the current GPU."""
    if targets is None:
        return [default_target()]
    if isinstance(targets, str):
        targets = [targets]
    elif not isinstance(targets, (list, tuple)) or not targets:
        raise SpecError(
            f"targets = {arguments.described(targets)}",
            "they are neither a name nor a list of names",
            'targets="sm_90a", or targets=["sm_80", "sm_90a"]',
        )
    return [arguments.target_name(target) for target in targets]


def list_schedules(
    spec: AttentionSpec, target: str, wanted: Problems, lse: bool | None
) -> list[tuple[list[str], bool]]:
    """The kernels that calls of a spec launch: each under the first of the schedules that fits, and
    whether it writes the log-sum-exp. Compiles nothing."""
    if _core.schedules_depend_on_problems(target):
        lists = _reachable(spec, target, wanted, True)
    else:
        lists = [_core.attention_schedules(spec.to_json(), target, 0, 0, 0, 0)]
    return [(texts, with_lse) for texts in lists for with_lse in _asked(spec, lse)]


def list_modules(
    spec: AttentionSpec, target: str, wanted: Problems, lse: bool | None, gradients: bool
) -> list[tuple[str, list[str], bool]]:
    """The kernels of :func:`build_modules`: the program of each, the schedules of which it is under
    the first that fits, and whether the log-sum-exp is asked for. Compiles nothing."""
    modules: list[tuple[_core.Module, list[list[str]], bool]] = []
    for with_lse in _asked(spec, lse):
        own = dataclasses.replace(spec, lse=with_lse).to_json()
        modules += [
            (module, lists, with_lse)
            for module, lists in _core.reachable_alternatives(own, target, wanted.as_list())
        ]
    if gradients:
        choice = BackwardChoice(spec, target)
        kinds = choice.reachable(wanted.q_lengths, wanted.lengths)
        # Where the compiler refuses five products, seven serve.
        kinds = list(dict.fromkeys([*kinds, *(kind._replace(adding=False) for kind in kinds)]))
        own_modules = {adding: choice.module(adding)._core for adding in {k.adding for k in kinds}}
        modules += [(own_modules[k.adding], choice.schedule_lists(k), False) for k in kinds]
    # Modules may have programs in common.
    every = {
        (program.text, *texts): (program.name, texts, with_lse)
        for module, lists, with_lse in modules
        for program, texts in zip(module.kernels, lists, strict=True)
    }
    return list(every.values())


def _reachable(spec: AttentionSpec, target: str, wanted: Problems, tuned: bool) -> list[list[str]]:
    table = tuning_table.text() if tuned else ""
    return _core.reachable_schedules(spec.to_json(), target, wanted.as_list(), table)


def _asked(spec: AttentionSpec, lse: bool | None) -> list[bool]:
    return [False, True] if lse is None and not spec.lse else [bool(lse)]


def precompile(
    spec: AttentionSpec,
    targets: str | Sequence[str] | None = None,
    *,
    lengths: Range = None,
    q_lengths: Range = None,
    batch: Range = None,
    heads: Range = None,
    lse: bool | None = None,
    gradients: bool = False,
) -> list[AttentionKernel]:
    """Compiles every kernel that calls of the spec can launch, into the cache; needs no GPU.

    Afterwards no call inside the ranges compiles anything, here or wherever the cache is brought
    to. A range is a number or a pair, both ends included. `lengths` are those of k, and of q unless
    `q_lengths` is given; of packed sequences the means. `batch` is how many sequences there are.
    None: any length, and any batch and number of heads up to 65,535. `lse` is whether calls ask for
    the log-sum-exp; None: some do. `gradients`: also the kernels that compute those of q, k and v.
    `targets` are names, of the current GPU if none are given.

    Returns the kernels, without those of decoding and of gradients. Raises SpecError, ScheduleError
    for an unknown target, and CompileError.
    """
    return precompile_all(spec, targets, lengths, q_lengths, batch, heads, lse, gradients)[0]


def precompile_all(
    spec: AttentionSpec,
    targets: str | Sequence[str] | None,
    lengths: Range,
    q_lengths: Range,
    batch: Range,
    heads: Range,
    lse: bool | None,
    gradients: bool,
) -> tuple[list[AttentionKernel], list[ModuleKernel]]:
    """What :func:`precompile` does, and the modules as well."""
    if not isinstance(spec, AttentionSpec):
        raise arguments.refusal("spec of precompile", spec, "it is no AttentionSpec",
                                "flashcore.AttentionSpec(head_dim=64)")  # fmt: skip
    wanted = read_ranges(lengths, q_lengths, batch, heads)
    if lse is not None:
        lse = arguments.flag("lse", lse)
    gradients = arguments.flag("gradients", gradients)
    kernels: list[AttentionKernel] = []
    modules: list[ModuleKernel] = []
    for target in read_targets(targets):
        shipped = AttentionKernel.shipped(spec, target, compiled=False)
        kernels += build_kernels(shipped, wanted, lse)
        modules += build_modules(shipped, wanted, lse, gradients)
    return kernels, modules


__all__ = [
    "Problems",
    "build_kernels",
    "build_modules",
    "list_modules",
    "list_schedules",
    "precompile",
    "precompile_all",
    "read_ranges",
    "read_targets",
]
