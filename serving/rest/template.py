"""What an inference request's JSON says besides the tensors' contents."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from tiercel.core.errors import InvalidRequestError
from tiercel.serving import request_parameters as given
from tiercel.serving.tensors import Buffer, DataType, checked_shape, data_type_named


@dataclass(frozen=True, slots=True)
class AnswerFormat:
    """How the caller wants its answer."""

    id: str  # repeated in the answer; empty for none
    exceptions: frozenset[str]  # names of outputs that are not sent by default
    binary_by_default: bool  # outputs are sent as bytes unless they are exceptions; else as JSON

    def is_binary(self, output: str) -> bool:
        """Whether this output is sent as bytes."""
        return (output in self.exceptions) is not self.binary_by_default

    def with_id(self, request_id: str) -> AnswerFormat:
        """The same for a request of another id."""
        if request_id == self.id:
            return self
        return AnswerFormat(request_id, self.exceptions, self.binary_by_default)


@dataclass(frozen=True, slots=True)
class InputTemplate:
    """An input without its contents."""

    name: str  # name within the model
    data_type: DataType  # type of its elements
    shape: tuple[int, ...]  # its dimensions
    data: object  # the JSON value that is its contents, or None
    binary_size: int | None  # bytes of its contents after the JSON, or None when ``data`` is the contents


@dataclass(frozen=True, slots=True, eq=False)
class RequestTemplate:
    """A request without its contents; may be shared by many, so nobody changes it. One that is remembered is itself."""

    inputs: tuple[InputTemplate, ...]  # what is given
    outputs: list[str]  # names of the outputs that are wanted; empty for all
    timeout: float | None  # seconds in which the answer is of use, or None
    priority: int  # 1 is first; 0 is the model's default
    minimum_accuracy: float | None  # the least accuracy, a fraction, or None
    classes: Mapping[str, int] | None  # outputs wanted as their largest classes, and how many; None for none
    answer: AnswerFormat  # how the answer is wanted


def read_template(text: Buffer) -> RequestTemplate:
    """The template of a request from its JSON.

    Raises:
        InvalidRequestError: It is malformed; names the field.
    """
    try:
        content = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise InvalidRequestError(f"the body is not valid JSON: {error}") from error
    if not isinstance(content, dict):
        raise InvalidRequestError("the body must be a JSON object")
    inputs = tuple(_input(item) for item in _objects(content, "inputs", required=True))
    parameters = _parameters(content, "the request")
    for key in given.SEQUENCE:
        given.refuse_sequence(key, parameters.get(key))
    outputs, classes, answer = _outputs(content, parameters)
    return RequestTemplate(
        inputs,
        outputs,
        given.timeout(parameters.get("timeout")),
        given.priority(parameters.get("priority")),
        given.minimum_accuracy(parameters.get("minimum_accuracy")),
        classes or None,
        answer,
    )


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


def _input(item: dict[str, Any]) -> InputTemplate:
    name = item["name"]
    data_type = data_type_named(item.get("datatype"), name)
    shape = checked_shape(item.get("shape"), name)
    parameters = _parameters(item, f"input '{name}'")
    given.refuse_shared_memory(parameters, f"input '{name}'", "send")
    size = parameters.get("binary_data_size")
    if size is not None and (type(size) is not int or size < 0):
        raise InvalidRequestError(f"input '{name}': binary_data_size must be a whole number from 0")
    return InputTemplate(name, data_type, shape, item.get("data"), size)


def _outputs(content: dict[str, Any], parameters: dict[str, Any]) -> tuple[list[str], dict[str, int], AnswerFormat]:
    by_default = parameters.get("binary_data_output", False)
    if type(by_default) is not bool:
        raise InvalidRequestError("parameter binary_data_output must be true or false")
    request_id = content.get("id", "")
    if not isinstance(request_id, str):
        raise InvalidRequestError("id must be a string")
    names: list[str] = []
    classes: dict[str, int] = {}
    exceptions: set[str] = set()
    for item in _objects(content, "outputs"):
        name = item["name"]
        asked = _parameters(item, f"output '{name}'")
        given.refuse_shared_memory(asked, f"output '{name}'", "take")
        count = given.classification(asked.get("classification"), name)
        if count is not None:
            classes[name] = count
        binary = asked.get("binary_data", by_default)
        if type(binary) is not bool:
            raise InvalidRequestError(f"output '{name}': parameter binary_data must be true or false")
        names.append(name)
        if binary is not by_default:
            exceptions.add(name)
    return names, classes, AnswerFormat(request_id, frozenset(exceptions), by_default)
