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
from dataclasses import asdict
from pathlib import Path

from contest import MODEL_WIDTH, PEERS, build_kernels, measure, row_of, spec_of
from gpu_timing import Timer, machine, require_gpu
from options import numbers, words
from report import BEGIN, Row, cells, header, markdown, summary, write_markdown


def parse() -> argparse.Namespace:
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


def main() -> int:
    options = parse()
    torch = require_gpu()
    import flashcore as fc

    fc.set_compile_mode("eager")  # no kernel for other lengths serves meanwhile
    torch.manual_seed(options.seed)
    timer, where = Timer(torch), machine(torch)
    print(where, flush=True)
    keys = itertools.product(options.dtypes, options.head_dims, options.masks)
    kernels = build_kernels(fc, {key: spec_of(fc, *key) for key in keys}, options.schedule)
    rows: list[Row] = []
    problems: list[str] = []
    line = "{:>5} {:>8} {:>7} {:>7} {:>10}" + " {:>17} {:>6}" * len(options.peers)
    print(line.format(*header(options.peers)), flush=True)
    for (dtype, head_dim, mask), kernel in kernels.items():
        if isinstance(kernel, fc.Error):
            problems.append(f"{dtype} {head_dim} {mask}: {kernel}")
            continue
        for length in options.lengths:
            row = row_of(dtype, head_dim, mask, length, options.tokens)
            try:
                found = measure(torch, timer, kernel, row, options.peers, options.budget_ms)
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
