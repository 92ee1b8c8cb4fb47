"""Dense masks and biases: fc.sdpa beside torch's, with the same attn_mask.

    python benchmarks/dense_masks.py
    python benchmarks/dense_masks.py --head-dims 128 --lengths 4096 --json dense_masks.json

16k tokens, 2048 / head_dim heads, bf16. An array of conditions is shared by the heads of a
sequence, one of padding by its rows as well, and a bias by the sequences of the batch. cuDNN and
the memory-efficient backend take such an array; FLASH takes none. Outputs are compared before
anything is timed; all contenders run in turns.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from contest import MODEL_WIDTH, TOLERANCE, off_by
from gpu_timing import Timer, machine, require_gpu
from hopper import TOKENS
from options import numbers

PEERS = {"cuDNN": "CUDNN_ATTENTION", "efficient": "EFFICIENT_ATTENTION"}
BUDGET_MS = 40


def masks(torch: Any, batch: int, heads: int, length: int) -> dict[str, Any]:
    kept = torch.rand(batch, 1, length, length, device="cuda") < 0.7
    kept.diagonal(dim1=-2, dim2=-1).fill_(True)  # no row without a key
    padding = torch.arange(length, device="cuda") < length * 3 // 4
    return {
        "conditions": kept,
        "causal, as conditions": torch.ones_like(kept).tril(),
        "padding": padding.expand(batch, 1, 1, length).contiguous(),
        "bias": torch.randn(1, heads, length, length, device="cuda", dtype=torch.bfloat16),
    }


def contenders(torch: Any, fc: Any, inputs: list[Any], mask: Any) -> dict[str, Any]:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    def peer(name: str) -> Any:
        def run(_: int) -> Any:
            with sdpa_kernel(getattr(SDPBackend, PEERS[name])):
                return torch.nn.functional.scaled_dot_product_attention(*inputs, attn_mask=mask)

        return run

    ours = {"FlashCore": lambda _: fc.sdpa(*inputs, attn_mask=mask)}
    return ours | {name: peer(name) for name in PEERS}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--head-dims", type=numbers, default=[64, 128])
    parser.add_argument("--lengths", type=numbers, default=[2048, 4096])
    parser.add_argument("--json", type=Path, help="write every figure there")
    options = parser.parse_args()
    torch = require_gpu()
    import flashcore as fc

    print(machine(torch))
    timer, rows = Timer(torch), []
    for dim in options.head_dims:
        for length in options.lengths:
            batch, heads = max(1, TOKENS // length), MODEL_WIDTH // dim
            shape = (batch, heads, length, dim)
            inputs = [torch.randn(shape, device="cuda", dtype=torch.bfloat16) for _ in range(3)]
            for name, mask in masks(torch, batch, heads, length).items():
                runs = contenders(torch, fc, inputs, mask)
                error = off_by(runs["FlashCore"](0), runs["cuDNN"](0))
                times = timer.interleaved(list(runs.values()), BUDGET_MS)
                row = dict(zip(runs, times, strict=True))
                rows.append({"head_dim": dim, "length": length, "mask": name, "error": error} | row)
                text = ", ".join(f"{peer} {ms:.3f}" for peer, ms in row.items())
                wrong = (
                    "" if error < TOLERANCE["bf16"] else f"  WRONG: off by {error:.1e} from cuDNN"
                )
                print(f"head_dim {dim:3} length {length:5} {name:22} {text} ms{wrong}", flush=True)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
