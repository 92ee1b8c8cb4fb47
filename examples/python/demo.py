"""FlashCore in a minute: describe attention, compile it for two GPUs, run it, check it.

Needs no GPU: kernels are compiled for any, and without one they run in the emulator.
"""

from __future__ import annotations

import subprocess
import sys
import time

import ml_dtypes
import numpy as np

import flashcore as fc

SPEC = fc.AttentionSpec(head_dim=64, heads=4, kv_heads=2, dtype="bf16", mask=fc.causal())
TARGETS = ("sm_80", "sm_90")


def compile_for_targets() -> None:
    columns = "target  registers  shared bytes  spill bytes  stack bytes  generate ms  compile ms"
    print(columns)
    for target in TARGETS:
        kernel = fc.jit(SPEC, target=target)
        r = kernel.resources
        compile_ms = "cached" if kernel.from_cache else f"{kernel.compile_ms:.0f}"
        print(
            f"{target:6}  {r['registers']:9}  "
            f"{r['static_shared_bytes'] + r['dynamic_shared_bytes']:12,}  "
            f"{r['spill_store_bytes'] + r['spill_load_bytes']:11}  {r['stack_bytes']:11}  "
            f"{kernel.generate_ms:11.1f}  {compile_ms:>10}"
        )


def reference(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    k, v = (np.repeat(x, q.shape[1] // x.shape[1], axis=1) for x in (k, v))
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    rows, cols = scores.shape[-2:]
    scores = np.where(np.tril(np.ones((rows, cols), bool), cols - rows), scores, -np.inf)
    probs = np.exp(scores - scores.max(-1, keepdims=True))
    return probs / probs.sum(-1, keepdims=True) @ v


def gpu():
    """torch, if it is installed and sees a GPU."""
    try:
        import torch
    except ImportError:
        return None
    return torch if torch.cuda.is_available() else None


def run_and_check() -> None:
    torch = gpu()
    length = 1024 if torch else 200
    rng = np.random.default_rng(0)
    q, k, v = (
        rng.standard_normal((1, heads, length, 64)).astype(ml_dtypes.bfloat16)
        for heads in (4, 2, 2)
    )
    kernel = fc.jit(SPEC)
    if torch:
        arrays = [torch.from_numpy(x.view(np.int16)).cuda().view(torch.bfloat16) for x in (q, k, v)]
        out = kernel(*arrays).float().cpu().numpy()
        place = torch.cuda.get_device_name()
    else:
        start = time.perf_counter()
        out = kernel(q, k, v)
        place = f"the emulator, in {time.perf_counter() - start:.1f} s"
    expected = reference(q, k, v)
    error = np.abs(out.astype(np.float64) - expected)
    rounding = np.abs(expected.astype(ml_dtypes.bfloat16).astype(np.float64) - expected)
    print(f"\nran {kernel.name} for {kernel.target} over {length} keys on {place}")
    print(f"error against fp64: {error.max():.2e} at most, {error.mean():.2e} on average")
    print(f"rounding alone:     {rounding.max():.2e} at most, {rounding.mean():.2e} on average")
    if error.max() > 4 * rounding.max():
        sys.exit("the error is more than rounding explains")


def show_the_cache() -> None:
    program = (
        "import sys, time, flashcore as fc\n"
        "spec = fc.AttentionSpec.from_json(sys.argv[1])\n"
        "start = time.perf_counter()\n"
        "kernel = fc.jit(spec, target=sys.argv[2])\n"
        "print(kernel.from_cache, f'{(time.perf_counter() - start) * 1e3:.1f}')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, SPEC.to_json(), TARGETS[0]],
        capture_output=True,
        text=True,
        check=True,
    )
    from_cache, milliseconds = done.stdout.split()
    where = "from the cache" if from_cache == "True" else "compiled again"
    print(f"\na new process had the {TARGETS[0]} kernel {where} after {milliseconds} ms")


if __name__ == "__main__":
    compile_for_targets()
    run_and_check()
    show_the_cache()
