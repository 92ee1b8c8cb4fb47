"""flashcore tune: a search for a faster schedule on this GPU."""

from __future__ import annotations

import click

from .output import NOT_SO, REFUSED


@click.command(
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
)
@click.argument("spec", metavar="SPEC.json", type=click.Path(exists=True, dir_okay=False))
@click.pass_context
def tune(context: click.Context, spec: str) -> None:
    """Search for the fastest schedule of a spec on the GPU that is here.

    Further options are those of `python -m flashcore.tune --help`: --shapes, --seconds, --each,
    --log, --write, --quiet, --json. jit finds the winner by itself.
    """
    from .. import tune as search

    try:
        code = search.main(["--spec", spec, *context.args])
    except SystemExit as usage:  # argparse's
        code = int(usage.code or 0)
        context.exit(code)
    context.exit(REFUSED if code == 1 else NOT_SO if code else 0)
