"""flashcore show: everything about one kernel."""

from __future__ import annotations

import json
from typing import Any

import click

from ..kernels.attention_kernel import AttentionKernel
from ..kernels.just_in_time import default_target, jit
from .options import spec_of
from .output import emit, json_option

# What is told without a compiler.
GENERATED = ("source", "explain", "ir")
COMPILED = ("ptx", "sass", "resources")


def _changes(context: click.Context, param: click.Parameter, value: str | None) -> Any:
    if value is None:
        return {}
    try:
        return json.loads(value)
    except ValueError as error:
        raise click.BadParameter(f"it is no JSON: {error}") from None


@click.command()
@click.argument("spec", metavar="SPEC.json|-")
@click.argument("what", type=click.Choice([*GENERATED, *COMPILED]))
@click.option("--target", help="As sm_90a; default: of the GPU.")
@click.option("--schedule", callback=_changes, help='Fields to change: {"stages": 3}.')
@click.option("--after", metavar="PASS", help="With ir: the program after this pass.")
@json_option
def show(spec: str, what: str, target: str | None, schedule: Any, after: str | None) -> None:
    """Show the kernel that a spec gets: its source, what was derived from its masks, its code.

    source, explain and ir need no compiler; sass needs nvdisasm of a CUDA toolkit.
    """
    if after is not None and what != "ir":
        raise click.UsageError("--after goes with ir")
    read = spec_of(spec)
    target = target or default_target()
    if what in COMPILED:
        kernel = jit(read, target, schedule or None)
    else:
        kernel = AttentionKernel(read, read.changed_schedule(target, schedule), target)
    if what == "ir":
        shown: Any = kernel.ir("after:" + after if after else "built")
    else:
        shown = kernel.explain() if what == "explain" else getattr(kernel, what)

    def text() -> str:
        if not isinstance(shown, dict):
            return str(shown).rstrip("\n")
        return "\n".join(f"{name:22}{value:>7}" for name, value in shown.items())

    emit({"target": kernel.target, "kernel": kernel.name, what: shown}, text)
