"""Inference requests and answers in gRPC's messages: raw bytes or typed contents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import numpy as np

from tiercel.core.errors import InvalidRequestError
from tiercel.inference import open_inference_grpc_pb2 as pb
from tiercel.serving import request_parameters as given
from tiercel.serving.requests import InferRequest, InferResult, InputTensor, ParameterValue
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

Parameters = Mapping[str, pb.InferParameter]


def decode_request(message: pb.ModelInferRequest) -> InferRequest:
    """An inference request from gRPC.

    Raises:
        InvalidRequestError: A field is malformed; it is named.
    """
    raw = message.raw_input_contents
    tensors = message.inputs
    if raw and len(raw) != len(tensors):
        raise InvalidRequestError(
            f"raw_input_contents has {len(raw)} items for {len(tensors)} inputs; give one for each, or none"
        )
    inputs: list[InputTensor] = []
    for position, tensor in enumerate(tensors):
        name = tensor.name
        data_type = data_type_named(tensor.datatype, name)
        shape = checked_shape(list(tensor.shape), name)
        if tensor.parameters:
            given.refuse_shared_memory(tensor.parameters, f"input '{name}'", "send")
        if not raw:
            array = _decode_typed(tensor, data_type, shape)
        elif tensor.HasField("contents"):
            raise InvalidRequestError(f"input '{name}': send contents or raw_input_contents, not both")
        else:
            array = decode_raw(name, data_type, shape, raw[position])
        inputs.append(InputTensor(name, data_type, array))
    request = InferRequest(message.model_name, message.model_version, inputs, id=message.id)
    if message.outputs:
        request.outputs, request.classes = _outputs(message)
    if message.parameters:
        _read_parameters(message.parameters, request)
    return request


def _outputs(message: pb.ModelInferRequest) -> tuple[list[str], dict[str, int] | None]:
    classes: dict[str, int] = {}
    for output in message.outputs:
        if not output.parameters:
            continue
        given.refuse_shared_memory(output.parameters, f"output '{output.name}'", "take")
        count = given.classification(_value(output.parameters, "classification"), output.name)
        if count is not None:
            classes[output.name] = count
    return [output.name for output in message.outputs], classes or None


def _value(parameters: Parameters, name: str) -> ParameterValue | None:
    if name not in parameters:
        return None
    choice = parameters[name].WhichOneof("parameter_choice")
    return None if choice is None else cast("ParameterValue", getattr(parameters[name], choice))


def _read_parameters(parameters: Parameters, request: InferRequest) -> None:
    for key in given.SEQUENCE:
        given.refuse_sequence(key, _value(parameters, key))
    request.timeout = given.timeout(_value(parameters, "timeout"))
    request.priority = given.priority(_value(parameters, "priority"))
    request.minimum_accuracy = given.minimum_accuracy(_value(parameters, "minimum_accuracy"))


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


def encode_result(result: InferResult, request: pb.ModelInferRequest) -> pb.ModelInferResponse:
    """The answer: raw if the request was raw, or if an output's type travels in no other way; else typed."""
    message = pb.ModelInferResponse(model_name=result.model, model_version=result.version, id=request.id)
    for name, value in (result.parameters or {}).items():
        set_parameter(message.parameters[name], value)
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


def set_parameter(parameter: pb.InferParameter, value: ParameterValue) -> None:
    """Give a parameter its value."""
    match value:
        case bool():
            parameter.bool_param = value
        case int():
            parameter.int64_param = value
        case float():
            parameter.double_param = value
        case _:
            parameter.string_param = value
