"""Arrays of frameworks that are not installed: each class offers NumPy memory in one way only."""

from __future__ import annotations

import ctypes
import itertools

import numpy as np


class _DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


_Borrow = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(_DLTensor))
_Stream = ctypes.PYFUNCTYPE(
    ctypes.c_int, ctypes.c_int32, ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p)
)


class _ExchangeApi(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("older", ctypes.c_void_p),
        ("allocate", ctypes.c_void_p),
        ("import_owned", ctypes.c_void_p),
        ("export_owned", ctypes.c_void_p),
        ("borrow", _Borrow),
        ("current_stream", _Stream),
    ]


class Plain:
    """Wraps an array; `calls` counts how it was read."""

    device_type = 1  # CPU
    device_id = 0
    address = 0  # that of the array

    def __init__(self, array: np.ndarray):
        self.array = array
        self.calls = 0

    @property
    def shape(self):
        return self.array.shape


class Exchange(Plain):
    """Offers DLPack's table of C functions, as torch does since 2.10."""

    def __init__(self, array: np.ndarray):
        super().__init__(array)
        self._shape = (ctypes.c_int64 * array.ndim)(*array.shape)
        self._strides = (ctypes.c_int64 * array.ndim)(*(s // array.itemsize for s in array.strides))


_addresses = itertools.count(1 << 44, 1 << 36)  # of memory that nobody touches


class OnHopper(Exchange):
    """An array of a shape on the third GPU of the fake driver (fake_cuda.h), without memory."""

    device_type = 2
    device_id = 2

    def __init__(self, *shape: int, dtype: type = np.float16):
        memory = np.zeros(8, dtype)
        strides = memory.itemsize * np.cumprod([1, *shape[:0:-1]])[::-1]
        super().__init__(np.lib.stride_tricks.as_strided(memory, shape, strides))
        self.address = next(_addresses)


@_Borrow
def _borrow(wrapped, out):
    wrapped.calls += 1
    array, tensor = wrapped.array, out.contents
    tensor.data, tensor.byte_offset = wrapped.address or array.ctypes.data, 0
    tensor.device_type, tensor.device_id = wrapped.device_type, wrapped.device_id
    tensor.ndim = array.ndim
    tensor.code, tensor.bits, tensor.lanes = "iuf".index(array.dtype.kind), array.itemsize * 8, 1
    tensor.shape, tensor.strides = wrapped._shape, wrapped._strides
    return 0


streams_asked_for: list[tuple[int, int]] = []
answered_streams: list[int | None] = [None]  # the last is the current one


@_Stream
def _current_stream(device_type, device_id, out):
    streams_asked_for.append((device_type, device_id))
    out[0] = answered_streams[-1]
    return 0


def _capsule(api):
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = (
        ctypes.py_object,
        [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p],
    )
    return new(ctypes.addressof(api), b"dlpack_exchange_api", None)


_api = _ExchangeApi(1, 3, None, None, None, None, _borrow, _current_stream)
Exchange.__dlpack_c_exchange_api__ = _capsule(_api)

# A major version that nobody knows, chained to the one above.
_future = _ExchangeApi(9, 0, ctypes.addressof(_api), None, None, None, _borrow, _current_stream)


class FutureExchange(Exchange):
    __dlpack_c_exchange_api__ = _capsule(_future)


class Dlpack(Plain):
    """Offers __dlpack__ as of DLPack 1.0."""

    def __dlpack_device__(self):
        return (self.device_type, 0)

    def __dlpack__(self, *, stream=None, max_version=None, **more):
        self.calls += 1
        return self.array.__dlpack__(max_version=max_version)


class OldDlpack(Plain):
    """Offers __dlpack__ as before DLPack 1.0: no max_version."""

    def __dlpack_device__(self):
        return (self.device_type, 0)

    def __dlpack__(self, stream=None):
        self.calls += 1
        return self.array.__dlpack__()


class OpenCl(Dlpack):
    device_type = 4

    def __dlpack__(self, *, stream=None, max_version=None, **more):
        raise BufferError("not exported")
