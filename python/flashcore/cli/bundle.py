"""flashcore bundle: files with the kernels of many specs and targets."""

from __future__ import annotations

import itertools
import sys
from dataclasses import asdict
from typing import Any

import click
from tqdm import tqdm

from ..ahead_of_time import bundle as bundles
from ..ahead_of_time.reach import precompile
from ..kernels.just_in_time import default_target
from .options import range_options, spec_of
from .output import NOT_SO, emit, json_option, quiet_option, size_text, table

OUTPUT = click.option("-o", "--output", metavar="FILE.fcb", required=True)
SIGN = click.option("--sign-with", metavar="SECRET.key", help="Sign with this key.")


@click.group()
def bundle() -> None:
    """Make, check and compare bundles of kernels; none of it needs a GPU."""


def _kernels(found: list[bundles.BundledKernel]) -> list[dict[str, Any]]:
    return [asdict(kernel) for kernel in found]


def _told(made: bundles.Bundle) -> None:
    kernels = made.kernels
    total = sum(kernel.bytes for kernel in kernels)
    signed = f"signed by {made.signer}" if made.signer else "unsigned"
    value = {"path": str(made.path), "kernels": len(kernels), "bytes": total}
    text = f"{made.path}: {len(kernels)} kernels, {size_text(total)}, {signed}"
    emit(value | {"signer": made.signer}, text)


@bundle.command()
@click.argument("specs", metavar="SPEC.json|-...", nargs=-1, required=True)
@range_options
@json_option
def plan(specs: tuple[str, ...], targets: list[str] | None, **ranges: Any) -> None:
    """List every kernel that calls of the specs can launch, without compiling any."""
    planned = [
        (place, kernel)
        for place in specs
        for kernel in bundles.plan_bundle(spec_of(place), targets, **ranges)
    ]
    rows: list[dict[str, Any]] = [
        {
            "spec": place,
            "target": kernel.target,
            "program": kernel.program,
            "lse": kernel.lse,
            "tiles": dict(kernel.schedules[0].tiles),
            "fallbacks": len(kernel.schedules) - 1,
        }
        for place, kernel in planned
    ]

    def text() -> str:
        header = ("spec", "target", "program", "LSE", "tiles", "fallbacks")
        lines = [
            (row["spec"], row["target"], row["program"], "yes" if row["lse"] else "no",
             "x".join(map(str, row["tiles"].values())), row["fallbacks"])
            for row in rows
        ]  # fmt: skip
        return f"{table(header, lines)}\n{len(rows)} kernels"

    emit({"kernels": rows}, text)


@bundle.command()
@click.argument("specs", metavar="SPEC.json|-...", nargs=-1, required=True)
@OUTPUT
@range_options
@SIGN
@quiet_option
@json_option
def build(
    specs: tuple[str, ...],
    output: str,
    targets: list[str] | None,
    sign_with: str | None,
    quiet: bool,
    **ranges: Any,
) -> None:
    """Compile every kernel that calls of the specs can launch, into one file."""
    read = [spec_of(place) for place in specs]
    targets = targets or [default_target()]
    if not quiet and sys.stderr.isatty():
        # What is compiled here, under a bar, the bundle takes from the cache.
        for spec, target in tqdm(list(itertools.product(read, targets)), unit="spec", leave=False):
            precompile(spec, target, **ranges)
    _told(bundles.build_bundle(read, output, targets, sign_with=sign_with, **ranges))


@bundle.command()
@click.argument("file", metavar="FILE.fcb")
@json_option
def verify(file: str) -> None:
    """Read every kernel whole, and check digests, the manifest and the signature."""
    opened = bundles.Bundle(file)
    count = opened.verify()
    signed = f"signed by {opened.signer}" if opened.signer else "unsigned"
    emit({"kernels": count, "signer": opened.signer}, f"{file}: {count} kernels, whole; {signed}")


@bundle.command("list")
@click.argument("file", metavar="FILE.fcb")
@json_option
def list_kernels(file: str) -> None:
    """List the kernels, and what they were built for."""
    opened = bundles.Bundle(file)

    def text() -> str:
        rows = [(k.kernel, size_text(k.bytes), k.key) for k in opened.kernels]
        signed = f"signed by {opened.signer}" if opened.signer else "unsigned"
        what = f"{len(rows)} kernels for {len(opened.plans)} specs, {signed}"
        return f"{table(('kernel', 'size', 'key'), rows)}\n{what}"

    value = {"kernels": _kernels(opened.kernels), "plans": opened.plans, "signer": opened.signer}
    emit(value, text)


@bundle.command()
@click.argument("files", metavar="FILE.fcb...", nargs=-1, required=True)
@OUTPUT
@SIGN
@json_option
def merge(files: tuple[str, ...], output: str, sign_with: str | None) -> None:
    """Write one bundle with the kernels of all."""
    _told(bundles.merge_bundles(files, output, sign_with=sign_with))


@bundle.command()
@click.argument("first", metavar="FILE.fcb")
@click.argument("second", metavar="FILE.fcb")
@json_option
@click.pass_context
def diff(context: click.Context, first: str, second: str) -> None:
    """Say which kernels two bundles do not have in common; exits with 1 if there are any."""
    found = bundles.diff_bundles(first, second)
    parts: dict[str, list[bundles.BundledKernel]] = {
        "only_first": found.only_first,
        "only_second": found.only_second,
        "changed": found.changed,
    }

    def lines(sign: str, of: list[bundles.BundledKernel]) -> list[str]:
        return [f"{sign} {kernel.kernel} {kernel.key}" for kernel in of]

    def text() -> str:
        signs = zip("-+!", parts.values(), strict=True)
        every = [line for sign, of in signs for line in lines(sign, of)]
        return "\n".join(every) if every else "the same kernels"

    emit({name: _kernels(of) for name, of in parts.items()}, text)
    if found:
        context.exit(NOT_SO)


@bundle.command()
@click.argument("file", metavar="SECRET.key")
@json_option
def keygen(file: str) -> None:
    """Write a new secret key to a file, and print the public key that belongs to it."""
    public = bundles.make_signing_key(file)
    emit({"secret_key_file": file, "public_key": public}, public)


@bundle.command()
@click.argument("file", metavar="FILE.fcb")
@click.option("--key", metavar="SECRET.key", required=True, help="As keygen made it.")
@json_option
def sign(file: str, key: str) -> None:
    """Sign a bundle, in place of the one that is there."""
    _told(bundles.sign_bundle(file, key))
