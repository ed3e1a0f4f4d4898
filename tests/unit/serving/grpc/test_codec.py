from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tiercel.core.errors import InvalidRequestError
from tiercel.inference import open_inference_grpc_pb2 as pb
from tiercel.serving.grpc.codec import decode_request, encode_result
from tiercel.serving.requests import InferResult, OutputTensor
from tiercel.serving.tensors import BY_NAME, TensorSpec


def request(datatype: str = "FP32", shape: tuple[int, ...] = (2,)) -> pb.ModelInferRequest:
    message = pb.ModelInferRequest(model_name="m")
    message.inputs.add(name="x", datatype=datatype, shape=shape)
    return message


def with_raw(message: pb.ModelInferRequest, *items: bytes) -> pb.ModelInferRequest:
    message.raw_input_contents.extend(items)
    return message


def with_both() -> pb.ModelInferRequest:
    message = with_raw(request(), b"\0" * 8)
    message.inputs[0].contents.fp32_contents.extend([1.0, 2.0])
    return message


def with_wrong_field() -> pb.ModelInferRequest:
    message = request()
    message.inputs[0].contents.int_contents.extend([1, 2])
    return message


def with_typed_halves() -> pb.ModelInferRequest:
    message = request("FP16")
    message.inputs[0].contents.fp32_contents.extend([1.0, 2.0])
    return message


def with_out_of_range() -> pb.ModelInferRequest:
    message = request("INT8")
    message.inputs[0].contents.int_contents.extend([1, 200])
    return message


def with_shared_memory() -> pb.ModelInferRequest:
    message = request()
    message.inputs[0].parameters["shared_memory_region"].string_param = "r"
    return message


def with_timeout_of_text() -> pb.ModelInferRequest:
    message = with_raw(request(), b"\0" * 8)
    message.parameters["timeout"].string_param = "1"
    return message


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: with_raw(request(), b"", b""), "raw_input_contents has 2 items for 1 inputs"),
        (lambda: with_raw(request(), b"\0" * 7), "needs 8"),
        (lambda: with_raw(request(shape=(-1,)), b""), "shape must be"),
        (lambda: request("FP31"), "datatype 'FP31' is unknown"),
        (request, r"data has 0 elements, but shape \[2\] needs 2"),
        (with_both, "contents or raw_input_contents, not both"),
        (with_wrong_field, "FP32 travels in fp32_contents, not in int_contents"),
        (with_typed_halves, "FP16 travels in raw_input_contents"),
        (with_out_of_range, "out of the range of INT8"),
        (with_shared_memory, "shared memory is not supported"),
        (with_timeout_of_text, "timeout must be a whole number"),
    ],
)
def test_malformed_requests_name_what_is_wrong(make: Callable[[], pb.ModelInferRequest], problem: str) -> None:
    with pytest.raises(InvalidRequestError, match=problem):
        decode_request(make())


def test_an_empty_tensor_needs_no_contents() -> None:
    assert decode_request(request(shape=(0, 3))).inputs[0].array.shape == (0, 3)


def test_an_answer_is_raw_when_a_type_travels_in_no_other_way() -> None:
    halves = OutputTensor(TensorSpec("h", BY_NAME["FP16"], (-1,)), np.array([1, 2], np.float16))
    singles = OutputTensor(TensorSpec("s", BY_NAME["FP32"], (-1,)), np.array([3], np.float32))
    message = encode_result(InferResult("m", "1", [halves, singles]), request())
    assert [len(item) for item in message.raw_output_contents] == [4, 4]
    typed = encode_result(InferResult("m", "1", [singles]), request())
    assert list(typed.outputs[0].contents.fp32_contents) == [3.0]
    assert not typed.raw_output_contents
