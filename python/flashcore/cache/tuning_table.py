"""Schedules that won, in a file: what autotune writes and jit reads.

The file is a JSON array; templates/choice/attention_winners.h in the sources says what stands in an
entry and which one is meant for a spec. A schedule changes speed and never meaning; still, the file
that is read without being asked for is held to what the folder of kernels is.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .. import _core
from ..errors import CacheError, ScheduleError
from ..specs.schedule import Schedule
from ..specs.spec import AttentionSpec
from . import private_files
from .table_text import table_text

_FIELDS = (
    "target", "head_dim", "head_dim_v", "mask", "score", "sink", "lengths", "heads", "q_len",
    "kv_len", "blocks",
)  # fmt: skip
_PLAIN = {
    "mask": "full",
    "score": "",
    "sink": "",
    "lengths": "open",
    "heads": None,
    "q_len": None,
    "kv_len": None,
    "blocks": "many",
}

Problem = tuple[int, int, int, int]
"""batch, heads, q_len, kv_len; 0 for what is not known."""
ANY: Problem = (0, 0, 0, 0)

_read: dict[str, tuple[tuple[int, int], str]] = {}
"""The text of files, by path, with the time and size that they had."""
_told: set[str] = set()


def user_file() -> Path | None:
    """$FLASHCORE_SCHEDULES, or schedules.json beside the cached kernels; None if it is "off"."""
    path = _core.schedules_file()
    return None if path is None else Path(path)


def winner_for(
    spec: AttentionSpec,
    target: str,
    problem: Problem = ANY,
    path: str | os.PathLike[str] | None = None,
) -> Schedule | None:
    """What the user's file, or the one at `path`, holds for the spec.

    A file that was named and cannot be used is a CacheError. The usual one is left aside then, with
    a warning: kernels have to come about without it. So is an entry that cannot be used, with a
    line in the log.
    """
    file = user_file() if path is None else Path(path)
    if file is None:
        return None
    named = path is not None or _is_named()
    try:
        text = _text(file, named)
        if text is None:
            return None
        found = _core.winning_schedule(spec.to_json(), target, text, *problem)
        return None if found is None else Schedule.from_json(found)
    except (OSError, UnicodeDecodeError, ScheduleError) as error:
        why = error.why if isinstance(error, ScheduleError) else str(error)
        fix = "remove it, or name another in FLASHCORE_SCHEDULES (off: none)"
        if named:
            raise CacheError(f"cannot use the schedules of {file}", why, fix) from None
        if str(file) not in _told:
            _told.add(str(file))
            warnings.warn(f"cannot use the schedules of {file}: {why}; {fix}", stacklevel=3)
        return None


def text() -> str:
    """The user's whole table; empty if there is none that can be used."""
    file = user_file()
    if file is None:
        return ""
    try:
        return _text(file, _is_named()) or ""
    except (OSError, UnicodeDecodeError):
        return ""  # winner_for says so


def _is_named() -> bool:
    """Whether the user has chosen the file, rather than where it lies by itself."""
    return _core.schedules_variable() is not None


def _text(file: Path, named: bool) -> str | None:
    try:
        status = file.stat()
        stamp = status.st_mtime_ns, status.st_size
        known = _read.get(str(file))
        if known is None or known[0] != stamp:
            known = _read[str(file)] = private_files.read(file, private=not named)
            _core.log_unusable_winners(known[1], str(file))
    except FileNotFoundError:
        # autotune makes the file that the variable names.
        return None
    return known[1]


def key_for(spec: AttentionSpec, target: str, problem: Problem = ANY) -> dict[str, Any]:
    """The fields of an entry that say what it is for."""
    key: dict[str, Any] = json.loads(_core.winner_key(spec.to_json(), target, *problem))
    return key


def write(
    path: str | os.PathLike[str],
    keys: Sequence[Mapping[str, Any]],
    schedule: Schedule,
    measured: Mapping[str, Any],
) -> None:
    """Puts the schedule into the table at `path`, in the place of what was there for each key.

    Other entries stay. Readers see the old table or the new one. Raises CacheError.
    """
    file = Path(path)
    new: list[dict[str, Any]] = []
    for key in keys:  # of several shapes, of which some may be alike
        if dict(key) not in new:
            new.append(dict(key))
    plain = json.loads(_core.normal_schedule('{"tiles": {}}'))
    named = json.loads(schedule.to_json())
    fields = {name: value for name, value in named.items() if value != plain[name]}
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with private_files.lock(_lock_of(file), f"write the schedules to {file}"):
            there, others = _entries(file)
            entries = [entry for entry in there if _key(entry) not in new]
            entries += [key | {"schedule": fields, "measured": dict(measured)} for key in new]
            entries.sort(key=lambda entry: json.dumps([entry[name] for name in _FIELDS]))
            text = table_text([*entries, *others]) + "\n"
            handle, aside = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
            with os.fdopen(handle, "w") as out:
                out.write(text)
            os.chmod(aside, 0o644)
            os.replace(aside, file)
            _core.tell_of_new_winners()
    except OSError as error:
        raise CacheError(
            f"cannot write the schedules to {file}", str(error), "write= another file"
        ) from None


def _key(entry: Mapping[str, Any]) -> dict[str, Any]:
    full = _PLAIN | {"head_dim_v": None} | dict(entry)
    full["head_dim_v"] = full["head_dim_v"] or full["head_dim"]
    return {name: full[name] for name in _FIELDS}


def _entries(file: Path) -> tuple[list[dict[str, Any]], list[Any]]:
    """Those of a table, and what stands among them and is none."""
    if not file.exists():
        return [], []
    try:
        there = json.loads(private_files.read(file, private=False)[1])
        if isinstance(there, list):
            whole = [e for e in there if isinstance(e, dict) and {"target", "head_dim"} <= e.keys()]
            others = [entry for entry in there if entry not in whole]
            return [_key(entry) | entry for entry in whole], others
        why = "it is not a JSON array"
    except RecursionError:
        why = "its brackets nest too deep to be read"
    except ValueError as error:
        why = f"it is no JSON: {error}"
    raise CacheError(
        f"cannot add to the schedules of {file}", why, "remove it, or write= another file"
    )


def _lock_of(file: Path) -> Path:
    """Of two searches that end at once, neither loses an entry."""
    # Not beside the file, which may lie in a source tree, but with the kernels.
    folder = Path(_core.cache_directory_path() or file.parent)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    digest = hashlib.sha256(str(file.resolve()).encode()).hexdigest()[:16]
    return folder / f"schedules-{digest}.lock"


__all__ = ["ANY", "Problem", "key_for", "text", "user_file", "winner_for", "write"]
