"""Random gradients of attention on a GPU against torch's autograd in double precision.

    python tests/gpu/backward.py --cases 60 --seed 1
    python tests/gpu/backward.py --seconds 60                                # what fits in a minute
    python tests/gpu/backward.py --device cpu --cases 5 --max-length 130     # in the emulator

No gradient may be off by more than three times what autograd is off by in the inputs' own dtype,
which rounds every tensor that it makes, and by what single precision loses in the difference of dP
and delta, which is all there is where a row sees one key (lost_in_differences). The same launch
again has to give the same bits, unless the spec allows others. benchmarks/backward.py measures the
speed.
"""

from __future__ import annotations

import argparse
import math
import random
import time
from dataclasses import dataclass

import torch

import flashcore as fc
from flashcore.kernels.backward_choice import length_bounds


@dataclass(frozen=True)
class Problem:
    batch: int
    heads: int
    kv_heads: int
    q_len: int
    kv_len: int
    head_dim: int
    head_dim_v: int
    causal: bool
    window: int  # -1: none
    dtype: torch.dtype
    bshd: bool
    spread: float  # of queries
    packed: bool = False  # the batch's sequences behind each other, with bshd
    longest: int = 1000  # the schedules are those for sequences of so many rows
    deterministic: bool = True

    def spec(self) -> fc.AttentionSpec:
        mask = fc.full()
        if self.window >= 0:
            mask = fc.sliding_window(self.window, 0)
        elif self.causal:
            mask = fc.causal()
        grouped = self.heads != self.kv_heads
        return fc.AttentionSpec(
            head_dim=self.head_dim,
            head_dim_v=self.head_dim_v,
            heads=self.heads if grouped else 0,
            kv_heads=self.kv_heads if grouped else 0,
            dtype="bf16" if self.dtype == torch.bfloat16 else "f16",
            mask=mask,
            layout="thd" if self.packed else "bshd" if self.bshd else "bhsd",
            deterministic=self.deterministic,
        )

    def visible(self) -> torch.Tensor:
        diagonal = torch.arange(self.q_len)[:, None] + self.kv_len - self.q_len
        distance = diagonal - torch.arange(self.kv_len)[None]
        seen = torch.ones_like(distance, dtype=torch.bool)
        if self.causal or self.window >= 0:
            seen = distance >= 0
        if self.window >= 0:
            seen &= distance <= self.window
        return seen

    def begins(self, device: str) -> dict[str, torch.Tensor]:
        """Where packed sequences begin: anywhere, where their lengths are odd."""
        count = torch.arange(self.batch + 1, dtype=torch.int32, device=device)
        both = {"cu_seqlens_q": count * self.q_len, "cu_seqlens_k": count * self.kv_len}
        return both if self.packed else {}

    def inputs(self, device: str) -> list[torch.Tensor]:
        """q, k, v and the gradient of the output, in the layout of the spec."""

        def tensor(heads: int, length: int, dim: int, spread: float = 1.0) -> torch.Tensor:
            rows = (length, heads) if self.bshd else (heads, length)
            return (torch.randn(self.batch, *rows, dim, device=device) * spread).to(self.dtype)

        return [
            tensor(self.heads, self.q_len, self.head_dim, self.spread),
            tensor(self.kv_heads, self.kv_len, self.head_dim),
            tensor(self.kv_heads, self.kv_len, self.head_dim_v),
            tensor(self.heads, self.q_len, self.head_dim_v),
        ]


def autograd(
    p: Problem, tensors: list[torch.Tensor], dtype: torch.dtype
) -> tuple[list[torch.Tensor], torch.Tensor]:
    """The gradients as written down, and the softmax weights; rows that see no key give none."""
    by_head = [x.transpose(1, 2) if p.bshd else x for x in tensors]
    q, k, v = (x.detach().to(dtype).requires_grad_() for x in by_head[:3])
    seen, group = p.visible().to(q.device), p.heads // p.kv_heads
    scores = q @ k.repeat_interleave(group, 1).transpose(-1, -2) / math.sqrt(p.head_dim)
    scores = scores.masked_fill(~seen, torch.finfo(dtype).min)
    probs = scores.softmax(-1) * seen.any(-1)[:, None]
    out = probs @ v.repeat_interleave(group, 1)
    gradients = torch.autograd.grad(out, (q, k, v), by_head[3].to(dtype))
    return [x.transpose(1, 2) if p.bshd else x for x in gradients], probs.detach()


def lost_in_differences(
    p: Problem, tensors: list[torch.Tensor], probs: torch.Tensor
) -> list[float]:
    """What single precision may lose of dq, dk and dv in the differences of dP and delta.

    One difference loses 2^-22 of the largest product of an element of dout, one of v, and the one
    of q or k that it is multiplied by. dk sums differences over query rows, whose errors are
    independent: the squares of typical ones, 2^-20 of typical elements, add up, each weighted by
    the square of its softmax weight.
    """
    q, k, v, dout = (x.double() for x in tensors)
    most_q, most_k, most_v, most_dout = (x.abs().max().item() for x in (q, k, v, dout))
    of_dims = math.sqrt(p.head_dim_v / p.head_dim)
    one = 2.0**-22 * most_dout * most_v * of_dims * max(most_q, most_k)
    by_key = (probs.double() ** 2).sum(-2).view(p.batch, p.kv_heads, -1, p.kv_len).sum(2)
    typical = math.prod(x.square().mean().sqrt().item() for x in (q, v, dout))
    rows = 2.0**-20 * by_key.max().sqrt().item() * typical * of_dims
    return [one, max(one, rows), one]


def check(p: Problem, device: str, calls: int) -> str:
    """What is wrong in so many calls; empty if nothing is."""
    tensors = p.inputs(device)
    given = [x.flatten(0, 1) for x in tensors] if p.packed else tensors
    q, k, v, dout = given
    lengths = p.begins(device)
    exact, probs = autograd(p, tensors, torch.float64)
    plain, _ = autograd(p, tensors, p.dtype)
    kernel = fc.jit(p.spec())
    # Whatever the problem's own lengths are.
    kernel._derivative()._lengths_of = lambda *_: (p.longest, p.longest)
    out, lse = kernel(q, k, v, return_lse=True, **lengths)
    found, *again = (kernel.backward(q, k, v, out, lse, dout, **lengths) for _ in range(calls))
    single = lost_in_differences(p, tensors, probs)
    wrong = []
    for name, x, want, rounded, lost, *others in zip(
        ("dq", "dk", "dv"), found, exact, plain, single, *again, strict=True
    ):
        bits = x.view(torch.int16)
        if p.deterministic and not all(torch.equal(bits, y.view(torch.int16)) for y in others):
            wrong.append(f"{name} differs from call to call")
        error = (x.view(want.shape).double() - want).abs().max().item()
        allowed = 3 * (rounded.double() - want).abs().max().item() + lost
        if not error <= allowed:
            wrong.append(f"{name} is off by {error:.3g}, allowed {allowed:.3g}")
    return ", ".join(wrong)


def draw(chance: random.Random, max_length: int) -> Problem:
    kv_heads, group = chance.choice([1, 2, 3]), chance.choice([1, 1, 2, 4])
    dim = chance.choice([32, 64, 64, 80, 96, 128, 128, 192, 256])
    lengths = [n for n in (1, 7, 64, 100, 128, 129, 333, 512, 1000) if n <= max_length]
    kind = chance.choice(["full", "causal", "window"])
    bshd, packed = chance.choice([(False, False), (True, False), (True, True)])
    return Problem(
        batch=chance.choice([1, 2, 3]) if packed else chance.choice([1, 2]),
        heads=kv_heads * group,
        kv_heads=kv_heads,
        q_len=chance.choice(lengths),
        kv_len=chance.choice(lengths),
        head_dim=dim,
        head_dim_v=chance.choice([dim, dim, dim, 64]),
        causal=kind == "causal",
        window=chance.choice([0, 17, 200]) if kind == "window" else -1,
        dtype=chance.choice([torch.bfloat16, torch.float16]),
        bshd=bshd,
        packed=packed,
        spread=chance.choice([1.0, 1.0, 8.0]),
        longest=chance.choice(length_bounds()),
        deterministic=chance.choice([True, True, False]),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--cases", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--max-length", type=int, default=1000)
    parser.add_argument("--calls", type=int, help="of each case; default: 4, in the emulator 2")
    parser.add_argument("--seconds", type=float, default=math.inf, help="no case begins later")
    arguments = parser.parse_args()
    calls = arguments.calls or (4 if arguments.device == "cuda" else 2)
    torch.manual_seed(arguments.seed)
    chance, bad, done = random.Random(arguments.seed), 0, 0
    end = time.monotonic() + arguments.seconds
    while done < arguments.cases and time.monotonic() < end:
        done += 1
        p = draw(chance, arguments.max_length)
        wrong = check(p, arguments.device, calls)
        bad += bool(wrong)
        if wrong:
            print(p, wrong, flush=True)
    print(f"{done} cases, {bad} wrong")
    raise SystemExit(bad > 0)


if __name__ == "__main__":
    main()
