"""Masks, scores and sinks as values: the text of an expression and the arrays it reads."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, TypeAlias, TypeVar

from .. import _core
from ..arguments import is_text, refusal
from ..arrays import Captured, is_array, memory_of
from ..errors import SpecError
from ..pytorch import seam as torch_seam
from ..tracing.graph import free_name
from ..tracing.trace import Role, Trace, trace
from .block_mask import is_block_mask, mask_of_blocks

_NAME = re.compile(r"(?<![\w.])[A-Za-z_]\w*")
Kind = TypeVar("Kind", bound="Expression")


class Expression:
    """What is computed for every score.

    Expressions are values: equal if their texts and tensors are, and if they read the same memory.
    """

    def __init__(
        self, text: str, tensors: Sequence[Captured] = (), arrays: Sequence[Any] | None = None
    ):
        """`arrays` are those to read, in the order of `tensors`; None for one that is given at the
        call."""
        _check_parts(type(self).__name__, text, tensors, arrays)
        self._text = text
        self._tensors = tuple(tensors)
        self._arrays = (None,) * len(self._tensors) if arrays is None else tuple(arrays)
        # All that a kernel depends on, as one string: a string knows its hash.
        self._names = frozenset(tensor.name for tensor in self._tensors)
        parts = (":".join(map(str, (*t.as_tuple(), t.fits))) for t in self._tensors)
        self._key = "#".join([text, *parts])

    @property
    def text(self) -> str:
        """The expression, as docs/language.md describes it."""
        return self._text

    @property
    def tensors(self) -> tuple[Captured, ...]:
        """The names, dtypes and ranks of the arrays that it reads."""
        return self._tensors

    @property
    def arrays(self) -> tuple[Any, ...]:
        return self._arrays

    @property
    def key(self) -> str:
        """Equal for expressions that one kernel computes."""
        return self._key

    def unbound(self: Kind) -> Kind:
        """The same without its arrays, which are then given at the call."""
        return type(self)(self._text, self._tensors) if self._tensors else self

    def with_arrays(self: Kind, arrays: tuple[Any, ...]) -> Kind:
        """The same with other arrays, which its tensors describe as well."""
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        other._arrays = arrays
        return other

    def _identity(self) -> tuple[Any, ...]:
        memory = (None if array is None else memory_of(array) for array in self._arrays)
        return type(self), self._key, *memory

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Expression) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    def __deepcopy__(self: Kind, memo: Any) -> Kind:
        return self

    def __repr__(self) -> str:
        names = ", ".join(f"{t.name}: {t.dtype}[{t.rank}]" for t in self._tensors)
        return f"<flashcore.{type(self).__name__} {self._text}{f' with {names}' if names else ''}>"

    def to_data(self) -> dict[str, Any]:
        """What JSON says of it. The arrays stay behind."""
        tensors = [asdict(tensor) for tensor in self._tensors]
        for tensor in tensors:
            for promise in ("unit_stride", "aligned_rows"):
                if not tensor[promise]:
                    del tensor[promise]
            if tensor["fits"] is None:
                del tensor["fits"]
        return {"text": self._text, "tensors": tensors}

    @classmethod
    def from_data(cls: type[Kind], data: Mapping[str, Any]) -> Kind:
        return cls(data["text"], [_captured(tensor) for tensor in data["tensors"]])

    def beside(self: Kind, *others: Expression) -> Kind:
        """With other names for the arrays whose names mean other arrays in the others."""
        if all(self._names.isdisjoint(other._names) for other in others):
            return self
        taken = {t.name: (t, a) for e in others for t, a in zip(e.tensors, e.arrays, strict=True)}
        used = set(_NAME.findall(self._text)) | set(taken)
        names: dict[str, str] = {}
        for tensor, array in zip(self._tensors, self._arrays, strict=True):
            if tensor.name in taken and not _same(*taken[tensor.name], tensor, array):
                names[tensor.name] = free_name(tensor.name, used)
                used.add(names[tensor.name])
        if not names:
            return self
        text = _NAME.sub(lambda found: names.get(found[0], found[0]), self._text)
        tensors = [replace(t, name=names.get(t.name, t.name)) for t in self._tensors]
        return type(self)(text, tensors, self._arrays)


def _check_parts(kind: str, text: Any, tensors: Any, arrays: Any) -> None:
    if not is_text(text):
        fix = 'an expression, as in Mask("q_idx >= kv_idx"), or a function given to the call'
        raise refusal(f"text of a {kind}", text, "it is no text", fix)
    lists = (list, tuple)
    if not isinstance(tensors, lists) or not all(isinstance(t, Captured) for t in tensors):
        fix = "a list of flashcore.Captured, one for each array; functions say it by themselves"
        raise refusal(f"tensors of a {kind}", tensors, "it is no list of captured tensors", fix)
    if arrays is not None and (not isinstance(arrays, lists) or len(arrays) != len(tensors)):
        fix = "a list of arrays, one for each of tensors; None: given at the call"
        raise refusal(f"arrays of a {kind}", arrays, f"there are {len(tensors)} tensors", fix)


def taken_apart(key: str) -> tuple[str, list[Captured]]:
    """The text and the tensors that a key was made of."""
    text, *tensors = key.split("#")
    fields = (tensor.split(":") for tensor in tensors)
    return text, [
        Captured(
            name,
            dtype,
            int(rank),
            unit_stride == "True",
            ast.literal_eval(fits),
            aligned_rows == "True",
        )
        for name, dtype, rank, unit_stride, aligned_rows, fits in fields
    ]


def _captured(data: Mapping[str, Any]) -> Captured:
    fits = data.get("fits")
    return Captured(**{**data, "fits": None if fits is None else tuple(fits)})


def _same(tensor: Captured, array: Any, other: Captured, other_array: Any) -> bool:
    if tensor != other or array is None or other_array is None:
        return tensor == other and array is other_array
    return array is other_array or memory_of(array) == memory_of(other_array)


class Mask(Expression):
    """Which keys a query sees. Masks combine with &, | and ~, also with functions
    (b, h, q_idx, kv_idx)."""

    def __and__(self, other: MaskLike) -> Mask:
        return _combined("mask_and", self, as_mask(other))

    def __rand__(self, other: MaskLike) -> Mask:
        return _combined("mask_and", as_mask(other), self)

    def __or__(self, other: MaskLike) -> Mask:
        return _combined("mask_or", self, as_mask(other))

    def __ror__(self, other: MaskLike) -> Mask:
        return _combined("mask_or", as_mask(other), self)

    def __invert__(self) -> Mask:
        return _combined("mask_not", self)


class Score(Expression):
    """What takes the place of a scaled score, before the mask. `f @ g` is f of what g gives, also
    with functions (score, b, h, q_idx, kv_idx)."""

    def __matmul__(self, inner: ScoreLike) -> Score:
        return _composed(self, _taken_as(Score, "score", inner))

    def __rmatmul__(self, outer: ScoreLike) -> Score:
        return _composed(_taken_as(Score, "score", outer), self)


class Sink(Expression):
    """The score of one more key that every query sees and that has no value."""


MaskLike: TypeAlias = Mask | Callable[..., Any]
ScoreLike: TypeAlias = Score | Callable[..., Any]
SinkLike: TypeAlias = Sink | Callable[..., Any]


def of_core(
    kind: type[Kind],
    made: _core.Expression,
    given: Sequence[Captured],
    arrays: Mapping[str, Any],
) -> Kind:
    """What C++ made of tensors that it was given, and their arrays by name."""
    text, tensors = made
    by_name = {tensor.name: tensor for tensor in given}
    described = [by_name[name] for name, *_ in tensors]
    return kind(text, described, [arrays[tensor.name] for tensor in described])


def core_text(function: str, *arguments: Any) -> str:
    """The text that a function of the core makes of texts and numbers alone."""
    made: tuple[str, Any] = getattr(_core, function)(*arguments)
    return made[0]


torch_seam.instead_of(core_text, torch_seam.core_text)


def _combined(combine: str, *masks: Mask) -> Mask:
    if not any(mask.tensors for mask in masks):
        return Mask(core_text(combine, *((mask.text, ()) for mask in masks)))
    apart = [mask.beside(*masks[:at]) for at, mask in enumerate(masks)]
    made = getattr(_core, combine)(*((m.text, [t.as_tuple() for t in m.tensors]) for m in apart))
    tensors = [tensor for mask in apart for tensor in mask.tensors]
    return of_core(Mask, made, tensors, bound_arrays(*apart))


def _composed(outer: Score, inner: Score) -> Score:
    """The inner one's text, with its result under a name, before the outer one's."""
    outer = outer.beside(inner)
    *parts, result = (part.strip() for part in inner.text.rstrip("; ").split(";"))
    used = set(_NAME.findall(inner.text)) | set(_NAME.findall(outer.text))
    names = {"score": free_name("before", used)}
    used.add(names["score"])
    own = {part.partition("=")[0].strip() for part in outer.text.split(";")[:-1]}
    for name in sorted(own & set(_NAME.findall(inner.text))):
        names[name] = free_name(name, used)
        used.add(names[name])
    after = _NAME.sub(lambda found: names.get(found[0], found[0]), outer.text)
    text = "; ".join([*parts, f"{names['score']} = {result}", after])
    arrays = bound_arrays(inner, outer)
    tensors = {tensor.name: tensor for part in (inner, outer) for tensor in part.tensors}
    return Score(text, list(tensors.values()), [arrays[name] for name in tensors])


def bound_arrays(*expressions: Expression | None) -> dict[str, Any]:
    """The arrays of all by name, None for those to be given at the call."""
    found: dict[str, Any] = {}
    for expression in expressions:
        if expression is not None:
            for tensor, array in zip(expression._tensors, expression._arrays, strict=True):
                found.setdefault(tensor.name, array)
    return found


_USUAL: dict[Role, str] = {
    "mask": "flashcore.causal(), or a function (b, h, q_idx, kv_idx)",
    "score": "flashcore.softcap(30), or a function (score, b, h, q_idx, kv_idx)",
    "sink": "flashcore.sinks(logits), or a function (b, h, q_idx)",
}


def _taken_as(kind: type[Kind], role: Role, given: Any) -> Kind:
    if isinstance(given, kind):
        return given
    if isinstance(given, Expression):
        right = type(given).__name__
        raise SpecError(f"{role}={given!r}", f"it is a {right}", f"{right.lower()}=")
    if is_block_mask(given):
        if role != "mask":
            raise SpecError(
                f"{role}=BlockMask", "it says which keys a query sees", "mask= or block_mask="
            )
        given = mask_of_blocks(given)
    if callable(given):
        return trace(given, role, lambda found: _expression(kind, found))
    fix = _USUAL[role]
    if is_array(given) and role != "sink":
        fix += f"; flashcore.{'dense_mask' if role == 'mask' else 'bias'}(array) takes an array"
    if isinstance(given, (list, tuple)) and role == "mask":
        fix += "; several masks are joined by & and |"
    raise refusal(role, given, f"it is no {kind.__name__} and no function", fix)


def _expression(kind: type[Kind], found: Trace) -> Kind:
    return kind(found.text, found.tensors, found.arrays)


def as_mask(given: MaskLike) -> Mask:
    return _taken_as(Mask, "mask", given)


def as_score(given: ScoreLike | Sequence[ScoreLike] | None) -> Score | None:
    """Several are applied one after the other, the first of them to the scaled score."""
    if isinstance(given, (list, tuple)) and given:
        made = [_taken_as(Score, "score", part) for part in given]
        return functools.reduce(lambda inner, outer: _composed(outer, inner), made)
    return None if given is None else _taken_as(Score, "score", given)


def as_sink(given: SinkLike | None) -> Sink | None:
    return None if given is None else _taken_as(Sink, "sink", given)


def in_one_kernel(
    mask: Mask, score: Score | None, sink: Sink | None
) -> tuple[Mask, Score | None, Sink | None]:
    """With names that mean one array each in all three."""
    if score is not None and score.tensors:
        score = score.beside(mask)
    if sink is not None and sink.tensors:
        sink = sink.beside(mask, score) if score else sink.beside(mask)
    return mask, score, sink
