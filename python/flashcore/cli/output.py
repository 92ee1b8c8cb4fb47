"""What commands print: text for people, or one JSON value; errors without tracebacks."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import click

from ..errors import CacheError, DeviceError, Error

NOT_SO = 1
REFUSED = 3
UNUSABLE = 4
INTERRUPTED = 130

Function = TypeVar("Function", bound=Callable[..., Any])


def json_option(function: Function) -> Function:
    """Adds --json. The command asks `wants_json`, or leaves it to `emit`."""

    def note(context: click.Context, _: click.Parameter, value: bool) -> None:
        if value:
            context.find_root().meta[__name__] = True

    return click.option(
        "--json",
        is_flag=True,
        is_eager=True,  # an error of another option is JSON as well
        expose_value=False,
        callback=note,
        help="Print one JSON value.",
    )(function)


def quiet_option(function: Function) -> Function:
    return click.option("-q", "--quiet", is_flag=True, help="No progress bar.")(function)


def wants_json() -> bool:
    return bool(click.get_current_context().find_root().meta.get(__name__))


def emit(value: Any, text: str | Callable[[], str]) -> None:
    """Prints the value with --json, else the text."""
    if wants_json():
        click.echo(json.dumps(value, indent=2))
    else:
        click.echo(text() if callable(text) else text)


class Commands(click.Group):
    """Turns what FlashCore raises into a message and an exit code."""

    def invoke(self, context: click.Context) -> Any:
        try:
            return super().invoke(context)
        except Error as error:
            if context.find_root().meta.get(__name__):
                parts = {"kind": type(error).__name__, "what": error.what, "why": error.why}
                click.echo(json.dumps({"error": parts | {"fix": error.fix}}, indent=2))
            else:
                click.echo(f"flashcore: {error}", err=True)
            context.exit(UNUSABLE if isinstance(error, (CacheError, DeviceError)) else REFUSED)


def table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Columns as wide as what is in them; the last one is as long as it likes."""
    lines = [[str(cell) for cell in row] for row in (header, *rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def size_text(count: float) -> str:
    """ "1.5 MB" for people."""
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"
