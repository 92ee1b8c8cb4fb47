"""One call of a kernel: its tensors, the launch, and what is wrong with the result.

What belongs to no sequence is NaN in q, k and v. Outputs start as NaN, and what lies around them
must not change. The same call again has to give the same bits: a race that one launch wins another
one loses.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from draw import Case, starts
from exact import compare, evaluate
from meaning import arrays

import flashcore as fc

TORCH = {"bf16": torch.bfloat16, "f16": torch.float16}
GUARD = 1984.0  # what surrounds an output; exact in both dtypes

Fill = Callable[[tuple[int, ...]], torch.Tensor]


def in_memory(kind: str, shape: Sequence[int], fill: Fill) -> tuple[torch.Tensor, torch.Tensor]:
    """A tensor of that shape with some layout in memory, and the whole allocation it lies in.

    `fill(shape)` makes dense tensors.
    """
    if len(shape) == 3:
        inner, whole = in_memory(kind, (1, *shape), fill)
        return inner[0], whole
    a, b, c, d = shape
    if kind == "padded":
        whole = fill((a, b, c + 3, d + 8))
        return whole[:, :, :c, :d], whole
    if kind == "exchanged":
        whole = fill((a, c, b, d))
        return whole.transpose(1, 2), whole
    if kind == "sliced":
        whole = fill((a + 1, b, c + 5, d))
        return whole[1:, :, 5:], whole
    if kind == "packed":
        whole = fill((a, b, c, 3, d))
        return whole[:, :, :, 1], whole
    if kind == "misaligned":
        whole = fill((a, b, c, d + 1))
        return whole[..., :d], whole
    whole = fill(tuple(shape))
    return whole, whole


@dataclass
class Sequences:
    """Where the sequences of a call lie in its tensors."""

    spec: fc.AttentionSpec
    case: Case

    def __post_init__(self) -> None:
        pairs = self.case.sequences
        self.rows, self.keys = ([pair[i] for pair in pairs] for i in (0, 1))
        first, beyond = self.case.around
        self.row_starts, self.key_starts = (starts(n, first) for n in (self.rows, self.keys))
        self.total_rows = self.row_starts[-1] + beyond
        self.total_keys = self.key_starts[-1] + beyond

    def shape(self, heads: int, dim: int, keys: bool) -> tuple[int, ...]:
        batch, length = self.case.batch, self.case.kv_len if keys else self.case.q_len
        if self.spec.layout == "thd":
            return (self.total_keys if keys else self.total_rows, heads, dim)
        inner = (heads, length) if self.spec.layout == "bhsd" else (length, heads)
        return (batch, *inner, dim)

    def heads_first(self, tensor: torch.Tensor) -> torch.Tensor:
        """[batch, heads, length, dim]; packed sequences are one batch."""
        if self.spec.layout == "thd":
            return tensor.transpose(0, 1)[None]
        return tensor if self.spec.layout == "bhsd" else tensor.transpose(1, 2)

    def parts(self) -> Iterator[tuple[int, tuple[slice, slice], tuple[slice, slice]]]:
        """Of sequences of one length the number of the first, then batches and positions of their
        rows and of their keys, in tensors that have heads first."""
        whole = slice(None)
        if self.spec.layout == "thd":
            one = slice(0, 1)
            for i in range(len(self.rows)):
                rows = slice(*self.row_starts[i : i + 2])
                yield i, (one, rows), (one, slice(*self.key_starts[i : i + 2]))
        elif self.case.sequences:
            for i, (rows, keys) in enumerate(self.case.sequences):
                yield i, (slice(i, i + 1), slice(rows)), (slice(i, i + 1), slice(keys))
        else:
            yield 0, (whole, whole), (whole, whole)

    def belongs(self, tensor: torch.Tensor, keys: bool) -> torch.Tensor:
        """Which positions of [batch, heads, length, ...] lie in a sequence: [batch, length]."""
        inside = torch.zeros(tensor.shape[0], tensor.shape[2], dtype=torch.bool)
        for _, of_rows, of_keys in self.parts():
            inside[of_keys if keys else of_rows] = True
        return inside.to(tensor.device)

    def arguments(self, device: str) -> dict[str, Any]:
        numbers = lambda values: torch.tensor(values, dtype=torch.int32).to(device)  # noqa: E731
        if self.spec.layout == "thd":
            given = {"cu_seqlens_q": numbers(self.row_starts)}
            if not self.case.one_starts:
                given["cu_seqlens_k"] = numbers(self.key_starts)
            if self.case.says_longest:
                given["max_q_len"] = max(self.rows, default=0)
            return given
        lengths = {"q_lens": self.rows, "kv_lens": self.keys}
        return {name: numbers(n) for name, n in lengths.items() if getattr(self.spec, name)}


def set_outside(sequences: Sequences, tensor: torch.Tensor, keys: bool) -> None:
    """NaN wherever no sequence lies."""
    view = sequences.heads_first(tensor)
    outside = ~sequences.belongs(view, keys)
    view.masked_fill_(outside[:, None, :, None], math.nan)


class Call:
    """The tensors of one call. They depend on the seed and the case alone."""

    def __init__(self, spec: fc.AttentionSpec, case: Case, seed: int, device: str):
        self.spec, self.case, self.device = spec, case, device
        torch.manual_seed(seed * 1_000_003 + case.index)
        self.sequences = Sequences(spec, case)
        dtype, dim, dim_v = TORCH[spec.dtype], spec.head_dim, spec.head_dim_v or spec.head_dim

        def normal(size: float) -> Fill:
            return lambda shape: (torch.randn(shape, device=device) * size).to(dtype)

        def made(heads: int, width: int, keys: bool, fill: Fill) -> Any:
            return in_memory(case.memory, self.sequences.shape(heads, width, keys), fill)

        self.q, _ = made(case.heads, dim, False, normal(case.size))
        self.k, _ = made(case.kv_heads, dim, True, normal(1.0))
        self.v, _ = made(case.kv_heads, dim_v, True, normal(1.0))
        if case.sequences or spec.layout == "thd":
            for tensor, keys in ((self.q, False), (self.k, True), (self.v, True)):
                set_outside(self.sequences, tensor, keys)
        self.out = self.whole = None
        if case.own_output:
            guard = lambda shape: torch.full(shape, GUARD, device=device, dtype=dtype)  # noqa: E731
            self.out, self.whole = made(case.heads, dim_v, False, guard)
        sizes = {name: getattr(case, name) for name in ("batch", "heads", "q_len", "kv_len")}
        sizes["longest"] = max(case.q_len, case.kv_len)
        self.captured = arrays(spec, sizes, device)
        self.given = self.sequences.arguments(device)

    def run(self, kernel: Any) -> tuple[torch.Tensor, torch.Tensor | None]:
        """The output, and the log-sum-exp where the case asks for it."""
        if self.out is not None:
            self.out.fill_(math.nan)
        result = kernel(
            self.q, self.k, self.v, scale=self.case.scale, out=self.out,
            return_lse=self.case.return_lse, captured=self.captured, **self.given,
        )  # fmt: skip
        if self.device == "cuda":
            torch.cuda.synchronize()
        return result if self.case.return_lse else (result, None)

    def bits(self, out: torch.Tensor, lse: torch.Tensor | None) -> list[torch.Tensor]:
        """A copy of what the rows of sequences have, as whole numbers."""
        given = self.sequences.heads_first(out)
        inside = self.sequences.belongs(given, keys=False)
        copies = [given.transpose(1, 2)[inside].view(torch.int16)]
        if lse is not None:
            lse = lse[None] if self.spec.layout == "thd" else lse
            copies.append(lse.transpose(1, 2)[inside].view(torch.int32))
        return copies

    def aligned(self) -> bool:
        return all(
            x.shape[i] <= 1 or x.stride(i) % 8 == 0
            for x in (self.q, self.k, self.v)
            for i in range(x.dim() - 1)
        )

    def wrong(
        self, out: torch.Tensor, lse: torch.Tensor | None, on: str | None = None
    ) -> str | None:
        """What is wrong with a result, or None. `on` is the device that computes what is right."""
        on = on or self.device
        lines = self.sequences.heads_first
        q, k, v, given = (lines(x).to(on) for x in (self.q, self.k, self.v, out))
        captured = {name: tensor.to(on) for name, tensor in self.captured.items()}
        if lse is not None:
            lse = (lse[None] if self.spec.layout == "thd" else lse).to(on)
        for first, rows, keys in self.sequences.parts():
            at = lambda x, part: x[part[0]][:, :, part[1]]  # noqa: E731
            inputs = at(q, rows), at(k, keys), at(v, keys)
            expected = evaluate(self.spec, self.case, *inputs, captured, first)
            name = f" of sequence {first}" if self.case.sequences else ""
            problem = compare(f"out{name}", at(given, rows), expected.out, expected.out_bound)
            if problem is None and lse is not None:
                problem = compare(f"lse{name}", at(lse, rows), expected.lse, expected.lse_bound)
            if problem is not None:
                return problem
        return self.wrong_outside(given, lse) or self.wrong_around()

    def wrong_outside(self, given: torch.Tensor, lse: torch.Tensor | None) -> str | None:
        """Rows beyond a padded sequence are zeros; nobody writes beyond packed ones."""
        if not self.case.sequences and self.spec.layout != "thd":
            return None
        outside = ~self.sequences.belongs(given, keys=False)
        rows = given.transpose(1, 2)[outside]
        if self.spec.layout == "thd":
            written = self.out is not None and not rows.isnan().all()
            return "wrote rows of no sequence" if written else None
        if not (rows == 0).all():
            return "rows beyond a sequence are not zeros"
        if lse is not None and not lse.transpose(1, 2)[outside].isneginf().all():
            return "lse beyond a sequence is not -inf"
        return None

    def wrong_around(self) -> str | None:
        if self.out is None or self.whole is None:
            return None
        self.out.fill_(GUARD)
        return None if (self.whole == GUARD).all() else "wrote outside of its output"
