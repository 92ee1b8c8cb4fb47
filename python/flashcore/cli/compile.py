"""flashcore compile: compiles kernels into the cache, ahead of the calls that need them."""

from __future__ import annotations

import itertools
import sys
import time
from typing import Any

import click
from tqdm import tqdm

from .. import _core
from ..ahead_of_time.reach import precompile
from ..kernels.attention_kernel import AttentionKernel
from ..kernels.just_in_time import default_target
from .options import range_options, spec_of
from .output import emit, json_option, quiet_option, table


@click.command("compile")
@click.argument("specs", metavar="SPEC.json|-...", nargs=-1, required=True)
@range_options
@quiet_option
@json_option
def compile_specs(
    specs: tuple[str, ...], targets: list[str] | None, quiet: bool, **ranges: Any
) -> None:
    """Compile every kernel that calls of the specs can launch, into the cache.

    Needs no GPU. A spec is a file written with spec.to_json(); - reads one from the standard input.
    Afterwards no call inside the ranges compiles anything, wherever the cache is brought to.
    """
    read = [spec_of(place) for place in specs]
    names = targets or [default_target()]
    begin = time.perf_counter()
    kernels: list[tuple[str, AttentionKernel]] = []
    work = list(itertools.product(zip(specs, read, strict=True), names))
    hidden = quiet or not sys.stderr.isatty()
    for (place, spec), target in tqdm(work, unit="spec", leave=False, disable=hidden):
        kernels += [(place, kernel) for kernel in precompile(spec, target, **ranges)]
    rows: list[dict[str, Any]] = [
        {
            "spec": place,
            "target": kernel.target,
            "kernel": kernel.name,
            "lse": kernel.spec.lse,
            "tiles": dict(kernel.schedule.tiles),
            "compile_ms": round(kernel.compile_ms, 1),
            "from_cache": kernel.from_cache,
            "registers": kernel.resources["registers"],
        }
        for place, kernel in kernels
    ]
    directory, _ = _core.cache_settings()
    seconds = time.perf_counter() - begin

    def text() -> str:
        lines = [
            (
                row["target"],
                row["kernel"] + (" with LSE" if row["lse"] else ""),
                "x".join(map(str, row["tiles"].values())),
                "in the cache" if row["from_cache"] else f"{row['compile_ms']:.0f} ms",
            )
            for row in rows
        ]
        made = sum(not row["from_cache"] for row in rows)
        what = f"{len(rows)} kernels, {made} of them compiled, in {seconds:.1f} s"
        where = f"kept in {directory}" if directory else "kept nowhere: the cache is off"
        return f"{table(('target', 'kernel', 'tiles', 'compile'), lines)}\n{what}; {where}"

    emit({"kernels": rows, "seconds": round(seconds, 3), "directory": directory or None}, text)
