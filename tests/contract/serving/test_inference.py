"""What models are asked comes back alike over every way to ask."""

from __future__ import annotations

import numpy as np
import onnxruntime as ort
import pytest

from testing.onnx_zoo import ZOO
from testing.serving_callers import Client
from tiercel.serving.tensors import DATA_TYPES, DataType

NUMERIC = [kind for kind in DATA_TYPES if not kind.is_bytes]


@pytest.mark.parametrize("kind", NUMERIC, ids=lambda kind: kind.name)
@pytest.mark.parametrize("shape", [(2, 3), (0, 3), (1, 1)])
def test_every_number_type_comes_back(client: Client, kind: DataType, shape: tuple[int, ...]) -> None:
    value = np.arange(np.prod(shape)).reshape(shape).astype(kind.dtype)
    answer = client.infer(f"identity_{kind.name}", {"x": value}, ["y"])
    assert answer.outputs["y"].dtype == kind.dtype
    np.testing.assert_array_equal(answer.outputs["y"], value)


def test_strings_come_back(client: Client) -> None:
    value = np.array([["", "é", "a\0b"], ["\n", '"', "日本"]], np.object_)
    assert client.infer("identity_BYTES", {"x": value}, []).outputs["y"].tolist() == value.tolist()


def test_large_tensors_come_back(client: Client) -> None:
    value = np.random.default_rng(0).standard_normal((500, 300)).astype(np.float32)
    np.testing.assert_array_equal(client.infer("identity_FP32", {"x": value}, []).outputs["y"], value)


def test_several_inputs_and_outputs_and_a_scalar(client: Client) -> None:
    inputs = {"k": np.array(4), "b": np.array([1, 2], np.float32), "a": np.array([3, 4], np.float32)}
    answer = client.infer("two", inputs, ["doubled", "total"])
    assert list(answer.outputs) == ["doubled", "total"]
    assert answer.outputs["doubled"].shape == ()
    assert int(answer.outputs["doubled"]) == 8
    assert answer.outputs["total"].tolist() == [4.0, 6.0]
    assert list(client.infer("two", inputs, []).outputs) == ["total", "doubled"]


def test_answers_carry_the_version_and_may_ask_for_it(client: Client) -> None:
    inputs = {"x": np.zeros((1, 4), np.float32)}
    assert client.infer("plus", inputs, []).version == "3"
    assert client.infer("plus", inputs, [], version="3").version == "3"


@pytest.mark.parametrize(("name", "number"), [(name, i) for name, (_, asked) in ZOO.items() for i in range(len(asked))])
def test_whatever_onnx_runtime_runs_is_answered_as_it_answers(client: Client, name: str, number: int) -> None:
    content, asked = ZOO[name]
    session = ort.InferenceSession(content, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    found = client.infer(name, asked[number], []).outputs
    assert list(found) == names
    for key, expected in zip(names, session.run(names, asked[number]), strict=True):
        assert (found[key].shape, found[key].dtype) == (expected.shape, expected.dtype)
        np.testing.assert_array_equal(found[key], expected)
