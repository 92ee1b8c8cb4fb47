"""Where the log goes: to a function of the caller's."""

from __future__ import annotations

from collections.abc import Callable

from .. import _core, arguments


def set_log_hook(hook: Callable[[str, str], None] | None) -> None:
    """Calls hook(level, text) for what is worth knowing, from any thread; None: FLASHCORE_LOG."""
    if hook is not None and not callable(hook):
        fix = "a function, as set_log_hook(lambda level, text: print(level, text)), or None"
        raise arguments.refusal("the hook of the log", hook, "it cannot be called", fix)
    _core.set_log_hook(hook)


__all__ = ["set_log_hook"]
