"""Attention forward: FlashCore beside FlashAttention 2 and cuDNN, as PyTorch runs them.

    python benchmarks/attention.py
    python benchmarks/attention.py --dtypes bf16 --head-dims 128 --lengths 8192 --masks causal
    python benchmarks/attention.py --json results.json --markdown README.md

Every row holds the same number of tokens: the batch is tokens / length, the heads are
2048 / head_dim. A ratio above 1 means that FlashCore is the faster one. Outputs are compared before
anything is timed. A causal product counts half the operations of a full one.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gpu_timing import Timer, machine, require_gpu
from report import BEGIN, TITLES, Row, cells, header, markdown, summary, write_markdown

MODEL_WIDTH = 2048  # heads * head_dim
PEERS = {"flash": "FLASH_ATTENTION", "cudnn": "CUDNN_ATTENTION"}
# Two right answers differ by the rounding of the probabilities and of the output.
TOLERANCE = {"bf16": 1e-2, "fp16": 2e-3}


def parse() -> argparse.Namespace:
    numbers = lambda text: [int(part) for part in text.split(",")]  # noqa: E731
    words = lambda text: text.split(",")  # noqa: E731
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dtypes", type=words, default=["bf16", "fp16"])
    parser.add_argument("--head-dims", type=numbers, default=[64, 128, 256])
    parser.add_argument("--lengths", type=numbers, default=[512, 1024, 2048, 4096, 8192, 16384])
    parser.add_argument("--masks", type=words, default=["full", "causal"])
    parser.add_argument("--peers", type=words, default=list(PEERS), help=f"of {', '.join(PEERS)}")
    parser.add_argument(
        "--tokens", type=int, default=16384, help="in all; less than a length: 1 batch"
    )
    parser.add_argument("--budget-ms", type=float, default=400, help="GPU time for one row")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--schedule", type=json.loads, help='fields to change: {"stages": 3}')
    parser.add_argument("--json", type=Path, help="write every figure there")
    parser.add_argument("--markdown", type=Path, help=f"write the tables there, after {BEGIN}")
    return parser.parse_args()


def build_kernels(fc: Any, options: argparse.Namespace) -> dict[tuple[str, int, str], Any]:
    """All kernels at once: they compile in parallel, and lengths do not matter to them."""

    def build(key: tuple[str, int, str]) -> tuple[tuple[str, int, str], Any]:
        dtype, head_dim, mask = key
        spec = fc.AttentionSpec(
            head_dim=head_dim,
            dtype={"fp16": "f16"}.get(dtype, dtype),
            mask=fc.causal() if mask == "causal" else fc.full(),
        )
        try:
            kernel = fc.jit(spec, schedule=options.schedule)
            kernel.prepare()
            return key, kernel
        except fc.Error as error:
            return key, error

    keys = list(itertools.product(options.dtypes, options.head_dims, options.masks))
    with ThreadPoolExecutor() as pool:
        return dict(pool.map(build, keys))


def measure(
    torch: Any, timer: Timer, kernel: Any, row: Row, options: argparse.Namespace
) -> list[str]:
    """Fills the row in; returns what went wrong."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    batch, heads = max(1, options.tokens // row.length), MODEL_WIDTH // row.head_dim
    shape = (batch, heads, row.length, row.head_dim)
    dtype = torch.bfloat16 if row.dtype == "bf16" else torch.float16
    set_bytes = 4 * math.prod(shape) * 2
    sets = max(2, min(math.ceil(3 * timer.l2_bytes / set_bytes), 20))
    if set_bytes > timer.l2_bytes:
        sets = 1
    inputs = [
        [torch.randn(shape, device="cuda", dtype=dtype) for _ in range(3)] for _ in range(sets)
    ]
    out = torch.full(shape, math.nan, device="cuda", dtype=dtype)
    causal = row.mask == "causal"
    problems = []

    def peer_run(name: str) -> Any:
        backend = getattr(SDPBackend, PEERS[name])

        def run(index: int) -> Any:
            with sdpa_kernel(backend):
                return torch.nn.functional.scaled_dot_product_attention(
                    *inputs[index], is_causal=causal
                )

        return run

    kernel(*inputs[0], out=out)
    runs = {"ours": lambda index: kernel(*inputs[index], out=out)}
    for name in options.peers:
        run = peer_run(name)
        try:
            expected = run(0).float()
        except RuntimeError as error:
            problems.append(f"{TITLES[name]}: {str(error).splitlines()[0]}")
            continue
        error = ((out.float() - expected).norm() / expected.norm()).item()
        row.error = max(row.error, error) if math.isfinite(error) else math.inf
        if not row.error < TOLERANCE[row.dtype]:
            problems.append(f"WRONG: off by {error:.1e} from {TITLES[name]}; not timed")
            row.ours = math.nan
            return problems
        runs[name] = run

    times = timer.interleaved(list(runs.values()), options.budget_ms, sets)
    operations = 4 * batch * heads * row.length**2 * row.head_dim * (0.5 if causal else 1)
    speeds = {name: operations / ms / 1e9 for name, ms in zip(runs, times, strict=True)}
    row.ours = speeds.pop("ours")
    row.peers = speeds
    return problems


def main() -> int:
    options = parse()
    torch = require_gpu()
    import flashcore as fc

    torch.manual_seed(options.seed)
    timer, where = Timer(torch), machine(torch)
    print(where, flush=True)
    kernels = build_kernels(fc, options)
    rows: list[Row] = []
    problems: list[str] = []
    line = "{:>5} {:>8} {:>7} {:>7} {:>10}" + " {:>17} {:>6}" * len(options.peers)
    print(line.format(*header(options.peers)), flush=True)
    for (dtype, head_dim, mask), kernel in kernels.items():
        if isinstance(kernel, fc.Error):
            problems.append(f"{dtype} {head_dim} {mask}: {kernel}")
            continue
        for length in options.lengths:
            row = Row(dtype, head_dim, mask, length, math.nan)
            try:
                found = measure(torch, timer, kernel, row, options)
            except fc.Error as error:
                found = [str(error)]
            problems += [f"{dtype} {head_dim} {mask} {length}: {problem}" for problem in found]
            print(line.format(*cells(row, options.peers)), flush=True)
            rows.append(row)
    print(f"\n{summary(rows, options.peers)}")
    if options.json:
        results = {
            "machine": where,
            "tokens": options.tokens,
            "rows": [asdict(row) for row in rows],
        }
        options.json.write_text(json.dumps(results | {"problems": problems}, indent=2))
    if options.markdown:
        what = f"{options.tokens} tokens, {MODEL_WIDTH} / head_dim heads, forward"
        write_markdown(options.markdown, markdown(rows, options.peers, where, what))
    for problem in problems:
        print(f"! {problem}", file=sys.stderr)
    missing = len(kernels) * len(options.lengths) - len(rows)
    return 1 if missing or any(math.isnan(row.ours) for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
