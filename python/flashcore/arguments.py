"""Checks of callers' arguments: an error names the parameter, its value and what would work."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import math
import operator
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from . import _core
from .arrays import is_array
from .errors import Error, ScheduleError, SpecError

Kind = TypeVar("Kind")

_LARGEST = 2**31 - 1  # what compiled code counts with
_SHOWN = 60
_LONGEST_PATH = 4096


def described(value: Any) -> str:
    """A value in a few words: itself where it is short, else what kind of thing it is."""
    if is_array(value) and not isinstance(value, type):
        dtype = str(value.dtype).removeprefix("torch.")
        return f"an array of {dtype} {list(value.shape)}"
    if value is None or isinstance(value, (bool, int, float, str, bytes)):
        text = repr(value)
        return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
    if isinstance(value, (list, tuple, dict, set)):
        size = len(value)
        return f"a {type(value).__name__} of {size}" if size else f"an empty {type(value).__name__}"
    if isinstance(value, type):
        return f"the class {value.__qualname__}"
    name = getattr(value, "__qualname__", None)
    if callable(value) and isinstance(name, str):
        return f"the function {name}"
    return f"a value of type {type(value).__qualname__}"


def refusal(parameter: str, value: Any, why: str, fix: str, kind: type[Error] = SpecError) -> Error:
    """The error to raise for a parameter's value."""
    return kind(f"{parameter} = {described(value)}", why, fix)


def nearest(name: str, known: Iterable[str]) -> str:
    """The known name that was probably meant, as the beginning of a sentence; else nothing."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f'"{close[0]}" is close; ' if close else ""


def unknown(name: str, known: Iterable[str], otherwise: str) -> tuple[str, str]:
    """Why a name that is not known is refused, and the beginning of what to write instead."""
    names = list(known)
    present = _core.present_name(name) if is_text(name) else ""
    if present in names:
        return f"it is called {present} now", f'"{present}"; '
    return otherwise, nearest(name, names)


def whole(parameter: str, value: Any, fix: str, kind: type[Error] = SpecError) -> int:
    """A whole number, of Python or of any library that has some."""
    if isinstance(value, bool) or (is_array(value) and value.shape != ()):
        raise refusal(parameter, value, "it is not a whole number", fix, kind)
    try:
        number = operator.index(value)
    except TypeError:
        raise refusal(parameter, value, "it is not a whole number", fix, kind) from None
    if not -_LARGEST - 1 <= number <= _LARGEST:
        why = f"it is beyond {_LARGEST}, the largest number that kernels count with"
        raise refusal(parameter, value, why, fix, kind)
    return number


def flag(parameter: str, value: Any, kind: type[Error] = SpecError) -> bool:
    """True or False, NumPy's included; not what merely counts as true."""
    if isinstance(value, bool) or type(value).__name__ in ("bool", "bool_"):
        return bool(value)
    raise refusal(parameter, value, "it is neither True nor False", "True or False", kind)


def one_of(
    parameter: str, value: Any, choices: Sequence[str], kind: type[Error] = SpecError
) -> str:
    """One of some texts; a misspelt one is told which is close."""
    if isinstance(value, str) and value in choices:
        return value
    why, close = "there is no such choice", ""
    if isinstance(value, str):
        why, close = unknown(value, choices, why)
    known = ", ".join(f'"{choice}"' for choice in choices)
    raise refusal(parameter, value, why, f"{close}one of {known}", kind)


def names(parameter: str, value: Any) -> tuple[str, ...]:
    """Names of values in a program: one, or several in a list."""
    if is_text(value):
        return (value,)
    if isinstance(value, (list, tuple)) and all(is_text(name) for name in value):
        return tuple(value)
    fix = f'a name as in {parameter}="scores", or a list of names'
    raise refusal(parameter, value, "values of a program are called by name", fix)


def target_name(value: Any) -> str:
    """The name of a target. Which targets there are is for the compiler to say."""
    if is_text(value) and len(value) <= _SHOWN:
        return str(value)
    fix = 'target="sm_90"; flashcore.targets() has all'
    number = value if isinstance(value, int) and not isinstance(value, bool) else 0
    if f"sm_{number}" in _core.targets():
        fix = f'target="sm_{number}"'
    raise refusal("target", value, "a target is given by its name", fix, ScheduleError)


def number(
    parameter: str, value: Any, fix: str, kind: type[Error] = SpecError, so: str = ""
) -> float:
    """A finite number; `so` says what becomes of others."""
    if not isinstance(value, (bool, str, bytes, bytearray)) and getattr(value, "shape", ()) == ():
        try:
            found = float(value)
        except (TypeError, ValueError, OverflowError):
            pass
        else:
            if math.isfinite(found):
                return found
            raise refusal(parameter, value, f"it is not a finite number{so}", fix, kind)
    raise refusal(parameter, value, "it is not a finite number", fix, kind)


def is_text(value: Any) -> bool:
    """Whether it is a str that UTF-8 can write: half of a character cannot."""
    try:
        return isinstance(value, str) and value.encode() is not None
    except UnicodeEncodeError:
        return False


def real(parameter: str, value: Any) -> int | float:
    """A lone number, which may be NaN or infinite."""
    found = value
    if getattr(value, "shape", None) == () and hasattr(value, "item"):
        found = value.item()
    if isinstance(found, float):
        return found
    if isinstance(found, int) and abs(found) < 2**63:
        return int(found)  # NumPy computes with half a float where it is given a bool
    fix = "a number, or what a mask or a score is given while it is traced"
    raise refusal(parameter, value, "it is not a number", fix)


def array(parameter: str, value: Any) -> None:
    """Refuses what is no array that kernels could read."""
    if not (hasattr(value, "shape") and is_array(value)):
        raise refusal(parameter, value, "it is no array", "an array of NumPy, torch, CuPy or JAX")


def _vector(parameter: str, value: Any) -> None:
    array(parameter, value)
    if len(value.shape) != 1:
        why = f"it has {len(value.shape)} dimensions"
        raise refusal(parameter, value, why, "one dimension: int32, a number for every sequence")


def _tensor(parameter: str, value: Any) -> None:
    array(parameter, value)
    if len(value.shape) < 3:
        fix = "[batch, heads, length, head_dim], or as the layout says"
        raise refusal(parameter, value, f"it has {len(value.shape)} dimensions", fix)


_LAYOUTS = ("bhsd", "bshd", "thd")
_NEEDED = ("q", "k", "v", "query", "key", "value")
_OF_CALLS: dict[str, Callable[[str, Any], Any]] = {
    **dict.fromkeys(_NEEDED, _tensor),
    **dict.fromkeys(("out", "attn_mask"), array),
    **dict.fromkeys(("cu_seqlens_q", "cu_seqlens_k", "q_lens", "kv_lens"), _vector),
    **dict.fromkeys(("return_lse", "is_causal", "enable_gqa", "checked"), flag),
    **dict.fromkeys(("scale", "dropout_p"), lambda at, x: number(at, x, "a finite number")),
    "layout": lambda at, x: one_of(at, x, _LAYOUTS),
    "max_q_len": lambda at, x: whole(at, x, "the length of the longest sequence of q, or more"),
    "max_kv_len": lambda at, x: whole(at, x, "the length of the longest sequence of k, or more"),
}


def blamed(call: str, given: Mapping[str, Any], error: Exception) -> Error | None:
    """The refusal of the argument that made a call of attention stumble, None if there is none.

    A call looks at its arguments as if they were right, since that is what costs nothing. `given`
    are the arguments by name, and may hold more.
    """
    if isinstance(error, Error):
        return None
    for name, check in _OF_CALLS.items():
        if name in given and (given[name] is not None or name in _NEEDED):
            try:
                check(f"{name} of {call}", given[name])
            except Error as found:
                return found
    return None


def fields_by_name(noun: str, kind: type[Error]) -> Callable[[type[Kind]], type[Kind]]:
    """For dataclasses: fields that are unknown, missing or given without names are refused."""

    def decorate(of: type[Kind]) -> type[Kind]:
        every = dataclasses.fields(of)  # type: ignore[arg-type]
        known = [field.name for field in every]
        missing = (dataclasses.MISSING, dataclasses.MISSING)
        needed = [f.name for f in every if (f.default, f.default_factory) == missing]
        init = of.__init__

        @functools.wraps(init)
        def checked(self: Any, *positional: Any, **given: Any) -> None:
            fields = f"the fields are {', '.join(known)}"
            if positional:
                value, name = positional[0], known[0]
                why = f"the fields of {noun} are given by name"
                raise refusal(noun, value, why, f"{of.__name__}({name}=...); {fields}", kind)
            for name in given:
                if name not in known:
                    title = f'the field "{name}" of {noun}'
                    why, fix = unknown(name, known, "there is no such field")
                    raise kind(title, why, fix + fields)
            for name in needed:
                if name not in given:
                    fix = f"{of.__name__}({name}=...)"
                    raise kind(f"{noun} without {name}", f"{name} has no default", fix)
            init(self, **given)

        of.__init__ = checked  # type: ignore[method-assign]
        return of

    return decorate


def path(parameter: str, value: Any, fix: str) -> str:
    """The path of a file, as text."""
    if isinstance(value, (str, os.PathLike)):
        found = os.fspath(value)
        if is_text(found) and 0 < len(found) <= _LONGEST_PATH and "\0" not in found:
            return str(found)
    raise refusal(parameter, value, "it is not the path of a file", fix)


__all__ = [
    "array",
    "blamed",
    "described",
    "fields_by_name",
    "flag",
    "is_text",
    "names",
    "nearest",
    "number",
    "one_of",
    "path",
    "real",
    "refusal",
    "target_name",
    "unknown",
    "whole",
]
