"""What attention to compute, as data."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from . import _core
from .errors import ScheduleError, SpecError
from .schedule import Schedule, merge


@dataclass(frozen=True)
class Mask:
    """Which keys a query row sees. Made by :func:`full` and :func:`causal`."""

    text: str = "true"


def full() -> Mask:
    """Every row sees every key."""
    return Mask()


def causal(align: Literal["bottom_right", "top_left"] = "bottom_right") -> Mask:
    """Row i sees keys up to i + kv_len - q_len (bottom_right) or up to i (top_left, as torch)."""
    if align not in ("bottom_right", "top_left"):
        raise SpecError(
            "a causal mask", f'align = {align!r} is not one of "bottom_right", "top_left"'
        )
    text, _ = _core.variant("causal", [float(align == "top_left")])
    return Mask(text)


def dtype_name(dtype: Any) -> str:
    """ "bf16" for "bfloat16" and for the dtypes of NumPy, ml_dtypes, torch and JAX that mean it.

    An unknown name stays as it is: what it is used for tells what would work.
    """
    name = dtype if isinstance(dtype, str) else getattr(dtype, "__name__", None) or str(dtype)
    return _core.normal_dtype(name.removeprefix("torch.")) or name


@dataclass(frozen=True, kw_only=True)
class AttentionSpec:
    """Scaled dot-product attention, softmax(scale q k^T + mask) v.

    A length given here is compiled in; otherwise it is read off the arrays at every call, and a new
    length compiles nothing. Specs are values: hashable, comparable, and saved by :meth:`to_json`.
    """

    head_dim: int
    head_dim_v: int | None = None
    """None: head_dim."""
    heads: int | None = None
    """None: read off the arrays, then without grouping."""
    kv_heads: int | None = None
    """None: heads. Query head h reads key head h // (heads // kv_heads)."""
    dtype: str = "bf16"
    mask: Mask = field(default_factory=full)
    layout: Literal["bhsd", "bshd"] = "bhsd"
    """Order of the dimensions of q, k, v and the output."""
    lse: bool = False
    """Compute the log-sum-exp of every row as well."""
    batch: int | None = None
    q_len: int | None = None
    kv_len: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", dtype_name(self.dtype))

    def why_not(self, target: str, schedule: Schedule | Mapping[str, Any] | None = None) -> list[str]:
        """Every reason the target cannot run this, each with what would work; empty if it can.

        Nothing is compiled. `schedule` is what :func:`jit` takes; by default the one that ships.
        """
        spec = self.to_json()
        try:
            if schedule is not None and not isinstance(schedule, Schedule):
                shipped = Schedule.from_json(_core.attention_schedule(spec, target))
                schedule = merge(shipped, schedule)
            return _core.why_not(spec, target, schedule.to_json() if schedule else None)
        except (SpecError, ScheduleError) as error:
            reasons = _core.why_not(spec, target, None)
            return reasons if str(error) in reasons else [*reasons, str(error)]

    def to_json(self) -> str:
        values = asdict(self) | {"mask": self.mask.text}
        # Where C++ reads 0 as "not given".
        for name in ("head_dim_v", "heads", "kv_heads"):
            values[name] = values[name] or 0
        return json.dumps({"kind": "attention"} | values, indent=2)

    @classmethod
    def from_json(cls, text: str) -> AttentionSpec:
        """Reads what :meth:`to_json` wrote; raises SpecError with every field that is wrong."""
        values = json.loads(_core.normal_spec(text))
        for name in ("kind", "score", "sink"):
            del values[name]
        for name in ("head_dim_v", "heads", "kv_heads"):
            values[name] = values[name] or None
        return cls(**values | {"mask": Mask(values["mask"]["text"])})


__all__ = ["AttentionSpec", "Mask", "causal", "full"]
