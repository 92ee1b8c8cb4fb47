"""Whether a kernel that is in no cache may be compiled."""

from __future__ import annotations

from typing import Literal

from .. import _core, arguments


def freeze(frozen: bool = True) -> None:
    """From now on a kernel that is not in the cache or a bundle is a CacheMissError, and never a
    compile, in this whole process; as $FLASHCORE_COMPILE=forbid, for a program that has warmed up.
    ``freeze(False)`` goes back to what the environment says."""
    _core.set_compile_mode("forbid" if arguments.flag("frozen", frozen) else None)


def set_compile_mode(mode: Literal["allow", "warn", "tiered", "eager", "forbid"] | None) -> None:
    """What happens from now on, in this whole process, to a kernel that is in no cache.

    "allow": it is compiled, for a call beside which another kernel of the spec serves meanwhile, in
    the background. "warn": and a warning says so. "tiered": code that is compiled fast serves until
    the optimised, which is compiled beside it, takes its place; both compute the same numbers.
    "eager": it is compiled, and the call waits, so that every call runs the kernel that is best for
    its lengths. "forbid": CacheMissError. None: as $FLASHCORE_COMPILE says. Raises CacheError for
    any other word.

    :meth:`Kernel.wait_until_optimised` waits for what is compiled in the background.
    """
    if mode is not None and not isinstance(mode, str):
        fix = '"allow", "warn", "tiered", "eager", "forbid" or None'
        raise arguments.refusal("the compile mode", mode, "it is no word", fix)
    _core.set_compile_mode(mode)


__all__ = ["freeze", "set_compile_mode"]
