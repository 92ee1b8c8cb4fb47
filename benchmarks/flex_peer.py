"""FlashCore beside FlexAttention compiled by torch: one mask or score, written for each of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from contest import off_by

TOLERANCE = 2e-2

Modifier = Callable[..., Any] | None


@dataclass(frozen=True)
class Variant:
    """The same attention for both; FlexAttention has no sinks."""

    arguments: dict[str, Any]  # of FlashCore's spec
    mask: Modifier = None  # FlexAttention's
    score: Modifier = None

    @property
    def in_flex(self) -> bool:
        return "sink" not in self.arguments


def variant(fc: Any, torch: Any, kind: str, size: int, length: int, heads: int) -> Variant:
    """`size` is that of a window, a prefix, a document or a chunk, or the cap of a softcap."""
    device = "cuda"
    causal = lambda b, h, q, k: q >= k  # noqa: E731
    document = torch.arange(length, device=device, dtype=torch.int32) // max(1, size)
    if kind == "full":
        return Variant({})
    if kind == "window":
        window = lambda b, h, q, k: (q >= k) & (q - k < size)  # noqa: E731
        return Variant({"mask": fc.sliding_window(size - 1)}, window)
    if kind == "documents":
        same = lambda b, h, q, k: document[q] == document[k]  # noqa: E731
        return Variant({"mask": fc.documents(document)}, same)
    if kind == "causal_documents":
        both = lambda b, h, q, k: (q >= k) & (document[q] == document[k])  # noqa: E731
        return Variant({"mask": fc.documents(document) & fc.causal()}, both)
    if kind == "prefix_causal":
        prefix = lambda b, h, q, k: (k < size) | (q >= k)  # noqa: E731
        return Variant({"mask": fc.prefix(size) | fc.causal()}, prefix)
    if kind == "chunked":
        chunked = lambda b, h, q, k: q // size == k // size  # noqa: E731
        return Variant({"mask": fc.chunked(size)}, chunked)
    if kind == "dense_bias":
        table = torch.randn(length, length, device=device, dtype=torch.bfloat16)
        biased = lambda s, b, h, q, k: s + table[q, k]  # noqa: E731
        return Variant({"score": fc.bias(table)}, None, biased)
    if kind == "dense_mask":
        kept = torch.rand(length, length, device=device) < 0.7
        seen = lambda b, h, q, k: kept[q, k]  # noqa: E731
        return Variant({"mask": fc.dense_mask(kept)}, seen)
    arguments: dict[str, Any] = {"mask": fc.causal()}
    if kind == "causal":
        return Variant(arguments, causal)
    if kind == "sinks_causal":
        return Variant(arguments | {"sink": fc.sinks(torch.zeros(heads, device=device))})
    if kind == "softcap_causal":
        cap = float(size)
        softcapped = lambda s, b, h, q, k: cap * torch.tanh(s / cap)  # noqa: E731
        return Variant(arguments | {"score": fc.softcap(cap)}, causal, softcapped)
    if kind == "alibi_causal":
        slopes = torch.exp2(-torch.arange(1, heads + 1, device=device) * 8.0 / heads)
        leaning = lambda s, b, h, q, k: s + slopes[h] * (k - q)  # noqa: E731
        return Variant(arguments | {"score": fc.alibi(slopes)}, causal, leaning)
    if kind == "relative_bias_causal":
        span = torch.randn(heads, 2 * length + 1, device=device, dtype=torch.float32)
        relative = lambda s, b, h, q, k: s + span[h, k - q + length]  # noqa: E731
        return Variant(arguments | {"score": fc.relative_bias(span)}, causal, relative)
    raise ValueError(f"no variant {kind}")


def flex_run(torch: Any, inputs: list[Any], given: Variant, tune: bool = False) -> Any:
    """FlexAttention's call, its block mask made."""
    from torch.nn.attention import flex_attention as module

    torch._dynamo.reset()
    q, k, _ = inputs
    blocks = None
    if given.mask is not None:
        lengths = q.shape[2], k.shape[2]
        blocks = module.create_block_mask(given.mask, None, None, *lengths, device="cuda")
    mode = "max-autotune-no-cudagraphs" if tune else None
    flex = torch.compile(module.flex_attention, dynamic=False, mode=mode)
    return lambda _: flex(*inputs, score_mod=given.score, block_mask=blocks)


def pair(
    torch: Any, kernel: Any, given: Variant, inputs: list[Any], tune: bool = False
) -> tuple[list[Any], float, str | None]:
    """FlashCore's call and, where it can, FlexAttention's; how far apart they are; what is off."""
    out = torch.full_like(inputs[0], float("nan"))
    ours = lambda _: kernel(*inputs, out=out)  # noqa: E731
    ours(0)
    try:
        theirs = flex_run(torch, inputs, given, tune)
        expected = theirs(0)
    except Exception as error:  # what it cannot compile has no time
        return [ours], float("nan"), f"FlexAttention: {str(error).splitlines()[0]}"
    error = off_by(out, expected)
    wrong = f"WRONG: off by {error:.1e} from FlexAttention"
    return [ours, theirs], error, None if error < TOLERANCE else wrong
