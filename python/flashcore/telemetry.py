"""What the cache of this process has done: for logs, tests and dashboards."""

from __future__ import annotations

from dataclasses import dataclass

from . import _core

_SOURCES = ("memory", "bundle", "directory", "compiled", "failed")


@dataclass(frozen=True)
class CacheStats:
    """Kernels that were asked for since the process began, by where they were found; bytes of
    machine code; milliseconds, together, of reading with all checks and of compiling."""

    memory: int
    bundle: int
    directory: int
    compiled: int
    failed: int
    bytes_loaded: int
    bytes_compiled: int
    load_ms: float
    compile_ms: float


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


__all__ = ["CacheStats", "cache_stats", "prometheus"]
