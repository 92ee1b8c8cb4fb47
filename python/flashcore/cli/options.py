"""Options that several commands take."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from ..kernels.just_in_time import read
from ..specs.spec import AttentionSpec

Function = TypeVar("Function", bound=Callable[..., Any])


class Numbers(click.ParamType):  # type: ignore[type-arg]
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


class Targets(click.ParamType):  # type: ignore[type-arg]
    """Names with commas between them."""

    name = "TARGET,..."

    def convert(self, value: Any, param: Any, context: Any) -> list[str]:
        names = value if isinstance(value, list) else str(value).split(",")
        return [name.strip() for name in names if name.strip()]


def range_options(function: Function) -> Function:
    """Adds targets, ranges, lse and gradients, as precompile takes them."""
    options = (
        click.option("--target", "targets", type=Targets(), help="Default: of the GPU."),
        click.option("--lengths", type=Numbers(), help="Of k, and of q; default: any."),
        click.option("--q-lengths", type=Numbers(), help="Of q, where they are others."),
        click.option("--batch", type=Numbers(), help="How many sequences; default: any."),
        click.option("--heads", type=Numbers(), help="Default: any."),
        click.option("--lse/--no-lse", default=None,
                     help="Whether calls ask for the LSE; default: some do."),
        click.option("--gradients", is_flag=True, help="Also the kernels of gradients."),
    )  # fmt: skip
    for option in reversed(options):
        function = option(function)
    return function


def spec_of(place: str) -> AttentionSpec:
    """The spec of a file, or of the standard input for "-". Raises SpecError."""
    if place == "-":
        return AttentionSpec.from_json(sys.stdin.read())
    return read(Path(place))
