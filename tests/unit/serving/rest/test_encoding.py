from __future__ import annotations

from typing import Any

import numpy as np
import orjson
import pytest

from tiercel.serving.requests import InferResult, OutputTensor
from tiercel.serving.rest.encoding import encode_result
from tiercel.serving.rest.messages import HttpResponse
from tiercel.serving.rest.template import AnswerFormat
from tiercel.serving.tensors import BY_NAME, DATA_TYPES, DataType, TensorSpec, decode_json, decode_raw


def answer() -> InferResult:
    numbers = OutputTensor(TensorSpec("n", BY_NAME["FP32"], (-1,)), np.array([1.5, np.nan], np.float32))
    words = OutputTensor(TensorSpec("w", BY_NAME["BYTES"], ()), np.array("é", np.object_))
    return InferResult("m", "3", [numbers, words])


def test_an_answer_in_json() -> None:
    response = encode_result(answer(), AnswerFormat("7", frozenset(), binary_by_default=False))
    assert orjson.loads(response.body) == {
        "id": "7",
        "model_name": "m",
        "model_version": "3",
        "outputs": [
            {"name": "n", "datatype": "FP32", "shape": [2], "data": [1.5, None]},
            {"name": "w", "datatype": "BYTES", "shape": [], "data": ["é"]},
        ],
    }
    assert response.content_type == b"application/json"


def test_an_answer_of_both_forms() -> None:
    response = encode_result(answer(), AnswerFormat("", frozenset({"n"}), binary_by_default=True))
    length = int(response.headers.split(b": ")[1])
    content = orjson.loads(response.body[:length])
    assert "id" not in content
    assert content["outputs"][0]["data"] == [1.5, None]
    assert content["outputs"][1]["parameters"] == {"binary_data_size": 6}
    assert response.body[length:] == b"\2\0\0\0" + "é".encode()
    assert response.content_type == b"application/octet-stream"


def content_of(response: HttpResponse) -> tuple[Any, bytes]:
    """The JSON of an answer and the bytes after it."""
    if not response.headers:
        return orjson.loads(response.body), b""
    length = int(response.headers.split(b": ")[1])
    return orjson.loads(response.body[:length]), response.body[length:]


@pytest.mark.parametrize("kind", DATA_TYPES, ids=lambda kind: kind.name)
@pytest.mark.parametrize("shape", [(), (0, 2), (2, 2)])
@pytest.mark.parametrize("binary", [False, True])
def test_one_output_of_every_type(kind: DataType, shape: tuple[int, ...], binary: bool) -> None:
    array = np.ones(shape, np.bool_).astype(kind.dtype) if not kind.is_bytes else np.full(shape, "é", np.object_)
    result = InferResult('m"é', "3", [OutputTensor(TensorSpec("y\n", kind, (-1,)), array)])
    found, tail = content_of(encode_result(result, AnswerFormat("", frozenset(), binary)))
    described = found["outputs"].pop()
    assert found == {"model_name": 'm"é', "model_version": "3", "outputs": []}
    assert (described["name"], described["datatype"], described["shape"]) == ("y\n", kind.name, list(shape))
    again = decode_raw("", kind, shape, tail) if binary else decode_json("", kind, shape, described["data"])
    assert again.tolist() == array.tolist()
    assert described.get("parameters") == ({"binary_data_size": len(tail)} if binary else None)


@pytest.mark.parametrize("binary", [False, True])
def test_the_parameters_of_a_result_are_told(binary: bool) -> None:
    output = OutputTensor(TensorSpec("y", BY_NAME["FP32"], (-1,)), np.ones((1, 4), np.float32)[:, ::2])
    result = InferResult("m", "3", [output], {"accuracy": 0.9, "variant": "small"})
    found, tail = content_of(encode_result(result, AnswerFormat("", frozenset(), binary)))
    assert found["parameters"] == {"accuracy": 0.9, "variant": "small"}
    assert len(tail) == (8 if binary else 0)
