"""Inference requests and answers in JSON and in the binary tensor data extension.

With the extension a body is JSON, as long as ``Inference-Header-Content-Length`` says, then the bytes of the tensors in
the order in which the JSON lists them; a tensor's length is its parameter ``binary_data_size``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import orjson

from tiercel.serving.dataplane import InferRequest, InferResult, InputTensor
from tiercel.serving.errors import InvalidRequestError, TooLargeError
from tiercel.serving.rest.messages import OCTETS, HttpRequest, HttpResponse
from tiercel.serving.tensors import (
    Array,
    Buffer,
    checked_shape,
    data_type_named,
    decode_json,
    decode_raw,
    encode_json,
    encode_raw,
)

_HEADER_LENGTH = b"inference-header-content-length"


@dataclass(frozen=True, slots=True)
class AnswerForm:
    """How the caller wants its answer.

    Attributes:
        id: Repeated in the answer; empty for none.
        exceptions: Names of outputs that are not sent by default form.
        binary_by_default: Outputs are sent as bytes unless they are exceptions; else as JSON.
    """

    id: str
    exceptions: frozenset[str]
    binary_by_default: bool

    def is_binary(self, output: str) -> bool:
        """Whether this output is sent as bytes."""
        return (output in self.exceptions) is not self.binary_by_default


def decode_request(
    request: HttpRequest, model: str, version: str, max_json_bytes: int
) -> tuple[InferRequest, AnswerForm]:
    """An inference request from HTTP.

    Raises:
        InvalidRequestError: The body is malformed; names the field.
        TooLargeError: The JSON is over ``max_json_bytes``.
    """
    head, binary = _split(request)
    if len(head) > max_json_bytes:
        raise TooLargeError(
            f"the JSON has {len(head)} bytes, {max_json_bytes} are possible; send tensors as binary data instead"
        )
    try:
        content = orjson.loads(head)
    except orjson.JSONDecodeError as error:
        raise InvalidRequestError(f"the body is not valid JSON: {error}") from error
    if not isinstance(content, dict):
        raise InvalidRequestError("the body must be a JSON object")
    inputs = _inputs(_objects(content, "inputs", required=True), binary)
    parameters = _parameters(content, "the request")
    outputs, form = _outputs(content, parameters)
    return InferRequest(model, version, inputs, outputs, _timeout(parameters)), form


def _split(request: HttpRequest) -> tuple[Buffer, memoryview]:
    """The JSON and the binary part of a body."""
    body = request.body
    text = request.headers.get(_HEADER_LENGTH)
    if text is None:
        return body, memoryview(b"")
    if not text.isdigit() or len(text) > 18 or int(text) > len(body):
        raise InvalidRequestError(
            f"Inference-Header-Content-Length must be the length of the JSON, 0 to {len(body)} bytes here"
        )
    view = memoryview(body)
    length = int(text)
    return view[:length], view[length:]


def _objects(content: dict[str, Any], field: str, required: bool = False) -> list[dict[str, Any]]:
    items = content.get(field)
    if items is None and not required:
        return []
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise InvalidRequestError(f"{field} must be a list of objects")
    for item in items:
        if not isinstance(item.get("name"), str):
            raise InvalidRequestError(f"{field}: each needs a name")
    return items


def _parameters(content: dict[str, Any], of: str) -> dict[str, Any]:
    parameters = content.get("parameters")
    if parameters is None:
        return {}
    if not isinstance(parameters, dict):
        raise InvalidRequestError(f"parameters of {of} must be an object")
    return parameters


def _inputs(items: list[dict[str, Any]], binary: memoryview) -> list[InputTensor]:
    inputs: list[InputTensor] = []
    position = 0
    for item in items:
        name = item["name"]
        data_type = data_type_named(item.get("datatype"), name)
        shape = checked_shape(item.get("shape"), name)
        parameters = item.get("parameters")
        size = _parameters(item, f"input '{name}'").get("binary_data_size") if parameters is not None else None
        if size is None:
            if parameters and any(key.startswith("shared_memory") for key in parameters):
                raise InvalidRequestError(f"input '{name}': shared memory is not supported; send the data")
            array = decode_json(name, data_type, shape, item.get("data"))
        else:
            if type(size) is not int or not 0 <= size <= len(binary) - position:
                raise InvalidRequestError(
                    f"input '{name}': binary_data_size must be 0 to {len(binary) - position}, the bytes that are there"
                )
            array = decode_raw(name, data_type, shape, binary[position : position + size])
            position += size
        inputs.append(InputTensor(name, data_type, array))
    if position != len(binary):
        raise InvalidRequestError(f"{len(binary) - position} bytes of the body belong to no input")
    return inputs


def _outputs(content: dict[str, Any], parameters: dict[str, Any]) -> tuple[list[str], AnswerForm]:
    by_default = parameters.get("binary_data_output", False)
    if type(by_default) is not bool:
        raise InvalidRequestError("parameter binary_data_output must be true or false")
    request_id = content.get("id", "")
    if not isinstance(request_id, str):
        raise InvalidRequestError("id must be a string")
    names: list[str] = []
    exceptions: set[str] = set()
    for item in _objects(content, "outputs"):
        name = item["name"]
        asked = _parameters(item, f"output '{name}'")
        if asked.get("classification"):
            raise InvalidRequestError(f"output '{name}': classification is not supported; ask for the tensor")
        if any(key.startswith("shared_memory") for key in asked):
            raise InvalidRequestError(f"output '{name}': shared memory is not supported; take the data")
        binary = asked.get("binary_data", by_default)
        if type(binary) is not bool:
            raise InvalidRequestError(f"output '{name}': parameter binary_data must be true or false")
        names.append(name)
        if binary is not by_default:
            exceptions.add(name)
    return names, AnswerForm(request_id, frozenset(exceptions), by_default)


def _timeout(parameters: dict[str, Any]) -> float | None:
    """Triton's ``timeout`` in microseconds as seconds; 0 is none."""
    timeout = parameters.get("timeout")
    if timeout is None:
        return None
    if type(timeout) is not int or timeout < 0:
        raise InvalidRequestError("parameter timeout must be a whole number of microseconds")
    return timeout / 1e6 if timeout else None


def encode_result(result: InferResult, form: AnswerForm) -> HttpResponse:
    """The answer to an inference request."""
    outputs: list[dict[str, Any]] = []
    binary: list[bytes] = []
    for output in result.outputs:
        array: Array = output.array
        described: dict[str, Any] = {
            "name": output.spec.name,
            "datatype": output.spec.data_type.name,
            "shape": array.shape,
        }
        if form.is_binary(output.spec.name):
            data = encode_raw(array)
            binary.append(data)
            described["parameters"] = {"binary_data_size": len(data)}
        else:
            described["data"] = encode_json(array)
        outputs.append(described)
    content: dict[str, Any] = {"model_name": result.model, "model_version": result.version, "outputs": outputs}
    if form.id:
        content["id"] = form.id
    head = orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY)
    if not binary:
        return HttpResponse(200, head)
    headers = b"Inference-Header-Content-Length: %d\r\n" % len(head)
    return HttpResponse(200, b"".join((head, *binary)), OCTETS, headers)
