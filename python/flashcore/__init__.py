"""FlashCore generates attention kernels for one shape and one GPU.

spec = flashcore.AttentionSpec(head_dim=128, mask=flashcore.causal())
kernel = flashcore.jit(spec)
out = kernel(q, k, v)
"""

from . import toolchain
from ._core import environment, set_log_hook, targets
from .attention_kernel import AttentionKernel
from .errors import (
    CacheError,
    CompileError,
    DeviceError,
    Error,
    InternalError,
    ScheduleError,
    SpecError,
)
from .functional import attention, sdpa
from .just_in_time import jit
from .kernel import Kernel
from .program import Library, Program, load
from .program_kernel import ProgramKernel
from .schedule import Schedule
from .spec import AttentionSpec, Mask, causal, full

toolchain.offer_wheel()

__all__ = [
    "AttentionKernel",
    "AttentionSpec",
    "CacheError",
    "CompileError",
    "DeviceError",
    "Error",
    "InternalError",
    "Kernel",
    "Library",
    "Mask",
    "Program",
    "ProgramKernel",
    "Schedule",
    "ScheduleError",
    "SpecError",
    "attention",
    "causal",
    "environment",
    "full",
    "jit",
    "load",
    "sdpa",
    "set_log_hook",
    "targets",
]
