"""Whether a kernel that is in no cache may be compiled."""

from __future__ import annotations

from typing import Literal

from .. import _core, arguments


def freeze(frozen: bool = True) -> None:
    """From now on a kernel that is not in the cache or a bundle is a CacheMissError, and never a
    compile, in this whole process; as $FLASHCORE_COMPILE=forbid, for a program that has warmed up.
    ``freeze(False)`` goes back to what the environment says."""
    _core.set_compile_mode("forbid" if arguments.flag("frozen", frozen) else None)


def set_compile_mode(mode: Literal["allow", "warn", "tiered", "forbid"] | None) -> None:
    """What happens from now on, in this whole process, to a kernel that is in no cache.

    "allow": it is compiled. "warn": and a warning says so. "tiered": code that is compiled fast
    serves until the optimised, which is compiled beside it, takes its place; both compute the same
    numbers, and :meth:`Kernel.wait_until_optimised` waits. "forbid": CacheMissError. None: as
    $FLASHCORE_COMPILE says. Raises CacheError for any other word.
    """
    if mode is not None and not isinstance(mode, str):
        fix = '"allow", "warn", "tiered", "forbid" or None'
        raise arguments.refusal("the compile mode", mode, "it is no word", fix)
    _core.set_compile_mode(mode)


__all__ = ["freeze", "set_compile_mode"]
