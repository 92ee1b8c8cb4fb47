"""Packed sequences of one tensor beside torch's varlen_attn, which is FlashAttention 2, and others.

    python benchmarks/packed.py
    python benchmarks/packed.py --flex    # and FlexAttention, which compiles for each row

FlashAttention 3 is one of them where it is found (fa3_peer.py) and takes packed sequences.

16384 tokens, 2048 / head_dim heads, bf16: sequences of one length, and lengths of texts, of which
most are short and few are long. The forward pass, and the whole backward pass through autograd. A
product of scores counts twice in the forward pass and five times in the backward; a causal one by
half. All contenders run in one process on the same data, by turns, with the L2 cache overwritten in
between; outputs and gradients are compared before they are timed.
"""

from __future__ import annotations

import argparse
import inspect
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from contest import TOLERANCE, off_by
from fa3_peer import find_fa3
from flex_peer import Variant, flex_run
from gpu_timing import Run, Timer, hear_warnings, machine, require_gpu
from options import numbers
from report import mean_and_least

TOKENS, WIDTH = 16384, 2048
FA2, FA3, FLEX = "FlashAttention 2", "FlashAttention 3", "FlexAttention"


def of_texts(tokens: int) -> list[int]:
    """Lengths around 400 with a long tail, which end with what is left of the tokens."""
    draw = random.Random(0)
    lengths: list[int] = []
    while (left := tokens - sum(lengths)) > 0:
        lengths.append(min(left, 1 + int(draw.lognormvariate(6, 1.2))))
    return lengths


def patterns(tokens: int) -> dict[str, list[int]]:
    found = {f"{tokens // n} x {n}": [n] * (tokens // n) for n in (256, 1024, 4096)}
    texts = of_texts(tokens)
    return found | {f"{len(texts)} texts, longest {max(texts)}": texts}


def fa2_run(inputs: list[Any], begins: Any, longest: int, causal: bool) -> Callable[[], Any]:
    from torch.nn.attention.varlen import varlen_attn

    mask: dict[str, Any] = {"is_causal": causal}
    if "is_causal" not in inspect.signature(varlen_attn).parameters:
        mask = {"window_size": (-1, 0) if causal else (-1, -1)}
    return lambda: varlen_attn(*inputs, begins, begins, longest, longest, **mask)


def flex_of_packed(torch: Any, inputs: list[Any], lengths: list[int], causal: bool) -> Any:
    """All sequences as documents of one; its heads come before its rows."""
    counts = torch.tensor(lengths, device="cuda")
    sequence = torch.repeat_interleave(torch.arange(len(lengths), device="cuda"), counts)

    def mask(b: Any, h: Any, q: Any, k: Any) -> Any:
        same = sequence[q] == sequence[k]
        return same & (q >= k) if causal else same

    run = flex_run(torch, [x.transpose(0, 1)[None] for x in inputs], Variant({}, mask))
    return lambda: run(0)[0].transpose(0, 1)


@dataclass(frozen=True)
class Packed:
    """Sequences of one tensor, behind each other."""

    lengths: list[int]
    head_dim: int
    causal: bool

    @property
    def heads(self) -> int:
        return WIDTH // self.head_dim

    @property
    def shape(self) -> tuple[int, int, int]:
        return TOKENS, self.heads, self.head_dim

    def operations(self, backward: bool) -> float:
        scores = self.heads * sum(n * n for n in self.lengths) / (2 if self.causal else 1)
        return (10 if backward else 4) * self.head_dim * scores


@dataclass(frozen=True)
class Passes:
    """Of one contender: each returns what it computes."""

    forward: Callable[[], Any]
    backward: Callable[[], Any]


def contenders(
    torch: Any, fc: Any, fa3: Any, case: Packed, inputs: list[Any], dout: Any, flex: bool
) -> dict[str, Passes]:
    """Ours is the first."""
    begins = torch.tensor(
        [0, *itertools.accumulate(case.lengths)], dtype=torch.int32, device="cuda"
    )
    longest = max(case.lengths)
    own = {"cu_seqlens_q": begins, "cu_seqlens_k": begins, "max_q_len": longest}
    mask = fc.causal() if case.causal else fc.full()

    def through_autograd(forward: Callable[[], Any]) -> Passes:
        out = forward()
        return Passes(forward, lambda: torch.autograd.grad(out, inputs, dout, retain_graph=True))

    found = {
        "FlashCore": through_autograd(
            lambda: fc.attention(*inputs, mask=mask, layout="thd", **own)
        ),
        FA2: through_autograd(fa2_run(inputs, begins, longest, case.causal)),
    }
    if takes_packed(fa3, case.head_dim):
        found[FA3] = Passes(*fa3.packed(inputs, begins, longest, case.causal, dout))
    if flex:
        found[FLEX] = through_autograd(flex_of_packed(torch, inputs, case.lengths, case.causal))
    return found


def takes_packed(fa3: Any, head_dim: int) -> bool:
    return fa3 is not None and fa3.packs and fa3.takes("bf16", head_dim)


def measure(
    torch: Any, fc: Any, fa3: Any, timer: Timer, case: Packed, flex: bool, budget_ms: float
) -> dict[str, dict[str, float]]:
    """By the pass and the contender, in TFLOP/s."""
    torch.manual_seed(0)
    inputs = [torch.randn(case.shape, device="cuda", dtype=torch.bfloat16) for _ in range(3)]
    dout = torch.randn(case.shape, device="cuda", dtype=torch.bfloat16)
    for array in inputs:
        array.requires_grad_()
    passes = contenders(torch, fc, fa3, case, inputs, dout, flex)
    found = {name: [run.forward().detach(), *run.backward()] for name, run in passes.items()}
    for name, theirs in found.items():
        error = max(map(off_by, theirs, found["FlashCore"]))
        if not error < TOLERANCE["bf16"]:
            print(f"! {name}: {error:.1e} from FlashCore's output or gradients")
    speeds = {}
    for which in ("forward", "backward"):
        runs = [getattr(each, which) for each in passes.values()]
        with torch.set_grad_enabled(which == "backward"):
            calls: list[Run] = [lambda _, run=run: run() for run in runs]  # type: ignore[misc]
            times = timer.interleaved(calls, budget_ms)
        work = case.operations(which == "backward") / 1e9
        speeds[which] = {name: work / ms for name, ms in zip(passes, times, strict=True)}
    return speeds


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dims", type=numbers, default=[64, 128])
    parser.add_argument("--flex", action="store_true", help="one more contender")
    parser.add_argument("--budget-ms", type=float, default=60, help="GPU time of a pass")
    return parser.parse_args()


def main() -> None:
    given = parse()
    torch = require_gpu()
    import flashcore as fc

    fc.set_compile_mode("eager")  # no kernel for other lengths serves meanwhile
    warnings, timer = hear_warnings(fc), Timer(torch)
    fa3 = find_fa3(torch)
    peers = [
        FA2,
        *([FA3] if fa3 is not None and fa3.packs else []),
        *([FLEX] if given.flex else []),
    ]
    print(machine(torch))
    titles = ["pass", "head_dim", "mask", "sequences", "FlashCore TFLOP/s"]
    titles += [title for peer in peers for title in (peer, "ratio")]
    print(f"| {' | '.join(titles)} |\n{'|---' * len(titles)}|")
    ratios: dict[str, list[float]] = {}
    rows = itertools.product(given.dims, (False, True), patterns(TOKENS).items())
    for head_dim, causal, (pattern, lengths) in rows:
        case = Packed(lengths, head_dim, causal)
        speeds = measure(torch, fc, fa3, timer, case, given.flex, given.budget_ms)
        for which, by_name in speeds.items():
            mine = by_name["FlashCore"]
            line = [which, head_dim, "causal" if causal else "full", pattern, f"{mine:.0f}"]
            for peer in peers:
                if peer not in by_name:
                    line += ["–", "–"]
                    continue
                ratios.setdefault(f"{which} {peer}", []).append(mine / by_name[peer])
                line += [f"{by_name[peer]:.0f}", f"{mine / by_name[peer]:.2f}"]
            print(f"| {' | '.join(map(str, line))} |", flush=True)
    for name, every in ratios.items():
        mean, least = mean_and_least(every) or (0, 0)
        print(f"{name}: geometric mean {mean:.2f}, least {least:.2f}")
    for warning in warnings:
        print("!", warning)


if __name__ == "__main__":
    main()
