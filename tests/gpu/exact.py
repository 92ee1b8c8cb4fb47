"""What attention should give, and how far off a right answer may be.

    max |out - exact| <= 2 max |plain - exact| + u (max |exact| + 2 max R) + s

`exact` is in double precision. `plain` is the same mathematics in torch, which rounds the
probabilities and the output once; u is the rounding of the dtype, R the root of sum p^2 v^2 (what
independent roundings of the probabilities p add up to) and s what single precision loses in large
scores. The bound stays below the weight of one key among hundreds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from draw import Case, Config

ROUNDING = {"bf16": 2.0**-9, "f16": 2.0**-12}


def visible(mask: str, q_len: int, kv_len: int, device: str) -> torch.Tensor:
    rows = torch.arange(q_len, device=device)[:, None]
    cols = torch.arange(kv_len, device=device)[None, :]
    if mask == "full":
        return torch.ones(q_len, kv_len, dtype=torch.bool, device=device)
    offset = kv_len - q_len if mask == "causal(bottom_right)" else 0
    return rows + offset >= cols


def softmax(scores: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Unnormalised probabilities, their sums, the log-sum-exp; without a key 0, 0, -inf."""
    if scores.shape[-1] == 0:
        sums = scores.new_zeros((*scores.shape[:-1], 1))
        return scores, sums, sums - math.inf
    top = scores.amax(-1, keepdim=True).clamp(min=torch.finfo(scores.dtype).min)
    probs = torch.exp(scores - top)
    sums = probs.sum(-1, keepdim=True)
    return probs, sums, torch.where(sums > 0, top + sums.log(), -math.inf)


def divide(values: torch.Tensor, sums: torch.Tensor) -> torch.Tensor:
    return torch.where(sums > 0, values / sums.clamp(min=torch.finfo(sums.dtype).tiny), 0.0)


@dataclass
class Expected:
    out: torch.Tensor
    lse: torch.Tensor
    out_bound: float
    lse_bound: float


def evaluate(config: Config, case: Case, q: Any, k: Any, v: Any, device: str) -> Expected:
    spec = config.spec
    if spec.layout == "bshd":
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    group = case.heads // case.kv_heads
    k, v = (x.repeat_interleave(group, dim=1) for x in (k, v))
    scale = case.scale or 1 / math.sqrt(spec.head_dim)
    keep = visible(spec.mask.text, case.q_len, case.kv_len, device)

    scores = q.double() @ k.double().transpose(-1, -2) * scale
    largest = scores.abs().max().item() if scores.numel() else 0.0
    scores = scores.masked_fill(~keep, -math.inf)
    probs, sums, lse = softmax(scores)
    exact = divide(probs @ v.double(), sums)
    root = divide((probs**2 @ v.double() ** 2).sqrt(), sums)

    plain_scores = (q.float() @ k.float().transpose(-1, -2) * scale).masked_fill(~keep, -math.inf)
    plain_probs, plain_sums, _ = softmax(plain_scores)
    rounded = plain_probs.to(q.dtype).float()
    plain = divide(rounded @ v.float(), plain_sums).to(q.dtype).double()

    u = ROUNDING[spec.dtype]
    top = lambda x: x.abs().max().item() if x.numel() else 0.0  # noqa: E731
    lost = 2.0**-20 * largest
    bound = 2 * top(plain - exact) + u * (top(exact) + 2 * top(root)) + lost * top(v) + 1e-6
    if spec.layout == "bshd":
        exact = exact.transpose(1, 2)
    return Expected(exact, lse.squeeze(-1), bound, 1e-5 + lost)


def compare(name: str, given: torch.Tensor, exact: torch.Tensor, bound: float) -> str | None:
    if given.shape != exact.shape:
        return f"{name} has shape {tuple(given.shape)}, not {tuple(exact.shape)}"
    given = given.double()
    if not torch.equal(given.isneginf(), exact.isneginf()):
        return f"{name} is -inf in other places than it should be"
    finite = exact.isfinite()
    if not given[finite].isfinite().all():
        count = (~given[finite].isfinite()).sum().item()
        return f"{name}: {count} of {finite.sum().item()} elements are NaN or infinite"
    if not finite.any():
        return None
    error = (given[finite] - exact[finite]).abs().max().item()
    return None if error <= bound else f"{name} is off by {error:.3e}, allowed are {bound:.3e}"
