"""flashcore calibrate: the cost model of the GPU that is here."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import click

from .. import _core
from ..errors import CacheError


@click.command()
@click.option("--problems", type=click.IntRange(4), default=30, show_default=True,
              help="Random problems of each of twelve specs.")  # fmt: skip
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--measurements", type=click.Path(dir_okay=False, path_type=Path),
              help="Keep the times in this file, or go by those that it holds.")  # fmt: skip
@click.option("--write", "path", type=click.Path(dir_okay=False, path_type=Path),
              help="The file of coefficients.  [default: FLASHCORE_COST_MODEL]")  # fmt: skip
@click.option("--check", is_flag=True,
              help="Compare the choice with what is best; measure no coefficients.")  # fmt: skip
def calibrate(
    problems: int, seed: int, measurements: Path | None, path: Path | None, check: bool
) -> None:
    """Measure how long kernels take on this GPU, for the choice among schedules.

    Kernels are chosen by a cost model whose coefficients were measured on some GPUs. This measures
    them on the GPU that is here, in two minutes, and writes them where kernels find them
    (FLASHCORE_COST_MODEL). It takes PyTorch and SciPy: pip install 'flashcore[tune]'.
    """
    from ..tuning import cost_model as costs
    from ..tuning.measurements import Measurements

    def say(text: str) -> None:
        click.echo(text, err=True)

    if measurements is not None and measurements.exists():
        found = Measurements.load(measurements)
    else:
        found = costs.measure(problems, seed, say)
        if measurements is not None:
            found.save(measurements)
    if check:
        summarize([loss for loss, *_ in costs.losses(found, None)], found.gpu)
        return
    entry, error = costs.fit(found)
    named = path or (Path(file) if (file := _core.cost_model_file()) else None)
    if named is None:
        raise CacheError("nowhere to write the coefficients", "there is no directory of kernels",
                         "--write, or FLASHCORE_COST_MODEL")  # fmt: skip
    costs.write(named, entry)
    click.echo(f"{named}: coefficients of {len(entry['families'])} families, off by "
               f"{100 * error:.1f} % in the mean")  # fmt: skip
    summarize([loss for loss, *_ in costs.losses(found, json.dumps([entry]))], found.gpu)


def summarize(losses: Sequence[float], gpu: str) -> None:
    mean = sum(losses) / len(losses) - 1
    click.echo(
        f"{gpu}, {len(losses)} problems: the schedule that is chosen takes {100 * mean:.1f} % more "
        f"than the best in the mean, {100 * (max(losses) - 1):.0f} % at worst; more than 15 % for "
        f"{sum(loss > 1.15 for loss in losses)}"
    )


__all__ = ["calibrate"]
