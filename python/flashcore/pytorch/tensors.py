"""What torch's tensors may be beside memory: shapes alone, batches of a transform, views to come.

Nothing here imports torch: a tensor of it brings it along.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Literal

from ..errors import DeviceError

_plain: set[type] = set()  # torch.Tensor and torch.nn.Parameter, once one was seen
_dispatch_modes: Callable[[], int]
_autocast_is_on: Callable[[], bool]
_float32: Any = None  # torch's, once a tensor of it was seen
_float32_precision: Callable[[], str]
_grad_is_on: Callable[[], bool]


def is_special(array: Any) -> bool:
    """Whether torch wants more done with a call than a launch: a tensor of a type of its own, such
    as a fake or a nested one, a mode that watches what is computed, such as an export, or casts."""
    if type(array) in _plain:
        return _dispatch_modes() > 0 or _autocast_is_on()
    return _is_special_kind(array)


def is_watched(array: Any) -> bool:
    """The same for a kernel, whose dtype is its own: nothing is cast for it."""
    if type(array) in _plain:
        return _dispatch_modes() > 0
    return _is_special_kind(array) and (type(array) not in _plain or is_watched(array))


def records_gradients(q: Any, k: Any, v: Any) -> bool:
    """Whether torch will ask for the gradient of one of them. False for arrays of which some are
    not torch's; a launch refuses those."""
    if type(q) not in _plain:
        return False
    try:
        return (q.requires_grad or k.requires_grad or v.requires_grad) and _grad_is_on()
    except AttributeError:
        return False


def _is_special_kind(array: Any) -> bool:
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(array, torch.Tensor):
        return False
    if type(array) not in (torch.Tensor, torch.nn.Parameter):
        return True
    _learn(torch)
    return is_special(array)


def _learn(torch: Any) -> None:
    global _dispatch_modes, _autocast_is_on, _float32, _float32_precision, _grad_is_on
    _dispatch_modes = torch._C._len_torch_dispatch_stack
    _autocast_is_on = torch._C._is_any_autocast_enabled
    _float32, _float32_precision = torch.float32, torch.get_float32_matmul_precision
    _grad_is_on = torch.is_grad_enabled
    _plain.update((torch.Tensor, torch.nn.Parameter))


def products_of(array: Any) -> Literal["full", "tf32"]:
    """How torch has float32 tensors multiplied at the moment (torch.set_float32_matmul_precision);
    of anything else every bit counts."""
    if type(array) not in _plain:
        _is_special_kind(array)
    if array.dtype is not _float32 or _float32_precision() == "highest":
        return "full"
    return "tf32"


def corner_of_bias(mask: Any) -> Literal["top_left", "bottom_right"] | None:
    """Where the diagonal of a mask of torch.nn.attention.bias starts; its memory holds nothing.
    None for any other."""
    bias = sys.modules.get("torch.nn.attention.bias")
    if bias is None or not isinstance(mask, bias.CausalBias):
        return None
    return "top_left" if mask.variant == bias.CausalVariant.UPPER_LEFT else "bottom_right"


def without_memory(
    tensor: Any, name: str, error: BaseException
) -> tuple[tuple[int, ...], tuple[int, ...], str]:
    """Shape, strides and dtype of a tensor on torch's meta device. Any other tensor whose memory
    cannot be had (`error` is what its framework said) is refused (DeviceError)."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(tensor, torch.Tensor):
        raise error
    if tensor.is_meta and type(tensor) in (torch.Tensor, torch.nn.Parameter):
        from ..arrays import stored_dtype

        return tuple(tensor.shape), tensor.stride(), stored_dtype(tensor) or str(tensor.dtype)
    raise DeviceError(f"array {name}", *_kind_of(torch, tensor, error))


def refuse_transforms(**arrays: Any) -> None:
    """Raises DeviceError for a tensor that torch.func has wrapped."""
    torch = sys.modules["torch"]
    for name, array in arrays.items():
        if torch._C._functorch.is_functorch_wrapped_tensor(array):
            raise DeviceError(f"array {name}", *_kind_of(torch, array, TypeError()))


def _kind_of(torch: Any, tensor: Any, error: BaseException) -> tuple[str, str]:
    functorch = torch._C._functorch
    if functorch.is_batchedtensor(tensor):
        return (
            "torch.func.vmap batches it, and shows no kernel its memory",
            "call flashcore outside of vmap: the batch is the first dimension of q, k and v",
        )
    if functorch.is_functorch_wrapped_tensor(tensor):
        return (
            "a transform of torch.func has wrapped it, and shows no kernel its memory",
            "call flashcore outside of the transform; torch.autograd.grad and backward() work",
        )
    if tensor.is_nested:
        return (
            "it is a nested tensor, and kernels take packed ones",
            "flashcore.attention or flashcore.sdpa, which take nested tensors of torch.jagged",
        )
    if tensor.layout != torch.strided:
        return f"its layout is {tensor.layout}", "a dense tensor, as of .to_dense()"
    kind = type(tensor)
    if kind is not torch.Tensor:
        return (
            f"a {kind.__module__}.{kind.__qualname__} shows no memory: {error}",
            "a plain torch.Tensor",
        )
    return f"torch shows no memory of it: {error}", "a plain torch.Tensor"
