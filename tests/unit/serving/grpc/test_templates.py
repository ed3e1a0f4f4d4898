from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tiercel.core.errors import InvalidRequestError
from tiercel.inference import open_inference_grpc_pb2 as pb
from tiercel.serving.grpc.codec import decode_request, encode_result
from tiercel.serving.grpc.templates import RequestReader, last_field_start, write_answer, write_stream_answer
from tiercel.serving.requests import InferRequest, InferResult, OutputTensor
from tiercel.serving.tensors import BY_NAME, TensorSpec


def message(value: float = 0.0, **more: Any) -> pb.ModelInferRequest:
    made = pb.ModelInferRequest(model_name="m", **more)
    made.inputs.add(name="x", datatype="FP32", shape=[2])
    made.raw_input_contents.append(np.array([value, value], np.float32).tobytes())
    return made


def same(one: InferRequest, other: InferRequest) -> bool:
    arrays = [[(each.name, each.data_type, each.array.tolist()) for each in request.inputs] for request in (one, other)]
    rest = [(r.model, r.version, r.outputs, r.timeout, r.priority, r.minimum_accuracy, r.classes) for r in (one, other)]
    return arrays[0] == arrays[1] and rest[0] == rest[1]


def test_a_form_is_read_once_and_its_tensors_each_time() -> None:
    reader = RequestReader()
    first = message(1.0, model_version="3")
    first.parameters["priority"].int64_param = 1
    first.outputs.add(name="y").parameters["classification"].int64_param = 2
    second = pb.ModelInferRequest.FromString(first.SerializeToString())
    second.raw_input_contents[0] = np.array([5, 6], np.float32).tobytes()
    assert reader.read(first.SerializeToString()).message is not None
    for each in (second, first):
        received = reader.read(each.SerializeToString())
        assert received.message is None  # it was recognised
        assert same(received.request, decode_request(each))
    received.request.outputs.append("changed by whoever runs it")
    assert same(reader.read(first.SerializeToString()).request, decode_request(first))


def test_an_answer_of_a_stream_has_that_of_a_call_in_it() -> None:
    answer = pb.ModelInferResponse(model_name="m", raw_output_contents=[b"x" * 300])
    written = write_stream_answer(answer.SerializeToString())
    assert pb.ModelStreamInferResponse.FromString(written) == pb.ModelStreamInferResponse(infer_response=answer)


def test_ids_are_answered_and_not_remembered() -> None:
    reader = RequestReader()
    for name in ("a", "b"):
        received = reader.read(message(id=name).SerializeToString())
        answer = pb.ModelInferResponse.FromString(write_answer(result(), received))
        assert answer.id == name


@pytest.mark.parametrize("repeats", [1, 2])
def test_a_malformed_tensor_is_found_each_time(repeats: int) -> None:
    reader = RequestReader()
    for _ in range(repeats):
        made = message()
        made.raw_input_contents[0] = b"1234567"
        with pytest.raises(InvalidRequestError, match="needs 8"):
            reader.read(made.SerializeToString())


def test_what_only_looks_like_the_last_field_is_not_taken_for_it() -> None:
    inner = message(2.0)
    raw = inner.raw_input_contents[0]
    # The tensor comes first, and an unknown field follows that ends as a tensor would.
    tail = b"\x3a\x08" + b"\0" * 8
    data = b"\x3a\x08" + raw
    del inner.raw_input_contents[:]
    data += inner.SerializeToString() + b"\xa2\x06" + bytes((len(tail),)) + tail
    reader = RequestReader()
    for _ in range(2):
        assert reader.read(data).request.inputs[0].array.tolist() == [2.0, 2.0]


def test_more_forms_than_are_remembered() -> None:
    reader = RequestReader()
    for number in range(3000):
        reader.read(message(model_version=str(number)).SerializeToString())
    assert reader.read(message(9.0, model_version="2999").SerializeToString()).message is None


TEXT = st.text(max_size=5)


@given(st.lists(st.tuples(st.booleans(), TEXT, st.floats(width=32, allow_nan=False), st.integers(0, 3)), max_size=12))
@settings(deadline=None)
def test_recognised_or_not_a_request_means_the_same(requests: list[tuple[bool, str, float, int]]) -> None:
    reader = RequestReader()
    for twice, version, value, priority in requests:
        made = message(value, model_version=version)
        if priority:
            made.parameters["priority"].int64_param = priority
        if twice:
            made.inputs.add(name="z", datatype="FP32", shape=[2])
            made.raw_input_contents.append(b"\0" * 8)
        assert same(reader.read(made.SerializeToString()).request, decode_request(made))


@given(st.binary(max_size=30), st.integers(1, 20))
def test_the_start_of_the_last_field(contents: bytes, number: int) -> None:
    data = pb.ModelInferRequest(model_name="m", id="x").SerializeToString()
    data += bytes((number << 3 | 2,)) if number < 16 else bytes((number << 3 & 0x7F | 2 | 0x80, number >> 4))
    data += bytes((len(contents),)) + contents
    assert last_field_start(data, number) == len(data) - len(contents)
    assert last_field_start(data, number + 1) is None


def result(**more: Any) -> InferResult:
    spec = TensorSpec("y", BY_NAME["FP32"], (-1,))
    return InferResult("m", "3", [OutputTensor(spec, np.array([1, 2, 3], np.float32))], **more)


@pytest.mark.parametrize("parameters", [None, {"accuracy": 0.5, "early": True, "rank": 3, "variant": "small"}])
def test_quick_answers_are_those_of_the_codec(parameters: dict[str, Any] | None) -> None:
    reader = RequestReader()
    request = message()
    for _ in range(2):
        received = reader.read(request.SerializeToString())
    assert received.message is None
    answer = pb.ModelInferResponse.FromString(write_answer(result(parameters=parameters), received))
    assert answer == encode_result(result(parameters=parameters), request)
    assert set(answer.parameters) == set(parameters or {})
