"""Whether an expression stays inside the arrays that it reads, for every score of a call.

A kernel reads 0 outside an array. To find out where that happens, the indices in the text are
computed with NumPy over the call's positions, a bounded number of scores at a time; arrays whose
elements are indices themselves are copied to the host. A negative index is inside where it counts
from the end. Nothing is short-circuited: an index counts where a condition beside it hides the
score, too.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import Any

import numpy

from ..arrays import is_torch_tensor
from ..errors import SpecError
from ..specs.evaluation import Formula, element, indices_of, name_of
from ..specs.expression import Expression
from ..specs.spec import AttentionSpec

_MOST_AT_ONCE = 1 << 22  # scores: 32 MB an index


def check_indices(
    spec: AttentionSpec,
    q: Any,
    k: Any,
    captured: Mapping[str, Any],
    cu_seqlens_q: Any = None,
    cu_seqlens_k: Any = None,
    q_lens: Any = None,
    kv_lens: Any = None,
) -> None:
    """Raises SpecError for the first index outside its array; waits for what is on a GPU."""
    packed = spec.layout == "thd"
    at_heads, at_rows = (2, 1) if spec.layout == "bshd" else (1, 2)
    if packed:
        starts = _on_host(cu_seqlens_q)
        rows = numpy.diff(starts)
        if spec.page_size:
            cols = _on_host(kv_lens)
        else:
            cols = rows if cu_seqlens_k is None else numpy.diff(_on_host(cu_seqlens_k))
    else:
        rows = numpy.full(q.shape[0], q.shape[at_rows]) if q_lens is None else _on_host(q_lens)
        cols = numpy.full(q.shape[0], k.shape[at_rows]) if kv_lens is None else _on_host(kv_lens)
    for role, expression in zip(("mask", "score", "sink"), spec.expressions, strict=True):
        if expression is not None and expression.tensors:
            text = _Text(role, expression, captured)
            for b, (q_len, kv_len) in enumerate(zip(rows.tolist(), cols.tolist(), strict=True)):
                text.check(b, q.shape[at_heads], q_len, kv_len)


class _Text:
    """One expression, with the arrays that it reads."""

    def __init__(self, role: str, expression: Expression, captured: Mapping[str, Any]):
        self._role = role
        self._text = expression.text
        self._arrays = {t.name: captured[t.name] for t in expression.tensors if t.rank}
        self._numbers = {t.name: captured[t.name] for t in expression.tensors if not t.rank}
        self._on_host: dict[str, Any] = {}
        self._formula = Formula(expression.text)

    def check(self, b: int, heads: int, q_len: int, kv_len: int) -> None:
        keys = 1 if self._role == "sink" else kv_len
        if not heads or not q_len or not keys:
            return
        step = max(1, _MOST_AT_ONCE // (heads * keys))
        for first in range(0, q_len, step):
            rows = numpy.arange(first, min(first + step, q_len))
            positions = {
                "b": b,
                "h": numpy.arange(heads)[:, None, None],
                "q_idx": rows[:, None],
                "kv_idx": numpy.arange(keys),
            }
            known = {**positions, "q_len": q_len, "kv_len": kv_len, **self._numbers}
            for node in self._formula.lookups():
                self._check(node, known)

    def _check(self, node: ast.Subscript, known: dict[str, Any]) -> None:
        name = name_of(node.value)
        for at, (index, length) in enumerate(
            zip(indices_of(node), self._arrays[name].shape, strict=True)
        ):
            self._refuse_the_score(index.value)
            value = numpy.asarray(self._formula.value(index.value, known, self._element))
            outside = (value < (-length if index.wraps else 0)) | (value >= length)
            if outside.any():
                place = numpy.argwhere(outside)[0]
                self._refuse(node, at, int(value[tuple(place)]), length, known, place)

    def _refuse(
        self,
        node: ast.Subscript,
        at: int,
        value: int,
        length: int,
        known: dict[str, Any],
        place: Any,
    ) -> None:
        name = name_of(node.value)
        index, wraps = indices_of(node)[at]
        written = ast.unparse(index).replace(" and ", " & ").replace(" or ", " | ")
        full = (0,) * (3 - len(place)) + tuple(map(int, place))
        shown = {"b": known["b"], "h": full[0], "q_idx": int(known["q_idx"][full[1], 0])}
        if self._role != "sink":
            shown["kv_idx"] = full[2]
        text = self._text if len(self._text) <= 80 else f"{self._text[:77]}..."
        raise SpecError(
            f"the {self._role} {text}",
            f"index {at} of {name}, {written}, is {value} at "
            f"{', '.join(f'{word} = {n}' for word, n in shown.items())}, and the length of {name} "
            f"there is {length}",
            f"an index from {-length if wraps else 0} to {length - 1}: flashcore.minimum and "
            "maximum keep it there; a condition beside it does not",
        )

    def _refuse_the_score(self, index: ast.expr) -> None:
        names = {node.id for node in ast.walk(index) if isinstance(node, ast.Name)}
        if "score" in names:
            raise SpecError(
                f"checked=True of the {self._role} {self._text}",
                "an index depends on the score, which only the kernel knows",
                "checked=False, and flashcore.minimum and maximum around the index",
            )
        for name in names & self._formula.parts.keys():
            self._refuse_the_score(self._formula.parts[name])

    def _element(self, name: str, indices: Sequence[Any], wraps: Sequence[bool]) -> Any:
        if name not in self._on_host:
            self._on_host[name] = _on_host(self._arrays[name])
        return element(self._on_host[name], indices, wraps)


def _on_host(array: Any) -> Any:
    if is_torch_tensor(array):
        array = array.detach().cpu()
        array = array.float() if array.is_floating_point() else array
        return array.numpy()
    if isinstance(array, numpy.ndarray):
        return array
    get = getattr(array, "get", None)  # CuPy's
    return numpy.asarray(array if get is None else get())


__all__ = ["check_indices"]
