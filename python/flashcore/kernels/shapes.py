"""The shapes that arrays of ready-made masks, scores and sinks must have in a call.

A kernel reads 0 outside an array, so one that is too short would give wrong results without a word.
What a ready-made part expects is data of its arrays (`Captured.fits`); it is held against the
shapes of q and k on the host, at every call by array_fit.h, and here where that finds a mistake.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..arrays import Captured, Dim
from ..errors import SpecError
from ..specs.spec import AttentionSpec


class Fitting:
    """What the arrays of one spec have to be."""

    def __init__(self, spec: AttentionSpec, names: Sequence[str]):
        """`names` are those of the arrays of a call, in their order."""
        tensors = {t.name: t for part in spec.expressions if part for t in part.tensors}
        self._spec = spec
        self._ruled = [(at, tensors[name]) for at, name in enumerate(names) if tensors[name].fits]

    @property
    def rules(self) -> list[tuple[str, tuple[Dim, ...]]]:
        """Names of arrays, and what their dimensions have to be."""
        return [(tensor.name, tensor.fits) for _, tensor in self._ruled if tensor.fits]

    def check(
        self, q: Any, k: Any, arrays: Sequence[Any], sequences: int, max_q_len: int | None
    ) -> None:
        """Raises SpecError for the first array whose shape does not fit; `sequences` is how many
        lie packed in arrays of layout "thd"."""
        packed = self._spec.layout == "thd"
        if (
            not self._ruled
            or len(q.shape) != (3 if packed else 4)
            or (len(k.shape) != (4 if self._spec.page_size else len(q.shape)))
        ):
            return  # the launch says so
        sizes = _sizes(self._spec, q, k, sequences, max_q_len)
        for at, tensor in self._ruled:
            _check(tensor, tuple(arrays[at].shape), sizes, packed)


def _sizes(
    spec: AttentionSpec, q: Any, k: Any, sequences: int, max_q_len: int | None
) -> dict[str, int | None]:
    """What the names of dimensions stand for in a call; None: only the device knows."""
    # How many keys a table of pages has room for says nothing of how many there are.
    keys = {"kv_len": None, "length": None} if spec.page_size else {}
    if spec.layout == "thd":
        known = {"batch": sequences, "heads": q.shape[1], "q_len": max_q_len}
        return {**known, "kv_len": None, "length": max_q_len, **keys}
    heads, rows = (1, 2) if spec.layout == "bhsd" else (2, 1)
    lengths = {"q_len": q.shape[rows], "kv_len": k.shape[rows]}
    longer = max(lengths.values())
    return {"batch": q.shape[0], "heads": q.shape[heads], **lengths, "length": longer, **keys}


def _check(
    tensor: Captured, shape: tuple[int, ...], sizes: dict[str, int | None], packed: bool
) -> None:
    assert tensor.fits is not None
    if len(shape) != len(tensor.fits):
        return  # the launch says so
    for at, (size, dim) in enumerate(zip(shape, tensor.fits, strict=True)):
        wanted = sizes[dim] if isinstance(dim, str) else dim
        # The positions of packed sequences are at most that many: longer arrays are right.
        at_most = packed and dim in ("q_len", "length")
        if wanted is None or size == wanted or (at_most and size > wanted):
            continue
        name = "max_q_len" if at_most else _WORDS.get(dim, dim)
        raise SpecError(
            f"the array {tensor.name} of shape {shape}",
            f"dimension {at} is {size}, and "
            + (f"{name} is {wanted}" if isinstance(dim, str) else f"it was made for {wanted}"),
            _fix(tensor, sizes),
        )


_WORDS: dict[Dim, str] = {"length": "the larger of q_len and kv_len"}


def _fix(tensor: Captured, sizes: dict[str, int | None]) -> str:
    assert tensor.fits is not None
    dims = [sizes[dim] if isinstance(dim, str) else dim for dim in tensor.fits]
    shown = [
        str(dim if size is None else size) for dim, size in zip(tensor.fits, dims, strict=True)
    ]
    fix = f"[{', '.join(map(str, tensor.fits))}], here [{', '.join(shown)}]"
    if 1 in tensor.fits:
        fix += "; what broadcasts in other dimensions is a bias or mask of its own"
    return fix


__all__ = ["Fitting"]
