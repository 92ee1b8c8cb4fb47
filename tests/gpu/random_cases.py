"""Random attention on a GPU against double precision.

    python tests/gpu/random_cases.py --cases 500 --seed 1
    python tests/gpu/random_cases.py --cases 500 --family wgmma
    python tests/gpu/random_cases.py --seed 1 --only 137     # one case again
    python tests/gpu/random_cases.py --device cpu --cases 30 --kernels 6 --max-length 100
    python tests/gpu/random_cases.py --dry --family wgmma --kernels 200

The last but one runs in the emulator; the last one only draws, and asks what is refused. A run
draws some tens of kernels (spec and schedule; most with random masks, scores and sinks,
draw_expressions.py; some for packed and padded sequences), compiles them in parallel, and gives
each several cases: lengths, strides, size of the scores. Kernel i and case i depend on the seed,
the family and i alone. A schedule may be refused, in words, by its checks or by the compiler, where
its code spills; an accepted one has to be right (call.py, exact.py), and to give the same bits in
`--calls` calls.
"""

from __future__ import annotations

import argparse
import collections
import os
import re
import sys
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from draw import FAMILIES, Case, Config, draw_case, draw_config

import flashcore as fc
from flashcore.kernels.just_in_time import default_target

LONGEST_CASE = 60  # seconds; what takes longer waits for ever
REFUSED = "cases did not run: the kernel that returns lse, too, is refused: "


def run(kernel: Any, config: Config, case: Case, seed: int, device: str, calls: int) -> str | None:
    """What is wrong, or None."""
    import torch
    from call import Call

    call = Call(config.spec, case, seed, device)
    try:
        result = call.run(kernel)
    except fc.CompileError as error:
        if is_bug(error, config):
            raise
        # The kernel that also returns lse may need one register more.
        return REFUSED + reason(error.what)
    except fc.DeviceError as error:
        if case.memory == "misaligned" and not call.aligned() and "not aligned" in str(error):
            return None
        return f"refused: {error}"
    first = call.bits(*result)
    if problem := call.wrong(*result):
        return problem
    for number in range(2, calls + 1):
        again = call.bits(*call.run(kernel))
        if not all(map(torch.equal, first, again)):
            return f"call {number} of {calls} gives other bits than the first one"
    return None


def give_up(message: str) -> None:
    """Ends the process at once, whatever its other threads wait for."""
    print(message, flush=True)
    os._exit(1)


def reason(text: str) -> str:
    """Without its numbers, so that reasons can be counted."""
    return re.sub(r"\d+", "#", text.splitlines()[0])


def is_bug(error: fc.Error, config: Config) -> str | None:
    """Why the refusal of a kernel is none, or None."""
    if not config.changes:
        return "a shipped schedule"
    if not error.why:
        return "without a reason"
    code = isinstance(error, fc.CompileError) and " refuses " in error.what
    return "its code does not compile" if code else None


def dry(options: argparse.Namespace, configs: dict[int, Config]) -> int:
    """Draws without running: which schedules the target's rules refuse, and what for."""
    target = options.target or "sm_90a"
    refused: collections.Counter[str] = collections.Counter()
    failed, drawn = 0, collections.Counter[str]()
    for i, config in configs.items():
        reasons = config.spec.why_not(target, config.changes or None)
        refused.update(reason(text) for text in reasons[:1])
        if reasons and not config.changes:
            failed += 1
            print(f"FAIL kernel {i} refused (a shipped schedule): {reasons[0]}\n     {config}")
    for index in range(options.cases):
        config = configs[index % options.kernels]
        case = draw_case(options.seed, index, config.spec, options.max_length)
        kind = "padded" if config.spec.q_lens or config.spec.kv_lens else "plain"
        drawn["packed" if config.spec.layout == "thd" else kind] += 1
        assert all(0 <= n <= options.max_length for pair in case.sequences for n in pair)
    for text, count in refused.most_common():
        print(f"{count:5} x {text}")
    print(", ".join(f"{count} {kind}" for kind, count in sorted(drawn.items())), "cases")
    print(
        f"{len(configs)} kernels for {target}, {refused.total()} of them refused; nothing was run"
    )
    return 1 if failed else 0


def build(config: Config, target: str | None) -> Any:
    """The kernel, or the error that refuses it."""
    try:
        return fc.jit(config.spec, target=target, schedule=config.changes or None)
    except (fc.ScheduleError, fc.CompileError) as error:
        return error


def main() -> int:
    fc.set_compile_mode("eager")  # every call runs the kernel that is its own
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kernels", type=int, default=60)
    parser.add_argument(
        "--family", choices=FAMILIES, help="default: all where the target has wgmma, else mma"
    )
    parser.add_argument("--max-length", type=int, default=2000)
    parser.add_argument("--only", type=int, help="run this case alone")
    parser.add_argument(
        "--device", choices=["cuda", "cpu"], default="cuda", help="cpu: the emulator"
    )
    parser.add_argument("--calls", type=int, help="of each case; default: 4, in the emulator 1")
    parser.add_argument("--target", help="default: that of the GPU; the emulator's for cpu")
    parser.add_argument("--dry", action="store_true", help="draw only; default target: sm_90a")
    options = parser.parse_args()
    calls = options.calls or (4 if options.device == "cuda" else 1)
    if options.dry:
        family = options.family or "all"
        drawn = {i: draw_config(options.seed, i, family) for i in range(options.kernels)}
        return dry(options, drawn)
    import torch

    if options.device == "cuda" and not torch.cuda.is_available():
        sys.exit("no GPU that PyTorch can use is here; --device cpu runs the emulator instead")
    # The plain evaluation sets the bound: it must not be made worse by reduced precision.
    torch.backends.cuda.matmul.allow_tf32 = False

    target = options.target or default_target()
    family = options.family or ("all" if target == "sm_90a" else "mma")
    configs = {i: draw_config(options.seed, i, family) for i in range(options.kernels)}
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

    for text, count in collections.Counter(reason(e.what) for e in refused.values()).most_common():
        print(f"{count:5} x {text}")

    wrong: list[str] = []
    for i, error in refused.items():
        if words := is_bug(error, configs[i]):
            wrong.append(f"FAIL kernel {i} refused ({words}): {error}")
            print(f"{wrong[-1]}\n     {configs[i]}")
    # Cases of refused kernels go to the next one that exists: as many run as were asked for.
    accepted = [i for i in kernels if i not in refused]
    if not accepted:
        sys.exit("every kernel was refused; nothing was tested")
    expressions = {
        (str(s.mask), str(s.score), str(s.sink)) for s in (configs[i].spec for i in accepted)
    }
    print(
        f"{len(accepted)} kernels of {len(expressions)} different mask, score and sink expressions"
    )
    passed, late = 0, collections.Counter[str]()
    for index in indices:
        number = index % options.kernels
        if number in refused:
            number = min((i for i in accepted if i > number), default=accepted[0])
        config = configs[number]
        case = draw_case(options.seed, index, config.spec, options.max_length)
        again = f"--family {family} --seed {options.seed} --only {index}"
        # A kernel that never ends keeps the process from ending: say which one it is, and leave.
        watch = threading.Timer(
            LONGEST_CASE,
            give_up,
            [f"FAIL {again}: has not ended after {LONGEST_CASE} s\n     {case}\n     {config}"],
        )
        watch.daemon = True
        if options.device == "cuda":
            watch.start()
        try:
            problem = run(kernels[number], config, case, options.seed, options.device, calls)
        except Exception:  # a crash is a failure of this case, not the end of the others
            problem = traceback.format_exc(limit=3).strip()
        watch.cancel()
        if problem is None:
            passed += 1
        elif problem.startswith(REFUSED):
            late[problem] += 1  # nothing ran: neither passed nor failed
        else:
            wrong.append(f"FAIL {again}: {problem}")
            print(f"{wrong[-1]}\n     {case}\n     {config}")
    for problem, count in late.most_common():
        print(f"{count} {problem}")
    for problem in wrong:  # again, behind specs and schedules that fill screens
        print(problem)
    print(f"{passed} passed, {len(wrong)} failed, {len(refused)} schedules refused")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
