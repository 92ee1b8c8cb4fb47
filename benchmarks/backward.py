"""The gradients of attention beside torch's, through autograd: the whole backward pass as a user
pays it.

    python benchmarks/backward.py            # every row of the table in docs/performance_hopper.md
    python benchmarks/backward.py --quick    # 4k and 8k

16384 tokens, 2048 / head_dim heads, bf16. A product of scores counts five times: once for the
scores, and once for each of dP, dV, dK and dQ, whatever a kernel computes twice. All contenders run
in one process on the same data, by turns, with the L2 cache overwritten in between. FlashCore takes
part once more, with deterministic=False, and where it is there (fa3_peer.py) FlashAttention-3,
adding dQ up in any order and in a fixed one. Gradients are compared before they are timed.
"""

from __future__ import annotations

import argparse
import itertools
import math
from collections.abc import Callable
from typing import Any

from contest import TOLERANCE, off_by
from fa3_peer import find_fa3
from gpu_timing import Timer, machine, require_gpu

TOKENS, WIDTH = 16384, 2048


ANY_ORDER = "FlashCore, any order"
FA3 = {"FlashAttention 3": False, "the same, fixed order": True}


def fa3_runs(fa3: Any, fc: Any, inputs: list[Any], dout: Any, causal: bool) -> dict[str, Any]:
    """By its name in the table; without those that refuse the problem."""
    q, k, v = (array.detach() for array in inputs)
    if not fa3 or not fa3.takes("bf16", q.shape[-1]):
        return {}
    spec = fc.AttentionSpec(head_dim=q.shape[-1], mask=fc.causal() if causal else fc.full())
    out, lse = fc.jit(spec)(q, k, v, return_lse=True)
    runs = {}
    for name, deterministic in FA3.items():
        run: Callable[[], Any] = fa3.backward([q, k, v, out, lse, dout], causal, deterministic)
        try:
            run()
        except RuntimeError as error:
            print(f"! {name}, head_dim {q.shape[-1]}: {error}")
            continue
        runs[name] = run
    return runs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="lengths of 4k and 8k alone")
    parser.add_argument("--budget", type=float, default=150.0, help="milliseconds a row")
    given = parser.parse_args()
    torch = require_gpu()
    from torch.nn.attention import SDPBackend, sdpa_kernel

    import flashcore as fc

    fc.set_compile_mode("eager")  # no kernel for other lengths serves meanwhile
    theirs = torch.nn.functional.scaled_dot_product_attention
    backends = {"FlashAttention 2": SDPBackend.FLASH_ATTENTION, "cuDNN": SDPBackend.CUDNN_ATTENTION}
    timer, fa3 = Timer(torch), find_fa3(torch)
    names = [ANY_ORDER, *backends, *(FA3 if fa3 else [])]
    print(machine(torch))
    print("| head_dim | mask | length | FlashCore TFLOP/s |",
          " | ".join(f"{name} | ratio" for name in names), "|")  # fmt: skip
    print("|---" * (4 + 2 * len(names)) + "|")
    ratios: dict[str, list[float]] = {name: [] for name in names}
    lengths = (4096, 8192) if given.quick else (512, 1024, 2048, 4096, 8192, 16384)
    for head_dim, is_causal, length in itertools.product((64, 128, 256), (False, True), lengths):
        shape = (TOKENS // length, WIDTH // head_dim, length, head_dim)
        torch.manual_seed(0)
        inputs = [torch.randn(shape, device="cuda", dtype=torch.bfloat16) for _ in range(3)]
        dout = torch.randn(shape, device="cuda", dtype=torch.bfloat16)
        peers = fa3_runs(fa3, fc, inputs, dout, is_causal)
        for array in inputs:
            array.requires_grad_()

        def gradients(out: Any, inputs: Any = inputs, dout: Any = dout) -> Callable[[], Any]:
            return lambda: torch.autograd.grad(out, inputs, dout, retain_graph=True)

        ours = gradients(fc.sdpa(*inputs, is_causal=is_causal))
        runs = {ANY_ORDER: gradients(fc.sdpa(*inputs, is_causal=is_causal, deterministic=False))}
        for name, backend in backends.items():
            with sdpa_kernel(backend):
                runs[name] = gradients(theirs(*inputs, is_causal=is_causal))
        runs |= peers
        expected = ours()
        for name, run in runs.items():
            error = max(map(off_by, run(), expected))
            if not error < TOLERANCE["bf16"]:
                print(f"! {name}: {error:.1e} from FlashCore's gradients")
        every = [ours, *runs.values()]
        times = timer.interleaved([lambda _, run=run: run() for run in every], given.budget)
        work = 10 * math.prod(shape) * length / (2 if is_causal else 1)
        mine, *others = (work / time / 1e9 for time in times)
        speeds = dict(zip(runs, others, strict=True))
        line = [f"{mine:.0f}"]
        for name in names:
            if name in speeds:
                ratios[name].append(mine / speeds[name])
            line += (
                [f"{speeds[name]:.0f}", f"{ratios[name][-1]:.2f}"] if name in speeds else ["-", "-"]
            )
        mask = "causal" if is_causal else "full"
        print(f"| {head_dim} | {mask} | {length} | {' | '.join(line)} |", flush=True)
    means = [f"{name} {math.exp(sum(map(math.log, r)) / len(r)):.2f}, least {min(r):.2f}"
             for name, r in ratios.items() if r]  # fmt: skip
    print("geometric means over", "; ".join(means))


if __name__ == "__main__":
    main()
