"""FlashCore generates attention kernels for one shape and one GPU.

spec = flashcore.AttentionSpec(head_dim=128, mask=flashcore.causal())
kernel = flashcore.jit(spec)
out = kernel(q, k, v)
"""

from ._core import __version__, environment, targets
from .ahead_of_time.bundle import (
    Bundle,
    build_bundle,
    diff_bundles,
    load_kernel,
    make_signing_key,
    merge_bundles,
    plan_bundle,
    sign_bundle,
    use_bundle,
)
from .ahead_of_time.reach import precompile
from .cache import remote
from .cache.compile_mode import freeze, set_compile_mode
from .cache.remote import flush_remote, use_remote
from .cache.telemetry import CacheStats, KernelEvent, cache_stats, prometheus, set_event_hook
from .errors import (
    CacheError,
    CacheMissError,
    CompileError,
    DeviceError,
    Error,
    InternalError,
    LayoutError,
    ScheduleError,
    SpecError,
)
from .host import emulation, toolchain
from .host.log_hook import set_log_hook
from .interfaces.flex import flex_attention
from .interfaces.functional import attention, sdpa
from .kernels.attention_kernel import AttentionKernel
from .kernels.just_in_time import jit
from .kernels.kernel import Kernel
from .kernels.module_kernel import ModuleKernel
from .kernels.program_kernel import ProgramKernel
from .specs.expression import Expression, Mask, Score, Sink
from .specs.library import Library, load
from .specs.module import Module
from .specs.program import Program
from .specs.schedule import Schedule
from .specs.spec import AttentionSpec
from .specs.variants import (
    alibi,
    bias,
    causal,
    chunked,
    dense_mask,
    dilated,
    documents,
    full,
    prefix,
    relative_bias,
    sinks,
    sliding_window,
    softcap,
)
from .tracing.functions import (
    atan,
    cos,
    erf,
    exp,
    exp2,
    expm1,
    floor,
    log,
    log1p,
    log2,
    maximum,
    minimum,
    sin,
    sqrt,
    tan,
    tanh,
    where,
)
from .tuning.autotune import TunedSchedule, autotune

toolchain.offer_wheel()
emulation.observe()
remote.use_environment()

__all__ = [
    "AttentionKernel",
    "AttentionSpec",
    "Bundle",
    "CacheError",
    "CacheMissError",
    "CacheStats",
    "CompileError",
    "DeviceError",
    "Error",
    "Expression",
    "InternalError",
    "Kernel",
    "KernelEvent",
    "LayoutError",
    "Library",
    "Mask",
    "Module",
    "ModuleKernel",
    "Program",
    "ProgramKernel",
    "Schedule",
    "ScheduleError",
    "Score",
    "Sink",
    "SpecError",
    "TunedSchedule",
    "__version__",
    "alibi",
    "atan",
    "attention",
    "autotune",
    "bias",
    "build_bundle",
    "cache_stats",
    "causal",
    "chunked",
    "cos",
    "dense_mask",
    "diff_bundles",
    "dilated",
    "documents",
    "environment",
    "erf",
    "exp",
    "exp2",
    "expm1",
    "flex_attention",
    "floor",
    "flush_remote",
    "freeze",
    "full",
    "jit",
    "load",
    "load_kernel",
    "log",
    "log1p",
    "log2",
    "make_signing_key",
    "maximum",
    "merge_bundles",
    "minimum",
    "plan_bundle",
    "precompile",
    "prefix",
    "prometheus",
    "relative_bias",
    "sdpa",
    "set_compile_mode",
    "set_event_hook",
    "set_log_hook",
    "sign_bundle",
    "sin",
    "sinks",
    "sliding_window",
    "softcap",
    "sqrt",
    "tan",
    "tanh",
    "targets",
    "use_bundle",
    "use_remote",
    "where",
]
