"""Whether a kernel is right: attention in NumPy and fp64, from its definition, on inputs small
enough.

Outputs start as NaN, so that what is not written shows. The bound is twice the error of an
evaluation that rounds where every tensor-core kernel has to.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np

from ..arrays import is_torch_tensor
from ..errors import SpecError
from ..specs.evaluation import Values, evaluate
from ..specs.expression import Expression, bound_arrays
from ..specs.spec import AttentionSpec

_DTYPES = {
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f32": np.dtype(np.float32),
}


def heads_of(spec: AttentionSpec, default: int) -> tuple[int, int]:
    """Query heads and key heads."""
    heads = spec.heads or default
    return heads, spec.kv_heads or heads


@dataclass(frozen=True)
class Case:
    """Inputs of one call, and what has to come out."""

    title: str
    q: Any
    k: Any
    v: Any
    keywords: Mapping[str, Any]
    exact: Any
    """fp64, like the output; NaN where nothing may be written."""
    bound: float

    def complaint(self, out: Any) -> str:
        """What is wrong with an output of this shape that was NaN before the call; or nothing."""
        out = np.asarray(out, np.float64)
        written = ~np.isnan(self.exact)
        if np.isnan(out[written]).any():
            count = int(np.isnan(out[written]).sum())
            return f"{count} of {written.sum()} elements are NaN or were not written, {self.title}"
        if not np.isnan(out[~written]).all():
            return f"it writes behind the last sequence, {self.title}"
        error = float(np.abs(out[written] - self.exact[written]).max(initial=0))
        if error > self.bound:
            return f"an error of {error:.3g}, where {self.bound:.3g} is the bound, {self.title}"
        return ""


def for_any_shapes(spec: AttentionSpec) -> AttentionSpec:
    """The same, whose arrays are read at any shapes: what is outside counts 0, here and there."""

    def loose(part: Expression | None) -> Any:
        if part is None:
            return None
        tensors = [replace(tensor, fits=None) for tensor in part.tensors]
        return type(part)(part.text, tensors, part.arrays)

    mask, score, sink = map(loose, spec.expressions)
    return replace(spec, mask=mask, score=score, sink=sink)


def captured_arrays(spec: AttentionSpec) -> dict[str, Any]:
    """What the spec's expressions read, in NumPy, and numbers as they are.

    Raises SpecError where it holds no arrays.
    """
    arrays = bound_arrays(*spec.expressions)
    missing = [name for name, array in arrays.items() if array is None]
    if missing:
        raise SpecError(
            "autotune of a spec without its arrays",
            f"{', '.join(missing)}: only a call would bring them",
            "a spec whose masks and scores were made with arrays",
        )
    numbers = (int, float)
    return {name: a if isinstance(a, numbers) else to_numpy(a) for name, a in arrays.items()}


def to_numpy(array: Any) -> Any:
    if isinstance(array, np.ndarray):
        return array
    if is_torch_tensor(array):
        torch = sys.modules["torch"]
        array = array.detach().cpu()
        if array.dtype == torch.bfloat16:  # which NumPy does not have
            return array.view(torch.int16).numpy().view(_DTYPES["bf16"])
        return array.numpy()
    return np.asarray(array)


def case(spec: AttentionSpec, shape: tuple[int, int, int], heads: int = 2, seed: int = 0) -> Case:
    """Inputs of (batch, q_len, kv_len), which are the most where the lengths of a batch differ.

    `heads` are those of a spec that reads them off the arrays.
    """
    rng = np.random.default_rng(seed)
    heads, kv_heads = heads_of(spec, heads)
    dims = spec.head_dim, spec.head_dim_v or spec.head_dim
    batch, q_len, kv_len = shape
    dtype = _DTYPES[spec.dtype]
    packed = spec.layout == "thd"
    # Some sequences shorter, down to nothing; the first has the whole length.
    shares = [1.0, 0.6, 0.0, 0.35]
    share = [shares[i % 4] if packed or spec.q_lens or spec.kv_lens else 1.0 for i in range(batch)]
    q_lens = [int(s * q_len) if packed or spec.q_lens else q_len for s in share]
    kv_lens = [int(s * kv_len) if packed or spec.kv_lens else kv_len for s in reversed(share)]

    def draw(length: int, heads: int, dim: int) -> Any:
        return rng.standard_normal((length, heads, dim)).astype(dtype)

    # [heads, length, dim] of each sequence; then all of them in the layout of the spec.
    parts = [(draw(a, heads, dims[0]), draw(b, kv_heads, dims[0]), draw(b, kv_heads, dims[1]))
             for a, b in zip(q_lens, kv_lens, strict=True)]  # fmt: skip
    exact, plain = [], []
    captured = captured_arrays(spec)
    for b, part in enumerate(parts):
        both = _sequence(spec, b, *part, captured)
        exact.append(both[0])
        plain.append(both[1])

    def together(arrays: Sequence[Any], longest: int, fill: float) -> Any:
        if packed:  # and a few rows of nobody
            beyond = np.full((3, *arrays[0].shape[1:]), math.nan, arrays[0].dtype)
            return np.concatenate([*arrays, beyond])
        whole = np.full((batch, longest, *arrays[0].shape[1:]), fill, arrays[0].dtype)
        for place, array in zip(whole, arrays, strict=True):
            place[: len(array)] = array
        return whole if spec.layout == "bshd" else np.ascontiguousarray(whole.swapaxes(1, 2))

    nan = math.nan
    keywords: dict[str, Any] = {}
    if packed:
        starts = [np.array([0, *itertools.accumulate(n)], np.int32) for n in (q_lens, kv_lens)]
        keywords = {"cu_seqlens_q": starts[0], "cu_seqlens_k": starts[1], "max_q_len": q_len}
    if spec.q_lens:
        keywords["q_lens"] = np.array(q_lens, np.int32)
    if spec.kv_lens:
        keywords["kv_lens"] = np.array(kv_lens, np.int32)
    q, k, v = (
        together([part[i] for part in parts], length, nan)
        for i, length in enumerate((q_len, kv_len, kv_len))
    )
    # Rows beyond a padded sequence become zeros.
    exact_out, plain_out = (together(arrays, q_len, 0.0) for arrays in (exact, plain))
    epsilon = 2.0 ** (-7 if spec.dtype == "bf16" else -10)
    bound = 2 * float(np.nanmax(np.abs(plain_out - exact_out), initial=0)) + epsilon * 1e-2
    bound = min(bound, 4 * epsilon * max(1.0, float(np.nanmax(np.abs(exact_out), initial=0))))
    title = f"batch {batch}, {q_len} queries, {kv_len} keys"
    return Case(title, q, k, v, keywords, exact_out, bound)


def _as_multiplied(spec: AttentionSpec, array: Any) -> Any:
    """What products make of the elements before they multiply them."""
    if spec.products == "tf32":
        bits = np.ascontiguousarray(array).view(np.uint32) + np.uint32(0x1000)
        array = (bits & ~np.uint32(0x1FFF)).view(np.float32)
    return array.astype(np.float64)


def _sequence(
    spec: AttentionSpec, b: int, q: Any, k: Any, v: Any, captured: Values
) -> tuple[Any, Any]:
    """One sequence, [length, heads, dim] each: exact, and with the rounding of any kernel."""
    dtype = q.dtype
    heads, group = q.shape[1], q.shape[1] // k.shape[1]
    mask, score, sink = spec.expressions
    rows, cols = np.arange(len(q))[:, None], np.arange(len(k))[None, :]
    values = {**captured, "b": np.int64(b), "q_idx": rows, "kv_idx": cols}
    values |= {"q_len": np.int64(len(q)), "kv_len": np.int64(len(k))}
    exact, plain = (np.empty((len(q), heads, v.shape[-1])) for _ in range(2))

    def weighed(h: int, taken: Callable[[Any], Any]) -> tuple[Any, Any, Any]:
        """The weights of a head's keys, what they weigh, and their sums."""
        keys, content = (taken(x[:, h // group]) for x in (k, v))
        scores = taken(q[:, h]) @ keys.T / math.sqrt(spec.head_dim)
        with np.errstate(all="ignore"):
            if score is not None:
                scores = evaluate(score.text, values | {"score": scores})
            scores = np.where(evaluate(mask.text, values), scores, -np.inf)
            if sink is not None:
                more = np.broadcast_to(
                    np.asarray(evaluate(sink.text, values), np.float64), (len(q), 1)
                )
                scores = np.concatenate([scores, more], axis=1)
                content = np.concatenate([content, np.zeros_like(content[:1])] if len(content)
                                         else [np.zeros((1, content.shape[1]))])  # fmt: skip
            top = scores.max(-1, keepdims=True, initial=-np.inf)
            probs = np.nan_to_num(np.exp(scores - np.where(np.isfinite(top), top, 0)))
            return probs, content, probs.sum(-1, keepdims=True)

    # A head at a time: the scores of all of them would not fit in the caches.
    for h in range(heads):
        values["h"] = np.int64(h)
        probs, content, total = weighed(h, lambda x: x.astype(np.float64))
        with np.errstate(all="ignore"):
            exact[:, h] = np.nan_to_num((probs @ content) / total)
        if spec.products != "full":
            probs, content, total = weighed(h, partial(_as_multiplied, spec))
        rounded = _as_multiplied(spec, probs.astype(dtype))
        with np.errstate(all="ignore"):
            out = np.nan_to_num((rounded @ content) / total)
        plain[:, h] = out.astype(dtype).astype(np.float64)
    return exact, plain


__all__ = ["Case", "captured_arrays", "case", "for_any_shapes", "heads_of", "to_numpy"]
