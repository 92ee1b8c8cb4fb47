"""What masks and scores cost and what they save: FlashCore, and FlexAttention compiled by torch.

    python benchmarks/variants.py
    python benchmarks/variants.py --head-dims 128 --only causal,window --json variants.json

Work should follow the mask: a row's ratio compares its time with that of the row it is set against,
for the same head_dim; both run in turns. FlexAttention runs the same function, with a block mask
that is made before the clock starts; --tune lets torch tune its kernels. Outputs are compared
before anything is timed.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from contest import row_of
from flex_peer import pair, variant
from gpu_timing import Timer, machine, require_gpu
from options import numbers


@dataclass(frozen=True)
class Case:
    name: str
    kind: str  # of flex_peer.py
    size: int
    length: int
    against: str | None  # whose time the ratio is taken with
    most: float | None  # what the ratio should stay under, for head_dim 128


# In this order, so that what a row is compared with has been timed.
CASES = [
    Case("full_8k", "full", 0, 8192, None, None),
    Case("causal_8k", "causal", 0, 8192, "full_8k", 0.56),
    Case("full_16k", "full", 0, 16384, None, None),
    Case("window_1024_16k", "window", 1024, 16384, "full_16k", 0.12),
    Case("documents_8x1k_8k", "documents", 1024, 8192, "full_8k", 0.20),
    Case("causal_documents_8x1k_8k", "causal_documents", 1024, 8192, "full_8k", None),
    Case("prefix_1k_causal_8k", "prefix_causal", 1024, 8192, "full_8k", None),
    Case("chunked_1k_8k", "chunked", 1024, 8192, "full_8k", None),
    Case("softcap_causal_8k", "softcap_causal", 20, 8192, "causal_8k", 1.15),
    Case("alibi_causal_8k", "alibi_causal", 0, 8192, "causal_8k", 1.15),
    Case("relative_bias_causal_8k", "relative_bias_causal", 0, 8192, "causal_8k", None),
    Case("dense_bias_full_8k", "dense_bias", 0, 8192, "full_8k", None),
    Case("dense_mask_8k", "dense_mask", 0, 8192, "full_8k", None),
    Case("sinks_causal_8k", "sinks_causal", 0, 8192, "causal_8k", None),
]


@dataclass
class Row:
    name: str
    head_dim: int
    against: str | None
    most: float | None
    ours_ms: float = math.nan
    flex_ms: float = math.nan
    ours_ratio: float = math.nan
    flex_ratio: float = math.nan
    error: float = math.nan


def runs_of(
    fc: Any, torch: Any, case: Case, row: Row, options: argparse.Namespace
) -> tuple[list[Any], str | None]:
    """FlashCore's call and, where it can, FlexAttention's; what is wrong with them."""
    of = row_of("bf16", row.head_dim, case.kind, case.length, options.tokens)
    shape = (of.batch, of.heads, of.length, of.head_dim)
    inputs = [torch.randn(shape, device="cuda", dtype=torch.bfloat16) for _ in range(3)]
    given = variant(fc, torch, case.kind, case.size, case.length, of.heads)
    spec = fc.AttentionSpec(head_dim=row.head_dim, **given.arguments)
    kernel = fc.jit(spec, schedule=options.schedule)
    kernel.prepare(torch.cuda.current_device())
    if options.no_flex or not given.in_flex:
        out = torch.empty_like(inputs[0])
        return [lambda _: kernel(*inputs, out=out)], None
    runs, row.error, problem = pair(torch, kernel, given, inputs, options.tune)
    return runs, problem


def fill(timer: Timer, row: Row, runs: list[Any], base: list[Any], budget_ms: float) -> None:
    """The times of a row, in turns with what it is set against."""
    times = timer.interleaved([*runs, *base], budget_ms)
    row.ours_ms, row.flex_ms = [*times[: len(runs)], math.nan][:2]
    if base:
        base_ms = [*times[len(runs) :], math.nan]
        row.ours_ratio, row.flex_ratio = row.ours_ms / base_ms[0], row.flex_ms / base_ms[1]


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--head-dims", type=numbers, default=[64, 128])
    parser.add_argument("--only", help="parts of names, by commas; what they compare with runs too")
    parser.add_argument("--tokens", type=int, default=16384)
    parser.add_argument("--budget-ms", type=float, default=400, help="GPU time for one row")
    parser.add_argument("--no-flex", action="store_true", help="FlashCore alone")
    parser.add_argument("--tune", action="store_true", help="let torch tune FlexAttention")
    parser.add_argument("--schedule", type=json.loads, help='fields to change: {"stages": 3}')
    parser.add_argument("--json", type=Path, help="write every figure there")
    return parser.parse_args()


def chosen(only: str | None) -> list[Case]:
    if only is None:
        return CASES
    picked = [case for case in CASES if any(part in case.name for part in only.split(","))]
    needed = {case.against for case in picked}
    needed |= {case.against for case in CASES if case.name in needed}
    return [case for case in CASES if case in picked or case.name in needed]


def main() -> int:
    options = parse()
    torch = require_gpu()
    import flashcore as fc

    fc.set_compile_mode("eager")  # no kernel for other lengths serves meanwhile
    torch.manual_seed(1)
    timer, where = Timer(torch), machine(torch)
    print(where, flush=True)
    line = "{:>25} {:>4} {:>9} {:>9} {:>6} {:>7} {:>7} {:>6} {:>6}"
    print(line.format("case", "dim", "ours ms", "flex ms", "x", "ours /", "flex /", "most", ""))
    rows: list[Row] = []
    problems: list[str] = []
    for head_dim in options.head_dims:
        made: dict[str | None, list[Any]] = {None: []}
        for case in chosen(options.only):
            row = Row(case.name, head_dim, case.against, case.most)
            try:
                made[case.name], problem = runs_of(fc, torch, case, row, options)
                base = made.get(case.against, [])
                fill(timer, row, made[case.name], base, options.budget_ms)
            except fc.Error as error:
                problem = str(error)
            if problem:
                problems.append(f"{case.name} {head_dim}: {problem}")
            over = case.most is not None and not row.ours_ratio <= case.most
            figures = [
                f"{row.ours_ms:.3f}",
                f"{row.flex_ms:.3f}",
                f"{row.flex_ms / row.ours_ms:.2f}",
                *(
                    f"{ratio:.3f}" if case.against else ""
                    for ratio in (row.ours_ratio, row.flex_ratio)
                ),
                f"{case.most:.2f}" if case.most else "",
                "OVER" if over else "",
            ]
            print(line.format(case.name, head_dim, *figures), flush=True)
            rows.append(row)
    if options.json:
        results = {"machine": where, "rows": [asdict(row) for row in rows], "problems": problems}
        options.json.write_text(json.dumps(results, indent=2))
    for problem in problems:
        print(f"! {problem}", file=sys.stderr)
    return (
        1 if any("WRONG" in p for p in problems) or any(math.isnan(r.ours_ms) for r in rows) else 0
    )


if __name__ == "__main__":
    sys.exit(main())
