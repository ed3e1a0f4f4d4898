from __future__ import annotations

from typing import Any

import numpy as np
import orjson
import pytest

from tiercel.core.errors import InvalidRequestError, TooLargeError
from tiercel.serving.rest.decoding import decode_request
from tiercel.serving.rest.head import Head
from tiercel.serving.rest.messages import HttpRequest
from tiercel.serving.rest.recognition import recognise
from tiercel.serving.tensors import BY_NAME

INPUT: dict[str, Any] = {"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [1.0, 2.0]}


def http(content: object, binary: bytes = b"", length: bytes | None = None) -> HttpRequest:
    head = content if isinstance(content, bytes) else orjson.dumps(content)
    headers = {}
    if binary or length is not None:
        headers[b"inference-header-content-length"] = b"%d" % len(head) if length is None else length
    return HttpRequest(Head(b"POST", b"/", headers), head + binary)


def decode(request: HttpRequest) -> Any:
    return decode_request(request, recognise(request, 10_000), "m", "", 10_000)


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
        ({"inputs": [INPUT | {"parameters": {"binary_data_size": -1}}]}, "input 'x': binary_data_size must be a whole"),
        ({"inputs": [INPUT | {"parameters": {"binary_data_size": True}}]}, "binary_data_size must be a whole number"),
        ({"inputs": [INPUT | {"parameters": {"binary_data_size": 1}}]}, "binary_data_size must be 0 to 0"),
        ({"inputs": [INPUT | {"parameters": {"shared_memory_region": "r"}}]}, "shared memory is not supported"),
        ({"inputs": [INPUT], "outputs": 3}, "outputs must be a list"),
        ({"inputs": [INPUT], "outputs": [{"name": None}]}, "outputs: each needs a name"),
        ({"inputs": [INPUT], "outputs": [{"name": "y", "parameters": {"binary_data": 1}}]}, "binary_data must be true"),
        *[
            ({"inputs": [INPUT], "outputs": [{"name": "y", "parameters": {"classification": count}}]}, "from 1")
            for count in (0, -1, True, 1.5, "3", 2**31)
        ],
        (
            {"inputs": [INPUT], "outputs": [{"name": "y", "parameters": {"shared_memory_offset": 3}}]},
            "output 'y': shared memory is not supported",
        ),
        *[
            ({"inputs": [INPUT], "parameters": {"priority": priority}}, "parameter priority must be")
            for priority in (-1, 1.0, True, "1", 2**32)
        ],
        *[
            ({"inputs": [INPUT], "parameters": {"minimum_accuracy": accuracy}}, "parameter minimum_accuracy must be")
            for accuracy in (-0.1, 1.1, True, "0.5")
        ],
        ({"inputs": [INPUT], "parameters": {"sequence_id": 7}}, "parameter sequence_id: models keep nothing"),
        ({"inputs": [INPUT], "parameters": {"sequence_start": True}}, "parameter sequence_start: models keep nothing"),
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


def test_what_else_a_request_may_say() -> None:
    content = {
        "inputs": [INPUT],
        "outputs": [{"name": "y", "parameters": {"classification": 3, "of no interest": [1]}}, {"name": "z"}],
        "parameters": {"priority": 2, "minimum_accuracy": 0.5, "sequence_id": 0, "headers": {}, "max_tokens": 9},
    }
    question, _ = decode(http(content))
    assert (question.priority, question.minimum_accuracy, question.classes) == (2, 0.5, {"y": 3})
    plain, _ = decode(http({"inputs": [INPUT], "outputs": []}))
    assert (plain.priority, plain.minimum_accuracy, plain.classes, plain.outputs) == (0, None, None, [])


@pytest.mark.parametrize(
    ("datatype", "shape", "data"),
    [
        ("FP32", [], [2.5]),
        ("FP32", [0, 3], []),
        ("FP32", [2, 1], [[1], [2]]),
        ("FP32", [2], [1e39, -1e39]),
        ("FP64", [2], [0.1, 2**53 + 1]),
        ("INT64", [2], [-(2**63), 2**63 - 1]),
        ("UINT64", [2], [2**64 - 1, 0]),
        ("UINT8", [2], [255, 0]),
        ("FP16", [2], [0.1, 1e6]),
        ("BOOL", [2], [True, False]),
        ("BYTES", [2], ["é]", '"']),
    ],
)
def test_all_shapes_and_types_as_json(datatype: str, shape: list[int], data: list[Any]) -> None:
    tensor = {"name": "x", "datatype": datatype, "shape": shape, "data": data}
    for _ in range(2):  # read for the first time, and recognised
        question, _ = decode(http({"inputs": [tensor]}))
        array = question.inputs[0].array
        assert (list(array.shape), array.dtype) == (shape, BY_NAME[datatype].dtype)
        with np.errstate(over="ignore"):
            expected = np.array(data, array.dtype).reshape(shape)
        np.testing.assert_array_equal(array, expected)


def test_the_random_place_holder_is_not_confused_with_contents() -> None:
    first = http({"inputs": [INPUT], "outputs": [{"name": "y", "data": [1.0]}]})
    before = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1], "parameters": {"data": [1.0]}}]}
    assert decode(first)[0].inputs[0].array.tolist() == [[1.0, 2.0]]
    with pytest.raises(InvalidRequestError, match="input 'x': data must be a list"):
        decode(http(before))
