"""Tensors between the wire and NumPy: data types, and the two encodings of the Open Inference Protocol.

Elements are in row-major order. Strings (``BYTES``) are NumPy object arrays of ``str``, which is what ONNX Runtime
takes and gives; on the wire each is its length as a little-endian 32-bit number and its UTF-8 bytes.
"""

from __future__ import annotations

import array
import itertools
import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from tiercel.core.errors import InvalidRequestError

Array = npt.NDArray[Any]
Buffer = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class DataType:
    """One type of element."""

    name: str  # as the protocol names it
    dtype: np.dtype[Any]  # as NumPy holds it
    onnx: str  # as ONNX Runtime names a tensor of it
    code: str  # of the standard library's ``array`` that reads it from JSON, strictly and fast; empty where none does
    contents: str  # field of gRPC's typed contents that carries it; empty where only raw contents can

    @property
    def is_bytes(self) -> bool:
        """Whether elements are strings."""
        return self.name == "BYTES"

    @property
    def is_fixed(self) -> bool:
        """Whether any bytes of the right number are a tensor: not of strings, nor of truth values, which are 0 or 1."""
        return self.name not in {"BYTES", "BOOL"}


DATA_TYPES: tuple[DataType, ...] = (
    DataType("BOOL", np.dtype(np.bool_), "tensor(bool)", "", "bool_contents"),
    DataType("UINT8", np.dtype(np.uint8), "tensor(uint8)", "B", "uint_contents"),
    DataType("UINT16", np.dtype(np.uint16), "tensor(uint16)", "H", "uint_contents"),
    DataType("UINT32", np.dtype(np.uint32), "tensor(uint32)", "I", "uint_contents"),
    DataType("UINT64", np.dtype(np.uint64), "tensor(uint64)", "Q", "uint64_contents"),
    DataType("INT8", np.dtype(np.int8), "tensor(int8)", "b", "int_contents"),
    DataType("INT16", np.dtype(np.int16), "tensor(int16)", "h", "int_contents"),
    DataType("INT32", np.dtype(np.int32), "tensor(int32)", "i", "int_contents"),
    DataType("INT64", np.dtype(np.int64), "tensor(int64)", "q", "int64_contents"),
    DataType("FP16", np.dtype(np.float16), "tensor(float16)", "d", ""),
    DataType("BF16", np.dtype(ml_dtypes.bfloat16), "tensor(bfloat16)", "d", ""),
    DataType("FP32", np.dtype(np.float32), "tensor(float)", "f", "fp32_contents"),
    DataType("FP64", np.dtype(np.float64), "tensor(double)", "d", "fp64_contents"),
    DataType("BYTES", np.dtype(np.object_), "tensor(string)", "", "bytes_contents"),
)
BY_NAME = {data_type.name: data_type for data_type in DATA_TYPES}
BY_ONNX = {data_type.onnx: data_type for data_type in DATA_TYPES}

BF16 = BY_NAME["BF16"].dtype

_LENGTH = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """An input or output of a model."""

    name: str  # name within the model
    data_type: DataType  # type of its elements
    shape: tuple[int, ...]  # its dimensions; -1 where any size fits


def described(specs: Mapping[str, TensorSpec]) -> list[dict[str, Any]]:
    """Inputs or outputs as the protocol describes them."""
    return [{"name": spec.name, "datatype": spec.data_type.name, "shape": list(spec.shape)} for spec in specs.values()]


def data_type_named(name: object, tensor: str) -> DataType:
    """The data type of this name.

    Raises:
        InvalidRequestError: There is none.
    """
    found = BY_NAME.get(name) if isinstance(name, str) else None
    if found is None:
        raise InvalidRequestError(f"input '{tensor}': datatype {name!r} is unknown; use one of {', '.join(BY_NAME)}")
    return found


def checked_shape(shape: object, tensor: str) -> tuple[int, ...]:
    """``shape`` as a tuple of sizes.

    Raises:
        InvalidRequestError: It is not a list of whole numbers from 0.
    """
    if not isinstance(shape, list) or not all(type(size) is int and size >= 0 for size in shape):
        raise InvalidRequestError(f"input '{tensor}': shape must be a list of whole numbers from 0")
    if len(shape) > 32:  # NumPy holds 64, no model needs half of them
        raise InvalidRequestError(f"input '{tensor}': shape has {len(shape)} dimensions; at most 32 are possible")
    return tuple(shape)


def _wrong_count(tensor: str, found: int, shape: Sequence[int]) -> InvalidRequestError:
    return InvalidRequestError(
        f"input '{tensor}': data has {found} elements, but shape {list(shape)} needs {math.prod(shape)}"
    )


def decode_raw(tensor: str, data_type: DataType, shape: tuple[int, ...], data: Buffer) -> Array:
    """A tensor from its bytes; a view of ``data`` where that is possible.

    Raises:
        InvalidRequestError: The number of bytes does not fit the shape, or a string is malformed.
    """
    if data_type.is_bytes:
        return _decode_strings(tensor, shape, data)
    needed = math.prod(shape) * data_type.dtype.itemsize
    if needed != len(data):
        raise InvalidRequestError(
            f"input '{tensor}': data has {len(data)} bytes, but {data_type.name} of shape {list(shape)} needs {needed}"
        )
    if data_type.name == "BOOL":  # any byte but 0 is true; NumPy would keep the odd byte
        return np.frombuffer(data, np.uint8).astype(np.bool_).reshape(shape)
    view = np.frombuffer(data, data_type.dtype).reshape(shape)
    return view if view.flags.aligned else view.copy()


def _decode_strings(tensor: str, shape: tuple[int, ...], data: Buffer) -> Array:
    view = memoryview(data)
    strings: list[str] = []
    position = 0
    while position < len(view):
        start = position + _LENGTH.size
        if start > len(view):
            raise InvalidRequestError(f"input '{tensor}': the length of string {len(strings)} is cut off")
        position = start + int(_LENGTH.unpack_from(view, position)[0])
        if position > len(view):
            raise InvalidRequestError(f"input '{tensor}': string {len(strings)} is cut off")
        strings.append(decode_text(tensor, bytes(view[start:position])))
    return strings_array(tensor, shape, strings)


def decode_text(tensor: str, data: bytes) -> str:
    """A string from UTF-8.

    Raises:
        InvalidRequestError: It is not UTF-8, which is all that an ONNX string can hold.
    """
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise InvalidRequestError(f"input '{tensor}': a string is not valid UTF-8: {error}") from error


def strings_array(tensor: str, shape: tuple[int, ...], strings: Sequence[str]) -> Array:
    """An object array of strings.

    Raises:
        InvalidRequestError: Their number does not fit the shape.
    """
    if math.prod(shape) != len(strings):
        raise _wrong_count(tensor, len(strings), shape)
    objects = np.empty(len(strings), np.object_)
    objects[:] = strings
    return objects.reshape(shape)


def decode_json(tensor: str, data_type: DataType, shape: tuple[int, ...], data: object) -> Array:
    """A tensor from JSON: a flat or nested list of its elements. A float beyond FP32 or FP16 becomes infinite.

    Raises:
        InvalidRequestError: Elements are missing, of another type, or out of range.
    """
    if not isinstance(data, list):
        raise InvalidRequestError(f"input '{tensor}': data must be a list")
    flat = _flat(tensor, data) if data and isinstance(data[0], list) else data
    if not data_type.is_bytes:
        return numbers_from(tensor, data_type, shape, flat)
    if not all(type(element) is str for element in flat):
        raise _wrong_type(tensor, data_type)
    return strings_array(tensor, shape, flat)


def numbers_from(tensor: str, data_type: DataType, shape: tuple[int, ...], flat: list[Any]) -> Array:
    """A tensor of numbers or truth values from its elements.

    Raises:
        InvalidRequestError: Elements are missing, of another type, or out of range.
    """
    if math.prod(shape) != len(flat):
        raise _wrong_count(tensor, len(flat), shape)
    if data_type.code:
        return _numbers(tensor, data_type, flat).reshape(shape)
    if not all(type(element) is bool for element in flat):
        raise _wrong_type(tensor, data_type)
    return np.array(flat, np.bool_).reshape(shape)


def _flat(tensor: str, nested: list[Any]) -> list[Any]:
    while nested and isinstance(nested[0], list):
        if not all(type(item) is list for item in nested):
            raise InvalidRequestError(f"input '{tensor}': data mixes lists and elements at one depth")
        nested = list(itertools.chain.from_iterable(nested))
    return nested


def _numbers(tensor: str, data_type: DataType, flat: list[Any]) -> Array:
    try:
        numbers = array.array(data_type.code, flat)
    except TypeError as error:
        raise _wrong_type(tensor, data_type) from error
    except OverflowError as error:
        raise InvalidRequestError(
            f"input '{tensor}': data has an element out of the range of {data_type.name}"
        ) from error
    if numbers.itemsize == data_type.dtype.itemsize:
        return np.frombuffer(numbers, data_type.dtype)
    with np.errstate(over="ignore"):
        return np.frombuffer(numbers, np.float64).astype(data_type.dtype)  # FP16 and BF16 have no code


def _wrong_type(tensor: str, data_type: DataType) -> InvalidRequestError:
    return InvalidRequestError(f"input '{tensor}': data has an element that is not {data_type.name}")


def encode_raw(tensor: Array) -> bytes:
    """The bytes of a tensor."""
    if tensor.dtype.kind != "O":
        return tensor.tobytes()
    parts: list[bytes] = []
    for item in tensor.ravel():
        text = str(item).encode()
        parts += (_LENGTH.pack(len(text)), text)
    return b"".join(parts)


def encode_json(tensor: Array) -> Array | list[Any]:
    """What orjson can write as the flat list of a tensor's elements; NaN and infinity become null."""
    flat = tensor.ravel()
    if flat.dtype.kind in "fiub":
        return flat
    return flat.tolist() if flat.dtype.kind == "O" else flat.astype(np.float32)  # BF16 is of no kind
