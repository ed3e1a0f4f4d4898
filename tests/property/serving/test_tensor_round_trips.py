from __future__ import annotations

from typing import Any

import numpy as np
import orjson
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tiercel.serving.tensors import (
    BF16,
    BY_NAME,
    DATA_TYPES,
    Array,
    DataType,
    decode_json,
    decode_raw,
    encode_json,
    encode_raw,
)

SHAPES = hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5)
NUMBERS = [data_type for data_type in DATA_TYPES if not data_type.is_bytes]
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)


@st.composite
def numeric_tensors(draw: st.DrawFn, finite: bool = False) -> tuple[DataType, Array]:
    data_type = draw(st.sampled_from(NUMBERS))
    if data_type.dtype == BF16:  # Hypothesis knows none: the upper halves of FP32
        halves = draw(hnp.arrays(np.uint16, draw(SHAPES)))
        value = halves.view(BF16)
        return data_type, np.where(np.isfinite(value), value, BF16.type(1.0)) if finite else value
    elements: Any = None
    if finite and data_type.dtype.kind == "f":
        width: Any = data_type.dtype.itemsize * 8
        elements = st.floats(allow_nan=False, allow_infinity=False, width=width)
    return data_type, draw(hnp.arrays(data_type.dtype, draw(SHAPES), elements=elements))


@given(numeric_tensors(), st.integers(0, 7))
def test_numbers_survive_as_bytes_at_any_offset(tensor: tuple[DataType, Array], offset: int) -> None:
    data_type, value = tensor
    buffer = memoryview(b"\0" * offset + encode_raw(value))[offset:]
    found = decode_raw("x", data_type, value.shape, buffer)
    assert found.dtype == value.dtype
    assert found.shape == value.shape
    assert found.tobytes() == value.tobytes()


@given(numeric_tensors(finite=True), st.booleans())
def test_finite_numbers_survive_as_json(tensor: tuple[DataType, Array], nested: bool) -> None:
    data_type, value = tensor
    content = value.tolist() if nested and value.ndim else encode_json(value)
    wire = orjson.loads(orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY))
    found = decode_json("x", data_type, value.shape, wire)
    assert found.dtype == value.dtype
    assert found.shape == value.shape
    np.testing.assert_array_equal(found, value)


@given(hnp.arrays(np.object_, SHAPES, elements=TEXT))
def test_strings_survive_both_encodings(value: Array) -> None:
    data_type = BY_NAME["BYTES"]
    raw = decode_raw("x", data_type, value.shape, encode_raw(value))
    text = decode_json("x", data_type, value.shape, orjson.loads(orjson.dumps(encode_json(value))))
    assert raw.tolist() == text.tolist() == value.tolist()
    assert raw.shape == text.shape == value.shape
