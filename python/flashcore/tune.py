"""python -m flashcore.tune --head-dim 128 --causal --seconds 120

Searches for the fastest schedule on the GPU that is here and writes it where jit finds it. The
search runs in a process of its own: a candidate that crashes or hangs takes that one along, and
the next one goes on with the log.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import flashcore as fc

from .kernels.just_in_time import read
from .tuning.autotune import autotune, default_shapes
from .tuning.gpu import MODEL_WIDTH, Shape

AGAIN = 75  # EX_TEMPFAIL: the GPU of this process is lost, another may go on


def shape(text: str) -> Shape:
    """ "2x8192" or "2x1x8192": batch, q_len, and kv_len if it is another."""
    parts = [int(part) for part in text.split("x")]
    if len(parts) not in (2, 3) or min(parts) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not batch x length, as in 2x8192")
    return parts[0], parts[1], parts[-1]


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(
        prog="python -m flashcore.tune",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    p.add_argument(
        "--spec", type=Path, help="a spec saved with to_json(), in place of the next seven"
    )
    p.add_argument("--head-dim", type=int)
    p.add_argument("--head-dim-v", type=int)
    p.add_argument("--heads", type=int, help="compiled in; default: read off the arrays")
    p.add_argument("--kv-heads", type=int)
    p.add_argument("--dtype", default="bf16")
    p.add_argument("--products", default="full", choices=["full", "tf32"])
    p.add_argument("--layout", default="bhsd", choices=["bhsd", "bshd", "thd"])
    mask = p.add_mutually_exclusive_group()
    mask.add_argument("--causal", action="store_true")
    mask.add_argument("--window", type=int, help="keys before the diagonal that a row sees")
    p.add_argument("--softcap", type=float)
    p.add_argument(
        "--shapes",
        type=shape,
        nargs="+",
        help="batch x length, or batch x q_len x kv_len, of as many heads as the spec has, or, "
        f"where it leaves them open, {MODEL_WIDTH} / head_dim",
    )
    p.add_argument(
        "--each",
        action="store_true",
        help="one search a shape, of equal shares of the time, rather than one schedule for all",
    )
    p.add_argument("--target", help="default: that of the GPU")
    p.add_argument("--seconds", type=float, default=60)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--log", type=Path, help="JSON lines to go on from and to append to")
    where = p.add_mutually_exclusive_group()
    where.add_argument("--write", type=Path, help="the table that receives the winner")
    where.add_argument("--no-write", action="store_true")
    p.add_argument("--json", action="store_true", help="print the result as one JSON value")
    p.add_argument("--quiet", action="store_true", help="no progress, the result only")
    p.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)  # for our own child
    return p


def spec_of(options: argparse.Namespace) -> fc.AttentionSpec:
    if options.spec is not None:
        return read(options.spec)
    if options.head_dim is None:
        raise fc.SpecError("tuning nothing", "neither --head-dim nor --spec", "--head-dim 128")
    mask = fc.full()
    if options.causal:
        mask = fc.causal()
    elif options.window is not None:
        mask = fc.sliding_window(options.window)
    return fc.AttentionSpec(
        head_dim=options.head_dim,
        head_dim_v=options.head_dim_v,
        heads=options.heads,
        kv_heads=options.kv_heads,
        dtype=options.dtype,
        products=options.products,
        mask=mask,
        score=None if options.softcap is None else fc.softcap(options.softcap),
        layout=options.layout,
    )


def search(options: argparse.Namespace) -> int:
    """The work itself, in the child."""
    try:
        tuned = autotune(
            spec_of(options),
            shapes=options.shapes,
            target=options.target,
            seconds=options.seconds,
            log=options.log,
            progress=not options.quiet,
            seed=options.seed,
            write=options.write or not options.no_write,
        )
    except fc.Error as error:
        print(error, file=sys.stderr, flush=True)
        lost = isinstance(error, fc.DeviceError) and error.what.startswith("a kernel crashed")
        if lost:
            # A hanging kernel would keep an ordinary exit waiting.
            os._exit(AGAIN)
        return 1
    print(json.dumps(asdict(tuned), default=str, indent=2) if options.json else tuned.summary())
    return 2 if tuned.wrong else 0


def supervise(arguments: Sequence[str], seconds: float) -> int:
    """Runs searches in children until one comes through or the time is over; its exit status."""
    # The package may lie anywhere, and need not be installed.
    home = str(Path(fc.__file__).absolute().parents[1])
    environment = dict(os.environ)
    paths = [home, environment.get("PYTHONPATH", "")]
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    end = time.monotonic() + seconds
    while True:
        left = max(5.0, end - time.monotonic())
        command = [sys.executable, "-m", "flashcore.tune", *arguments, "--worker"]
        code = subprocess.run([*command, "--seconds", str(left)], env=environment).returncode
        # Killed by a signal counts as a crash too, but not when somebody pressed a key.
        crashed = code == AGAIN or code < -signal.SIGINT
        if not crashed or time.monotonic() >= end:
            return code
        print("going on without the schedule that crashed", file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    options = parser().parse_args(arguments)
    if options.worker:
        return search(options)
    searches: list[list[str]] = [[]]
    if options.each:
        try:
            shapes = options.shapes or default_shapes(spec_of(options))
        except fc.Error as error:
            print(error, file=sys.stderr)
            return 1
        searches = [["--shapes", "x".join(map(str, one))] for one in shapes]
    with tempfile.TemporaryDirectory() as folder:
        log = [] if options.log else ["--log", str(Path(folder) / "log.jsonl")]
        seconds = options.seconds / len(searches)
        return max(supervise([*arguments, *log, *one], seconds) for one in searches)


if __name__ == "__main__":
    sys.exit(main())
