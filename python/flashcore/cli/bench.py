"""flashcore bench: how fast attention is on this GPU, in a small table."""

from __future__ import annotations

from typing import Any

import click

from .. import _core
from ..cache.compile_mode import set_compile_mode
from ..kernels.just_in_time import default_target, jit
from ..specs.spec import AttentionSpec
from ..specs.variants import causal, full
from ..tuning.gpu import GpuEvaluator, machine, problem_of, require_torch
from .output import emit, json_option, table

TOKENS = 16384
ROUNDS = 10


def tera_operations(spec: AttentionSpec, shape: tuple[int, int, int], is_causal: bool) -> float:
    """Of the two products; half of them under a causal mask."""
    batch, heads, q_len, kv_len = problem_of(spec, shape)
    count = 4 * batch * heads * q_len * kv_len * spec.head_dim
    return count / (2 if is_causal else 1) / 1e12


@click.command()
@click.option("--head-dim", type=int, multiple=True, default=(64, 128), show_default=True)
@click.option("--length", type=int, multiple=True, default=(1024, 4096, 16384), show_default=True)
@click.option("--dtype", type=click.Choice(["bf16", "f16"]), default="bf16", show_default=True)
@json_option
def bench(head_dim: tuple[int, ...], length: tuple[int, ...], dtype: str) -> None:
    """Time attention on the GPU that is here: TFLOPS of the kernels that ship.

    Each row has 16384 tokens and 2048 / head_dim heads. Needs PyTorch with CUDA, which holds the
    arrays. benchmarks/attention.py of the repository compares with others.
    """
    _core.driver_state()  # says what is missing, if anything is
    set_compile_mode("eager")  # no kernel for other lengths serves meanwhile
    target = default_target()
    torch = require_torch(target)
    rows: list[dict[str, Any]] = []
    for dim in head_dim:
        for is_causal in (False, True):
            spec = AttentionSpec(head_dim=dim, dtype=dtype, mask=causal() if is_causal else full())
            shapes = [(max(1, TOKENS // n), n, n) for n in length]
            evaluator = GpuEvaluator(spec, target, shapes)
            kernel = jit(spec, target)
            (times,) = evaluator.times([kernel], ROUNDS)
            for shape, took in zip(shapes, times, strict=True):
                rows.append(
                    {
                        "head_dim": dim,
                        "mask": "causal" if is_causal else "full",
                        "batch": shape[0],
                        "length": shape[1],
                        "microseconds": round(took, 1),
                        "tflops": round(tera_operations(spec, shape, is_causal) / took * 1e6, 1),
                    }
                )

    def text() -> str:
        header = ("head_dim", "mask", "batch", "length", "microseconds", "tflops")
        lines = [[row[name] for name in header] for row in rows]
        return f"{', '.join(machine(torch).values())}, {dtype}\n{table(header, lines)}"

    emit({"machine": machine(torch), "dtype": dtype, "rows": rows}, text)
