"""The backward programs of attention on a GPU, against torch's autograd in double precision.

    python tests/gpu/backward.py --cases 40 --seed 1
    python tests/gpu/backward.py --speed             # beside FlashAttention 2 and cuDNN, in torch

No gradient may be off by more than three times what autograd is off by in the inputs' own dtype,
which rounds every tensor that it makes. Outputs begin as NaN, and a second run has to give the same
bits. `--speed` prints TFLOP/s of the whole backward pass, counted as five products, by medians of
launches with L2 overwritten in between.
"""

from __future__ import annotations

import argparse
import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

import flashcore as fc

PROGRAMS = fc.load(Path(__file__).with_name("backward_programs.cpp"))


@dataclass(frozen=True)
class Problem:
    batch: int
    heads: int
    kv_heads: int
    q_len: int
    kv_len: int
    head_dim: int
    head_dim_v: int
    causal: bool = False
    window: int = -1
    dtype: torch.dtype = torch.bfloat16
    bshd: bool = False
    spread: float = 1.0

    @property
    def scale(self) -> float:
        return 1 / math.sqrt(self.head_dim)

    def visible(self) -> torch.Tensor:
        diagonal = torch.arange(self.q_len)[:, None] + self.kv_len - self.q_len
        distance = diagonal - torch.arange(self.kv_len)[None]
        seen = torch.ones_like(distance, dtype=torch.bool)
        if self.causal or self.window >= 0:
            seen = distance >= 0
        if self.window >= 0:
            seen &= distance <= self.window
        return seen.cuda()

    def tensor(self, heads: int, length: int, dim: int, spread: float = 1.0) -> torch.Tensor:
        shape = (self.batch, length, heads, dim) if self.bshd else (self.batch, heads, length, dim)
        x = (torch.randn(shape, device="cuda") * spread).to(self.dtype)
        return x.transpose(1, 2) if self.bshd else x

    def inputs(self) -> list[torch.Tensor]:
        """q, k, v and the gradient of o."""
        return [
            self.tensor(self.heads, self.q_len, self.head_dim, self.spread),
            self.tensor(self.kv_heads, self.kv_len, self.head_dim),
            self.tensor(self.kv_heads, self.kv_len, self.head_dim_v),
            self.tensor(self.heads, self.q_len, self.head_dim_v),
        ]


class Backward:
    """The kernels of a problem, launched one after the other."""

    def __init__(self, p: Problem) -> None:
        self.p = p
        grouped = p.heads != p.kv_heads
        arguments = {
            "head_dim": p.head_dim,
            "head_dim_v": p.head_dim_v,
            "causal": int(p.causal),
            "window": p.window,
            "f16": int(p.dtype == torch.float16),
            "layout": int(p.bshd),
            "heads": p.heads if grouped else 0,
            "kv_heads": p.kv_heads if grouped else 0,
        }
        names = ["rows", "keys", "queries"] + ["groups"] * grouped
        self.kernels = {n: fc.jit(getattr(PROGRAMS, n)(**arguments)) for n in names}

    def run(self, q, k, v, dout, o, lse):  # noqa: ANN001, ANN201
        def own(x):  # noqa: ANN001, ANN202
            return x.transpose(1, 2) if self.p.bshd else x

        q, k, v, dout, o = map(own, (q, k, v, dout, o))
        delta, lse_log2 = torch.full_like(lse, math.nan), torch.full_like(lse, math.nan)
        self.kernels["rows"](o=o, dout=dout, lse=lse, delta=delta, lse_log2=lse_log2)
        given = {"q": q, "k": k, "v": v, "dout": dout, "lse_log2": lse_log2, "delta": delta}
        given["scale"] = self.p.scale
        dq, dk, dv = (torch.full_like(x, math.nan) for x in (q, k, v))
        if "groups" in self.kernels:

            def of_heads(x):  # noqa: ANN001, ANN202
                shape = list(x.shape)
                shape[2 if self.p.bshd else 1] = self.p.heads
                return torch.full(shape, math.nan, device="cuda")

            heads = {"dk_heads": of_heads(k), "dv_heads": of_heads(v)}
            self.kernels["keys"](**given, **heads)
            self.kernels["groups"](**heads, dk=dk, dv=dv)
        else:
            self.kernels["keys"](**given, dk=dk, dv=dv)
        self.kernels["queries"](**given, dq=dq)
        return own(dq), own(dk), own(dv)


def autograd(p: Problem, tensors: list[torch.Tensor], dtype: torch.dtype):  # noqa: ANN201
    """Gradients, output and log-sum-exps as written down; rows that see no key give zeros."""
    q, k, v = (x.detach().to(dtype).requires_grad_() for x in tensors[:3])
    seen, group = p.visible(), p.heads // p.kv_heads
    scores = q @ k.repeat_interleave(group, 1).transpose(-1, -2) * p.scale
    scores = scores.masked_fill(~seen, torch.finfo(dtype).min)
    some = seen.any(-1)[:, None]
    probs = scores.softmax(-1) * some
    o = probs @ v.repeat_interleave(group, 1)
    gradients = torch.autograd.grad(o, (q, k, v), tensors[3].to(dtype))
    lse = scores.double().logsumexp(-1).masked_fill(~some[:, 0], -math.inf)
    return gradients, o.detach(), lse.detach().float()


def check(p: Problem) -> str:
    """What is wrong; empty if nothing is."""
    tensors = p.inputs()
    exact, o, lse = autograd(p, tensors, torch.float64)
    plain, _, _ = autograd(p, tensors, p.dtype)
    backward = Backward(p)
    inputs = (*tensors, o.to(p.dtype), lse)
    found, again = backward.run(*inputs), backward.run(*inputs)
    wrong = []
    for name, x, y, want, rounded in zip(
        ("dq", "dk", "dv"), found, again, exact, plain, strict=True
    ):
        if not torch.equal(x.view(torch.int16), y.view(torch.int16)):
            wrong.append(f"{name} differs from launch to launch")
        error = (x.double() - want).abs().max().item()
        allowed = 3 * (rounded.double() - want).abs().max().item() + 1e-6
        if not error <= allowed:
            wrong.append(f"{name} is off by {error:.3g}, allowed {allowed:.3g}")
    return ", ".join(wrong)


def draw(chance: random.Random) -> Problem:
    kv_heads, group = chance.choice([1, 2, 3]), chance.choice([1, 1, 2, 4])
    dim = chance.choice([32, 64, 64, 80, 96, 128, 128, 192, 256])
    length = [chance.choice([1, 7, 64, 100, 128, 129, 333, 512, 1000]) for _ in range(2)]
    kind = chance.choice(["full", "causal", "window"])
    return Problem(
        batch=chance.choice([1, 2]),
        heads=kv_heads * group,
        kv_heads=kv_heads,
        q_len=length[0],
        kv_len=length[1],
        head_dim=dim,
        head_dim_v=chance.choice([dim, dim, dim, 64]),
        causal=kind == "causal",
        window=chance.choice([0, 17, 200]) if kind == "window" else -1,
        dtype=chance.choice([torch.bfloat16, torch.float16]),
        bshd=chance.choice([False, True]),
        spread=chance.choice([1.0, 1.0, 8.0]),
    )


def median_ms(launch: Callable[[], object], repeats: int = 10) -> float:
    flush = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
    times = []
    for i in range(repeats + 2):
        flush.zero_()
        events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
        events[0].record()
        launch()
        events[1].record()
        torch.cuda.synchronize()
        if i >= 2:
            times.append(events[0].elapsed_time(events[1]))
    return sorted(times)[len(times) // 2]


def time_one(dim: int, length: int, causal: bool) -> None:
    p = Problem(16384 // length, *[2048 // dim] * 2, length, length, dim, dim, causal)
    q, k, v, dout = p.inputs()
    flops = 10 * p.batch * p.heads * length**2 * dim / (2 if causal else 1)
    speeds = {}
    for name, backend in (
        ("FA2", SDPBackend.FLASH_ATTENTION),
        ("cuDNN", SDPBackend.CUDNN_ATTENTION),
    ):
        leaves = [x.clone().requires_grad_() for x in (q, k, v)]
        with sdpa_kernel(backend):
            out = torch.nn.functional.scaled_dot_product_attention(*leaves, is_causal=causal)
        speeds[name] = median_ms(
            lambda leaves=leaves, out=out: torch.autograd.grad(out, leaves, dout, retain_graph=True)
        )
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        o, lse, *_ = torch.ops.aten._scaled_dot_product_flash_attention(
            q, k, v, 0.0, causal, False, scale=p.scale
        )
    backward = Backward(p)
    delta, lse_log2 = torch.empty_like(lse), torch.empty_like(lse)
    gradients = {name: torch.empty_like(q) for name in ("dq", "dk", "dv")}
    given = {"q": q, "k": k, "v": v, "dout": dout, "lse_log2": lse_log2, "delta": delta}

    def all_kernels() -> None:
        kernels, g = backward.kernels, gradients
        kernels["rows"](o=o, dout=dout, lse=lse, delta=delta, lse_log2=lse_log2)
        kernels["keys"](**given, scale=p.scale, dk=g["dk"], dv=g["dv"])
        kernels["queries"](**given, scale=p.scale, dq=g["dq"])

    speeds["FlashCore"] = median_ms(all_kernels)
    figures = ", ".join(f"{n} {flops / ms / 1e9:.0f}" for n, ms in speeds.items())
    print(
        f"head_dim {dim} {'causal' if causal else 'full'} {length}: {figures} TFLOP/s", flush=True
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--cases", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--speed", action="store_true")
    arguments = parser.parse_args()
    if arguments.speed:
        for dim in (64, 128, 256):
            for causal in (False, True):
                for length in (1024, 4096, 8192, 16384):
                    time_one(dim, length, causal)
        return
    torch.manual_seed(arguments.seed)
    chance, bad = random.Random(arguments.seed), 0
    for _ in range(arguments.cases):
        p = draw(chance)
        wrong = check(p)
        bad += bool(wrong)
        if wrong:
            print(p, wrong, flush=True)
    print(f"{arguments.cases} cases, {bad} wrong")
    raise SystemExit(bad > 0)


if __name__ == "__main__":
    main()
