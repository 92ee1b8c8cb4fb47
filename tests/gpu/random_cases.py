"""Random attention on a GPU against double precision.

    python tests/gpu/random_cases.py --cases 500 --seed 1
    python tests/gpu/random_cases.py --seed 1 --only 137          # one case again
    python tests/gpu/random_cases.py --device cpu --cases 30 --kernels 6 --max-length 100   # emulator

A run draws some tens of kernels (spec and schedule), compiles them in parallel, and gives each several
cases: lengths, strides, size of the scores. Kernel i and case i depend on the seed and on i alone. A
schedule may be refused, in words; an accepted one has to be right:

    max |out - exact| <= 2 max |plain - exact| + u (max |exact| + 2 max R) + s

`plain` is the same mathematics in torch, which rounds the probabilities and the output once; u is the
rounding of the dtype, R the root of sum p^2 v^2 (what independent roundings of the probabilities p add
up to) and s what single precision loses in large scores. The bound stays well below the weight of one
key. Outputs start as NaN, and what lies around them must not change.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
import time
import traceback
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

import flashcore as fc
import torch

ROUNDING = {"bf16": 2.0**-9, "f16": 2.0**-12}
TORCH = {"bf16": torch.bfloat16, "f16": torch.float16}
GUARD = 1984.0  # what surrounds an output; exact in both dtypes


@dataclass(frozen=True)
class Config:
    """A kernel: what is compiled."""

    spec: fc.AttentionSpec
    changes: dict[str, Any]  # of the schedule

    def __str__(self) -> str:
        spec = {name: value for name, value in asdict(self.spec).items() if value is not None}
        return f"spec={spec | {'mask': self.spec.mask.text}} schedule={self.changes}"


@dataclass(frozen=True)
class Case:
    """What one kernel is called with."""

    index: int
    batch: int
    heads: int
    kv_heads: int
    q_len: int
    kv_len: int
    memory: str
    size: float  # of the entries of q
    scale: float | None
    return_lse: bool
    own_output: bool


def draw_config(seed: int, index: int) -> Config:
    pick = random.Random(f"{seed} kernel {index}")
    common = pick.random() < 0.5
    head_dim = pick.choice([64, 128, 256]) if common else 8 * pick.randint(1, 32)
    kv_heads = pick.choice([None, None, 1, 2])
    spec = fc.AttentionSpec(
        head_dim=head_dim,
        head_dim_v=None if pick.random() < 0.7 else 8 * pick.randint(1, 32),
        heads=kv_heads * pick.choice([1, 2, 3, 4]) if kv_heads else None,
        kv_heads=kv_heads,
        dtype=pick.choice(["bf16", "f16"]),
        mask=pick.choice([fc.full(), fc.causal(), fc.causal(), fc.causal("top_left")]),
        layout=pick.choice(["bhsd", "bshd"]),
        lse=pick.random() < 0.3,
    )
    return Config(spec, draw_schedule(pick) if pick.random() < 0.7 else {})


def draw_schedule(pick: random.Random) -> dict[str, Any]:
    """Some fields of a schedule; nothing keeps it within the limits of a GPU."""
    warps = pick.choice([1, 2, 4, 4, 8])
    changes = {
        "warps_m": warps,
        "tiles": {
            "rows": 16 * warps * pick.choice([1, 1, 2]),
            "cols": pick.choice([16, 32, 48, 64, 64, 96, 128]),
        },
        "stages": pick.choice([1, 2, 2, 3, 4]),
        "keep_operands": pick.random() < 0.5,
        "staged_stores": pick.random() < 0.7,
        "descending": pick.random() < 0.5,
        "last_tiles_first": pick.random() < 0.5,
        "grid_order": pick.choice(["tiles_first", "tiles_last"]),
    }
    if pick.random() < 0.05:
        changes["warps_n"] = 2
    return changes


def draw_length(pick: random.Random, longest: int) -> int:
    kind = pick.random()
    if kind < 0.08:
        return pick.randint(0, 1)
    if kind < 0.5:
        return min(pick.choice([16, 17, 63, 64, 65, 127, 128, 129, 255, 256, 257, 512, 1000]), longest)
    return pick.randint(2, longest)


def draw_case(seed: int, index: int, spec: fc.AttentionSpec, longest: int) -> Case:
    pick = random.Random(f"{seed} case {index}")
    heads = spec.heads or pick.randint(1, 4)
    q_len = draw_length(pick, longest)
    same = pick.random() < 0.4
    return Case(
        index=index,
        batch=0 if pick.random() < 0.02 else pick.randint(1, 3),
        heads=heads,
        kv_heads=spec.kv_heads or heads,
        q_len=q_len,
        kv_len=q_len if same else draw_length(pick, longest),
        memory=pick.choice(["dense", "dense", "padded", "exchanged", "sliced", "packed", "misaligned"]),
        size=pick.choice([1.0, 1.0, 1.0, 10.0, 100.0, 0.01]),
        scale=None if pick.random() < 0.7 else pick.choice([0.05, 0.25, 1.0]),
        return_lse=pick.random() < 0.3,
        own_output=pick.random() < 0.8,
    )


def in_memory(kind: str, shape: Sequence[int], fill: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """A tensor of that shape with some layout in memory, and the whole allocation it lies in.

    `fill(shape)` makes dense tensors.
    """
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


def visible(mask: str, q_len: int, kv_len: int, device: str) -> torch.Tensor:
    rows = torch.arange(q_len, device=device)[:, None]
    cols = torch.arange(kv_len, device=device)[None, :]
    if mask == "full":
        return torch.ones(q_len, kv_len, dtype=torch.bool, device=device)
    offset = kv_len - q_len if mask == "causal(bottom_right)" else 0
    return rows + offset >= cols


def softmax(scores: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Unnormalised probabilities, their sums, the log-sum-exp; rows without a key give 0, 0, -inf."""
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


def run(kernel: Any, config: Config, case: Case, seed: int, device: str) -> str | None:
    """What is wrong, or None."""
    spec = config.spec
    torch.manual_seed(seed * 1_000_003 + case.index)
    dtype = TORCH[spec.dtype]

    def shape(heads: int, length: int, dim: int) -> tuple[int, ...]:
        return ((case.batch, heads, length, dim) if spec.layout == "bhsd"
                else (case.batch, length, heads, dim))  # fmt: skip

    def normal(size: float) -> Any:
        return lambda s: (torch.randn(s, device=device) * size).to(dtype)

    dim_v = spec.head_dim_v or spec.head_dim
    q, _ = in_memory(case.memory, shape(case.heads, case.q_len, spec.head_dim), normal(case.size))
    k, _ = in_memory(case.memory, shape(case.kv_heads, case.kv_len, spec.head_dim), normal(1.0))
    v, _ = in_memory(case.memory, shape(case.kv_heads, case.kv_len, dim_v), normal(1.0))
    out = whole = None
    if case.own_output:
        guard = lambda s: torch.full(s, GUARD, device=device, dtype=dtype)  # noqa: E731
        out, whole = in_memory(case.memory, shape(case.heads, case.q_len, dim_v), guard)
        out.fill_(math.nan)
    try:
        result = kernel(q, k, v, scale=case.scale, out=out, return_lse=case.return_lse)
    except fc.DeviceError as error:
        aligned = all(
            x.shape[i] <= 1 or x.stride(i) % 8 == 0 for x in (q, k, v) for i in range(3)
        )
        if case.memory == "misaligned" and not aligned and "not aligned" in str(error):
            return None
        return f"refused: {error}"
    if device == "cuda":
        torch.cuda.synchronize()
    expected = evaluate(config, case, q, k, v, device)
    given, lse = result if case.return_lse else (result, None)
    problem = compare("out", given, expected.out, expected.out_bound)
    if problem is None and lse is not None:
        problem = compare("lse", lse, expected.lse, expected.lse_bound)
    if problem is None and out is not None:
        out.fill_(GUARD)
        if not (whole == GUARD).all():
            problem = "wrote outside of its output"
    return problem


def build(config: Config, target: str | None) -> Any:
    """The kernel, or the error that refuses it."""
    try:
        return fc.jit(config.spec, target=target, schedule=config.changes)
    except (fc.ScheduleError, fc.CompileError) as error:
        return error


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kernels", type=int, default=60)
    parser.add_argument("--max-length", type=int, default=2000)
    parser.add_argument("--only", type=int, help="run this case alone")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda", help="cpu: the emulator")
    parser.add_argument("--target", help="default: that of the GPU; the emulator's for cpu")
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        sys.exit("no GPU that PyTorch can use is here; --device cpu runs the emulator instead")
    # The plain evaluation sets the bound: it must not be made worse by reduced precision.
    torch.backends.cuda.matmul.allow_tf32 = False

    configs = {i: draw_config(options.seed, i) for i in range(options.kernels)}
    start = time.perf_counter()
    if options.only is None:
        indices = list(range(options.cases))
        with ThreadPoolExecutor() as pool:
            built = pool.map(lambda config: build(config, options.target), configs.values())
            kernels = dict(zip(configs, built, strict=True))
    else:
        indices, kernels = [options.only], {}
        for step in range(options.kernels):
            number = (options.only + step) % options.kernels
            kernels[number] = build(configs[number], options.target)
            if not isinstance(kernels[number], fc.Error):
                break
    refused = {i: error for i, error in kernels.items() if isinstance(error, fc.Error)}
    print(f"{len(kernels)} kernels in {time.perf_counter() - start:.1f} s, {len(refused)} of them refused")

    failed = 0
    for i, error in refused.items():
        if not error.why or not configs[i].changes:
            failed += 1
            words = "a shipped schedule" if not configs[i].changes else "without a reason"
            print(f"FAIL kernel {i} refused ({words}): {error}\n     {configs[i]}")
    # Cases of refused kernels go to the next one that exists, so that their number is what was asked.
    accepted = [i for i in kernels if i not in refused]
    if not accepted:
        sys.exit("every kernel was refused; nothing was tested")
    passed = 0
    for index in indices:
        number = index % options.kernels
        if number in refused:
            number = min((i for i in accepted if i > number), default=accepted[0])
        config = configs[number]
        case = draw_case(options.seed, index, config.spec, options.max_length)
        try:
            problem = run(kernels[number], config, case, options.seed, options.device)
        except Exception:  # a crash is a failure of this case, not the end of the others
            problem = traceback.format_exc(limit=3).strip()
        if problem is None:
            passed += 1
        else:
            failed += 1
            print(f"FAIL --seed {options.seed} --only {index}: {problem}\n     {case}\n     {config}")
    print(f"{passed} passed, {failed} failed, {len(refused)} schedules refused")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
