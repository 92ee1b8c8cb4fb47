"""flashcore doctor: what this machine has, what it lacks, and how to mend it."""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import os
import platform
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import click

from .. import __version__, _core, environment
from ..ahead_of_time.bundle import Bundle
from ..arguments import nearest
from ..cache import remote
from ..errors import CacheError, Error
from ..host import sass
from .output import NOT_SO, emit, json_option, size_text

# In the order of severity; only the last one makes the command fail.
GOOD, NOTE, MISSING = "ok", "note", "MISSING"


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    about: str
    state: str
    what: str
    fix: str = ""


def _asked(about: str, ask: Callable[[], str], otherwise: str) -> Finding:
    """What `ask` says; where it raises, the error, which counts as `otherwise`."""
    try:
        return Finding(about, GOOD, ask())
    except Error as error:
        reason = f": {error.why}" if error.why else ""
        return Finding(about, otherwise, error.what + reason, error.fix)


def _versions() -> list[Finding]:
    found = [f"flashcore {__version__}", f"Python {platform.python_version()}"]
    for name in ("numpy", "ml_dtypes", "torch"):
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            if importlib.util.find_spec(name) is None:
                found.append(f"no {name}")
    return [Finding("versions", GOOD, ", ".join(found))]


def _gpu() -> list[Finding]:
    def ask() -> str:
        state = _core.driver_state()
        devices = ", ".join(f"{d['name']} ({d['architecture']})" for d in state["devices"])
        return f"driver for CUDA {state['cuda']}; {devices}"

    found = _asked("GPU", ask, NOTE)
    if found.state == GOOD:
        return [found]
    # Kernels are compiled ahead, and emulated, without one.
    return [Finding("GPU", NOTE, found.what, found.fix)]


def _nvrtc(may_compile: bool) -> list[Finding]:
    def ask() -> str:
        state = _core.compiler_state()
        if not state["present"]:
            return f"none here; kernels that any NVRTC made are taken from {_directory()}"
        return f"{state['version']} at {state['library']}"

    found = _asked("NVRTC", ask, MISSING if may_compile else NOTE)
    findings = [found]
    if not may_compile:
        why = "compiling is forbidden: a kernel that any NVRTC made serves"
        findings.append(Finding("compiling", NOTE, why))
    elif found.state == GOOD and found.what.startswith("none"):
        why = "nothing can be compiled here: a kernel that any NVRTC made serves, others are errors"
        findings.append(Finding("compiling", NOTE, why, "pip install 'flashcore[nvrtc]'"))
    return findings


def _directory() -> str:
    return _core.cache_settings()[0]


def _cache() -> list[Finding]:
    directory, limit = _core.cache_settings()
    if not directory:
        why = "kernels are kept nowhere, and compiled anew in every process"
        return [Finding("cache", NOTE, why, "unset FLASHCORE_CACHE, or set FLASHCORE_CACHE_DIR")]

    def ask() -> str:
        files = _core.cache_files(directory)
        kernels = sum(name.endswith(".kernel") for name, _, _ in files)
        total = sum(size for _, size, _ in files)
        return f"{directory}: {kernels} kernels, {size_text(total)} of {size_text(limit)}"

    found = _asked("cache", ask, MISSING)
    if found.state == GOOD and not os.access(directory, os.W_OK):
        fix = "set FLASHCORE_CACHE_DIR to a folder of yours, if kernels are to be compiled here"
        return [found, Finding("cache", NOTE, "it cannot be written; kernels in it serve", fix)]
    return [found]


def _bundles() -> list[Finding]:
    """Those that FLASHCORE_BUNDLES names: a process that cannot take one says so and goes on."""

    def ask(path: str) -> str:
        opened = Bundle(path)
        signed = f"signed by {opened.signer}" if opened.signer else "unsigned"
        return f"{path}: {len(opened.kernels)} kernels, {signed}"

    paths = os.environ.get("FLASHCORE_BUNDLES", "").split(":")
    return [_asked("bundle", functools.partial(ask, path), MISSING) for path in paths if path]


def _folders() -> list[Finding]:
    """Those that FLASHCORE_CACHE_READ names: a process that cannot take one goes on likewise."""

    def ask(path: str) -> str:
        if not os.path.isdir(path):
            fix = "mount it, or leave it out of FLASHCORE_CACHE_READ"
            raise CacheError(f"the folder {path}", "it is not there", fix)
        files = _core.cache_files(path)
        return f"{path}: {sum(name.endswith('.kernel') for name, _, _ in files)} kernels, only read"

    paths = os.environ.get("FLASHCORE_CACHE_READ", "").split(":")
    return [_asked("folder", functools.partial(ask, path), MISSING) for path in paths if path]


def _remote() -> list[Finding]:
    def ask() -> str:
        url, writes, signer = _core.remote_variables()
        assert url is not None
        remote.check(url)
        written = "read and written" if writes else "only read"
        return f"{url}: {written}{', signed' if writes and signer else ''}"

    return [_asked("store", ask, MISSING)] if os.environ.get("FLASHCORE_REMOTE") else []


def _variables() -> list[Finding]:
    findings = []
    known = {name: meaning for name, _, meaning in environment()}
    for name in sorted(name for name in os.environ if name.startswith("FLASHCORE_")):
        if name in known:
            findings.append(Finding(name, GOOD, f"{os.environ[name]} ({known[name]})"))
        else:
            close = nearest(name, known)
            fix = f"{close}flashcore.environment() lists those that are read"
            findings.append(Finding(name, NOTE, "FlashCore reads no variable of this name", fix))
    return findings


def findings() -> list[Finding]:
    """All that the command prints; raises nothing."""
    settings = _asked("settings", lambda: str(_core.cache_settings()), MISSING)
    compile_word = _asked("FLASHCORE_COMPILE", _core.compile_mode, MISSING)
    found = _versions() + _gpu()
    if compile_word.state != GOOD:
        found.append(compile_word)
    if settings.state == GOOD:
        found += (
            _nvrtc(compile_word.what != "forbid") + _cache() + _folders() + _bundles() + _remote()
        )
    else:
        found.append(settings)
    found.append(_asked("host compiler", _core.host_compiler, NOTE))
    found.append(_asked("disassembler", sass.find_disassembler, NOTE))
    told = {finding.about for finding in found}
    return found + [finding for finding in _variables() if finding.about not in told]


@click.command()
@json_option
@click.pass_context
def doctor(context: click.Context) -> None:
    """Say what this machine has, what is missing, and how to mend it.

    Exits with 1 where something is missing that kernels need: a compiler that is to be used, a
    cache folder that is refused, a variable that cannot be read. No GPU is none of these: kernels
    are compiled for others, and run in the emulator, without.
    """
    found = findings()
    good = all(finding.state != MISSING for finding in found)

    def text() -> str:
        width = max(len(finding.about) for finding in found)
        lines = []
        for finding in found:
            what = finding.what.replace("\n", f"\n{'':{width + 9}}")
            lines.append(f"{finding.state:7}  {finding.about:{width}}  {what}")
            if finding.fix:
                lines.append(f"{'':{width + 9}}  try: {finding.fix}")
        return "\n".join(lines)

    value: dict[str, Any] = {"ok": good, "version": __version__}
    emit(value | {"findings": [asdict(finding) for finding in found]}, text)
    if not good:
        context.exit(NOT_SO)
