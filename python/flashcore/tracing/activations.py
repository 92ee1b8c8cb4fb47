"""Activation functions of torch.nn.functional, written with the operations of expressions."""

from __future__ import annotations

import math
from typing import Any

from .arithmetic import clamp, maximum, minimum, sigmoid
from .graph import Graph, Node
from .logic import where
from .operations import TABLE, infix, neg, operation
from .refusal import refusal


def _times(g: Graph, *factors: Any) -> Node:
    result: Node = factors[0]
    for factor in factors[1:]:
        result = infix(g, "*", result, factor)
    return result


def _positive(g: Graph, x: Any) -> Node:
    return infix(g, ">", x, g.number(0.0))


def _number(g: Graph, given: Any, default: float) -> Any:
    return g.number(default) if given is None else given


@operation("relu")
def relu(g: Graph, x: Any, inplace: Any = None) -> Node:
    return maximum(g, x, g.number(0))


@operation("relu6")
def relu6(g: Graph, x: Any, inplace: Any = None) -> Node:
    return clamp(g, x, g.number(0.0), g.number(6.0))


@operation("hardtanh")
def hardtanh(
    g: Graph, x: Any, min_val: Any = None, max_val: Any = None, inplace: Any = None
) -> Node:
    return clamp(g, x, _number(g, min_val, -1.0), _number(g, max_val, 1.0))


@operation("leaky_relu")
def leaky_relu(g: Graph, x: Any, negative_slope: Any = None, inplace: Any = None) -> Node:
    return where(g, _positive(g, x), x, _times(g, x, _number(g, negative_slope, 0.01)))


@operation("elu")
def elu(g: Graph, x: Any, alpha: Any = None, inplace: Any = None) -> Node:
    below = _times(g, _number(g, alpha, 1.0), TABLE["expm1"](g, x))
    return where(g, _positive(g, x), x, below)


@operation("softplus")
def softplus(g: Graph, x: Any, beta: Any = None, threshold: Any = None) -> Node:
    beta, threshold = _number(g, beta, 1.0), _number(g, threshold, 20.0)
    scaled = _times(g, x, beta)
    curve = infix(g, "/", TABLE["log1p"](g, TABLE["exp"](g, scaled)), beta)
    return where(g, infix(g, ">", scaled, threshold), x, curve)


@operation("logsigmoid", "log_sigmoid", "special_log_expit")
def logsigmoid(g: Graph, x: Any) -> Node:
    """min(x, 0) - log(1 + exp(-|x|)): neither part overflows."""
    tail = TABLE["log1p"](g, TABLE["exp"](g, neg(g, TABLE["abs"](g, x))))
    return infix(g, "-", minimum(g, x, g.number(0.0)), tail)


@operation("silu", "swish")
def silu(g: Graph, x: Any, inplace: Any = None) -> Node:
    return _times(g, x, sigmoid(g, x))


@operation("mish")
def mish(g: Graph, x: Any, inplace: Any = None) -> Node:
    return _times(g, x, TABLE["tanh"](g, softplus(g, x)))


@operation("gelu")
def gelu(g: Graph, x: Any, approximate: str = "none") -> Node:
    half = _times(g, g.number(0.5), x)
    if approximate == "none":
        curve = TABLE["erf"](g, _times(g, x, g.number(math.sqrt(0.5))))
    elif approximate == "tanh":
        cube = _times(g, g.number(0.044715), x, x, x)
        inner = _times(g, g.number(math.sqrt(2 / math.pi)), infix(g, "+", x, cube))
        curve = TABLE["tanh"](g, inner)
    else:
        raise refusal(
            g.title, f"it calls gelu with approximate={approximate!r}", '"none" or "tanh"'
        )
    return _times(g, half, infix(g, "+", curve, g.number(1.0)))


__all__ = [
    "elu",
    "gelu",
    "hardtanh",
    "leaky_relu",
    "logsigmoid",
    "mish",
    "relu",
    "relu6",
    "silu",
    "softplus",
]
