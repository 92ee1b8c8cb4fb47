"""What the cache of this process has done: for logs, tests and dashboards."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .. import _core, arguments

_SOURCES = ("memory", "bundle", "directory", "folder", "remote", "compiled", "failed")


@dataclass(frozen=True)
class CacheStats:
    """Kernels that were asked for since the process began, by where they were found; bytes of
    machine code; milliseconds, together, of reading with all checks and of compiling."""

    memory: int
    bundle: int
    directory: int
    folder: int
    remote: int
    compiled: int
    failed: int
    bytes_loaded: int
    bytes_compiled: int
    load_ms: float
    compile_ms: float


@dataclass(frozen=True)
class KernelEvent:
    """Something that happened to a kernel.

    `kind` is where one that was asked for was found, "memory", "bundle", "directory", "folder" or
    "remote"; or "compiled"; or "failed"; or what became of its code on a GPU, "loaded" or
    "unloaded". `kernel` is the program and the target, `ms` what it took, and `bytes` the size of
    its machine code (0 where nothing was read).
    """

    kind: str
    kernel: str
    ms: float
    bytes: int


def set_event_hook(hook: Callable[[KernelEvent], None] | None) -> None:
    """Calls hook(event) whenever a kernel was found, compiled, loaded or unloaded, from the thread
    that did it; what it raises is swallowed. None: no hook."""
    if hook is None:
        _core.set_event_hook(None)
        return
    if not callable(hook):
        fix = "a function, as set_event_hook(lambda event: print(event)), or None"
        raise arguments.refusal("the hook of events", hook, "it cannot be called", fix)
    _core.set_event_hook(lambda kind, kernel, ms, size: hook(KernelEvent(kind, kernel, ms, size)))


def cache_stats() -> CacheStats:
    """What the cache of this process has done so far."""
    return CacheStats(**_core.cache_stats())


def prometheus() -> str:
    """:func:`cache_stats` in the text format that Prometheus reads (version 0.0.4)."""
    now = cache_stats()
    lines = [
        "# HELP flashcore_kernels_total Kernels asked for, by where they were found.",
        "# TYPE flashcore_kernels_total counter",
    ]
    lines += [
        f'flashcore_kernels_total{{source="{name}"}} {getattr(now, name)}' for name in _SOURCES
    ]
    for name, help_text, value in (
        ("load_seconds_total", "Time of reading kernels, all checks included.", now.load_ms / 1e3),
        ("compile_seconds_total", "Time of compiling kernels.", now.compile_ms / 1e3),
        ("loaded_bytes_total", "Machine code read.", now.bytes_loaded),
        ("compiled_bytes_total", "Machine code compiled.", now.bytes_compiled),
    ):
        lines += [
            f"# HELP flashcore_{name} {help_text}",
            f"# TYPE flashcore_{name} counter",
            f"flashcore_{name} {value}",
        ]
    return "\n".join(lines) + "\n"


__all__ = ["CacheStats", "KernelEvent", "cache_stats", "prometheus", "set_event_hook"]
