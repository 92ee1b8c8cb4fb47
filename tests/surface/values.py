"""Wrong and unusual values: some that know nothing of a parameter, some bent out of a right one."""

from __future__ import annotations

import decimal
import fractions
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

import flashcore as fc

BF16 = np.dtype(ml_dtypes.bfloat16)


class OnlyArrayProtocol:
    """What np.asarray takes and DLPack does not."""

    def __init__(self, array: Any = ((1.0, 2.0),)):
        self._array = np.asarray(array)

    def __array__(self, *args: Any, **kwargs: Any) -> np.ndarray:
        return self._array


class Hostile:
    """Raises at whatever is asked of it."""

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"hostile {name}")

    def __bool__(self) -> bool:
        raise ValueError("hostile truth")

    def __repr__(self) -> str:
        return "<hostile>"


def _raises(*_: Any) -> Any:
    raise KeyError("the user's own")


PLAIN: dict[str, Callable[[], Any]] = {
    "none": lambda: None,
    "true": lambda: True,
    "false": lambda: False,
    "zero": lambda: 0,
    "one": lambda: 1,
    "minus_one": lambda: -1,
    "seven": lambda: 7,
    "int32_max": lambda: 2**31 - 1,
    "two_to_31": lambda: 2**31,
    "two_to_32_and_8": lambda: 2**32 + 8,
    "minus_two_to_63": lambda: -(2**63),
    "ten_to_30": lambda: 10**30,
    "half": lambda: 0.5,
    "seven_and_a_half": lambda: 7.5,
    "sixteen_as_float": lambda: 16.0,
    "minus_zero": lambda: -0.0,
    "nan": lambda: float("nan"),
    "inf": lambda: float("inf"),
    "minus_inf": lambda: float("-inf"),
    "beyond_float": lambda: 1e39,
    "tiny": lambda: 1e-320,
    "complex": lambda: 1 + 2j,
    "decimal": lambda: decimal.Decimal("0.25"),
    "fraction": lambda: fractions.Fraction(1, 4),
    "empty_text": lambda: "",
    "text": lambda: "causal",
    "long_text": lambda: "x" * 5000,
    "foreign_text": lambda: "größe \u4e2d \U0001f600",
    "text_with_nul": lambda: "a\0b",
    "lone_surrogate": lambda: "\ud800",
    "bytes": lambda: b"bytes",
    "path": lambda: Path("/nowhere/at_all.json"),
    "empty_list": lambda: [],
    "list": lambda: [1, 2],
    "nested_list": lambda: [[1.0, 2.0], [3.0, 4.0]],
    "tuple": lambda: (3, 4),
    "dict": lambda: {"tiles": {"rows": 64}},
    "empty_dict": dict,
    "set": lambda: {1},
    "range": lambda: range(3),
    "ellipsis": lambda: ...,
    "slice": lambda: slice(None),
    "generator": lambda: (i for i in range(2)),
    "object": object,
    "hostile": Hostile,
    "type": lambda: int,
    "module": lambda: sys,
    "exception": lambda: ValueError("x"),
    "numpy_float": lambda: np.float32(0.25),
    "numpy_half": lambda: np.float16(0.25),
    "numpy_int": lambda: np.int64(3),
    "numpy_uint8": lambda: np.uint8(3),
    "numpy_bool": lambda: np.bool_(True),
    "numpy_nan": lambda: np.float64("nan"),
    "array_of_no_dimension": lambda: np.array(0.25),
    "int_array_of_no_dimension": lambda: np.array(3),
    "empty_array": lambda: np.zeros((0,), np.float32),
    "array": lambda: np.arange(6, dtype=np.float32),
    "bool_array": lambda: np.array([True, False]),
    "int_array": lambda: np.array([0, 3, 5], np.int32),
    "object_array": lambda: np.array([object(), None], object),
    "text_array": lambda: np.array(["a", "b"]),
    "record_array": lambda: np.zeros(3, [("a", "f4"), ("b", "i4")]),
    "date_array": lambda: np.zeros(3, "datetime64[s]"),
    "complex_array": lambda: np.zeros((2, 2, 5, 16), np.complex64),
    "five_dimensions": lambda: np.zeros((1, 1, 2, 3, 16), np.float16),
    "only_array_protocol": OnlyArrayProtocol,
    "function_without_arguments": lambda: lambda: True,
    "function_that_returns_none": lambda: lambda *_: None,
    "function_that_returns_true": lambda: lambda *_: True,
    "function_that_returns_text": lambda: lambda *_: "yes",
    "function_that_returns_its_first": lambda: lambda first, *_: first,
    "function_that_raises": lambda: _raises,
    "function_of_six": lambda: lambda a, b, c, d, e, f: a,
    "a_mask": lambda: fc.causal(),
    "a_score": lambda: fc.softcap(2.0),
    "a_sink": lambda: fc.sinks(np.zeros(2, np.float32)),
    "a_schedule": lambda: fc.Schedule(tiles={"rows": 64, "cols": 64}),
    "a_spec": lambda: fc.AttentionSpec(head_dim=16, dtype="f16"),
    "a_dtype": lambda: np.dtype(np.float16),
    "another_dtype": lambda: "f32",
    "no_dtype": lambda: np.dtype("datetime64[s]"),
}


def _misaligned(x: np.ndarray) -> np.ndarray:
    memory = np.zeros(x.nbytes + 1, np.uint8)
    view = memory[1:].view(x.dtype).reshape(x.shape)
    view[...] = x
    return view


def _read_only(x: np.ndarray) -> np.ndarray:
    x = x.copy()
    x.flags.writeable = False
    return x


def _stepped(x: np.ndarray) -> np.ndarray:
    wide = np.zeros((*x.shape[:-1], 2 * x.shape[-1]), x.dtype)
    wide[..., ::2] = x
    return wide[..., ::2]


def _rows_apart(x: np.ndarray) -> np.ndarray:
    wide = np.zeros((*x.shape[:-1], x.shape[-1] + 1), x.dtype)
    wide[..., :-1] = x
    return wide[..., :-1]


BENT: dict[str, Callable[[np.ndarray], Any]] = {
    "a_copy": lambda x: x.copy(),
    "a_list_of_it": lambda x: x.tolist(),
    "memoryview_of_bytes": lambda x: memoryview(x.tobytes()),
    "big_endian": lambda x: x.astype(x.dtype.newbyteorder(">")) if x.dtype != BF16 else x,
    "fortran_order": np.asfortranarray,
    "reversed": lambda x: x[::-1],
    "last_reversed": lambda x: x[..., ::-1],
    "stepped": _stepped,
    "rows_apart": _rows_apart,
    "misaligned": _misaligned,
    "read_only": _read_only,
    "broadcast": lambda x: np.broadcast_to(x[:1], x.shape),
    "transposed": lambda x: x.swapaxes(-1, -2),
    "first_two_exchanged": lambda x: x.swapaxes(0, 1) if x.ndim > 1 else x,
    "one_dimension_less": lambda x: x[0],
    "one_dimension_more": lambda x: x[None],
    "flat": lambda x: x.reshape(-1),
    "a_number_of_it": lambda x: x.reshape(-1)[0],
    "first_one_longer": lambda x: np.concatenate([x, x[:1]]),
    "first_one_shorter": lambda x: x[:-1],
    "first_only": lambda x: x[:1],
    "second_only": lambda x: x[:, :1] if x.ndim > 1 else x[:1],
    "second_longer": lambda x: np.concatenate([x, x[:, :1]], 1) if x.ndim > 1 else x,
    "third_longer": lambda x: np.concatenate([x, x[:, :, :1]], 2) if x.ndim > 2 else x,
    "last_longer": lambda x: np.concatenate([x, x[..., :1]], -1),
    "last_shorter": lambda x: x[..., :-1],
    "last_of_one": lambda x: x[..., :1],
    "last_empty": lambda x: x[..., :0],
    "first_empty": lambda x: x[:0],
    "third_empty": lambda x: x[:, :, :0] if x.ndim > 2 else x[:0],
    "as_f16": lambda x: x.astype(np.float16),
    "as_bf16": lambda x: x.astype(BF16),
    "as_f32": lambda x: x.astype(np.float32),
    "as_f64": lambda x: x.astype(np.float64),
    "as_int32": lambda x: x.astype(np.int32),
    "as_int64": lambda x: x.astype(np.int64),
    "as_uint16": lambda x: x.astype(np.uint16),
    "as_bool": lambda x: x.astype(bool),
    "as_complex": lambda x: x.astype(np.complex64),
    "as_object": lambda x: x.astype(object),
    "as_float8": lambda x: x.astype(ml_dtypes.float8_e4m3fn),
    "huge": lambda x: np.full_like(x, 60000),
    "negative": lambda x: -x - 1,
    "masked": lambda x: np.ma.masked_array(x, mask=False),
    "only_array": OnlyArrayProtocol,
}


def bent_names(value: Any) -> list[str]:
    return list(BENT) if isinstance(value, np.ndarray) and value.ndim and value.size else []
