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
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gpu_timing import Timer, machine, require_gpu

MODEL_WIDTH = 2048  # heads * head_dim
TOLERANCE = 2e-2


@dataclass(frozen=True)
class Case:
    name: str
    length: int
    against: str | None  # whose time the ratio is taken with
    most: float | None  # what the ratio should stay under, for head_dim 128


# In this order, so that what a row is compared with has been timed.
CASES = [
    Case("full_8k", 8192, None, None),
    Case("causal_8k", 8192, "full_8k", 0.56),
    Case("full_16k", 16384, None, None),
    Case("window_1024_16k", 16384, "full_16k", 0.12),
    Case("documents_8x1k_8k", 8192, "full_8k", 0.20),
    Case("causal_documents_8x1k_8k", 8192, "full_8k", None),
    Case("prefix_1k_causal_8k", 8192, "full_8k", None),
    Case("chunked_1k_8k", 8192, "full_8k", None),
    Case("softcap_causal_8k", 8192, "causal_8k", 1.15),
    Case("alibi_causal_8k", 8192, "causal_8k", 1.15),
    Case("relative_bias_causal_8k", 8192, "causal_8k", None),
    Case("dense_bias_full_8k", 8192, "full_8k", None),
    Case("sinks_causal_8k", 8192, "causal_8k", None),
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


Modifier = Callable[..., Any] | None


def functions(
    fc: Any, torch: Any, case: Case, heads: int
) -> tuple[dict[str, Any], Modifier, Modifier]:
    """FlashCore's arguments; FlexAttention's mask and score."""
    length, name = case.length, case.name
    device = "cuda"
    causal = lambda b, h, q, k: q >= k  # noqa: E731
    document = torch.arange(length, device=device, dtype=torch.int32) // 1024
    same = lambda b, h, q, k: document[q] == document[k]  # noqa: E731
    if name.startswith("full"):
        return {}, None, None
    if name.startswith("window"):
        window = lambda b, h, q, k: (q >= k) & (q - k < 1024)  # noqa: E731
        return {"mask": fc.sliding_window(1023)}, window, None
    if name.startswith("documents"):
        return {"mask": fc.documents(document)}, same, None
    if name.startswith("causal_documents"):
        both = lambda b, h, q, k: (q >= k) & (document[q] == document[k])  # noqa: E731
        return {"mask": fc.documents(document) & fc.causal()}, both, None
    if name.startswith("prefix"):
        prefix = lambda b, h, q, k: (k < 1024) | (q >= k)  # noqa: E731
        return {"mask": fc.prefix(1024) | fc.causal()}, prefix, None
    if name.startswith("chunked"):
        chunked = lambda b, h, q, k: q // 1024 == k // 1024  # noqa: E731
        return {"mask": fc.chunked(1024)}, chunked, None
    if name.startswith("dense_bias"):
        table = torch.randn(length, length, device=device, dtype=torch.bfloat16)
        biased = lambda s, b, h, q, k: s + table[q, k]  # noqa: E731
        return {"score": fc.bias(table)}, None, biased
    arguments: dict[str, Any] = {"mask": fc.causal()}
    score: Modifier = None
    if name.startswith("softcap"):
        arguments["score"] = fc.softcap(20.0)
        score = lambda s, b, h, q, k: 20.0 * torch.tanh(s / 20.0)  # noqa: E731
    elif name.startswith("alibi"):
        slopes = torch.exp2(-torch.arange(1, heads + 1, device=device) * 8.0 / heads)
        arguments["score"] = fc.alibi(slopes)
        score = lambda s, b, h, q, k: s + slopes[h] * (k - q)  # noqa: E731
    elif name.startswith("relative_bias"):
        span = torch.randn(heads, 2 * length + 1, device=device, dtype=torch.float32)
        arguments["score"] = fc.relative_bias(span)
        score = lambda s, b, h, q, k: s + span[h, k - q + length]  # noqa: E731
    elif name.startswith("sinks"):
        arguments["sink"] = fc.sinks(torch.zeros(heads, device=device))
        return arguments, None, None  # FlexAttention has none
    return arguments, causal, score


def runs_of(
    fc: Any, torch: Any, case: Case, row: Row, options: argparse.Namespace
) -> tuple[list[Any], str | None]:
    """FlashCore's call and, where it can, FlexAttention's; what is wrong with them."""
    heads = MODEL_WIDTH // row.head_dim
    batch = max(1, options.tokens // case.length)
    shape = (batch, heads, case.length, row.head_dim)
    q, k, v = (torch.randn(shape, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    out = torch.empty_like(q)
    arguments, mask, score = functions(fc, torch, case, heads)
    spec = fc.AttentionSpec(head_dim=row.head_dim, **arguments)
    kernel = fc.jit(spec, schedule=options.schedule)
    kernel.prepare(torch.cuda.current_device())
    ours = lambda _: kernel(q, k, v, out=out)  # noqa: E731
    if options.no_flex or "sink" in arguments:  # it has none
        return [ours], None
    try:
        theirs = flex_run(torch, q, k, v, mask, score, options.tune)
        expected = theirs(0).float()
    except Exception as error:  # what it cannot compile has no time
        return [ours], f"FlexAttention: {str(error).splitlines()[0]}"
    ours(0)
    row.error = ((out.float() - expected).norm() / expected.norm()).item()
    wrong = f"WRONG: off by {row.error:.1e} from FlexAttention"
    return [ours, theirs], None if row.error < TOLERANCE else wrong


def fill(timer: Timer, row: Row, runs: list[Any], base: list[Any], budget_ms: float) -> None:
    """The times of a row, in turns with what it is set against."""
    times = timer.interleaved([*runs, *base], budget_ms)
    row.ours_ms, row.flex_ms = [*times[: len(runs)], math.nan][:2]
    if base:
        base_ms = [*times[len(runs) :], math.nan]
        row.ours_ratio, row.flex_ratio = row.ours_ms / base_ms[0], row.flex_ms / base_ms[1]


def flex_run(
    torch: Any, q: Any, k: Any, v: Any, mask: Modifier, score: Modifier, tune: bool
) -> Any:
    from torch.nn.attention import flex_attention as module

    torch._dynamo.reset()
    blocks = None
    if mask is not None:
        blocks = module.create_block_mask(mask, None, None, q.shape[2], k.shape[2], device="cuda")
    mode = "max-autotune-no-cudagraphs" if tune else None
    flex = torch.compile(module.flex_attention, dynamic=False, mode=mode)
    return lambda _: flex(q, k, v, score_mod=score, block_mask=blocks)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--head-dims", default="64,128")
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

    torch.manual_seed(1)
    timer, where = Timer(torch), machine(torch)
    print(where, flush=True)
    line = "{:>25} {:>4} {:>9} {:>9} {:>6} {:>7} {:>7} {:>6} {:>6}"
    print(line.format("case", "dim", "ours ms", "flex ms", "x", "ours /", "flex /", "most", ""))
    rows: list[Row] = []
    problems: list[str] = []
    for head_dim in map(int, options.head_dims.split(",")):
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
