"""Random decoding and prefill of sequences of different lengths on a GPU against double precision.

    python tests/gpu/decode_cases.py --cases 300 --seed 1
    python tests/gpu/decode_cases.py --seed 1 --only 137     # one case again

Batches of a few query rows each or of many, over keys in pages of every size, padded or packed
ones; packed query rows differ in number. What lies beyond a sequence is NaN, and so is every page
that no sequence has; outputs start as NaN, and rows of no sequence have to stay so. An error may be
twice that of the same attention computed in the 16-bit type, and 2e-3 besides. The same call again
has to give the same bits.
"""

from __future__ import annotations

import argparse
import itertools
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
    q_len: int  # of packed rows, the most
    batch: int
    lens: tuple[int, ...] = field(repr=False)
    rows: tuple[int, ...] = field(repr=False)  # of each sequence


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
        "page_size": rng.choice((0, 0, 1, 7, 8, 16, 16, 24, 64, 128)),
        "dtype": rng.choice(("bf16", "f16")),
        "layout": rng.choice(("bhsd", "bshd", "thd", "thd")),
        "window": rng.choice((0, 0, rng.randint(1, 900))),
        "with_lse": rng.random() < 0.5,
        "q_len": rng.choice((1, 1, 1, 2, 4, 7, 40, 300, 1000)),
    }
    serves = rng.random() < 0.25
    if serves:  # long sequences beside many that decode, which then have a program of their own
        heads, kv_heads = rng.choice(((32, 8), (64, 8), (32, 4), (24, 3)))
        kernel |= {"heads": heads, "kv_heads": kv_heads, "layout": "thd", "q_len": 300}
    rng = random.Random(f"{seed} case {number}")
    most = kernel["q_len"]
    batch = rng.choice((1, 2, 3, 5, 8, 17, 40, 70, 150) if most < 40 else (1, 2, 5, 8, 11, 30))
    lens = draw_lens(rng, batch)
    if serves:
        batch = rng.choice((40, 64, 100))
        lens = tuple(rng.randint(0, 3000) for _ in range(batch))
    if most >= 40:
        lens = tuple(min(length, 4000) for length in lens)
    rows = [most] * batch
    if kernel["layout"] == "thd":
        kind = rng.choice(("equal", "any", "one chunk", "few chunks"))
        kind = rng.choice(("one chunk", "few chunks")) if serves else kind
        chunk = rng.randrange(batch)
        if kind != "equal":
            rows = [rng.randint(0, most) if kind == "any" or b == chunk else min(most, 1)
                    for b in range(batch)]  # fmt: skip
        if kind == "few chunks":
            # Of other sequences, some have no row, and some a few, as in speculative decoding.
            rows = [rows[chunk] if rng.random() < 0.2 else min(most, rng.choice((0, 1, 1, 1, 3)))
                    for _ in range(batch)]  # fmt: skip
    return Case(**kernel, batch=batch, lens=lens, rows=tuple(rows))


def attention(
    torch: Any, case: Case, length: int, q: Any, k: Any, v: Any, dtype: Any
) -> tuple[Any, Any]:
    """Of one sequence, whose inputs are [heads, rows, head_dim], rounded to `dtype` where a kernel
    rounds."""
    group = case.heads // case.kv_heads
    keys, values = (x.double().repeat_interleave(group, 0) for x in (k, v))
    scores = q.double() @ keys.transpose(1, 2) * case.head_dim**-0.5
    row = torch.arange(q.shape[1], device="cuda")[:, None] + length - q.shape[1]
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


def run(torch: Any, case: Case, seed: int, calls: int) -> str | None:
    """What is wrong, or None."""
    torch.manual_seed(seed)
    dtype = torch.bfloat16 if case.dtype == "bf16" else torch.float16

    def make(*shape: int) -> Any:
        return torch.randn(shape, device="cuda", dtype=dtype)

    q = [make(case.heads, n, case.head_dim) for n in case.rows]
    keys = [make(case.kv_heads, n, case.head_dim) for n in case.lens]
    values = [make(case.kv_heads, n, case.head_dim) for n in case.lens]
    lens = torch.tensor(case.lens, device="cuda", dtype=torch.int32)
    mask = fc.sliding_window(case.window, 0) if case.window else fc.causal()
    given: dict[str, Any] = {"kv_lens": lens, "mask": mask, "layout": case.layout}
    packed = case.layout == "thd"
    starts = [0, *itertools.accumulate(case.rows)]
    if packed:
        query = torch.cat([*(one.transpose(0, 1) for one in q), make(3, case.heads, case.head_dim)])
        given["cu_seqlens_q"] = torch.tensor(starts, device="cuda", dtype=torch.int32)
        if case.batch % 3:
            given["max_q_len"] = max(case.rows)
    else:
        query = torch.stack(q)
        if case.layout == "bshd":
            query = query.transpose(1, 2).contiguous()
    out = given["out"] = torch.full_like(query, torch.nan)
    if case.page_size:
        k, table = paged(torch, case, keys)
        # The same order of pages, so that one table does.
        v = torch.full_like(k, torch.nan)
        for b, own in enumerate(values):
            at = torch.arange(case.lens[b], device="cuda")
            v[table[b][at // case.page_size].long(), at % case.page_size] = own.transpose(0, 1)
        given["page_table"] = table
        if case.batch % 2:
            given["max_kv_len"] = max(case.lens)
    elif packed:
        del given["kv_lens"]
        ends = [0, *itertools.accumulate(case.lens)]
        given["cu_seqlens_k"] = torch.tensor(ends, device="cuda", dtype=torch.int32)
        nobody = torch.full(
            (2, case.kv_heads, case.head_dim), torch.nan, device="cuda", dtype=dtype
        )
        k, v = (torch.cat([*(one.transpose(0, 1) for one in x), nobody]) for x in (keys, values))
    else:
        k, v = (padded(torch, case, x) for x in (keys, values))
        if case.layout == "bshd":
            k, v = (x.transpose(1, 2).contiguous() for x in (k, v))
    found = fc.attention(query, k, v, return_lse=case.with_lse, **given)
    every_lse = found[1] if case.with_lse else None
    first = out.clone()
    for number in range(2, calls + 1):
        out.fill_(torch.nan)
        again = fc.attention(query, k, v, return_lse=case.with_lse, **given)
        same = torch.equal(first.view(torch.int16), out.view(torch.int16))
        if case.with_lse:  # beside the rows of no sequence, which nobody writes
            same &= torch.equal(every_lse[..., : starts[-1]], again[1][..., : starts[-1]])
        if not same:
            return f"call {number} of {calls} gives other bits than the first one"
    if packed and not out[starts[-1] :].isnan().all():
        return "rows that belong to no sequence are written"
    turned = case.layout != "bhsd"
    for b, length in enumerate(case.lens):
        at = slice(starts[b], starts[b + 1])
        result = (out[at] if packed else out[b]).double()
        result = result.transpose(0, 1) if turned else result
        lse = None
        if every_lse is not None:
            lse = every_lse[:, at] if packed else every_lse[b]
        if not case.rows[b]:
            continue
        inputs = q[b], keys[b], values[b]
        exact, exact_lse = attention(torch, case, length, *inputs, torch.float64)
        plain, _ = attention(torch, case, length, *inputs, dtype)
        off, allowed = (result - exact).abs().max(), 2 * (plain - exact).abs().max() + 2e-3
        if not off <= allowed:
            return f"sequence {b} of {length} keys is off by {off:.3g}, allowed {allowed:.3g}"
        if lse is not None:
            hidden = exact_lse == -torch.inf
            if not (lse[hidden] == -torch.inf).all():
                return f"the lse of sequence {b} of {length} keys is not -inf where no key is seen"
            apart = (lse.double() - exact_lse)[~hidden].abs()
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
    parser.add_argument("--calls", type=int, default=4, help="of each case")
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
        wrong = run(torch, case, number, options.calls)
        if wrong:
            failed += 1
            print(f"case {number}: {wrong}\n  {case}\n  lens {case.lens}", flush=True)
    print(f"{len(numbers) - failed} cases right, {failed} wrong")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
