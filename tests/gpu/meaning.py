"""What masks, scores and sinks mean in torch: the tensors they capture, their text evaluated."""

from __future__ import annotations

from typing import Any

import torch
from draw_expressions import SHAPES

import flashcore as fc

TORCH = {
    "f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32, "f64": torch.float64,
    "i8": torch.int8, "u8": torch.uint8, "i16": torch.int16, "i32": torch.int32,
    "i64": torch.int64, "i1": torch.bool,
}  # fmt: skip


def arrays(spec: fc.AttentionSpec, sizes: dict[str, int], device: str) -> dict[str, torch.Tensor]:
    """What the spec captures, for one case; random in torch's generator."""
    made: dict[str, torch.Tensor] = {}
    for part in spec.expressions:
        for tensor in part.tensors if part else ():
            shape = [n if isinstance(n, int) else sizes[n] for n in SHAPES[tensor.name]]
            array = values(tensor.name, shape, sizes).to(TORCH[tensor.dtype]).to(device)
            if not tensor.unit_stride:  # neighbours three elements apart
                array = array.unsqueeze(-1).repeat(*(1 for _ in shape), 3)[..., 0]
            made[tensor.name] = array
    return made


def values(name: str, shape: list[int], sizes: dict[str, int]) -> torch.Tensor:
    if name == "ids":
        return torch.sort(torch.randint(0, 5, shape), dim=-1).values
    if name == "order":
        return torch.arange(shape[0]) // 7
    if name == "lengths":
        return torch.randint(0, sizes["kv_len"] + 1, shape)
    if name in ("visible", "seen"):
        return torch.rand(shape) < 0.4
    if name == "slopes":
        return torch.rand(shape) * 0.1
    return torch.randn(shape)


class Element:
    """A captured tensor: zero outside, and otherwise of the type that expressions compute with."""

    def __init__(self, tensor: torch.Tensor, floating: torch.dtype):
        self.tensor = tensor.to(floating) if tensor.is_floating_point() else tensor
        if tensor.dtype != torch.bool and not tensor.is_floating_point():
            self.tensor = tensor.long()

    def __getitem__(self, key: Any) -> torch.Tensor:
        key = key if isinstance(key, tuple) else (key,)
        device = self.tensor.device
        key = torch.broadcast_tensors(*(torch.as_tensor(k, device=device) for k in key))
        inside = torch.ones_like(key[0], dtype=torch.bool)
        for index, size in zip(key, self.tensor.shape, strict=True):
            inside &= (index >= 0) & (index < size)
        if self.tensor.numel() == 0:
            return torch.zeros(key[0].shape, dtype=self.tensor.dtype, device=device)
        found = self.tensor[tuple(torch.where(inside, index, 0) for index in key)]
        return torch.where(inside, found, torch.zeros_like(found))


def _of_two(function: Any) -> Any:
    def apply(a: Any, b: Any) -> Any:
        device = next(x.device for x in (a, b) if isinstance(x, torch.Tensor))
        return function(*(torch.as_tensor(x, device=device) for x in (a, b)))

    return apply


def evaluate(
    text: str, captured: dict[str, torch.Tensor], floating: torch.dtype, **names: Any
) -> torch.Tensor:
    """The text over tensors of positions: it is Python, but for `;` and for conditions."""
    space: dict[str, Any] = {
        "inf": float("inf"), "true": True, "false": False, "where": torch.where,
        "min": _of_two(torch.minimum), "max": _of_two(torch.maximum), "abs": torch.abs,
        "float": lambda x: x.to(floating), "int": lambda x: x.long(),
    }  # fmt: skip
    for name in ("exp", "exp2", "log", "log2", "sqrt", "tanh", "floor"):
        function = getattr(torch, name)
        space[name] = lambda x, function=function: function(x.to(floating))
    space |= {name: Element(array, floating) for name, array in captured.items()} | names
    *steps, result = text.split(";")
    for step in steps:
        name, _, value = step.partition("=")
        space[name.strip()] = eval(value.strip(), {"__builtins__": {}}, space)
    return eval(result.strip(), {"__builtins__": {}}, space)
