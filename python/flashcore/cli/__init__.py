"""The command `flashcore`: what a machine lacks, kernels compiled ahead, what is in the cache.

Exit codes: 0 done; 1 what was asked for is not so (something is missing or damaged); 2 the command
line is wrong; 3 a spec, a schedule or a compile is refused; 4 the cache, the driver or a file is
unusable; 130 interrupted.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence

import click

from .. import __version__
from .bench import bench
from .bundle import bundle
from .cache import cache
from .calibrate import calibrate
from .compile import compile_specs
from .doctor import doctor
from .output import INTERRUPTED, Commands
from .show import show
from .tune import tune


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="flashcore")
def flashcore() -> None:
    """Attention kernels generated for one shape and one GPU.

    Exit codes: 0 done; 1 what was asked for is not so; 2 wrong usage; 3 a spec, a schedule or a
    compile is refused; 4 the cache, the driver or a file is unusable; 130 interrupted.
    """


for command in (doctor, compile_specs, show, cache, bundle, tune, calibrate, bench):
    flashcore.add_command(command)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command in this process, and returns its exit code."""
    # A reader that has seen enough, as `| head`, ends the command without a word.
    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        code = flashcore.main(arguments, prog_name="flashcore", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    return code if isinstance(code, int) else 0


__all__ = ["flashcore", "main"]
