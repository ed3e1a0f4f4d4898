"""What applications say was right, as it comes: of requests that are known by their ids, or of inputs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NoReturn

import orjson

from tiercel.core.errors import InvalidRequestError, TooLargeError
from tiercel.serving.explaining.feedback import WINDOW_ROWS
from tiercel.serving.requests import InputTensor
from tiercel.serving.rest.routes import body_object
from tiercel.serving.tensors import checked_shape, data_type_named, decode_json

if TYPE_CHECKING:
    from tiercel.serving.rest.messages import HttpRequest

MOST_ITEMS: Final = 1000
# Ids that are not known here are asked for at other nodes.
_MOST_BYTES_BY_ID: Final = 1024**2


@dataclass(frozen=True, slots=True)
class Item:
    """What was right: of a request that is known by its id, or of inputs that are answered for it."""

    place: int  # in the list
    label: Any  # for each row, or of one row without a list
    id: str  # of the request; empty where there are inputs
    inputs: tuple[InputTensor, ...] | None  # None where there is an id
    body: bytes  # the same as JSON, where it may be handed on; else empty

    @property
    def rows(self) -> int:
        """How many rows it is about, by its labels."""
        return len(self.label) if isinstance(self.label, list) else 1

    def refused(self, why: str) -> dict[str, Any]:
        """For the answer: why it does not count."""
        named: dict[str, Any] = {"id": self.id} if self.inputs is None else {"item": self.place}
        return named | {"error": why}


def read_items(request: HttpRequest, max_json_bytes: int, *, keep_bodies: bool) -> list[Item]:
    """What a body says.

    Args:
        request: From HTTP.
        max_json_bytes: Largest JSON.
        keep_bodies: Whether items with inputs may be handed on.

    Raises:
        InvalidRequestError: It is malformed; names the field.
        TooLargeError: It has too many bytes.
    """
    size = len(request.body)
    if size > max_json_bytes:
        raise TooLargeError(f"feedback has {size} bytes, {max_json_bytes} are possible; send less at once")
    said = body_object(request).get("feedback")
    if not isinstance(said, list) or not 0 < len(said) <= MOST_ITEMS:
        raise InvalidRequestError(
            f'feedback must be a list of 1 to {MOST_ITEMS} items such as {{"id": "7f3a", "label": 3}}'
        )
    items = [_item(each, place, keep_bodies) for place, each in enumerate(said)]
    if size > _MOST_BYTES_BY_ID and any(item.inputs is None for item in items):
        raise TooLargeError(
            f"feedback by id has {size} bytes, {_MOST_BYTES_BY_ID} are possible; send less at once, and inputs apart"
        )
    rows = sum(item.rows for item in items if item.inputs is not None)
    if rows > WINDOW_ROWS:
        raise InvalidRequestError(
            f"feedback has {rows} labels of inputs, {WINDOW_ROWS} are possible, as so many rows are counted; send the "
            "latest"
        )
    return items


def at_field(place: int, inputs: Iterable[InputTensor], message: str) -> str:
    """What is wrong with an item's inputs, with the field's name in place of the input's."""
    for number, each in enumerate(inputs):
        if message.startswith(words := _of_input(each.name)):
            return f"feedback[{place}].inputs[{number}].{message.removeprefix(words)}"
    return f"feedback[{place}].inputs: {message}"


def _item(said: Any, place: int, keep_bodies: bool) -> Item:
    if not isinstance(said, dict) or "label" not in said or ("id" in said) is ("inputs" in said):
        _refuse(f'feedback[{place}] must be an object with "label", and with either "id" or "inputs"')
    label = said["label"]
    if "id" in said:
        if not isinstance(said["id"], str):
            _refuse(f"feedback[{place}].id must be a text")
        return Item(place, label, said["id"], None, b"")
    inputs = said["inputs"]
    if not isinstance(inputs, list) or not inputs:
        _refuse(f"feedback[{place}].inputs must be a list of tensors, as for inference")
    if label == []:
        _refuse(f"feedback[{place}].label must have an entry for each row of the inputs")
    tensors = tuple(_input(each, f"feedback[{place}].inputs[{number}]") for number, each in enumerate(inputs))
    return Item(place, label, "", tensors, orjson.dumps({"feedback": [said]}) if keep_bodies else b"")


def _input(said: Any, at: str) -> InputTensor:
    if not isinstance(said, dict) or not isinstance(said.get("name"), str):
        _refuse(f'{at} must be an object with "name", "datatype", "shape" and "data"')
    if said.get("parameters"):
        _refuse(f"{at}.parameters are not taken with feedback, whose data is JSON")
    name = said["name"]
    try:
        data_type = data_type_named(said.get("datatype"), name)
        array = decode_json(name, data_type, checked_shape(said.get("shape"), name), said.get("data"))
    except InvalidRequestError as error:
        _refuse(f"{at}.{error.message.removeprefix(_of_input(name))}")
    return InputTensor(name, data_type, array)


def _of_input(name: str) -> str:
    """How a message begins that is about an input."""
    return f"input '{name}': "


def _refuse(why: str) -> NoReturn:
    raise InvalidRequestError(why)
