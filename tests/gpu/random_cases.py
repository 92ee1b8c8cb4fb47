"""Random attention on a GPU against double precision.

    python tests/gpu/random_cases.py --cases 500 --seed 1
    python tests/gpu/random_cases.py --seed 1 --only 137     # one case again
    python tests/gpu/random_cases.py --device cpu --cases 30 --kernels 6 --max-length 100

The last one runs in the emulator. A run draws some tens of kernels (spec and schedule; most with
random masks, scores and sinks, draw_expressions.py), compiles
them in parallel, and gives each several cases: lengths, strides, size of the scores. Kernel i and
case i depend on the seed and on i alone. A schedule may be refused, in words; an accepted one has
to be right (exact.py). Outputs start as NaN, and what lies around them must not change.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
import traceback
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from draw import Case, Config, draw_case, draw_config
from draw_expressions import arrays
from exact import compare, evaluate

import flashcore as fc

TORCH = {"bf16": torch.bfloat16, "f16": torch.float16}
REFUSED = "the compiler refused the kernel that returns lse, too"
GUARD = 1984.0  # what surrounds an output; exact in both dtypes


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
    sizes = {"batch": case.batch, "heads": case.heads, "q_len": case.q_len, "kv_len": case.kv_len}
    sizes["longest"] = max(case.q_len, case.kv_len)
    captured = arrays(spec, sizes, device)
    how = {"out": out, "return_lse": case.return_lse, "captured": captured}
    try:
        result = kernel(q, k, v, scale=case.scale, **how)
    except fc.CompileError:
        if not config.changes:
            raise
        return REFUSED  # the kernel that also returns lse may need one register more
    except fc.DeviceError as error:
        aligned = all(x.shape[i] <= 1 or x.stride(i) % 8 == 0 for x in (q, k, v) for i in range(3))
        if case.memory == "misaligned" and not aligned and "not aligned" in str(error):
            return None
        return f"refused: {error}"
    if device == "cuda":
        torch.cuda.synchronize()
    expected = evaluate(config, case, q, k, v, captured)
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
        return fc.jit(config.spec, target=target, schedule=config.changes or None)
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
    parser.add_argument(
        "--device", choices=["cuda", "cpu"], default="cuda", help="cpu: the emulator"
    )
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
    seconds = time.perf_counter() - start
    print(f"{len(kernels)} kernels in {seconds:.1f} s, {len(refused)} of them refused")

    failed = 0
    for i, error in refused.items():
        if not error.why or not configs[i].changes:
            failed += 1
            words = "a shipped schedule" if not configs[i].changes else "without a reason"
            print(f"FAIL kernel {i} refused ({words}): {error}\n     {configs[i]}")
    # Cases of refused kernels go to the next one that exists: as many run as were asked for.
    accepted = [i for i in kernels if i not in refused]
    if not accepted:
        sys.exit("every kernel was refused; nothing was tested")
    expressions = {(str(s.mask), str(s.score), str(s.sink)) for s in (configs[i].spec for i in accepted)}
    print(f"{len(accepted)} kernels of {len(expressions)} different mask, score and sink expressions")
    passed = late = 0
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
        elif problem == REFUSED:
            late += 1  # nothing ran: neither passed nor failed
        else:
            failed += 1
            again = f"--seed {options.seed} --only {index}"
            print(f"FAIL {again}: {problem}\n     {case}\n     {config}")
    print(f"{late} cases did not run: {REFUSED}")
    print(f"{passed} passed, {failed} failed, {len(refused)} schedules refused")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
