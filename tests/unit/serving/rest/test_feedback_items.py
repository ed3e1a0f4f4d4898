from __future__ import annotations

from typing import Any

import orjson
import pytest

from tiercel.core.errors import InvalidRequestError, TooLargeError
from tiercel.serving.rest.feedback_items import Item, at_field, read_items
from tiercel.serving.rest.head import Head
from tiercel.serving.rest.messages import HttpRequest

TENSOR = {"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [0.0, 1.0, 2.0, 3.0]}
BY_ID = {"id": "a", "label": 0}


def read(*items: object, keep_bodies: bool = False, most: int = 10**7) -> list[Item]:
    body = orjson.dumps({"feedback": items})
    return read_items(HttpRequest(Head(b"POST", b"/", {}), body), most, keep_bodies=keep_bodies)


def with_inputs(label: object = 0, **changed: object) -> dict[str, Any]:
    tensor = {name: value for name, value in (TENSOR | changed).items() if value is not None}
    return {"inputs": [TENSOR | {"name": "y"}, tensor], "label": label}


def test_an_item_has_an_id_or_inputs() -> None:
    by_id, by_inputs = read(BY_ID, with_inputs([3]), keep_bodies=True)
    assert (by_id.id, by_id.inputs, by_id.body) == ("a", None, b"")
    assert by_inputs.inputs is not None
    assert [(each.name, each.array.tolist()) for each in by_inputs.inputs][1] == ("x", [[0.0, 1.0, 2.0, 3.0]])
    (handed_on,) = read(*orjson.loads(by_inputs.body)["feedback"])
    assert (handed_on.place, handed_on.label) == (0, [3])
    assert [item.refused("w") for item in (by_id, by_inputs)] == [{"id": "a", "error": "w"}, {"item": 1, "error": "w"}]


@pytest.mark.parametrize(
    ("item", "said"),
    [
        (with_inputs() | {"id": "a"}, 'feedback[1] must be an object with "label", and with either "id" or "inputs"'),
        ({"label": 0}, 'feedback[1] must be an object with "label", and with either "id" or "inputs"'),
        ({"id": 3, "label": 0}, "feedback[1].id must be a text"),
        ({"inputs": [], "label": 0}, "feedback[1].inputs must be a list of tensors"),
        ({"inputs": {}, "label": 0}, "feedback[1].inputs must be a list of tensors"),
        ({"inputs": [3], "label": 0}, 'feedback[1].inputs[0] must be an object with "name"'),
        (with_inputs([]), "feedback[1].label must have an entry for each row"),
        (with_inputs(name=3), 'feedback[1].inputs[1] must be an object with "name"'),
        (with_inputs(shape=[1, -4]), "feedback[1].inputs[1].shape must be a list of whole numbers from 0"),
        (with_inputs(shape=None), "feedback[1].inputs[1].shape must be a list of whole numbers from 0"),
        (with_inputs(shape=[2, 4]), "feedback[1].inputs[1].data has 4 elements, but shape [2, 4] needs 8"),
        (with_inputs(datatype="FP9"), "feedback[1].inputs[1].datatype 'FP9' is unknown"),
        (with_inputs(data=["a"] * 4), "feedback[1].inputs[1].data has an element that is not FP32"),
        (with_inputs(parameters={"binary_data_size": 16}), "feedback[1].inputs[1].parameters are not taken"),
        (with_inputs([0] * 1000) | {"label": [0] * 1001}, "feedback has 1001 labels of inputs, 1000 are possible"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_by_its_field(item: object, said: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        read(BY_ID, item)
    assert caught.value.message.startswith(said)


def test_bytes_are_bounded_and_those_by_id_which_other_nodes_are_asked_for_more_so() -> None:
    large = [with_inputs(shape=[1, 2**18], data=[1.5] * 2**18)]
    assert len(read(*large)) == 1
    for items, most in ((large, 2**20), ([BY_ID, *large], 2**24)):
        with pytest.raises(TooLargeError):
            read(*items, most=most)


def test_what_a_model_says_of_an_input_is_said_of_the_field() -> None:
    inputs = read(with_inputs())[0].inputs or ()
    assert at_field(3, inputs, "input 'x': shape is [1]") == "feedback[3].inputs[1].shape is [1]"
    assert at_field(3, inputs, "input 'z' is unknown") == "feedback[3].inputs: input 'z' is unknown"
