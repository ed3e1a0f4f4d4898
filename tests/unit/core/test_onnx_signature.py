"""What a model takes and gives, against what the onnx package reads, and whatever else is in a file."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import ModelProto, TensorProto, helper

from testing import onnx_models
from tiercel.core import onnx_signature
from tiercel.core.endpoints import Signature, Tensor
from tiercel.core.onnx_signature import MAX_TENSORS, read_signature


def model(inputs: int = 1, *, shape: list[int | str | None] | None = None, name: str = "x") -> ModelProto:
    names = [f"{name}{number}" for number in range(inputs)]
    weight = helper.make_tensor("w", TensorProto.FLOAT, [2], [1.0, 2.0])
    graph = helper.make_graph(
        [helper.make_node("Identity", [names[0]], ["y"])],
        "g",
        [helper.make_tensor_value_info(each, TensorProto.DOUBLE, shape) for each in (*names, "w")],
        [helper.make_tensor_value_info("y", TensorProto.INT64, ["batch", 3])],
        initializer=[weight],
    )
    return helper.make_model(graph)


def read(tmp_path: Path, content: bytes) -> Signature | None:
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    return read_signature(path)


def test_inputs_outputs_types_and_axes_are_read_and_weights_are_none_of_them(tmp_path: Path) -> None:
    assert read(tmp_path, model(2, shape=["batch", None, 28]).SerializeToString()) == Signature(
        inputs=(
            Tensor("x0", "FP64", (-1, -1, 28)),
            Tensor("x1", "FP64", (-1, -1, 28)),
        ),
        outputs=(Tensor("y", "INT64", (-1, 3)),),
    )


def test_a_shape_that_is_not_said_is_any_and_a_number_has_none(tmp_path: Path) -> None:
    (unsaid, _) = (read(tmp_path, model(shape=None).SerializeToString()), None)
    assert unsaid is not None
    assert unsaid.inputs[0] == Tensor("x0", "FP64")
    number = read(tmp_path, model(shape=[]).SerializeToString())
    assert number is not None
    assert number.inputs[0] == Tensor("x0", "FP64", ())


def test_what_has_too_much_of_anything_says_nothing(tmp_path: Path) -> None:
    assert read(tmp_path, model(MAX_TENSORS).SerializeToString()) is not None
    for bad in (model(MAX_TENSORS + 1), model(name="x" * 300), model(shape=[1] * 20)):
        assert read(tmp_path, bad.SerializeToString()) is None
    assert read_signature(tmp_path / "nothing") is None
    assert read(tmp_path, b"") is None


@given(st.one_of(st.binary(max_size=200), st.tuples(st.integers(0, 400), st.integers(0, 255))))
def test_no_file_does_harm(tmp_path_factory: pytest.TempPathFactory, change: bytes | tuple[int, int]) -> None:
    content = bytearray(onnx_models.plus(1.0)) if isinstance(change, tuple) else bytearray(change)
    if isinstance(change, tuple):
        content[change[0] % len(content)] = change[1]
    signature = read(tmp_path_factory.getbasetemp(), bytes(content))
    assert signature is None or len(signature.inputs) <= onnx_signature.MAX_TENSORS
