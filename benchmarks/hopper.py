"""Every bar of the Hopper kernels in one run: forward, small, and variants, ours beside the peers.

    python benchmarks/hopper.py --out results
    python benchmarks/hopper.py --only forward --dims 128 --lengths 8192 --dtypes bf16 --quick
    python benchmarks/hopper.py --only forward --dims 64 --schedule '{"stages": 3}'

forward: 16k tokens, 2048 / head_dim heads, in TFLOP/s, and as a fraction of what torch's product of
two 8192 x 8192 matrices of bf16 makes in the same run. small: single calls inside a CUDA graph.
variants: masks and scores beside FlexAttention. Rows are printed as they come, and hopper.json and
hopper.md are rewritten with each. A row that fails is reported, and the others go on.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from contest import PEERS, build_kernels, measure, row_of, spec_of
from fa3_peer import find_fa3
from flex_peer import Variant, pair, variant
from gpu_timing import Timer, hear_warnings, machine, require_gpu
from options import SUSTAINED, numbers, words
from report import Row, cells, header, mean_and_least, summary, table

SECTIONS = ["forward", "small", "variants"]
MASKS = ["full", "causal"]
TOKENS = 16384
PRODUCT = 8192  # rows and columns of the matrices that a forward pass is held against
COLUMNS = ["cudnn", "flash", "fa3", "best"]

LENGTHS = [512, 1024, 2048, 4096, 8192, 16384]
SMALL = [  # batch, heads, length, head_dim
    (1, 8, 256, 64),
    (1, 8, 512, 64),
    (1, 8, 1024, 64),
    (1, 16, 512, 128),
    (4, 16, 128, 64),
]


@dataclass(frozen=True)
class Case:
    name: str
    kind: str  # of flex_peer.py
    size: int
    cost: bool = False  # whether its time is set against the plain causal mask's


VARIANTS = [
    Case("window 1024", "window", 1024),
    Case("prefix 1000, causal", "prefix_causal", 1000),
    Case("documents of 1000, causal", "causal_documents", 1000),
    Case("ALiBi, causal", "alibi_causal", 0, cost=True),
    Case("softcap 30, causal", "softcap_causal", 30, cost=True),
]
VARIANT_LENGTHS = [4096, 8192]
VARIANT_DIMS = [64, 128]


@dataclass
class VariantRow:
    name: str
    head_dim: int
    length: int
    ours_ms: float = math.nan
    flex_ms: float = math.nan
    causal_ms: float = math.nan  # ours, with the plain causal mask
    error: float = math.nan

    @property
    def ratio(self) -> float:
        return self.flex_ms / self.ours_ms

    @property
    def cost(self) -> float:
        return self.ours_ms / self.causal_ms


@dataclass
class Results:
    where: str
    forward: list[Row] = field(default_factory=list)
    small: list[Row] = field(default_factory=list)
    variants: list[VariantRow] = field(default_factory=list)
    products: list[float] = field(default_factory=list)  # TFLOP/s, over the run
    schedules: dict[str, Any] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    @property
    def product(self) -> float:
        return statistics.median(self.products) if self.products else math.nan


def figure(value: float | None, digits: int = 2) -> str:
    return f"{value:.{digits}f}" if value is not None and math.isfinite(value) else "-"


def spread(ratios: Sequence[float | None], digits: int = 3) -> str:
    """Geometric mean and least of those that there are."""
    found = mean_and_least([r for r in ratios if r is not None and math.isfinite(r)])
    if found is None:
        return "no rows"
    return f"geometric mean {found[0]:.{digits}f}, least {found[1]:.{digits}f}"


FORWARD_HEADER = [*header(COLUMNS), "of the product"]
SMALL_HEADER = ["shape", "mask", "ours, µs", "cuDNN, µs", "FlashAttention 2, µs", "ours / best"]
VARIANT_HEADER = ["case", "head_dim", "length", "ours, ms", "flex, ms", "flex / ours",
                  "ours / causal"]  # fmt: skip


def forward_cells(row: Row, product: float) -> list[str]:
    return [*cells(row, COLUMNS), figure(row.ours / product)]


def small_cells(row: Row) -> list[str]:
    speeds = [row.ours, row.speed("cudnn"), row.speed("flash")]
    times = [figure(row.operations / speed / 1e6 if speed else None) for speed in speeds]
    shape = f"B{row.batch} H{row.heads} S{row.length} D{row.head_dim}"
    return [shape, row.mask, *times, figure(time_ratio(row))]


def time_ratio(row: Row) -> float | None:
    """Below 1 where FlashCore is faster than every peer."""
    ratio = row.ratio("best")
    return 1 / ratio if ratio else None


def variant_cells(row: VariantRow) -> list[str]:
    times = [figure(ms, 3) for ms in (row.ours_ms, row.flex_ms)]
    return [row.name, str(row.head_dim), str(row.length), *times, figure(row.ratio),
            figure(row.cost)]  # fmt: skip


def forward_lines(results: Results) -> list[str]:
    """What the bars are about."""
    rows = results.forward
    lines = [f"ours / best peer: {spread([row.ratio('best') for row in rows])}"]
    known = [row for row in rows if row.ratio("best")]
    if known:
        worst = min(known, key=lambda row: row.ratio("best") or 0)
        what = f"{worst.dtype} {worst.head_dim} {worst.mask} {worst.length}"
        lines.append(f"least row: {what} at {worst.ratio('best'):.3f}")
    lines.append(f"torch's product: {figure(results.product, 0)} TFLOP/s")
    for dtype, head_dim in itertools.product(["bf16", "fp16"], [128, 256, 64]):
        for row in rows:
            if (row.dtype, row.head_dim, row.mask, row.length) == (dtype, head_dim, "full", 8192):
                share = figure(row.ours / results.product, 3)
                lines.append(f"{dtype} head_dim {head_dim} full 8k: {share} of the product")
    return lines


def variant_lines(rows: Sequence[VariantRow]) -> list[str]:
    lines = [f"FlexAttention / ours, times: {spread([row.ratio for row in rows])}"]
    for case in VARIANTS:
        costs = [row.cost for row in rows if row.name == case.name and math.isfinite(row.cost)]
        if costs:
            lines.append(f"{case.name}: at most {max(costs):.3f} of the time of plain causal")
    return lines


def markdown(results: Results, every_row: bool = True) -> str:
    """The sections that ran: what the bars are about, and then the rows."""

    def section(title: str, lines: Sequence[str], *tables: str) -> list[str]:
        return [f"## {title}", "\n".join(f"- {line}" for line in lines), *tables]

    def rows_of(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
        return [table(titles, rows)] if every_row else []

    parts = [results.where]
    if rows := results.forward:
        by_group = summary(rows, ["best", "fa3", "cudnn", "flash"])
        every = rows_of(FORWARD_HEADER, [forward_cells(row, results.product) for row in rows])
        parts += section("Forward, TFLOP/s", forward_lines(results), by_group, *every)
    if rows := results.small:
        most = max((ratio for row in rows if (ratio := time_ratio(row))), default=None)
        every = rows_of(SMALL_HEADER, [small_cells(row) for row in rows])
        parts += section("Small, in a CUDA graph", [f"ours / best: most {figure(most, 3)}"], *every)
    if variants := results.variants:
        every = rows_of(VARIANT_HEADER, [variant_cells(row) for row in variants])
        parts += section("Variants beside FlexAttention", variant_lines(variants), *every)
    if results.problems:
        parts += section("Problems", results.problems)
    return "\n\n".join(parts) + "\n"


class Run:
    """One run: what it measures with, and where its results go."""

    def __init__(self, fc: Any, torch: Any, options: argparse.Namespace):
        self.fc, self.torch, self.options = fc, torch, options
        self.timer = Timer(torch, options.sustained_ms)
        self.warnings = hear_warnings(fc)
        self.fa3 = find_fa3(torch)
        self.results = Results(machine(torch))
        self.budget_ms = 120.0 if options.quick else 400.0
        self.kernels: dict[Any, Any] = {}

    def build(self) -> None:
        """Every kernel of the run, in parallel, before anything is timed."""
        options, specs = self.options, {}
        self.variants: dict[tuple[Case, int, int], Variant] = {}
        if "forward" in options.only:
            for key in itertools.product(options.dtypes, options.dims, MASKS):
                specs[key] = spec_of(self.fc, *key)
        if "small" in options.only:
            for head_dim, mask in itertools.product(self.small_dims(), MASKS):
                specs["bf16", head_dim, mask] = spec_of(self.fc, "bf16", head_dim, mask)
        if "variants" in options.only:
            for head_dim in self.variant_dims():
                specs["bf16", head_dim, "causal"] = spec_of(self.fc, "bf16", head_dim, "causal")
            for key in itertools.product(VARIANTS, self.variant_dims(), self.variant_lengths()):
                case, head_dim, length = key
                heads = row_of("bf16", head_dim, "full", length, TOKENS).heads
                given = variant(self.fc, self.torch, case.kind, case.size, length, heads)
                self.variants[key] = given
                specs[key] = self.fc.AttentionSpec(head_dim=head_dim, **given.arguments)
        self.kernels = build_kernels(self.fc, specs, options.schedule)
        for key, kernel in self.kernels.items():
            if not isinstance(kernel, self.fc.Error) and isinstance(key[0], str):
                name = " ".join(map(str, key))
                schedule = json.loads(kernel.schedule.to_json())
                self.results.schedules[name] = {**schedule, "resources": dict(kernel.resources)}

    def small_dims(self) -> list[int]:
        return sorted({head_dim for *_, head_dim in SMALL} & set(self.options.dims))

    def variant_dims(self) -> list[int]:
        return [head_dim for head_dim in VARIANT_DIMS if head_dim in self.options.dims]

    def variant_lengths(self) -> list[int]:
        return [length for length in VARIANT_LENGTHS if length in self.options.lengths]

    def attempt(self, name: str, fill: Callable[[], list[str]]) -> None:
        """A row that fails is a problem of its own."""
        try:
            found = fill()
        except Exception as error:
            found = [" ".join(f"{type(error).__name__}: {error}".split())]
        found += self.warnings
        self.warnings.clear()
        for problem in found:
            self.results.problems.append(f"{name}: {problem}")
            print(f"! {name}: {problem}", flush=True)

    def kernel(self, key: Any) -> Any:
        kernel = self.kernels[key]
        if isinstance(kernel, self.fc.Error):
            raise kernel
        return kernel

    def save(self) -> None:
        out, results = self.options.out, self.results
        out.mkdir(parents=True, exist_ok=True)
        figures = asdict(results) | {"product": results.product}
        (out / "hopper.json").write_text(json.dumps(figures, indent=2))
        (out / "hopper.md").write_text(markdown(results))

    def time_product(self) -> list[str]:
        """Between the rows, so that its median has seen the clocks of the whole run."""
        torch = self.torch
        a, b = (torch.randn(PRODUCT, PRODUCT, device="cuda", dtype=torch.bfloat16) for _ in "ab")
        out = torch.empty_like(a)
        (ms,) = self.timer.interleaved([lambda _: torch.mm(a, b, out=out)], self.budget_ms / 4)
        self.results.products.append(2 * PRODUCT**3 / ms / 1e9)
        return []

    def forward(self) -> None:
        options, results = self.options, self.results
        line = "{:>5} {:>8} {:>7} {:>7} {:>10}" + " {:>16} {:>6}" * len(COLUMNS) + " {:>15}"
        print(line.format(*FORWARD_HEADER), flush=True)
        for key in itertools.product(options.dtypes, options.dims, MASKS):
            self.attempt("torch's product", self.time_product)
            for length in options.lengths:
                row = row_of(*key, length, TOKENS)
                name = f"forward {' '.join(map(str, key))} {length}"
                self.attempt(name, lambda key=key, row=row: self.contest(key, row))
                results.forward.append(row)
                print(line.format(*forward_cells(row, results.product)), flush=True)
                self.save()
        self.attempt("torch's product", self.time_product)

    def contest(self, key: Any, row: Row) -> list[str]:
        kernel = self.kernel(key)
        return measure(
            self.torch, self.timer, kernel, row, list(PEERS), self.budget_ms, fa3=self.fa3
        )

    def small(self) -> None:
        line = "{:>18} {:>7} {:>9} {:>10} {:>21} {:>12}"
        print(line.format(*SMALL_HEADER), flush=True)
        for (batch, heads, length, head_dim), mask in itertools.product(SMALL, MASKS):
            if head_dim not in self.options.dims:
                continue
            key = ("bf16", head_dim, mask)
            row = Row(*key, length, math.nan, batch=batch, heads=heads)
            name = f"small B{batch} H{heads} S{length} D{head_dim} {mask}"
            self.attempt(name, lambda key=key, row=row: self.contest(key, row))
            self.results.small.append(row)
            print(line.format(*small_cells(row)), flush=True)
            self.save()

    def compare_variants(self) -> None:
        line = "{:>25} {:>8} {:>7} {:>9} {:>9} {:>12} {:>14}"
        print(line.format(*VARIANT_HEADER), flush=True)
        for key in self.variants:
            case, head_dim, length = key
            row = VariantRow(case.name, head_dim, length)
            name = f"variants {case.name} {head_dim} {length}"
            self.attempt(name, lambda key=key, row=row: self.against_flex(key, row))
            self.results.variants.append(row)
            print(line.format(*variant_cells(row)), flush=True)
            self.save()

    def against_flex(self, key: tuple[Case, int, int], row: VariantRow) -> list[str]:
        case, head_dim, length = key
        of = row_of("bf16", head_dim, case.kind, length, TOKENS)
        shape = (of.batch, of.heads, length, head_dim)
        dtype = self.torch.bfloat16
        inputs = [self.torch.randn(shape, device="cuda", dtype=dtype) for _ in range(3)]
        runs, row.error, problem = pair(self.torch, self.kernel(key), self.variants[key], inputs)
        problems = [problem] if problem else []
        if problem and problem.startswith("WRONG"):
            return problems
        names = ["ours_ms", "flex_ms"][: len(runs)]
        if case.cost:
            plain, out = self.kernel(("bf16", head_dim, "causal")), self.torch.empty_like(inputs[0])
            runs.append(lambda _: plain(*inputs, out=out))
            names.append("causal_ms")
        for name, ms in zip(names, self.timer.interleaved(runs, self.budget_ms), strict=True):
            setattr(row, name, ms)
        return problems


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", type=words, default=SECTIONS, help=f"of {', '.join(SECTIONS)}")
    parser.add_argument("--dims", type=numbers, default=[64, 128, 256])
    parser.add_argument("--lengths", type=numbers, default=LENGTHS, help="not of small")
    parser.add_argument("--dtypes", type=words, default=["bf16", "fp16"], help="of forward")
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--sustained-ms", type=float, default=0, help=SUSTAINED)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--schedule", type=json.loads, help='fields to change: {"stages": 3}')
    parser.add_argument("--out", type=Path, default=Path("build/hopper"), help="a folder")
    options = parser.parse_args()
    if unknown := [name for name in options.only if name not in SECTIONS]:
        parser.error(f"--only {','.join(unknown)}: {', '.join(SECTIONS)}")
    return options


def main() -> int:
    options = parse()
    torch = require_gpu()
    import flashcore as fc

    fc.set_compile_mode("eager")  # no kernel for other lengths serves meanwhile
    torch.manual_seed(options.seed)
    run = Run(fc, torch, options)
    print(run.results.where, flush=True)
    run.build()
    actions = {"forward": run.forward, "small": run.small, "variants": run.compare_variants}
    for section in SECTIONS:
        if section in options.only:
            actions[section]()
            print(flush=True)
    run.save()
    print(markdown(run.results, every_row=False))
    print(f"written to {options.out}/hopper.json and hopper.md")
    return 1 if run.results.problems else 0


if __name__ == "__main__":
    sys.exit(main())
