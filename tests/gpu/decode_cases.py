"""Random decoding of sequences of different lengths on a GPU against double precision.

    python tests/gpu/decode_cases.py --cases 300 --seed 1
    python tests/gpu/decode_cases.py --seed 1 --only 137     # one case again

Batches of a few query rows each, over keys in pages of every size or padded ones. What lies beyond
a sequence is NaN, and so is every page that no sequence has; outputs start as NaN. An error may be
twice that of the same attention computed in the 16-bit type, and 2e-3 besides.
"""

from __future__ import annotations

import argparse
import random
import sys
from dataclasses import dataclass, field
from typing import Any

import flashcore as fc


@dataclass(frozen=True)
class Case:
    heads: int
    kv_heads: int
    head_dim: int
    page_size: int  # 0: padded
    dtype: str
    layout: str
    window: int  # 0: causal
    with_lse: bool
    q_len: int
    batch: int
    lens: tuple[int, ...] = field(repr=False)


def draw_lens(rng: random.Random, batch: int) -> tuple[int, ...]:
    longest = round(2 ** rng.uniform(0, 15 if batch <= 8 else 12))
    kind = rng.choice(("any", "equal", "one long", "short"))
    if kind == "equal":
        return (longest,) * batch
    if kind == "one long":
        long = rng.randrange(batch)
        return tuple(longest if b == long else rng.randint(0, 40) for b in range(batch))
    top = longest if kind == "any" else min(longest, 300)
    return tuple(rng.randint(0, top) for _ in range(batch))


CASES_OF_A_KERNEL = 12


def draw_case(seed: int, number: int) -> Case:
    """Cases that follow each other have a kernel in common, which is what takes time."""
    rng = random.Random(f"{seed} kernel {number // CASES_OF_A_KERNEL}")
    kv_heads = rng.choice((1, 2, 3, 8))
    kernel: dict[str, Any] = {
        "heads": kv_heads * rng.choice((1, 2, 4, 8, 16)),
        "kv_heads": kv_heads,
        "head_dim": rng.choice((40, 64, 96, 128, 128, 192, 256)),
        "page_size": rng.choice((0, 0, 1, 7, 16, 64, 128)),
        "dtype": rng.choice(("bf16", "f16")),
        "layout": rng.choice(("bhsd", "bshd")),
        "window": rng.choice((0, 0, rng.randint(1, 900))),
        "with_lse": rng.random() < 0.5,
        "q_len": rng.choice((1, 1, 1, 2, 4, 7)),
    }
    rng = random.Random(f"{seed} case {number}")
    batch = rng.choice((1, 2, 3, 5, 8, 17, 40, 70, 150))
    return Case(**kernel, batch=batch, lens=draw_lens(rng, batch))


def attention(
    torch: Any, case: Case, length: int, q: Any, k: Any, v: Any, dtype: Any
) -> tuple[Any, Any]:
    """Of one sequence, whose inputs are [heads, rows, head_dim], rounded to `dtype` where a kernel
    rounds."""
    group = case.heads // case.kv_heads
    keys, values = (x.double().repeat_interleave(group, 0) for x in (k, v))
    scores = q.double() @ keys.transpose(1, 2) * case.head_dim**-0.5
    row = torch.arange(case.q_len, device="cuda")[:, None] + length - case.q_len
    key = torch.arange(length, device="cuda")[None, :]
    seen = key <= row
    if case.window:
        seen &= key >= row - case.window
    scores = torch.where(seen, scores, -torch.inf)
    lse = torch.logsumexp(scores, -1) if length else scores.new_full(scores.shape[:2], -torch.inf)
    weights = torch.where(lse[..., None] == -torch.inf, 0.0, torch.exp(scores - lse[..., None]))
    return (weights.to(dtype).double() @ values).to(dtype).double(), lse


def paged(torch: Any, case: Case, keys: list[Any]) -> tuple[Any, Any]:
    """Pages in an order by chance, and a table whose entries beyond a sequence name no page."""
    size = case.page_size
    counts = [-(-length // size) for length in case.lens]
    order = torch.randperm(sum(counts) + 1, device="cuda").int()
    shape = len(order), size, case.kv_heads, case.head_dim
    pages = torch.full(shape, torch.nan, device="cuda", dtype=keys[0].dtype)
    table = torch.full((case.batch, max(counts) + 2), 1 << 30, device="cuda", dtype=torch.int32)
    first = 0
    for b, count in enumerate(counts):
        own = order[first : first + count]
        table[b, :count] = own
        rows = torch.full(
            (count * size, *pages.shape[2:]), torch.nan, device="cuda", dtype=pages.dtype
        )
        rows[: case.lens[b]] = keys[b].transpose(0, 1)
        pages[own.long()] = rows.view(count, size, *pages.shape[2:])
        first += count
    return pages, table


def padded(torch: Any, case: Case, keys: list[Any]) -> Any:
    longest = max(*case.lens, 1)
    every = torch.full(
        (case.batch, case.kv_heads, longest, case.head_dim), torch.nan, device="cuda",
        dtype=keys[0].dtype,
    )  # fmt: skip
    for b, own in enumerate(keys):
        every[b, :, : case.lens[b]] = own
    return every


def run(torch: Any, case: Case, seed: int) -> str | None:
    """What is wrong, or None."""
    torch.manual_seed(seed)
    dtype = torch.bfloat16 if case.dtype == "bf16" else torch.float16

    def make(*shape: int) -> Any:
        return torch.randn(shape, device="cuda", dtype=dtype)

    q = make(case.batch, case.heads, case.q_len, case.head_dim)
    keys = [make(case.kv_heads, n, case.head_dim) for n in case.lens]
    values = [make(case.kv_heads, n, case.head_dim) for n in case.lens]
    lens = torch.tensor(case.lens, device="cuda", dtype=torch.int32)
    mask = fc.sliding_window(case.window, 0) if case.window else fc.causal()
    turned = case.layout == "bshd"
    query = q.transpose(1, 2).contiguous() if turned else q
    out = torch.full_like(query, torch.nan)
    given: dict[str, Any] = {"kv_lens": lens, "mask": mask, "layout": case.layout, "out": out}
    if case.page_size:
        k, table = paged(torch, case, keys)
        # The same order of pages, so that one table does.
        v = torch.full_like(k, torch.nan)
        for b, own in enumerate(values):
            at = torch.arange(case.lens[b], device="cuda")
            v[table[b][at // case.page_size].long(), at % case.page_size] = own.transpose(0, 1)
        given["page_table"] = table
    else:
        k, v = (padded(torch, case, x) for x in (keys, values))
        k, v = (x.transpose(1, 2).contiguous() if turned else x for x in (k, v))
    found = fc.attention(query, k, v, return_lse=case.with_lse, **given)
    lse = found[1] if case.with_lse else None
    result = (out.transpose(1, 2) if turned else out).double()
    for b, length in enumerate(case.lens):
        inputs = q[b], keys[b], values[b]
        exact, exact_lse = attention(torch, case, length, *inputs, torch.float64)
        plain, _ = attention(torch, case, length, *inputs, dtype)
        off, allowed = (result[b] - exact).abs().max(), 2 * (plain - exact).abs().max() + 2e-3
        if not off <= allowed:
            return f"sequence {b} of {length} keys is off by {off:.3g}, allowed {allowed:.3g}"
        if lse is not None:
            hidden = exact_lse == -torch.inf
            if not (lse[b][hidden] == -torch.inf).all():
                return f"the lse of sequence {b} of {length} keys is not -inf where no key is seen"
            apart = (lse[b].double() - exact_lse)[~hidden].abs()
            if apart.numel() and not apart.max() <= 1e-3:
                return f"the lse of sequence {b} of {length} keys is off by {apart.max():.3g}"
    return None


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int, help="the number of one case")
    options = parser.parse_args()
    import torch

    if not torch.cuda.is_available():
        sys.exit("this needs a GPU")
    fc.set_compile_mode("eager")
    numbers = range(options.cases) if options.only is None else [options.only]
    failed = 0
    for number in numbers:
        case = draw_case(options.seed, number)
        if number % CASES_OF_A_KERNEL == 0:
            print(number, case, flush=True)
        wrong = run(torch, case, number)
        if wrong:
            failed += 1
            print(f"case {number}: {wrong}\n  {case}\n  lens {case.lens}", flush=True)
    print(f"{len(numbers) - failed} cases right, {failed} wrong")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
