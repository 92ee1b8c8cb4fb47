"""Options that several commands take."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from ..just_in_time import read
from ..spec import AttentionSpec


class Numbers(click.ParamType):
    """ "4096", or a range "1..8192" with both ends."""

    name = "NUMBER|LEAST..MOST"

    def convert(self, value: Any, param: Any, context: Any) -> tuple[int, int]:
        if isinstance(value, tuple):
            return value
        least, separator, most = str(value).partition("..")
        try:
            return int(least), int(most if separator else least)
        except ValueError:
            self.fail(f"{value!r} is neither a number nor a range such as 1..8192", param, context)


class Targets(click.ParamType):
    """Names with commas between them."""

    name = "TARGET,..."

    def convert(self, value: Any, param: Any, context: Any) -> list[str]:
        names = value if isinstance(value, list) else str(value).split(",")
        return [name.strip() for name in names if name.strip()]


def spec_of(place: str) -> AttentionSpec:
    """The spec of a file, or of the standard input for "-". Raises SpecError."""
    if place == "-":
        return AttentionSpec.from_json(sys.stdin.read())
    return read(Path(place))
