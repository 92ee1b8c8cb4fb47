"""FlashCore in a minute: describe attention, compile it for two GPUs, run it, check it.

Needs no GPU: kernels are compiled for any, and without one they run in the emulator. Ends with what
passed and exits with 0, or says what did not and exits with 1.
"""

from __future__ import annotations

import subprocess
import sys
import time

try:
    import ml_dtypes
    import numpy as np

    import flashcore as fc
except ImportError as error:
    sys.exit(
        f"FAILED: {error}\n  try: `make demo` in the root of the repository, which builds all of it"
    )

SPEC = fc.AttentionSpec(head_dim=64, heads=4, kv_heads=2, dtype="bf16", mask=fc.causal())
TARGETS = ("sm_80", "sm_90")
# Of the largest error, against that of rounding the exact result to bf16.
ALLOWED = 4

NEXT = """
What to try next
  export PYTHONPATH=build/release/python      the package as it was built here
  .venv/bin/python examples/python/own_attention.py     a mask and a score as Python functions
  .venv/bin/python examples/python/inspect_kernel.py    the CUDA source and what became of it
  docs/python.md       calling it from Python, with NumPy or torch
  docs/tutorial/       kernels of your own, in C++
  make test            all tests"""


def compile_for_targets() -> None:
    print("\n1. Compiled for two GPUs, neither of which has to be here\n")
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


def run_and_check() -> bool:
    """Runs the kernel where it can; whether its error is what rounding explains."""
    torch = gpu()
    length = 1024 if torch else 200
    rng = np.random.default_rng(0)
    q, k, v = (
        rng.standard_normal((1, heads, length, 64)).astype(ml_dtypes.bfloat16)
        for heads in (4, 2, 2)
    )
    kernel = fc.jit(SPEC)
    start = time.perf_counter()
    if torch:
        arrays = [torch.from_numpy(x.view(np.int16)).cuda().view(torch.bfloat16) for x in (q, k, v)]
        out = kernel(*arrays).float().cpu().numpy()
        place = torch.cuda.get_device_name()
    else:
        out = kernel(q, k, v)
        place = f"the emulator (no GPU here), in {time.perf_counter() - start:.1f} s"
    expected = reference(q, k, v)
    error = np.abs(out.astype(np.float64) - expected).max()
    rounding = np.abs(expected.astype(ml_dtypes.bfloat16).astype(np.float64) - expected).max()
    print(f"\n2. Ran {kernel.name} for {kernel.target}, {length} queries and keys, on {place}\n")
    print(f"largest error against fp64   {error:.2e}")
    print(f"that of rounding to bf16     {rounding:.2e}; {ALLOWED} times as much is allowed")
    return bool(error <= ALLOWED * rounding)  # false for NaN as well


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
    print(f"\n3. A new process had the {TARGETS[0]} kernel {where} after {milliseconds} ms")


def main() -> int:
    print("Causal attention in bf16: head_dim 64, 4 query heads on 2 key heads, any lengths")
    try:
        compile_for_targets()
        passed = run_and_check()
        show_the_cache()
    except (fc.Error, subprocess.CalledProcessError) as error:
        print(f"\nFAILED: {getattr(error, 'stderr', None) or error}")
        return 1
    if not passed:
        print("\nFAILED: the error is more than rounding explains")
        return 1
    print(f"\nPASSED: compiled for {' and '.join(TARGETS)}, ran, and exact to the rounding of bf16")
    print(NEXT)
    return 0


if __name__ == "__main__":
    sys.exit(main())
