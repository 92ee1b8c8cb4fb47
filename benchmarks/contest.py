"""FlashCore beside PyTorch's attention: the same tensors, outputs compared, then timed in turns."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from gpu_timing import Timer
from report import TITLES, Row

MODEL_WIDTH = 2048  # heads * head_dim
PEERS = {"flash": "FLASH_ATTENTION", "cudnn": "CUDNN_ATTENTION"}
# Two right answers differ by the rounding of the probabilities and of the output.
TOLERANCE = {"bf16": 1e-2, "fp16": 2e-3}

Key = TypeVar("Key", bound=Hashable)


def row_of(dtype: str, head_dim: int, mask: str, length: int, tokens: int) -> Row:
    """A row of so many tokens in all; a longer sequence is a batch of one."""
    batch, heads = max(1, tokens // length), MODEL_WIDTH // head_dim
    return Row(dtype, head_dim, mask, length, math.nan, batch=batch, heads=heads)


def spec_of(fc: Any, dtype: str, head_dim: int, mask: str) -> Any:
    """Lengths, heads and the batch do not matter to a kernel."""
    return fc.AttentionSpec(
        head_dim=head_dim,
        dtype={"fp16": "f16"}.get(dtype, dtype),
        mask=fc.causal() if mask == "causal" else fc.full(),
    )


def build_kernels(fc: Any, specs: Mapping[Key, Any], schedule: Any) -> dict[Key, Any]:
    """All kernels at once, compiled in parallel; an error in place of what fails."""

    def build(spec: Any) -> Any:
        try:
            kernel = fc.jit(spec, schedule=schedule)
            kernel.compile()
        except fc.Error as error:
            return error
        return kernel

    with ThreadPoolExecutor() as pool:
        return dict(zip(specs, pool.map(build, specs.values()), strict=True))


def peer_run(torch: Any, name: str, inputs: list[Any], causal: bool) -> Callable[[int], Any]:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    backend = getattr(SDPBackend, PEERS[name])

    def run(index: int) -> Any:
        with sdpa_kernel(backend):
            return torch.nn.functional.scaled_dot_product_attention(
                *inputs[index], is_causal=causal
            )

    return run


def off_by(given: Any, expected: Any) -> float:
    """Relative to the size of what is expected; infinite for NaN."""
    error = ((given.float() - expected.float()).norm() / expected.float().norm()).item()
    return error if math.isfinite(error) else math.inf


def peer_runs(
    torch: Any, row: Row, inputs: list[list[Any]], peers: list[str], fa3: Any
) -> dict[str, Callable[[int], Any]]:
    """FlashAttention-3 (fa3_peer.py) among them where it is there and has such a kernel."""
    causal = row.mask == "causal"
    runs = {name: peer_run(torch, name, inputs, causal) for name in peers}
    if fa3 and fa3.takes(row.dtype, row.head_dim):
        each = [fa3.forward(*arrays, causal) for arrays in inputs]
        runs["fa3"] = lambda index: each[index]()
    return runs


def measure(
    torch: Any,
    timer: Timer,
    kernel: Any,
    row: Row,
    peers: list[str],
    budget_ms: float,
    fa3: Any = None,
) -> list[str]:
    """Fills the row in; returns what went wrong."""
    shape = (row.batch, row.heads, row.length, row.head_dim)
    dtype = torch.bfloat16 if row.dtype == "bf16" else torch.float16
    sets = timer.sets(4 * math.prod(shape) * 2)
    inputs = [
        [torch.randn(shape, device="cuda", dtype=dtype) for _ in range(3)] for _ in range(sets)
    ]
    out = torch.full(shape, math.nan, device="cuda", dtype=dtype)
    problems = []

    kernel(*inputs[0], out=out)
    runs = {"ours": lambda index: kernel(*inputs[index], out=out)}
    for name, run in peer_runs(torch, row, inputs, peers, fa3).items():
        try:
            expected = run(0)
        except RuntimeError as error:
            problems.append(f"{TITLES[name]}: {str(error).splitlines()[0]}")
            continue
        error = off_by(out, expected)
        row.error = max(row.error, error)
        if not error < TOLERANCE[row.dtype]:
            problems.append(f"WRONG: off by {error:.1e} from {TITLES[name]}; not timed")
            return problems
        runs[name] = run

    times = timer.interleaved(list(runs.values()), budget_ms, sets)
    speeds = {name: row.operations / ms / 1e9 for name, ms in zip(runs, times, strict=True)}
    row.ours = speeds.pop("ours")
    row.peers = speeds
    return problems
