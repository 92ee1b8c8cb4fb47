"""How long a kernel takes to make, and to find again: needs NVRTC, but no GPU.

    python benchmarks/compile.py
    python benchmarks/compile.py --targets all --head-dims 32,64,96,128,192,256
    python benchmarks/compile.py --targets sm_90a --kinds all

Columns: code generation; NVRTC; the same kernel asked for again when it is on disk but no longer in
memory. The last line starts a new process that finds its kernel in the cache.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

# Milliseconds for the import and for a kernel from a filled cache, in a process just started.
NEW_PROCESS = """
import time
start = time.perf_counter()
import flashcore
imported = time.perf_counter()
kernel = flashcore.jit(flashcore.AttentionSpec(head_dim={head_dim}), target="{target}")
print(1e3 * (imported - start), 1e3 * (time.perf_counter() - imported), kernel.from_cache)
"""

# Those of benchmarks/hopper.py, as arguments of a spec; what a table holds does not matter here.
KINDS: dict[str, Callable[[Any], dict[str, Any]]] = {
    "full": lambda fc: {},
    "causal": lambda fc: {"mask": fc.causal()},
    "window": lambda fc: {"mask": fc.sliding_window(1023)},
    "prefix": lambda fc: {"mask": fc.prefix(1000) | fc.causal()},
    "documents": lambda fc: {"mask": fc.documents(np.zeros(1, np.int32)) & fc.causal()},
    "alibi": lambda fc: {"mask": fc.causal(), "score": fc.alibi(np.ones(1, np.float32))},
    "softcap": lambda fc: {"mask": fc.causal(), "score": fc.softcap(30.0)},
}


def build(fc: Any, head_dim: int, kind: str, target: str) -> tuple[Any, float]:
    """The kernel and the wall time in milliseconds."""
    spec = fc.AttentionSpec(head_dim=head_dim, **KINDS[kind](fc))
    start = time.perf_counter()
    kernel = fc.jit(spec, target=target)
    return kernel, 1e3 * (time.perf_counter() - start)


def measure(fc: Any, head_dim: int, kind: str, target: str) -> dict[str, Any]:
    kernel, _ = build(fc, head_dim, kind, target)
    row = {
        "target": target,
        "head_dim": head_dim,
        "kind": kind,
        "generate_ms": kernel.generate_ms,
        "compile_ms": kernel.compile_ms,
        "registers": kernel.resources["registers"],
        "shared_bytes": kernel.resources["dynamic_shared_bytes"],
        "cubin_bytes": len(kernel.cubin),
        "source_lines": kernel.source.count("\n"),
    }
    if kernel.from_cache:
        sys.exit("the cache was not empty: a kernel was found that nobody had compiled")
    del kernel  # a kernel in use is served from memory
    kernel, row["warm_ms"] = build(fc, head_dim, kind, target)
    if not kernel.from_cache:
        sys.exit(f"{target}, head_dim {head_dim}: compiled twice; see FLASHCORE_LOG=warn")
    return row


def main() -> int:
    numbers = lambda text: [int(part) for part in text.split(",")]  # noqa: E731
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--targets", default="sm_80,sm_89,sm_90,sm_120", help='a list, or "all"')
    parser.add_argument("--head-dims", type=numbers, default=[64, 128, 256])
    parser.add_argument("--kinds", default="full,causal", help=f'of {",".join(KINDS)}; or "all"')
    parser.add_argument("--json", type=Path, help="write the figures there")
    options = parser.parse_args()

    with tempfile.TemporaryDirectory(prefix="flashcore-compile-") as folder:
        os.environ |= {"FLASHCORE_CACHE": "on", "FLASHCORE_CACHE_DIR": folder}  # read once, below
        import flashcore as fc

        targets = fc.targets() if options.targets == "all" else options.targets.split(",")
        kinds = list(KINDS) if options.kinds == "all" else options.kinds.split(",")
        if unknown := sorted(set(kinds) - set(KINDS)):
            parser.error(f"no such kinds: {', '.join(unknown)}; there are {', '.join(KINDS)}")
        rows, failures = [], []
        line = "{:>8} {:>8} {:>9} {:>11} {:>9} {:>8} {:>9} {:>9} {:>8}"
        print(line.format("target", "head_dim", "kind", "generate ms", "NVRTC ms", "warm ms",
                          "registers", "shared B", "lines"))  # fmt: skip
        for target, head_dim, kind in itertools.product(targets, options.head_dims, kinds):
            try:
                row = measure(fc, head_dim, kind, target)
            except fc.Error as error:
                failures.append(f"{target} head_dim {head_dim} {kind}: {error}")
                continue
            rows.append(row)
            print(
                line.format(
                    target, head_dim, kind, f"{row['generate_ms']:.1f}", f"{row['compile_ms']:.0f}",
                    f"{row['warm_ms']:.1f}", row["registers"], row["shared_bytes"],
                    row["source_lines"],
                ),
                flush=True,
            )  # fmt: skip
        started = None
        if rows:
            code = NEW_PROCESS.format(head_dim=rows[0]["head_dim"], target=rows[0]["target"])
            printed = subprocess.run(
                [sys.executable, "-c", code], capture_output=True, text=True, check=True
            ).stdout.split()
            started = {"import_ms": float(printed[0]), "warm_ms": float(printed[1])}
            if printed[2] != "True":
                failures.append("a new process did not find its kernel in the cache")
            print(
                f"\na new process: import {started['import_ms']:.0f} ms, "
                f"kernel from the cache {started['warm_ms']:.1f} ms"
            )
    if options.json:
        options.json.write_text(json.dumps({"rows": rows, "new_process": started}, indent=2))
    for failure in failures:
        print(f"! {failure}", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
