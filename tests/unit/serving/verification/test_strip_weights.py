from __future__ import annotations

import numpy as np
import onnx
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

from testing import onnx_models
from tiercel.serving.verification.strip_weights import without_weights

LARGE, SMALL = 4096, 4095


def model(large: int = LARGE, small: int = SMALL) -> onnx.ModelProto:
    """With an initializer of each size, of bytes, and a constant that is none."""
    content = onnx_models.model(
        [helper.make_node("Constant", [], ["y"], value=tensor("constant", large))],
        {},
        {"y": (TensorProto.UINT8, [large])},
    )
    proto = onnx.load_model_from_string(content)
    proto.graph.initializer.extend([tensor("small", small), tensor("large", large)])
    return proto


def tensor(name: str, size: int) -> TensorProto:
    return onnx.numpy_helper.from_array(np.arange(size, dtype=np.uint8), name)


def emptied(proto: onnx.ModelProto) -> onnx.ModelProto:
    """The same by way of protobuf."""
    for each in proto.graph.initializer:
        if len(each.raw_data) >= LARGE:
            each.raw_data = b""
    return proto


def test_large_weights_are_left_out_and_nothing_else() -> None:
    found = onnx.load_model_from_string(without_weights(bytes(model().SerializeToString())))
    assert {each.name: len(each.raw_data) for each in found.graph.initializer} == {"small": SMALL, "large": 0}
    assert found == emptied(model())
    assert len(found.graph.node[0].attribute[0].t.raw_data) == LARGE


def test_what_is_left_of_a_model_is_small() -> None:
    content = onnx_models.mlp((1024, 512, 10))
    assert len(without_weights(content)) < len(content) / 100


def test_lengths_of_several_bytes_are_written_as_protobuf_writes_them() -> None:
    proto = model(large=3 * 2**20)
    proto.graph.doc_string = "x" * 2**15
    assert without_weights(bytes(proto.SerializeToString())) == emptied(proto).SerializeToString()


def test_fields_that_come_twice_are_left_out_twice() -> None:
    content = bytes(model().SerializeToString())
    assert onnx.load_model_from_string(without_weights(2 * content)) == emptied(
        onnx.load_model_from_string(2 * content)
    )


@pytest.mark.parametrize(
    "content",
    [
        b"\x3a\x05abc",  # a graph that is longer than the file
        b"\x3a\x80\x80\x80\x80\x80\x00",  # a length of six bytes
        b"\x80",  # half a number
        b"\x03",  # a field with the number 0
        b"\x0b\x0c",  # a group
        b"\x0e",  # a type that does not exist
        b"\xba\x80\x80\x80\x10\x00",  # a key beyond 32 bits
        b"\x09abc",  # less than eight bytes
        b"\x08" + 10 * b"\x80" + b"\x00",  # a number of eleven bytes
    ],
)
def test_what_readers_may_not_agree_about_is_left_to_them(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"a (field|number)"):
        without_weights(content)


MODEL = bytes(model(small=16).SerializeToString())
WEIGHTS = bytes(tensor("large", LARGE).raw_data)
BEGINS = (MODEL.find(WEIGHTS), MODEL.rfind(WEIGHTS))
STRUCTURE = [place for place in range(len(MODEL)) if not any(begin <= place < begin + LARGE for begin in BEGINS)]


@given(st.lists(st.tuples(st.sampled_from(STRUCTURE), st.integers(0, 255)), max_size=3))
def test_of_damaged_models_no_more_is_left_out_than_of_good_ones(changes: list[tuple[int, int]]) -> None:
    damaged = bytearray(MODEL)
    for place, byte in changes:
        damaged[place] = byte
    content = bytes(damaged)
    try:
        expected = onnx.load_model_from_string(content)
    except DecodeError:
        return  # it is refused, whatever is left of it
    try:
        found = without_weights(content)
    except ValueError:
        return
    assert onnx.load_model_from_string(found).SerializeToString() == emptied(expected).SerializeToString()
