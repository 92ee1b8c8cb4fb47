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
from draw import Case
from meaning import evaluate as expression

import flashcore as fc

ROUNDING = {"bf16": 2.0**-9, "f16": 2.0**-12}


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


def modified(
    scores: torch.Tensor, spec: fc.AttentionSpec, captured: dict[str, torch.Tensor], first: int
) -> tuple[torch.Tensor, float]:
    """The scores as the softmax takes them, with the sink as one more key, and the largest. `first`
    is the number of the first sequence."""
    lengths = dict(zip(("b", "h", "q_idx", "kv_idx"), scores.shape, strict=True))
    names: dict[str, Any] = {"q_len": lengths["q_idx"], "kv_len": lengths["kv_idx"]}
    for at, (name, size) in enumerate(lengths.items()):
        shape = [-1 if i == at else 1 for i in range(4)]
        names[name] = torch.arange(size, device=scores.device).view(shape)
    names["b"] = names["b"] + first
    mask, score, sink = spec.expressions
    if score is not None:
        scores = expression(score.text, captured, scores.dtype, score=scores, **names)
    keep = expression(mask.text, captured, scores.dtype, **names)
    finite = scores.isfinite()
    largest = scores[finite].abs().max().item() if finite.any() else 0.0
    scores = torch.where(torch.as_tensor(keep, device=scores.device), scores, -math.inf)
    if sink is not None:
        more = expression(sink.text, captured, scores.dtype, **names)
        scores = torch.cat([scores, more.expand(*scores.shape[:-1], 1)], dim=-1)
    return scores, largest


def evaluate(
    spec: fc.AttentionSpec,
    case: Case,
    q: Any,
    k: Any,
    v: Any,
    captured: dict[str, torch.Tensor],
    first: int = 0,
) -> Expected:
    """Of sequences of one length, [batch, heads, length, dim]; the first has number `first`."""
    group = case.heads // case.kv_heads
    k, v = (x.repeat_interleave(group, dim=1) for x in (k, v))
    if spec.sink is not None:
        v = torch.cat([v, torch.zeros_like(v[:, :, :1])], dim=2) if v.shape[2] else v
    scale = case.scale or 1 / math.sqrt(spec.head_dim)

    raw = q.double() @ k.double().transpose(-1, -2) * scale
    scores, largest = modified(raw, spec, captured, first)
    largest = max(largest, raw.abs().max().item() if raw.numel() else 0.0)
    if scores.shape[-1] > v.shape[2]:  # a sink beside no key at all
        v = v.new_zeros((*v.shape[:2], scores.shape[-1], v.shape[3]))
    probs, sums, lse = softmax(scores)
    exact = divide(probs @ v.double(), sums)
    root = divide((probs**2 @ v.double() ** 2).sqrt(), sums)

    plain_raw = q.float() @ k.float().transpose(-1, -2) * scale
    plain_scores, _ = modified(plain_raw, spec, captured, first)
    plain_probs, plain_sums, _ = softmax(plain_scores)
    rounded = plain_probs.to(q.dtype).float()
    plain = divide(rounded @ v.float(), plain_sums).to(q.dtype).double()

    u = ROUNDING[spec.dtype]
    top = lambda x: x.abs().max().item() if x.numel() else 0.0  # noqa: E731
    lost = 2.0**-20 * largest
    bound = 2 * top(plain - exact) + u * (top(exact) + 2 * top(root)) + lost * top(v) + 1e-6
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
