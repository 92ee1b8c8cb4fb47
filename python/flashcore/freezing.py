"""No compile from here on."""

from __future__ import annotations

from . import _core, arguments


def freeze(frozen: bool = True) -> None:
    """From now on a kernel that is not in the cache or a bundle is a CacheMissError, and never a
    compile, in this whole process; as $FLASHCORE_COMPILE=forbid, for a program that has warmed up.
    ``freeze(False)`` goes back to what the environment says."""
    _core.set_frozen(arguments.flag("frozen", frozen))


__all__ = ["freeze"]
