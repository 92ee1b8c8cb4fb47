"""The arguments with which a function is traced: they record the operations applied to them."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import numpy

from ..arrays import in_cpu_memory, is_array
from . import activations  # noqa: F401  registers its functions, and those they are made of
from .graph import Graph, Kind, Node
from .operations import OFFERED, TABLE
from .refusal import refusal
from .rows import Row, check_length, of_rows

_REFLECTED = [
    "add",
    "sub",
    "mul",
    "div",
    "truediv",
    "floordiv",
    "mod",
    "pow",
    "and",
    "or",
    "xor",
    "lshift",
    "rshift",
]
_DTYPES = {"bool": "bool", "int": "int32", "float": "float32"}


class Traced:
    """A score, a position, or what was computed from them: one number for every score."""

    __slots__ = ("_graph", "_node")
    __array_priority__ = 1000

    def __init__(self, graph: Graph, node: Node):
        self._graph = graph
        self._node = node

    # What frameworks ask before they compute.
    shape = ()
    ndim = 0

    @property
    def dtype(self) -> Any:
        name = _DTYPES[self._node.kind]
        torch = sys.modules.get("torch")
        return numpy.dtype(name) if torch is None else getattr(torch, name)

    @property
    def device(self) -> Any:
        torch = sys.modules.get("torch")
        return "cpu" if torch is None else torch.device("cpu")

    def dim(self) -> int:
        return 0

    def size(self) -> tuple[int, ...]:
        return ()

    def __getattr__(self, name: str) -> Any:
        if name in TABLE and not name.startswith("_"):
            return functools.partial(call, name, self)
        raise AttributeError(f"a value that is traced has no {name}")

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if method != "__call__":
            raise self._refuse(f"it calls numpy.{ufunc.__name__}.{method}", "one value at a time")
        return call(f"numpy.{ufunc.__name__}", *inputs, **kwargs)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return call(f"numpy.{function.__name__}", *args, **kwargs)

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return call(f"torch.{function.__name__}", *args, **(kwargs or {}))

    # What would need one number.
    def _refuse(self, why: str, fix: str) -> Exception:
        return refusal(self._graph.title, why, fix)

    def __bool__(self) -> bool:
        raise self._refuse(
            f"it asks whether {self} is true, which differs from score to score",
            "flashcore.where(condition, a, b) for if; &, | and ~ for and, or and not; "
            "(a <= b) & (b < c) for a <= b < c; flashcore.minimum and maximum for min and max",
        )

    def _number(self, wanted: str) -> Exception:
        return self._refuse(
            f"it asks for {wanted} of {self}, which differs from score to score",
            "flashcore.exp, log, sqrt, tanh and the like for those of math; .int() and .float() "
            "for int(...) and float(...)",
        )

    def __int__(self) -> int:
        raise self._number("the whole number")

    def __float__(self) -> float:
        raise self._number("the number")

    def item(self) -> Any:
        raise self._number("the number")

    tolist = item

    def __index__(self) -> int:
        raise self._refuse(
            f"it uses {self} as a plain index or count, which differs from score to score",
            "index a captured array of NumPy or torch; range(...) needs a number",
        )

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise self._refuse(
            f"it turns {self} into an array", "one score is a number: compute with it as it is"
        )

    def __round__(self, digits: Any = None) -> Any:
        return call("int", call("round", self)) if digits is None else call("round", self, digits)

    def __len__(self) -> int:
        raise self._refuse(f"it asks for the length of {self}", "one score is a single number")

    def __iter__(self) -> Any:
        raise self._refuse(f"it loops over {self}", "one score is a single number")

    def __getitem__(self, key: Any) -> Any:
        raise self._refuse(f"it indexes {self}", "one score is a single number")

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        text = self._graph.text(self._node)
        return text if len(text) <= 60 else f"{text[:57]}..."


def _unary(name: str) -> Callable[[Traced], Any]:
    return lambda self: call(name, self)


def _binary(name: str) -> Callable[[Traced, Any], Any]:
    return lambda self, other: call(name, self, other)


# How Python spells the operations: method by method.
_UNARY = ["neg", "pos", "abs", "invert", "floor", "ceil", "trunc"]
_COMPARISONS = ["eq", "ne", "lt", "le", "gt", "ge"]


class PartlyIndexed:
    """A captured array with fewer indices than dimensions: table[h] of table[h][q_idx]."""

    def __init__(self, graph: Graph, name: str, array: Any, indices: list[Node | None]):
        self._graph = graph
        self._name = name
        self._array = array
        self._indices = indices

    def __getitem__(self, key: Any) -> Any:
        return _fill(self._graph, self._name, self._array, self._indices, key)

    @property
    def shape(self) -> tuple[int, ...]:
        free = zip(self._array.shape, self._indices, strict=True)
        return tuple(int(length) for length, given in free if given is None)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"an array that is traced has no {name}")
        return functools.partial(call, name, self)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        word = {"reduce": {"add": "sum", "multiply": "prod"}.get(ufunc.__name__, ufunc.__name__)}
        return call(f"numpy.{word.get(method, ufunc.__name__)}", *inputs, **kwargs)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return call(f"numpy.{function.__name__}", *args, **kwargs)

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return call(f"torch.{function.__name__}", *args, **(kwargs or {}))

    def row(self) -> Row:
        """Its elements, where one dimension is left and short."""
        if len(self.shape) != 1:
            raise self._refuse()
        check_length(self._graph, repr(self), self.shape[0])
        elements = [self[at] for at in range(self.shape[0])]
        return Row(self._graph, elements, call, repr(self))

    def __iter__(self) -> Any:
        return iter(self.row())

    def __len__(self) -> int:
        return self.shape[0]

    def _refuse(self, *_: Any) -> Any:
        return lift(self._graph, self)

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        shown = ", ".join(":" if i is None else self._graph.text(i) for i in self._indices)
        return f"{self._name}[{shown}]"


for _name in _UNARY:
    setattr(Traced, f"__{_name}__", _unary(_name))
for _name in _COMPARISONS + _REFLECTED:
    setattr(Traced, f"__{_name}__", _binary(_name))
for _name in _REFLECTED:
    setattr(Traced, f"__r{_name}__", _binary(f"r{_name}"))
for _kind in (PartlyIndexed, Row):
    for _name in _UNARY:
        setattr(_kind, f"__{_name}__", _unary(_name))
    for _name in [*_COMPARISONS, *_REFLECTED, "matmul"]:
        setattr(_kind, f"__{_name}__", _binary(_name))
    for _name in _REFLECTED:
        setattr(_kind, f"__r{_name}__", _binary(f"r{_name}"))
for _name in ("bool", "int", "float", "index"):
    setattr(PartlyIndexed, f"__{_name}__", PartlyIndexed._refuse)


def index(array: Any, key: Any, name: str = "") -> Any:
    """One element of a captured array for every score; `key` holds a traced value."""
    graph = _graph_of(key)
    assert graph is not None
    return _fill(graph, name or graph.name_of(array), array, [None] * len(array.shape), key)


def _fill(graph: Graph, name: str, array: Any, indices: list[Node | None], key: Any) -> Any:
    items = list(key) if isinstance(key, tuple) else [key]
    free = [at for at, given in enumerate(indices) if given is None]
    at = next((i for i, item in enumerate(items) if item is Ellipsis), None)
    if at is not None:
        items[at : at + 1] = [slice(None)] * (len(free) - len(items) + 1)
    if len(items) > len(free):
        raise refusal(
            graph.title,
            f"{name} has {len(array.shape)} dimensions and is given "
            f"{len(indices) - len(free) + len(items)} indices",
            "one index a dimension",
        )
    indices = list(indices)
    cut = [slice(None)] * len(indices)
    for at, item in zip(free, items, strict=False):
        if isinstance(item, slice):
            cut[at] = item
        else:
            indices[at] = _position(graph, name, array.shape[at], at, item)
    if any(part != slice(None) for part in cut):
        array = array[tuple(cut)]
    if any(given is None for given in indices):
        return PartlyIndexed(graph, name, array, indices)
    tensor = graph.capture(name, array)
    kind: Kind = "int" if tensor.dtype[0] in "iu" else "float"
    kind = "bool" if tensor.dtype == "i1" else kind
    wraps = tuple(given is not None and not given.never_negative for given in indices)
    return Traced(graph, graph.node("index", tensor.name, wraps, *indices, kind=kind))


def _position(graph: Graph, name: str, length: int, at: int, item: Any) -> Node:
    node = lift(graph, item)
    if not isinstance(node, Node) or node.kind != "int":
        shown = "a condition" if isinstance(node, Node) and node.kind == "bool" else repr(item)
        raise refusal(
            graph.title,
            f"index {at} of {name} is {shown}",
            "whole numbers; .int() makes one of a float or of a condition",
        )
    if node.op == "number":
        position: int = node.args[0]
        if not -length <= position < length:
            raise refusal(
                graph.title,
                f"index {at} of {name} is {position}, and its length there is {length}",
                f"an index from {-length} to {length - 1}",
            )
    return node


def _graph_of(values: Any) -> Graph | None:
    """The graph of the first traced value among them."""
    if isinstance(values, (Traced, PartlyIndexed, Row)):
        return values._graph
    if isinstance(values, (tuple, list)):
        return next((g for g in map(_graph_of, values) if g is not None), None)
    return None


def is_traced(values: Any) -> bool:
    return _graph_of(values) is not None


def lift(graph: Graph, value: Any) -> Any:
    """The node of a value; what is none, such as a dtype, stays as it is."""
    if isinstance(value, Traced):
        if value._graph is not graph:
            raise refusal(
                graph.title,
                f"it uses {value}, which was traced for another call",
                "do not keep values of one call for the next",
            )
        return value._node
    if isinstance(value, (bool, int, float)):
        return graph.number(value)
    if isinstance(value, numpy.generic):
        return graph.number(value.item())
    if isinstance(value, (PartlyIndexed, Row)):
        raise refusal(graph.title, *still_an_array(value))
    if is_array(value):
        return _lift_array(graph, value)
    return value


def still_an_array(value: PartlyIndexed | Row) -> tuple[str, str]:
    """Why it is no number, and what would be."""
    return (
        f"it computes with {value}, which is still an array of {len(value.shape)} dimensions",
        "an index for every dimension; of a short row also .sum(), .max(), .any() and the like",
    )


def _lift_array(graph: Graph, array: Any) -> Node:
    name = graph.name_of(array)
    if len(array.shape) > 0:
        shape = ", ".join(map(str, array.shape))
        raise refusal(
            graph.title,
            f"it computes with {name}, an array of shape ({shape}), as a whole",
            f"{name} indexed by b, h, q_idx or kv_idx, such as {name}[h]",
        )
    if in_cpu_memory(array):
        return graph.number_of(name, array)
    only = index(array.reshape(1), Traced(graph, graph.number(0)), name)
    node: Node = only._node
    return node


def call(name: str, *args: Any, **kwargs: Any) -> Any:
    """An operation by the name that Python, NumPy or torch has for it."""
    graph = _graph_of((args, tuple(kwargs.values())))
    if graph is None:
        raise TypeError(f"{name} of no traced value")
    word = name.rpartition(".")[2]
    if word.startswith("__"):
        word = word.strip("_")
    if any(isinstance(arg, (PartlyIndexed, Row)) for arg in args):
        return _call_of_rows(graph, word, args, kwargs)
    args = tuple(lift(graph, arg) for arg in args)
    if word[:1] == "r" and word[1:] in _REFLECTED:
        word, args = word[1:], args[::-1]
    function = TABLE.get(word)
    if function is None:
        raise refusal(
            graph.title,
            f"it calls {name}, which expressions do not have",
            f"one of {', '.join(OFFERED)}",
        )
    args += tuple(lift(graph, kwargs.pop(key)) for key in _OPERANDS if key in kwargs)
    try:
        node = function(graph, *args, **{key: lift(graph, kwargs[key]) for key in kwargs})
    except TypeError as error:
        raise refusal(
            graph.title, f"it calls {name} in a way that is not known: {error}", ""
        ) from None
    return Traced(graph, node)


def _call_of_rows(graph: Graph, word: str, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    args = tuple(arg.row() if isinstance(arg, PartlyIndexed) else arg for arg in args)
    lengths = {len(arg) for arg in args if isinstance(arg, Row)}

    def beside(arg: Any) -> Any:
        """A whole array that is as long as the rows beside it."""
        if is_array(arg) and len(arg.shape) == 1 and arg.shape[0] in lengths:
            at = (Traced(graph, graph.number(i)) for i in range(arg.shape[0]))
            return Row(graph, [index(arg, i) for i in at], call, graph.name_of(arg))
        return arg

    return of_rows(word, tuple(map(beside, args)), options, call)


# What torch calls operands, in their order; other keywords are options.
_OPERANDS = ("condition", "input", "other", "exponent")
