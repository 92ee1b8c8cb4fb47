"""The gradients of attention beside torch's, through autograd: the whole backward pass as a user
pays it.

    python benchmarks/backward.py            # every row of the table in docs/performance_hopper.md
    python benchmarks/backward.py --quick    # 4k and 8k

16384 tokens, 2048 / head_dim heads, bf16. A product of scores counts five times: once for the
scores, and once for each of dP, dV, dK and dQ, whatever a kernel computes twice. All contenders run
in one process on the same data, by turns, with the L2 cache overwritten in between.
"""

from __future__ import annotations

import argparse
import itertools
import math

from gpu_timing import Timer, machine, require_gpu

TOKENS, WIDTH = 16384, 2048


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="lengths of 4k and 8k alone")
    parser.add_argument("--budget", type=float, default=150.0, help="milliseconds a row")
    given = parser.parse_args()
    torch = require_gpu()
    from torch.nn.attention import SDPBackend, sdpa_kernel

    import flashcore as fc

    theirs = torch.nn.functional.scaled_dot_product_attention
    backends = {"FlashAttention 2": SDPBackend.FLASH_ATTENTION, "cuDNN": SDPBackend.CUDNN_ATTENTION}
    timer = Timer(torch)
    print(machine(torch))
    print("| head_dim | mask | length | FlashCore TFLOP/s | FA 2 | ratio | cuDNN | ratio |")
    print("|---|---|---|---|---|---|---|---|")
    ratios: dict[str, list[float]] = {name: [] for name in backends}
    lengths = (4096, 8192) if given.quick else (512, 1024, 2048, 4096, 8192, 16384)
    for head_dim, is_causal, length in itertools.product((64, 128, 256), (False, True), lengths):
        shape = (TOKENS // length, WIDTH // head_dim, length, head_dim)
        torch.manual_seed(0)
        inputs = [torch.randn(shape, device="cuda", dtype=torch.bfloat16) for _ in range(3)]
        for array in inputs:
            array.requires_grad_()
        dout = torch.randn(shape, device="cuda", dtype=torch.bfloat16)
        outputs = [fc.sdpa(*inputs, is_causal=is_causal)]
        for backend in backends.values():
            with sdpa_kernel(backend):
                outputs.append(theirs(*inputs, is_causal=is_causal))

        def gradients(out, inputs=inputs, dout=dout):
            return lambda _: torch.autograd.grad(out, inputs, dout, retain_graph=True)

        times = timer.interleaved([gradients(out) for out in outputs], given.budget)
        work = 10 * math.prod(shape) * length / (2 if is_causal else 1)
        mine, *others = (work / time / 1e9 for time in times)
        cells = [f"{mine:.0f}"]
        for name, other in zip(backends, others, strict=True):
            ratios[name].append(mine / other)
            cells += [f"{other:.0f}", f"{mine / other:.2f}"]
        mask = "causal" if is_causal else "full"
        print(f"| {head_dim} | {mask} | {length} | {' | '.join(cells)} |", flush=True)
    means = [f"{name} {math.exp(sum(map(math.log, r)) / len(r)):.2f}, least {min(r):.2f}"
             for name, r in ratios.items()]  # fmt: skip
    print("geometric means over", "; ".join(means))


if __name__ == "__main__":
    main()
