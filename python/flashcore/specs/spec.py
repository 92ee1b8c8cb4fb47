"""What attention to compute, as data."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, get_args

from .. import _core, arguments
from ..arrays import is_array
from ..errors import ScheduleError, SpecError
from .expression import (
    Mask,
    MaskLike,
    Score,
    ScoreLike,
    Sink,
    SinkLike,
    as_mask,
    as_score,
    as_sink,
    in_one_kernel,
)
from .schedule import Schedule, merge
from .variants import full


def dtype_name(dtype: Any) -> str:
    """ "bf16" for "bfloat16" and for the dtypes of NumPy, ml_dtypes, torch and JAX that mean it.

    An unknown name stays as it is: what it is used for tells what would work.
    """
    name = dtype
    if not isinstance(dtype, str):
        name = getattr(dtype, "__name__", None) or getattr(dtype, "name", None)
        name = name if isinstance(name, str) else str(dtype)
    return _normal(name) or name


def _normal(name: str) -> str | None:
    return _core.normal_dtype(name.removeprefix("torch.")) if arguments.is_text(name) else None


Layout = Literal["bhsd", "bshd", "thd"]
ProductsName = Literal["full", "tf32"]


def _dtype(dtype: Any) -> str:
    name = dtype_name(dtype)
    if _normal(name) is None:
        close = arguments.nearest(name, ("bf16", "bfloat16", "f16", "float16", "half"))
        why = "it is no element type"
        fix = f'{close}"bf16" or "f16", or such a dtype of NumPy, ml_dtypes, torch or JAX'
        raise arguments.refusal("dtype", dtype, why, fix)
    return name


def _flag(name: str, value: Any) -> bool:
    if name.endswith("lens") and is_array(value):
        why = "a spec says only that a call gives lengths"
        raise arguments.refusal(
            name, value, why, f"{name}=True here, and kernel(..., {name}=array)"
        )
    return arguments.flag(name, value)


_NOT_GIVEN_AS_0 = ("head_dim_v", "heads", "kv_heads", "page_size")  # in C++


@arguments.fields_by_name("an attention spec", SpecError)
@dataclass(frozen=True, kw_only=True)
class AttentionSpec:
    """Scaled dot-product attention, softmax(score(scale q k^T) + mask) v.

    Masks, scores and sinks are those of this package, or functions with the signatures of
    FlexAttention: (b, h, q_idx, kv_idx), (score, b, h, q_idx, kv_idx) and (b, h, q_idx). A function
    is traced once, and the spec holds what was found.

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
    products: ProductsName = "full"
    """How queries are multiplied by keys, and weights by values. Of dtype f32, "tf32" rounds both
    to ten bits behind the first, as tensor cores take them; "full" keeps every bit."""
    mask: MaskLike | None = field(default_factory=full)
    """None: every row sees every key."""
    score: ScoreLike | None = None
    sink: SinkLike | None = None
    layout: Layout = "bhsd"
    """Order of the dimensions of q, k, v and the output. "thd" is [total, heads, head_dim]:
    sequences of any lengths one behind the other, and a call says where each begins (cu_seqlens_q,
    as in FlashAttention's varlen functions)."""
    lse: bool = False
    """Compute the log-sum-exp of every row as well."""
    q_lens: bool = False
    """Padded batches: a call says how many rows of q each sequence has. The others become zeros."""
    kv_lens: bool = False
    """Padded batches: a call says how many keys each sequence has. The others are never read."""
    page_size: int | None = None
    """Keys lie in pages of so many: k and v are [pages, page_size, kv_heads, head_dim], and a call
    has a page_table, with kv_lens, whatever the layout of q. None: they do not."""
    large_scores: bool = False
    """Be right for every finite score, at a cost of 2 % or so. Without, scores may reach 2^28 in
    base-2 units, about 1.8e8: beyond that the rounding of a row's maximum decides, and from about
    5e8 (f16) or 3e9 (bf16) on rows may become zeros, infinite or NaN."""
    deterministic: bool = True
    """Gradients have the same bits at every call. Otherwise their terms may be added up in any
    order, where that is faster; the output has the same bits either way."""
    batch: int | None = None
    q_len: int | None = None
    kv_len: int | None = None

    def __post_init__(self) -> None:
        for name in ("head_dim", "head_dim_v", "heads", "kv_heads", "page_size", "batch", "q_len",
                     "kv_len"):  # fmt: skip
            value = getattr(self, name)
            if value is not None or name == "head_dim":
                fix = "a number of elements, as 64" if "dim" in name else "a whole number, or None"
                object.__setattr__(self, name, arguments.whole(name, value, fix))
        for name in ("lse", "q_lens", "kv_lens", "large_scores", "deterministic"):
            object.__setattr__(self, name, _flag(name, getattr(self, name)))
        arguments.one_of("layout", self.layout, get_args(Layout))
        arguments.one_of("products", self.products, get_args(ProductsName))
        seen = full() if self.mask is None else self.mask
        expressions = as_mask(seen), as_score(self.score), as_sink(self.sink)
        mask, score, sink = in_one_kernel(*expressions)
        values = {"dtype": _dtype(self.dtype), "mask": mask, "score": score, "sink": sink}
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @property
    def expressions(self) -> tuple[Mask, Score | None, Sink | None]:
        """The mask, the score and the sink, of which only the first is always there."""
        return self.mask, self.score, self.sink  # type: ignore[return-value]

    def why_not(
        self, target: str, schedule: Schedule | Mapping[str, Any] | None = None
    ) -> list[str]:
        """Every reason the target cannot run this, each with what would work; empty if it can.

        Nothing is compiled. `schedule` is what :func:`jit` takes; by default the one that ships.
        """
        spec = self.to_json()
        target = arguments.target_name(target)
        try:
            if schedule is not None and not isinstance(schedule, Schedule):
                schedule = self.changed_schedule(target, schedule)
            return _core.why_not(spec, target, schedule.to_json() if schedule else None)
        except (SpecError, ScheduleError) as error:
            reasons = _core.why_not(spec, target, None)
            return reasons if str(error) in reasons else [*reasons, str(error)]

    def changed_schedule(self, target: str, changes: Mapping[str, Any]) -> Schedule:
        """The first schedule that ships and can run with these fields changed; if none can, the
        first with them changed."""
        texts = _core.attention_schedules(self.to_json(), target)
        merged = [merge(Schedule.from_json(text), changes) for text in texts]
        return next((s for s in merged if not self.why_not(target, s)), merged[0])

    def to_json(self) -> str:
        """Everything but the arrays that expressions read; those are given at the call then."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        for name, part in zip(("mask", "score", "sink"), self.expressions, strict=True):
            values[name] = (part or Score("")).to_data()
        for name in _NOT_GIVEN_AS_0:
            values[name] = values[name] or 0
        return json.dumps({"kind": "attention"} | values, indent=2)

    @classmethod
    def from_json(cls, text: str) -> AttentionSpec:
        """Reads what :meth:`to_json` wrote; raises SpecError with every field that is wrong."""
        if not arguments.is_text(text):
            fix = "the text that to_json() wrote"
            raise arguments.refusal("the attention spec", text, "it is no text", fix)
        values = json.loads(_core.normal_spec(text))
        del values["kind"]
        for name in _NOT_GIVEN_AS_0:
            values[name] = values[name] or None
        written = json.loads(text)
        kinds: dict[str, type[Mask] | type[Score] | type[Sink]]
        kinds = {"mask": Mask, "score": Score, "sink": Sink}
        for name, kind in kinds.items():
            _copy_shapes(written.get(name), values[name])
            values[name] = kind.from_data(values[name]) if values[name]["text"] else None
        return cls(**values)


def _copy_shapes(written: Any, normal: dict[str, Any]) -> None:
    """What arrays have to fit is checked here alone: C++ leaves it out of what it reads."""
    if isinstance(written, dict):
        shapes = [tensor.get("fits") for tensor in written.get("tensors", ())]
        for tensor, fits in zip(normal["tensors"], shapes, strict=True):
            if fits is not None:
                tensor["fits"] = fits


__all__ = ["AttentionSpec", "ProductsName", "dtype_name"]
