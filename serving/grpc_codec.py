"""Inference requests and answers in gRPC's messages: raw bytes or typed contents."""

from __future__ import annotations

from typing import Any

import numpy as np

from tiercel.inference import open_inference_grpc_pb2 as pb
from tiercel.serving.dataplane import InferRequest, InferResult, InputTensor
from tiercel.serving.errors import InvalidRequestError
from tiercel.serving.tensors import (
    Array,
    DataType,
    checked_shape,
    data_type_named,
    decode_raw,
    decode_text,
    encode_raw,
    numbers_from,
    strings_array,
)


def decode_request(message: pb.ModelInferRequest) -> InferRequest:
    """An inference request from gRPC.

    Raises:
        InvalidRequestError: A field is malformed; it is named.
    """
    raw = message.raw_input_contents
    if raw and len(raw) != len(message.inputs):
        raise InvalidRequestError(
            f"raw_input_contents has {len(raw)} items for {len(message.inputs)} inputs; give one for each, or none"
        )
    inputs: list[InputTensor] = []
    for position, tensor in enumerate(message.inputs):
        data_type = data_type_named(tensor.datatype, tensor.name)
        shape = checked_shape(list(tensor.shape), tensor.name)
        if any(key.startswith("shared_memory") for key in tensor.parameters):
            raise InvalidRequestError(f"input '{tensor.name}': shared memory is not supported; send the data")
        if not raw:
            array = _decode_typed(tensor, data_type, shape)
        elif tensor.HasField("contents"):
            raise InvalidRequestError(f"input '{tensor.name}': send contents or raw_input_contents, not both")
        else:
            array = decode_raw(tensor.name, data_type, shape, raw[position])
        inputs.append(InputTensor(tensor.name, data_type, array))
    outputs = [output.name for output in message.outputs]
    return InferRequest(message.model_name, message.model_version, inputs, outputs, _timeout(message))


def _decode_typed(tensor: pb.ModelInferRequest.InferInputTensor, data_type: DataType, shape: tuple[int, ...]) -> Array:
    name = tensor.name
    for field, _ in tensor.contents.ListFields():
        if field.name != data_type.contents:
            wanted = data_type.contents or "raw_input_contents"
            raise InvalidRequestError(f"input '{name}': {data_type.name} travels in {wanted}, not in {field.name}")
    elements: list[Any] = list(getattr(tensor.contents, data_type.contents)) if data_type.contents else []
    if data_type.is_bytes:
        return strings_array(name, shape, [decode_text(name, element) for element in elements])
    return numbers_from(name, data_type, shape, elements)


def _timeout(message: pb.ModelInferRequest) -> float | None:
    """Triton's ``timeout`` in microseconds as seconds; 0 is none."""
    if "timeout" not in message.parameters:
        return None
    parameter = message.parameters["timeout"]
    choice = parameter.WhichOneof("parameter_choice")
    microseconds = parameter.int64_param if choice == "int64_param" else parameter.uint64_param
    if choice not in {"int64_param", "uint64_param"} or microseconds < 0:
        raise InvalidRequestError("parameter timeout must be a whole number of microseconds")
    return microseconds / 1e6 if microseconds else None


def encode_result(result: InferResult, request: pb.ModelInferRequest) -> pb.ModelInferResponse:
    """The answer: raw if the request was raw, or if an output's type travels in no other way; else typed."""
    message = pb.ModelInferResponse(model_name=result.model, model_version=result.version, id=request.id)
    raw = bool(request.raw_input_contents) or not all(output.spec.data_type.contents for output in result.outputs)
    for output in result.outputs:
        data_type = output.spec.data_type
        tensor = message.outputs.add(
            name=output.spec.name, datatype=data_type.name, shape=[int(size) for size in output.array.shape]
        )
        if raw:
            message.raw_output_contents.append(encode_raw(output.array))
        else:
            elements = np.ascontiguousarray(output.array).reshape(-1).tolist()
            if data_type.is_bytes:
                elements = [str(element).encode() for element in elements]
            getattr(tensor.contents, data_type.contents).extend(elements)
    return message
