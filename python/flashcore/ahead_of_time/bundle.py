"""Bundles: the kernels of any number of specs and targets in one file, made without a GPU."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import _core, arguments
from ..errors import CacheError, SpecError
from ..kernels.attention_kernel import AttentionKernel
from ..kernels.just_in_time import default_target
from ..kernels.kernel import Kernel
from ..kernels.module_kernel import ModuleKernel
from ..kernels.program_kernel import ProgramKernel
from ..specs.program import Program
from ..specs.schedule import Schedule
from ..specs.spec import AttentionSpec
from . import reach

PathLike = str | os.PathLike[str]
_FILE = "a file written with flashcore.build_bundle"


@dataclass(frozen=True)
class BundledKernel:
    """One kernel, as the manifest of a bundle tells of it."""

    key: str  # what the cache would call it
    kernel: str  # the program's name and the target
    target: str
    bytes: int
    digest: str  # BLAKE2b of its entry


class Bundle:
    """An open bundle. Raises CacheError for a file that is damaged, that somebody else may have
    written, or whose signer is not among $FLASHCORE_BUNDLE_SIGNERS, if that is set."""

    def __init__(self, path: PathLike):
        self.path = Path(arguments.path("the path of a bundle", path, _FILE))
        self._core = _core.Bundle(str(self.path))

    @property
    def kernels(self) -> list[BundledKernel]:
        """All, sorted by key."""
        return [BundledKernel(*kernel) for kernel in self._core.kernels]

    @property
    def plans(self) -> list[dict[str, Any]]:
        """What was asked for when it was built: each spec, the ranges, and the keys of the kernels
        that calls inside them can launch."""
        plans: list[dict[str, Any]] = json.loads(self._core.plans)
        return plans

    @property
    def signer(self) -> str | None:
        """The public key of who signed it."""
        return self._core.signer

    def use(self) -> None:
        """From now on its kernels serve in this process, whichever compiler made them."""
        self._core.use()

    def verify(self) -> int:
        """Reads every kernel and checks all of it; how many there are. Raises CacheError and
        CompileError."""
        for kernel in self.kernels:
            facts = _core.describe_entry(self._core.entry(kernel.key), f"a kernel of {self.path}")
            told = (facts["key"], f"{facts['name']} for {facts['target']}", facts["target"])
            if told != (kernel.key, kernel.kernel, kernel.target):
                raise CacheError(
                    f"{self.path} contradicts itself",
                    f"its manifest says {kernel.kernel}, and what lies there is {told[1]}",
                    "make it anew",
                )
        return len(self.kernels)

    def entries(self) -> list[bytes]:
        """The files of the cache that it is made of."""
        return [self._core.entry(kernel.key) for kernel in self.kernels]

    def __repr__(self) -> str:
        return f"<flashcore.Bundle {self.path} of {len(self.kernels)} kernels>"


@dataclass(frozen=True)
class BundleDifference:
    """Kernels that one bundle has and the other lacks, and those that differ in their code."""

    only_first: list[BundledKernel]
    only_second: list[BundledKernel]
    changed: list[BundledKernel]

    def __bool__(self) -> bool:
        return bool(self.only_first or self.only_second or self.changed)


@dataclass(frozen=True)
class PlannedKernel:
    """A kernel that calls can launch: under the first of the schedules that fits."""

    spec: AttentionSpec
    target: str
    schedules: list[Schedule]
    lse: bool
    program: str = "attention_forward"


def plan_bundle(
    specs: AttentionSpec | Iterable[AttentionSpec],
    targets: str | Sequence[str] | None = None,
    *,
    lengths: reach.Range = None,
    q_lengths: reach.Range = None,
    batch: reach.Range = None,
    heads: reach.Range = None,
    lse: bool | None = None,
    gradients: bool = False,
) -> list[PlannedKernel]:
    """What :func:`build_bundle` would compile, without compiling anything."""
    given = [specs] if isinstance(specs, AttentionSpec) else list(specs)
    wanted = reach.read_ranges(lengths, q_lengths, batch, heads)
    planned = []
    for spec in given:
        for target in reach.read_targets(targets):
            every = [
                ("attention_forward", texts, with_lse)
                for texts, with_lse in reach.list_schedules(spec, target, wanted, lse)
            ] + reach.list_modules(spec, target, wanted, lse, gradients)
            for program, texts, with_lse in every:
                schedules = [Schedule.from_json(text) for text in texts]
                planned.append(PlannedKernel(spec, target, schedules, with_lse, program))
    return planned


def build_bundle(
    specs: AttentionSpec | Iterable[AttentionSpec],
    path: PathLike,
    targets: str | Sequence[str] | None = None,
    *,
    lengths: reach.Range = None,
    q_lengths: reach.Range = None,
    batch: reach.Range = None,
    heads: reach.Range = None,
    lse: bool | None = None,
    gradients: bool = False,
    sign_with: PathLike | None = None,
) -> Bundle:
    """Compiles every kernel that calls of the specs can launch, and writes them to `path`.

    Targets, ranges, `lse` and `gradients` are those of :func:`precompile`. `sign_with` is the file
    of a secret key, made by :func:`make_signing_key`. The same kernels give the same bytes, on any
    machine with the same compiler. Needs no GPU. Raises what precompile raises, and CacheError.
    """
    given = [specs] if isinstance(specs, AttentionSpec) else list(specs)
    if not given:
        raise SpecError("specs of build_bundle", "there are none", "one AttentionSpec, or several")
    ranges = {"lengths": lengths, "q_lengths": q_lengths, "batch": batch, "heads": heads}
    wanted = reach.read_ranges(**ranges)
    plans, content = [], _Content()
    for spec in given:
        kernels, modules = reach.precompile_all(
            spec, targets, **ranges, lse=lse, gradients=gradients
        )
        plan = content.planned(spec, kernels, modules, wanted)
        plans.append(plan | {"ranges": ranges, "lse": lse, "gradients": gradients})
    return _write(path, content, plans, sign_with)


def merge_bundles(
    bundles: Iterable[Bundle | PathLike], path: PathLike, *, sign_with: PathLike | None = None
) -> Bundle:
    """One bundle of all their kernels."""
    opened = [_opened(bundle) for bundle in bundles]
    content = _Content()
    for bundle in opened:
        content.add_bundle(bundle)
    plans = {json.dumps(p, sort_keys=True): p for bundle in opened for p in bundle.plans}
    return _write(path, content, list(plans.values()), sign_with)


def diff_bundles(first: Bundle | PathLike, second: Bundle | PathLike) -> BundleDifference:
    """What two bundles have not in common."""
    one, other = ({k.key: k for k in _opened(bundle).kernels} for bundle in (first, second))
    return BundleDifference(
        [kernel for key, kernel in one.items() if key not in other],
        [kernel for key, kernel in other.items() if key not in one],
        [k for key, k in one.items() if key in other and other[key].digest != k.digest],
    )


def sign_bundle(path: PathLike, sign_with: PathLike) -> Bundle:
    """Writes the bundle anew, signed, in place of the one that is there."""
    bundle, content = Bundle(path), _Content()
    content.add_bundle(bundle)
    return _write(path, content, bundle.plans, sign_with)


def make_signing_key(path: PathLike) -> str:
    """Writes a new secret key to a file of mode 0600, which must not exist yet; the public key,
    which goes into $FLASHCORE_BUNDLE_SIGNERS of those who shall believe it."""
    return _core.make_signing_key(arguments.path("the file of a key", path, "a new file"))


def use_bundle(path: PathLike) -> Bundle:
    """Opens a bundle, whose kernels serve from now on."""
    bundle = Bundle(path)
    bundle.use()
    return bundle


def save(kernel: Kernel, path: PathLike, gradients: bool, ranges: dict[str, Any]) -> Bundle:
    """What :meth:`Kernel.save` does."""
    content = _Content()
    gradients = arguments.flag("gradients", gradients)
    if gradients and not isinstance(kernel, AttentionKernel):
        raise arguments.refusal("gradients", gradients, "the kernel is not one of attention",
                                "gradients=False")  # fmt: skip
    if isinstance(kernel, AttentionKernel) and kernel._chooses:
        wanted = reach.read_ranges(**ranges)
        kernels = reach.build_kernels(kernel, wanted, None)
        modules = reach.build_modules(kernel, wanted, None, gradients)
        plan = content.planned(kernel.spec, kernels, modules, wanted)
        plan["ranges"] = ranges
    else:
        plan = {
            "target": kernel.target,
            "schedule": json.loads(kernel.schedule.to_json()),
            "probe": list(kernel._probe),
        }
        if isinstance(kernel, AttentionKernel):
            plan["spec"] = json.loads(kernel.spec.to_json())
        else:
            plan["program"] = kernel.program.text
        content.add(kernel)
        if isinstance(kernel, AttentionKernel) and not kernel._probe:
            content.add(kernel._returning_lse())
        if gradients and isinstance(kernel, AttentionKernel):
            every = reach.read_ranges()
            derivative = kernel._derivative()
            for backward in derivative.reachable(True, every.q_lengths, every.lengths):
                for part in backward.kernels:
                    content.add(part)
    return _write(path, content, [plan], None)


def load_kernel(path: PathLike, target: str | None = None) -> Any:
    """The kernel that :meth:`Kernel.save` wrote, or that of a bundle with one spec.

    `target` is one of those that it was made for, by default that of the current GPU. What the
    file holds is not compiled again, whichever compiler made it. Arrays that expressions captured
    are not in it: calls give them as ``captured={...}``. Raises CacheError, and CompileError where
    it has no kernel of the target.
    """
    bundle = use_bundle(path)
    if len(bundle.plans) != 1:
        raise CacheError(
            f"load_kernel({str(path)!r})",
            f"the bundle is of {len(bundle.plans)} specs",
            "flashcore.use_bundle(path), and jit of each",
        )
    (plan,) = bundle.plans
    targets = sorted({kernel.target for kernel in bundle.kernels})
    wanted = default_target() if target is None else arguments.target_name(target)
    if target is None and wanted not in targets and _core.gpu_target() is None:
        wanted = targets[0]
    if wanted not in targets:
        raise CacheError(
            f"load_kernel({str(path)!r})",
            f"it was made for {', '.join(targets)}, and not for {wanted}",
            f"a bundle built for {wanted}",
        )
    if "program" in plan:
        schedule = Schedule.from_json(json.dumps(plan["schedule"]))
        return ProgramKernel(Program(plan["program"]), schedule, wanted, plan["probe"])
    spec = AttentionSpec.from_json(json.dumps(plan["spec"]))
    if "schedule" in plan:
        schedule = Schedule.from_json(json.dumps(plan["schedule"]))
        return AttentionKernel(spec, schedule, wanted, plan["probe"])
    return AttentionKernel.shipped(spec, wanted, compiled=False)


class _Content:
    """The kernels of a bundle to be, and which of them answers what `jit` asks before it generates
    code."""

    def __init__(self) -> None:
        self.entries: list[bytes] = []
        self.requests: dict[str, str] = {}

    def add(self, kernel: Kernel, of_flat: bool = False) -> str:
        """Compiles the kernel if need be; its key."""
        entry = kernel._core.entry(of_flat)
        key: str = _core.describe_entry(entry, "")["key"]
        self.entries.append(entry)
        self._answer(kernel._core.request(of_flat), key)
        return key

    def add_bundle(self, bundle: Bundle) -> None:
        self.entries += bundle.entries()
        for request, key in bundle._core.requests.items():
            self._answer(request, key)

    def planned(
        self,
        spec: AttentionSpec,
        kernels: Iterable[AttentionKernel],
        modules: Iterable[ModuleKernel],
        wanted: reach.Problems,
    ) -> dict[str, Any]:
        """Adds the kernels of a spec; what the bundle says of them."""
        every: list[Kernel] = [*kernels, *(part for module in modules for part in module.kernels)]
        flat = [False, True] if wanted.exceed_grid else [False]
        keys = {self.add(kernel, of_flat) for kernel in every for of_flat in flat}
        return {"spec": json.loads(spec.to_json()), "kernels": sorted(keys)}

    def _answer(self, request: str, key: str) -> None:
        # Of kernels that two compilers made the same one, whatever the order they come in.
        self.requests[request] = min(key, self.requests.get(request, key))


def _opened(bundle: Bundle | PathLike) -> Bundle:
    return bundle if isinstance(bundle, Bundle) else Bundle(bundle)


def _write(
    path: PathLike, content: _Content, plans: list[Any], sign_with: PathLike | None
) -> Bundle:
    name = arguments.path("the path of a bundle", path, "the path of a file to write")
    key = None if sign_with is None else arguments.path("sign_with", sign_with, "a file")
    text = json.dumps(plans, sort_keys=True)
    data = _core.write_bundle(content.entries, text, key, content.requests)
    _core.save_bundle(name, data)
    return Bundle(name)


__all__ = [
    "Bundle",
    "BundleDifference",
    "BundledKernel",
    "build_bundle",
    "diff_bundles",
    "load_kernel",
    "make_signing_key",
    "merge_bundles",
    "plan_bundle",
    "sign_bundle",
    "use_bundle",
]
