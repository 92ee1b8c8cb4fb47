"""flashcore cache: what is in the folder of compiled kernels."""

from __future__ import annotations

import collections
import datetime
import json
import os
import re
from pathlib import Path
from typing import Any

import click

from .. import _core
from ..errors import CacheError, Error
from .output import NOT_SO, emit, json_option, size_text, table

# What a reader may find there; anything else is left alone.
OURS = (".kernel", ".host", ".toolchain", ".damaged")
UNFINISHED = "unfinished."
LOCK = "lock."


@click.group()
@click.option("--dir", "directory", metavar="FOLDER", help="Default: the one that is in use.")
@click.pass_context
def cache(context: click.Context, directory: str | None) -> None:
    """Look into the folder of compiled kernels, check it, and make room in it."""
    context.obj = directory


def _folder(context: click.Context) -> str:
    if context.obj is not None:
        path = os.path.abspath(str(context.obj))
        if not os.path.isdir(path):
            raise CacheError(f"the cache directory {path}", "there is no such folder")
        return path
    directory = str(_core.cache_settings()[0])
    if not directory:
        raise CacheError("no cache directory", "FLASHCORE_CACHE=off", "--dir FOLDER, or unset it")
    return directory


def _entry(folder: str, name: str) -> dict[str, Any]:
    """What the file says. Raises CacheError and CompileError."""
    path = os.path.join(folder, name)
    file = _core.read_cache_file(folder, name)
    if file is None:
        raise CacheError(path, "it is not there, or others may have written it")
    entry = _core.describe_entry(file, path)
    if name != entry["key"] + ".kernel":
        raise CacheError(path, f"it holds the kernel {entry['key']}")
    return entry


def _when(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M")


@cache.command("ls")
@json_option
@click.pass_context
def ls(context: click.Context) -> None:
    """List the kernels, those of the latest use first."""
    folder = _folder(context)
    rows = []
    files = sorted(_core.cache_files(folder), key=lambda file: file[2], reverse=True)
    for name, size, used in files:
        if not name.endswith(".kernel"):
            continue
        row: dict[str, Any] = {"file": name, "bytes": size, "last_use": used}
        try:
            entry = _entry(folder, name)
            row |= {key: entry[key] for key in ("name", "target", "compiler")}
        except Error as error:
            row |= {"damaged": error.why}
        rows.append(row)

    def text() -> str:
        lines = [
            (
                row.get("name", "damaged"),
                row.get("target", "?"),
                row.get("compiler", "?"),
                size_text(row["bytes"]),
                _when(row["last_use"]),
                row["file"],
            )
            for row in rows
        ]
        header = ("kernel", "target", "compiler", "size", "last use", "file")
        return table(header, lines) if lines else f"{folder} holds no kernels"

    emit({"directory": folder, "kernels": rows}, text)


@cache.command("show")
@click.argument("file", metavar="FILE")
@click.option("--source", is_flag=True, help="The CUDA C++ as well.")
@json_option
@click.pass_context
def show(context: click.Context, file: str, source: bool) -> None:
    """Show all that a kernel's file says: a path, or a name in the folder or its beginning."""
    if os.path.isfile(file):
        try:
            content = Path(file).read_bytes()
        except OSError as error:
            raise CacheError(file, str(error.strerror)) from None
        entry = _core.describe_entry(content, file)
    else:
        folder = _folder(context)
        names = [name for name, _, _ in _core.cache_files(folder) if name.endswith(".kernel")]
        fitting = [name for name in names if name.startswith(file)]
        if len(fitting) != 1:
            why = f"{len(fitting)} of {len(names)} names in {folder} begin so"
            raise CacheError(f"the kernel {file!r}", why, "a path, or more of a name")
        entry = _entry(folder, fitting[0])
    entry["code_bytes"] = len(entry.pop("cubin"))
    entry["launch"] = json.loads(entry["launch"])
    body = entry.pop("source")
    entry["source_lines"] = body.count("\n")
    if source:
        entry["source"] = body

    def text() -> str:
        launch = entry["launch"]
        lines = [
            ("kernel", f"{entry['name']} for {entry['target']}, entry point {entry['entry']}"),
            ("key", entry["key"]),
            ("compiler", f"{entry['compiler']}, {entry['compiler_digest']}"),
            ("options", " ".join(entry["options"])),
            ("code", f"{size_text(entry['code_bytes'])}, source of {entry['source_lines']} lines"),
            ("resources", _named(entry["resources"])),
            ("launch", _named({k: v for k, v in launch.items() if isinstance(v, (int, bool))})),
            ("grid", ", ".join(f"{axis['name']} by {axis['tile']}" for axis in launch["grid"])),
        ]
        for tensor in launch["tensors"]:
            kind = "output" if tensor["output"] else "input"
            dims = ", ".join(map(_dimension, tensor["dims"]))
            lines.append((kind, f"{tensor['name']}: {tensor['dtype']} [{dims}]"))
        lines += [("scalar", f"{s['name']}: {s['dtype']}") for s in launch["scalars"]]
        written = "\n".join(f"{name:10} {value}" for name, value in lines)
        return f"{written}\n\n{body}".rstrip("\n") if source else written

    emit(entry, text)


def _dimension(written: Any) -> str:
    """A number, or the name of a length and what is added to it."""
    if isinstance(written, list):
        name, more = written
        return f"{name} + {more}" if more else str(name)
    return str(written)


def _named(values: dict[str, Any]) -> str:
    return ", ".join(f"{name} {str(value).lower()}" for name, value in values.items())


def _kind(name: str) -> str:
    for prefix in (UNFINISHED, LOCK):
        if name.startswith(prefix):
            return prefix.rstrip(".")
    suffix = Path(name).suffix
    return suffix.lstrip(".") if suffix in OURS else "other"


@cache.command("du")
@json_option
@click.pass_context
def du(context: click.Context) -> None:
    """How much room what kind of files takes."""
    folder = _folder(context)
    counts: collections.Counter[str] = collections.Counter()
    sizes: collections.Counter[str] = collections.Counter()
    for name, size, _ in _core.cache_files(folder):
        kind = _kind(name)
        counts[kind] += 1
        sizes[kind] += size
    total, limit = sum(sizes.values()), int(_core.cache_settings()[1])
    value = {kind: {"files": counts[kind], "bytes": sizes[kind]} for kind in sorted(counts)}
    lines = [(kind, str(counts[kind]), size_text(sizes[kind])) for kind in value]
    text = f"{table(('kind', 'files', 'size'), lines)}\n{size_text(total)} of {size_text(limit)}"
    emit({"directory": folder, "bytes": total, "max_bytes": limit, "kinds": value}, text)


@cache.command("verify")
@click.option("--remove", is_flag=True, help="Remove what is damaged.")
@json_option
@click.pass_context
def verify(context: click.Context, remove: bool) -> None:
    """Read every kernel whole, and hold it against its digest and its key.

    Exits with 1 if one is damaged. A call compiles such a kernel again by itself.
    """
    folder = _folder(context)
    names = [name for name, _, _ in _core.cache_files(folder) if name.endswith(".kernel")]
    damaged = []
    for name in names:
        try:
            _entry(folder, name)
        except Error as error:
            damaged.append({"file": name, "why": error.why})
            if remove:
                _core.remove_cache_file(folder, name)
    lines = [f"{row['file']}: {row['why']}" for row in damaged]
    what = f"{len(names)} kernels, {len(damaged)} damaged" + (
        ", removed" * bool(damaged and remove)
    )
    value = {"directory": folder, "kernels": len(names), "damaged": damaged, "removed": remove}
    emit(value, "\n".join([*lines, what]))
    if damaged:
        context.exit(NOT_SO)


class Size(click.ParamType):  # type: ignore[type-arg]
    """ "500MB", "2GiB", or a number of bytes."""

    name = "SIZE"
    units = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "ki": 2**10, "mi": 2**20, "gi": 2**30}

    def convert(self, value: Any, param: Any, context: Any) -> int:
        found = re.fullmatch(r"(\d+)\s*(?:([kmg]i?)?b?)?", str(value).strip().lower())
        if not found:
            self.fail(f"{value!r} is no size such as 500MB or 2GiB", param, context)
        return int(found[1]) * self.units[found[2] or ""]


@cache.command("prune")
@click.option("--max-bytes", type=Size(), help="Default: FLASHCORE_CACHE_MAX_BYTES.")
@click.option("--days", type=click.FloatRange(min=0), help="Also what was not used for so long.")
@click.option("-n", "--dry-run", is_flag=True, help="Say what would go.")
@json_option
@click.pass_context
def prune(context: click.Context, max_bytes: int | None, days: float | None, dry_run: bool) -> None:
    """Remove the kernels that were not used for the longest time."""
    folder = _folder(context)
    limit = int(_core.cache_settings()[1]) if max_bytes is None else max_bytes
    files = _core.cache_files(folder)
    total = sum(size for _, size, _ in files)
    entries = [file for file in files if file[0].endswith((".kernel", ".host"))]
    now = datetime.datetime.now().timestamp()
    gone: list[dict[str, Any]] = []
    for name, size, used in sorted(entries, key=lambda file: file[2]):
        if total > limit or (days is not None and now - used > days * 86400):
            gone.append({"file": name, "bytes": size})
            total -= size
            if not dry_run:
                _core.remove_cache_file(folder, name)
    freed = sum(row["bytes"] for row in gone)
    verb = "would go" if dry_run else "removed"
    text = (
        f"{len(gone)} of {len(entries)} files {verb}, {size_text(freed)}; {size_text(total)} left"
    )
    emit({"directory": folder, "removed": gone, "bytes": total, "dry_run": dry_run}, text)


@cache.command("clear")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@json_option
@click.pass_context
def clear(context: click.Context, yes: bool) -> None:
    """Remove every compiled kernel; schedules that autotune found stay."""
    folder = _folder(context)
    names = [name for name, _, _ in _core.cache_files(folder) if name.endswith(OURS)]
    if not yes:
        click.confirm(f"Remove {len(names)} files from {folder}?", abort=True, err=True)
    for name in names:
        _core.remove_cache_file(folder, name)
    emit({"directory": folder, "removed": len(names)}, f"{len(names)} files removed from {folder}")
