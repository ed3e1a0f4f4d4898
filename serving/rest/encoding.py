"""Answers to inference requests, with tensors as JSON or in the binary tensor data extension."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import orjson

from tiercel.serving.models.loaded_version import LoadedVersion
from tiercel.serving.requests import InferResult, OutputTensor, ParameterValue
from tiercel.serving.rest.messages import BINARY, HttpResponse
from tiercel.serving.rest.template import AnswerFormat
from tiercel.serving.tensors import encode_json, encode_raw

_NUMPY = orjson.OPT_SERIALIZE_NUMPY
_REMEMBERED = 1024


def encode_result(result: InferResult, form: AnswerFormat) -> HttpResponse:
    """The answer to an inference request."""
    if len(result.outputs) == 1:
        return _encode_one(result, result.outputs[0], form)
    return _encode_any(result, form)


def _encode_one(result: InferResult, output: OutputTensor, form: AnswerFormat) -> HttpResponse:
    """The answer that most get: one output. Only its contents differ from the last one's."""
    array, spec = output.array, output.spec
    end = b"]}" if not form.id else b"]," + orjson.dumps({"id": form.id})[1:]
    said = _dumped(result.parameters)
    if not form.is_binary(spec.name):
        before = _before_data(result.model, result.version, said, spec.name, spec.data_type.name, array.shape)
        return HttpResponse(200, before + orjson.dumps(encode_json(array), option=_NUMPY) + b"}" + end)
    data = encode_raw(array)
    text = _before_end(result.model, result.version, said, spec.name, spec.data_type.name, array.shape, len(data)) + end
    return HttpResponse(200, text + data, BINARY, _length_header(text))


def before_contents(loaded: LoadedVersion, name: str, shape: tuple[int, ...]) -> bytes:
    """The body of an answer with this output alone in JSON, up to its contents; "}]}" is what comes after them."""
    spec = loaded.outputs[name]
    said = _dumped(loaded.parameters)
    return _before_data(loaded.model, loaded.version_text, said, name, spec.data_type.name, shape)


def before_binary(loaded: LoadedVersion, name: str, shape: tuple[int, ...], size: int, end: int) -> bytes:
    """A whole answer with this output alone in binary, up to the last ``end`` bytes of JSON before the contents.

    Args:
        loaded: Who answers.
        name: Of the output.
        shape: Of its contents.
        size: Bytes of its contents.
        end: Bytes of JSON from the end of the output's description on: "}]}", or a request's id in addition.
    """
    spec = loaded.outputs[name]
    said = _dumped(loaded.parameters)
    text = _before_end(loaded.model, loaded.version_text, said, name, spec.data_type.name, shape, size)[:-1] + bytes(
        end
    )
    whole = HttpResponse(200, text + bytes(size), BINARY, _length_header(text)).encode(None, keep_alive=True)
    return whole[: len(whole) - size - end]


def _dumped(parameters: Mapping[str, ParameterValue] | None) -> bytes:
    return orjson.dumps(dict(parameters)) if parameters else b""


def _encode_any(result: InferResult, form: AnswerFormat) -> HttpResponse:
    outputs: list[dict[str, Any]] = []
    binary: list[bytes] = []
    for output in result.outputs:
        array = output.array
        described = _described(output.spec.name, output.spec.data_type.name, array.shape)
        if form.is_binary(output.spec.name):
            data = encode_raw(array)
            binary.append(data)
            described["parameters"] = {"binary_data_size": len(data)}
        else:
            described["data"] = encode_json(array)
        outputs.append(described)
    content: dict[str, Any] = {"model_name": result.model, "model_version": result.version}
    if result.parameters:
        content["parameters"] = dict(result.parameters)
    content["outputs"] = outputs
    if form.id:
        content["id"] = form.id
    text = orjson.dumps(content, option=_NUMPY)
    if not binary:
        return HttpResponse(200, text)
    return HttpResponse(200, b"".join((text, *binary)), BINARY, _length_header(text))


def _described(name: str, data_type: str, shape: tuple[int, ...]) -> dict[str, Any]:
    return {"name": name, "datatype": data_type, "shape": shape}


@lru_cache(_REMEMBERED)
def _before_data(
    model: str, version: str, parameters: bytes, name: str, data_type: str, shape: tuple[int, ...]
) -> bytes:
    """An answer with one output in JSON, up to its contents."""
    return _begun(model, version, parameters, _described(name, data_type, shape)).removesuffix(b"}") + b',"data":'


@lru_cache(_REMEMBERED)
def _before_end(
    model: str, version: str, parameters: bytes, name: str, data_type: str, shape: tuple[int, ...], size: int
) -> bytes:
    """The JSON of an answer with one output in binary, up to the end of the outputs."""
    described = _described(name, data_type, shape) | {"parameters": {"binary_data_size": size}}
    return _begun(model, version, parameters, described)


def _begun(model: str, version: str, parameters: bytes, output: dict[str, Any]) -> bytes:
    """An answer up to the end of its only output, without the end of the outputs."""
    content: dict[str, Any] = {"model_name": model, "model_version": version}
    if parameters:
        content["parameters"] = orjson.Fragment(parameters)
    return orjson.dumps(content | {"outputs": [output]}).removesuffix(b"]}")


def _length_header(text: bytes) -> bytes:
    return b"Inference-Header-Content-Length: %d\r\n" % len(text)
