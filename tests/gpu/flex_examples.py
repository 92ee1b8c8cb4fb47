"""Functions written for FlexAttention, run unchanged by it and by FlashCore.

    python tests/gpu/flex_examples.py
    python tests/gpu/flex_examples.py --length 512 --only document,softcap
    python tests/gpu/flex_examples.py --device cpu --length 96    # the emulator; not compiled

Each example is a mask, a score, or both, with torch's functions and captured tensors. Both results
are held against the same functions evaluated in double precision. FlashCore may be off by twice
what FlexAttention is off by, and one rounding of the largest output.
"""

from __future__ import annotations

import argparse
import math
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.attention.flex_attention import (
    and_masks,
    create_block_mask,
    flex_attention,
    noop_mask,
    or_masks,
)

import flashcore as fc

DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16}
ROUNDING = {"bf16": 2.0**-9, "f16": 2.0**-12}


@dataclass
class Shape:
    batch: int
    heads: int
    kv_heads: int
    q_len: int
    kv_len: int
    head_dim: int


@dataclass
class Example:
    mask: Callable[..., Any] | None = None
    score: Callable[..., Any] | None = None
    kv_heads: int | None = None


def causal(b, h, q_idx, kv_idx):
    return q_idx >= kv_idx


def examples(shape: Shape, device: str) -> dict[str, Example]:
    """By name. The captured tensors fit the shape."""
    heads, length = shape.heads, max(shape.q_len, shape.kv_len)
    window, chunk, frames = max(4, length // 8), max(4, length // 8), 6
    side = max(2, math.isqrt(length))  # of an image whose pixels are the tokens
    normal = lambda *size: torch.randn(*size, device=device)  # noqa: E731

    def sliding_window(b, h, q_idx, kv_idx):
        return q_idx - kv_idx <= window

    def near(b, h, q_idx, kv_idx):
        return torch.abs(q_idx - kv_idx) <= window

    prefix_lengths = torch.randint(1, length, (shape.batch,), device=device, dtype=torch.int32)

    def prefix(b, h, q_idx, kv_idx):
        return kv_idx < prefix_lengths[b]

    cuts = torch.sort(torch.randint(0, length, (shape.batch, 7), device=device), dim=1).values
    document = torch.searchsorted(cuts, torch.arange(length, device=device).expand(shape.batch, -1)
                                  .contiguous(), right=True)  # fmt: skip

    def same_document(b, h, q_idx, kv_idx):
        return document[b, q_idx] == document[b, kv_idx]

    starts = torch.cat([torch.zeros(shape.batch, 1, dtype=cuts.dtype, device=device), cuts], dim=1)

    def prefix_of_document(b, h, q_idx, kv_idx):
        # Positions count from the start of the document.
        q_local = q_idx - starts[b, document[b, q_idx]]
        kv_local = kv_idx - starts[b, document[b, kv_idx]]
        inside = (kv_local < 5) | (q_local >= kv_local)
        return same_document(b, h, q_idx, kv_idx) & inside

    def chunked(b, h, q_idx, kv_idx):
        return torch.div(q_idx, chunk, rounding_mode="floor") == kv_idx // chunk

    def dilated(b, h, q_idx, kv_idx):
        return torch.remainder(q_idx - kv_idx, 3) == 0

    def neighborhood(b, h, q_idx, kv_idx):
        # A window around each pixel, moved inwards at the edges of the image.
        q_row, q_col = q_idx // side, q_idx % side
        kv_row, kv_col = kv_idx // side, kv_idx % side
        row = q_row.clamp(3, max(3, side - 4))
        col = torch.clamp(q_col, min=3, max=max(3, side - 4))
        return ((row - kv_row).abs() <= 3) & ((col - kv_col).abs() <= 3)

    images = torch.tensor([[length // 4, length // 8], [length // 2, length // 5]], device=device)

    def in_image(b, h, q_idx, kv_idx):
        # Text is causal; each image sees all of itself.
        start, size = images[:, 0], images[:, 1]
        first = (q_idx >= start[0]) & (q_idx < start[0] + size[0])
        first = first & (kv_idx >= start[0]) & (kv_idx < start[0] + size[0])
        second = (q_idx >= start[1]) & (q_idx < start[1] + size[1])
        return first | second & (kv_idx >= start[1]) & (kv_idx < start[1] + size[1])

    def jagged(b, h, q_idx, kv_idx):
        return (q_idx < prefix_lengths[b]) & (kv_idx < prefix_lengths[b])

    frame = torch.arange(length, device=device) // (length // frames + 1)

    def previous_frames(b, h, q_idx, kv_idx):
        return torch.logical_and(frame[q_idx] >= frame[kv_idx], frame[q_idx] - frame[kv_idx] < 2)

    def strided_heads(b, h, q_idx, kv_idx):
        # Even heads look around, odd ones ahead.
        return torch.where(h % 2 == 0, torch.abs(q_idx - kv_idx) <= window, kv_idx >= q_idx)

    visible = torch.rand(shape.batch, 1, length, length, device=device) < 0.25

    def given(b, h, q_idx, kv_idx):
        return visible[b, 0, q_idx, kv_idx]

    slopes = torch.exp2(-torch.arange(1, heads + 1, device=device) * 8.0 / heads)

    def alibi(score, b, h, q_idx, kv_idx):
        return score + slopes[h] * (kv_idx - q_idx)

    def alibi_computed(score, b, h, q_idx, kv_idx):
        slope = torch.exp2(-((h + 1) * 8.0 / heads))
        return score - torch.abs(q_idx - kv_idx) * slope

    def softcap(score, b, h, q_idx, kv_idx):
        return 2.0 * torch.tanh(score / 2.0)

    def distance(score, b, h, q_idx, kv_idx):
        return score + (q_idx - kv_idx) * 0.01

    table = normal(heads, 2 * length)

    def relative(score, b, h, q_idx, kv_idx):
        return score + table[h, q_idx - kv_idx + length]

    bias = normal(heads, length, length).to(torch.bfloat16)

    def biased(score, b, h, q_idx, kv_idx):
        return score + bias[h, q_idx, kv_idx]

    buckets = torch.randint(0, 32, (2 * length,), device=device)
    learned = normal(32, heads)

    def bucketed(score, b, h, q_idx, kv_idx):
        return score + learned[buckets[q_idx - kv_idx + length], h]

    temperature = torch.rand(heads, device=device) + 0.5

    def tempered(score, b, h, q_idx, kv_idx):
        return torch.sigmoid(score * temperature[h]) * 4 - 2

    def causal_by_score(score, b, h, q_idx, kv_idx):
        return torch.where(q_idx >= kv_idx, score, -float("inf"))

    weights = torch.rand(shape.batch, length, device=device)

    def weighted(score, b, h, q_idx, kv_idx):
        same = document[b, q_idx] == document[b, kv_idx]
        return score + torch.log(weights[b, kv_idx] + 1e-3) + torch.where(same, 0.5, -0.5)

    in_window = and_masks(causal, sliding_window)
    return {
        "full": Example(),
        "causal": Example(causal),
        "sliding_window": Example(in_window),
        "around": Example(near),
        "prefix_lm": Example(or_masks(prefix, causal)),
        "document": Example(same_document),
        "causal_document": Example(and_masks(causal, same_document)),
        "document_prefix": Example(prefix_of_document),
        "chunked": Example(and_masks(causal, chunked)),
        "dilated": Example(and_masks(causal, dilated)),
        "dilated_window": Example(and_masks(near, dilated)),
        "neighborhood": Example(neighborhood),
        "transfusion": Example(or_masks(causal, in_image)),
        "jagged": Example(jagged),
        "frames": Example(previous_frames),
        "heads_differ": Example(strided_heads),
        "dense_mask": Example(given),
        "alibi": Example(causal, alibi),
        "alibi_both_ways": Example(None, alibi_computed),
        "softcap": Example(causal, softcap),
        "softcap_window": Example(in_window, softcap),
        "distance": Example(None, distance),
        "relative_bias": Example(causal, relative),
        "bias": Example(None, biased),
        "bucketed_bias": Example(None, bucketed),
        "temperature": Example(None, tempered),
        "causal_by_score": Example(None, causal_by_score),
        "weighted_document": Example(causal, weighted),
        "grouped_heads": Example(and_masks(causal, same_document), alibi, kv_heads=heads // 4),
    }


def exact(example: Example, q: Any, k: Any, v: Any) -> torch.Tensor:
    """In double precision, of the very functions; a row without a key is 0."""
    group = q.shape[1] // k.shape[1]
    k, v = (x.repeat_interleave(group, dim=1).double() for x in (k, v))
    scores = q.double() @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    batch, heads, q_len, kv_len = scores.shape
    index = [torch.arange(n, device=q.device) for n in (batch, heads, q_len, kv_len)]
    b, h, i, j = (x.view([-1 if d == at else 1 for d in range(4)]) for at, x in enumerate(index))
    if example.score is not None:
        scores = example.score(scores, b, h, i, j).double()
    if example.mask is not None:
        scores = scores.masked_fill(~example.mask(b, h, i, j), -math.inf)
    probs = torch.softmax(scores, dim=-1)
    return torch.nan_to_num(probs) @ v


def off(out: torch.Tensor, expected: torch.Tensor) -> float:
    if not torch.isfinite(out).all():
        return math.inf
    return (out.double() - expected).abs().max().item()


def measure(name: str, shape: Shape, dtype: str, device: str) -> tuple[float, float, float]:
    """How far FlexAttention is off, how far FlashCore is, and how far it may be."""
    torch.manual_seed(7)
    example = examples(shape, device)[name]
    kv_heads = example.kv_heads or shape.kv_heads

    def normal(heads: int, length: int) -> torch.Tensor:
        size = (shape.batch, heads, length, shape.head_dim)
        return torch.randn(size, device=device, dtype=DTYPES[dtype])

    q = normal(shape.heads, shape.q_len)
    k, v = normal(kv_heads, shape.kv_len), normal(kv_heads, shape.kv_len)
    expected = exact(example, q, k, v)
    blocks = None
    if example.mask is not None:
        blocks = create_block_mask(
            example.mask, shape.batch, shape.heads, shape.q_len, shape.kv_len, device=device
        )
    flex = torch.compile(flex_attention, dynamic=False) if device == "cuda" else flex_attention
    settings = {
        "score_mod": example.score,
        "block_mask": blocks,
        "enable_gqa": kv_heads != shape.heads,
    }
    with torch.no_grad():
        try:
            theirs = flex(q, k, v, **settings)
        except RuntimeError:  # its own tiles may ask for more shared memory than there is
            small = {"BLOCK_M": 32, "BLOCK_N": 32, "num_stages": 1}
            theirs = flex(q, k, v, **settings, kernel_options=small)
        ours = fc.attention(q, k, v, mask=example.mask or noop_mask, score=example.score)
    largest = expected.abs().max().item()
    allowed = 2 * off(theirs, expected)
    if not math.isfinite(allowed):  # it is wrong itself, as where a row sees no key
        allowed = 0.0
    return off(theirs, expected), off(ours, expected), allowed + ROUNDING[dtype] * largest


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--length", type=int, default=1000)
    parser.add_argument("--kv-length", type=int, help="default: the length")
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--head-dim", type=int, default=64)
    parser.add_argument("--dtypes", default="bf16,f16")
    parser.add_argument("--only", help="names of examples, by commas")
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        sys.exit("no GPU that PyTorch can use is here; --device cpu runs the emulator instead")
    shape = Shape(
        options.batch,
        options.heads,
        options.heads,
        options.length,
        options.kv_length or options.length,
        options.head_dim,
    )
    names = options.only.split(",") if options.only else list(examples(shape, options.device))
    line = "{:<20} {:>5} {:>12} {:>12} {:>12}  {}"
    print(line.format("example", "dtype", "FlexAttention", "FlashCore", "allowed", ""))
    failed = 0
    for name in names:
        for dtype in options.dtypes.split(","):
            torch._dynamo.reset()  # each example is compiled for itself
            try:
                theirs, ours, allowed = measure(name, shape, dtype, options.device)
            except Exception:  # one example's crash is not the end of the others
                failed += 1
                print(line.format(name, dtype, "", "", "", "FAILED"))
                print(traceback.format_exc(limit=-4))
                continue
            wrong = not ours <= allowed
            failed += wrong
            figures = [f"{x:.2e}" for x in (theirs, ours, allowed)]
            print(line.format(name, dtype, *figures, "WRONG" if wrong else ""), flush=True)
    total = len(names) * len(options.dtypes.split(","))
    print(f"{total - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
