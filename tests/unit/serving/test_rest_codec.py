from __future__ import annotations

from typing import Any

import numpy as np
import orjson
import pytest

from tiercel.serving.dataplane import InferResult, OutputTensor
from tiercel.serving.errors import InvalidRequestError, TooLargeError
from tiercel.serving.rest.codec import AnswerForm, decode_request, encode_result
from tiercel.serving.rest.messages import Head, HttpRequest
from tiercel.serving.tensors import BY_NAME, TensorSpec

INPUT: dict[str, Any] = {"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [1.0, 2.0]}


def http(content: object, binary: bytes = b"", length: bytes | None = None) -> HttpRequest:
    head = content if isinstance(content, bytes) else orjson.dumps(content)
    headers = {}
    if binary or length is not None:
        headers[b"inference-header-content-length"] = b"%d" % len(head) if length is None else length
    return HttpRequest(Head(b"POST", b"/", headers), head + binary)


def decode(request: HttpRequest) -> Any:
    return decode_request(request, "m", "", 10_000)


def test_a_request_in_json() -> None:
    question, form = decode(http({"id": "7", "inputs": [INPUT], "outputs": [{"name": "y"}]}))
    assert (question.model, question.version, question.outputs, question.timeout) == ("m", "", ["y"], None)
    assert question.inputs[0].array.tolist() == [[1.0, 2.0]]
    assert (form.id, form.is_binary("y")) == ("7", False)


def test_a_request_with_binary_data() -> None:
    first = {"name": "a", "datatype": "FP32", "shape": [2], "parameters": {"binary_data_size": 8}}
    second = {"name": "b", "datatype": "INT8", "shape": [3], "parameters": {"binary_data_size": 3}}
    binary = np.array([1, 2], np.float32).tobytes() + b"\1\2\3"
    question, _ = decode(http({"inputs": [first, INPUT, second]}, binary))
    assert [each.array.ravel().tolist() for each in question.inputs] == [[1, 2], [1, 2], [1, 2, 3]]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "not valid JSON"),
        (b"{", "not valid JSON"),
        (b'{"inputs": [NaN]}', "not valid JSON"),
        (b"[" * 5000, "not valid JSON"),
        (b"[]", "must be a JSON object"),
        ({}, "inputs must be a list"),
        ({"inputs": {}}, "inputs must be a list"),
        ({"inputs": [1]}, "inputs must be a list of objects"),
        ({"inputs": [{}]}, "inputs: each needs a name"),
        ({"inputs": [INPUT | {"name": 7}]}, "inputs: each needs a name"),
        ({"inputs": [INPUT | {"datatype": "FP31"}]}, "input 'x': datatype 'FP31' is unknown"),
        ({"inputs": [INPUT | {"datatype": None}]}, "input 'x': datatype None is unknown"),
        ({"inputs": [INPUT | {"shape": [1, -2]}]}, "input 'x': shape must be"),
        ({"inputs": [INPUT | {"shape": None}]}, "input 'x': shape must be"),
        ({"inputs": [INPUT | {"data": None}]}, "input 'x': data must be a list"),
        ({"inputs": [INPUT | {"parameters": 3}]}, "parameters of input 'x' must be an object"),
        ({"inputs": [INPUT | {"parameters": {"binary_data_size": -1}}]}, "input 'x': binary_data_size must be 0 to 0"),
        ({"inputs": [INPUT | {"parameters": {"binary_data_size": True}}]}, "binary_data_size must be 0 to 0"),
        ({"inputs": [INPUT | {"parameters": {"shared_memory_region": "r"}}]}, "shared memory is not supported"),
        ({"inputs": [INPUT], "outputs": 3}, "outputs must be a list"),
        ({"inputs": [INPUT], "outputs": [{"name": None}]}, "outputs: each needs a name"),
        ({"inputs": [INPUT], "outputs": [{"name": "y", "parameters": {"binary_data": 1}}]}, "binary_data must be true"),
        ({"inputs": [INPUT], "outputs": [{"name": "y", "parameters": {"classification": 3}}]}, "classification"),
        ({"inputs": [INPUT], "parameters": []}, "parameters of the request must be an object"),
        ({"inputs": [INPUT], "parameters": {"binary_data_output": "yes"}}, "binary_data_output must be true or false"),
        ({"inputs": [INPUT], "parameters": {"timeout": "1"}}, "timeout must be a whole number"),
        ({"inputs": [INPUT], "parameters": {"timeout": -1}}, "timeout must be a whole number"),
        ({"inputs": [INPUT], "id": 3}, "id must be a string"),
    ],
)
def test_malformed_requests_name_what_is_wrong(content: object, problem: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        decode(http(content))
    assert problem in caught.value.message


@pytest.mark.parametrize("length", [b"-1", b"x", b"", b"1e3", b"99999999999999999999", b"1000"])
def test_impossible_lengths_of_the_json_are_refused(length: bytes) -> None:
    with pytest.raises(InvalidRequestError, match="Inference-Header-Content-Length"):
        decode(http({"inputs": [INPUT]}, length=length))


def test_every_binary_byte_must_belong_to_an_input() -> None:
    short = INPUT | {"parameters": {"binary_data_size": 4}}
    with pytest.raises(InvalidRequestError, match="needs 8"):
        decode(http({"inputs": [short]}, b"\0" * 4))
    with pytest.raises(InvalidRequestError, match="1 bytes of the body belong to no input"):
        decode(http({"inputs": [INPUT | {"parameters": {"binary_data_size": 8}}]}, b"\0" * 9))
    with pytest.raises(InvalidRequestError, match="0 to 7"):
        decode(http({"inputs": [INPUT | {"parameters": {"binary_data_size": 8}}]}, b"\0" * 7))


def test_json_has_a_limit_of_its_own() -> None:
    with pytest.raises(TooLargeError, match="binary data"):
        decode(http({"inputs": [INPUT], "id": "x" * 10_000}))


def test_the_timeout_is_in_microseconds() -> None:
    assert decode(http({"inputs": [INPUT], "parameters": {"timeout": 2_500_000}}))[0].timeout == 2.5
    assert decode(http({"inputs": [INPUT], "parameters": {"timeout": 0}}))[0].timeout is None


@pytest.mark.parametrize("by_default", [False, True])
@pytest.mark.parametrize("asked", [None, False, True])
def test_each_output_may_ask_for_its_form(by_default: bool, asked: bool | None) -> None:
    output: dict[str, Any] = {"name": "y"} if asked is None else {"name": "y", "parameters": {"binary_data": asked}}
    content = {"inputs": [INPUT], "outputs": [output], "parameters": {"binary_data_output": by_default}}
    _, form = decode(http(content))
    assert form.is_binary("y") is (by_default if asked is None else asked)


def answer() -> InferResult:
    numbers = OutputTensor(TensorSpec("n", BY_NAME["FP32"], (-1,)), np.array([1.5, np.nan], np.float32))
    words = OutputTensor(TensorSpec("w", BY_NAME["BYTES"], ()), np.array("é", np.object_))
    return InferResult("m", "3", [numbers, words])


def test_an_answer_in_json() -> None:
    response = encode_result(answer(), AnswerForm("7", frozenset(), binary_by_default=False))
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
    response = encode_result(answer(), AnswerForm("", frozenset({"n"}), binary_by_default=True))
    length = int(response.headers.split(b": ")[1])
    content = orjson.loads(response.body[:length])
    assert "id" not in content
    assert content["outputs"][0]["data"] == [1.5, None]
    assert content["outputs"][1]["parameters"] == {"binary_data_size": 6}
    assert response.body[length:] == b"\2\0\0\0" + "é".encode()
    assert response.content_type == b"application/octet-stream"
