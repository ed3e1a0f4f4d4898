from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest

from tiercel.core.errors import InvalidRequestError
from tiercel.serving.tensors import (
    BY_NAME,
    checked_shape,
    data_type_named,
    decode_json,
    decode_raw,
    encode_json,
    encode_raw,
)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("FP32", ["1.5", 2.0]),
        ("FP32", [None, 2.0]),
        ("FP64", [{}, 2.0]),
        ("INT64", [1.0, 2]),
        ("INT32", ["1", 2]),
        ("BOOL", [1, 0]),
        ("BOOL", ["true", False]),
        ("BYTES", ["a", 1]),
        ("BYTES", [None, "a"]),
    ],
)
def test_json_elements_of_another_type_are_refused(name: str, data: list[Any]) -> None:
    with pytest.raises(InvalidRequestError, match=f"input 'x': data has an element that is not {name}"):
        decode_json("x", BY_NAME[name], (2,), data)


@pytest.mark.parametrize(
    ("name", "value"),
    [("INT8", 128), ("INT8", -129), ("UINT8", -1), ("UINT32", 2**32), ("INT64", 2**63), ("UINT64", 2**64)],
)
def test_json_integers_out_of_range_are_refused(name: str, value: int) -> None:
    with pytest.raises(InvalidRequestError, match=f"out of the range of {name}"):
        decode_json("x", BY_NAME[name], (1,), [value])


def test_json_large_unsigned_integers_keep_every_digit() -> None:
    found = decode_json("x", BY_NAME["UINT64"], (2,), [2**64 - 1, 0])
    assert found.tolist() == [2**64 - 1, 0]


@pytest.mark.parametrize("data", [[1.0, 2.0, 3.0, 4.0], [[1.0, 2.0], [3.0, 4.0]], [[[1, 2, 3, 4]]]])
def test_json_may_be_flat_or_nested(data: list[Any]) -> None:
    found = decode_json("x", BY_NAME["FP32"], (2, 2), data)
    assert found.dtype == np.float32
    assert found.tolist() == [[1.0, 2.0], [3.0, 4.0]]


@pytest.mark.parametrize("data", [[[1.0], 2.0], [[1.0, 2.0], [3.0]], [1.0, [2.0]], "12", 1.0, None, {"a": 1}])
def test_json_that_is_not_a_regular_list_is_refused(data: object) -> None:
    with pytest.raises(InvalidRequestError, match="input 'x': data"):
        decode_json("x", BY_NAME["FP32"], (2,), data)


def test_element_count_must_fit_the_shape() -> None:
    with pytest.raises(InvalidRequestError, match=r"data has 3 elements, but shape \[2, 2\] needs 4"):
        decode_json("x", BY_NAME["FP32"], (2, 2), [1.0, 2.0, 3.0])
    with pytest.raises(InvalidRequestError, match=r"data has 12 bytes, but FP32 of shape \[2, 2\] needs 16"):
        decode_raw("x", BY_NAME["FP32"], (2, 2), b"\0" * 12)


def test_a_shape_that_promises_more_than_memory_costs_nothing() -> None:
    with pytest.raises(InvalidRequestError, match="data has 1 elements"):
        decode_json("x", BY_NAME["FP32"], (2**62, 2**62), [1.0])


@pytest.mark.parametrize("shape", [[-1], [1.0], ["1"], [True], None, 3, [None], [1] * 33])
def test_impossible_shapes_are_refused(shape: object) -> None:
    with pytest.raises(InvalidRequestError, match="input 'x': shape"):
        checked_shape(shape, "x")


@pytest.mark.parametrize("name", ["FP8", "fp32", "", None, 7])
def test_unknown_data_types_are_refused(name: object) -> None:
    with pytest.raises(InvalidRequestError, match="input 'x': datatype"):
        data_type_named(name, "x")


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"\x05\0\0\0abc", "string 0 is cut off"),
        (b"\x01\0\0\0a\x02\0", "length of string 1 is cut off"),
        (struct.pack("<I", 2**32 - 1), "string 0 is cut off"),
        (b"\x01\0\0\0\xff", "not valid UTF-8"),
        (b"\x01\0\0\0a\x01\0\0\0b", "has 2 elements"),
    ],
)
def test_malformed_strings_are_refused(data: bytes, problem: str) -> None:
    with pytest.raises(InvalidRequestError, match=problem):
        decode_raw("x", BY_NAME["BYTES"], (1,), data)


def test_any_byte_but_zero_is_true() -> None:
    assert decode_raw("x", BY_NAME["BOOL"], (3,), b"\x00\x01\x02").tolist() == [False, True, True]


def test_unaligned_bytes_are_copied_and_aligned_ones_are_not() -> None:
    data = memoryview(b"\0" * 9)
    assert decode_raw("x", BY_NAME["FP32"], (2,), data[1:]).flags.aligned
    assert not decode_raw("x", BY_NAME["FP32"], (2,), data[:8]).flags.owndata


def test_encoding_takes_arrays_in_any_memory_order() -> None:
    tensor = np.arange(6, dtype=np.int32).reshape(2, 3).T
    assert encode_raw(tensor) == np.ascontiguousarray(tensor).tobytes()
    assert list(encode_json(tensor)) == [0, 3, 1, 4, 2, 5]
