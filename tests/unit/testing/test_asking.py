from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from testing.asking import Target, WrongAnswerError
from testing.sample_images import Outputs, Samples

METADATA = {
    "name": "digits",
    "inputs": [{"name": "input", "datatype": "FP32", "shape": [-1, 2, 2]}],
    "outputs": [{"name": "scores", "datatype": "FP32", "shape": [-1, 3]}],
}


def first_score(number: int, outputs: Outputs) -> float:
    return number + float(outputs["scores"][0])


@pytest.fixture
def target() -> Target:
    images = np.arange(8, dtype=np.float32).reshape(2, 2, 2)
    target = Target("digits", Samples(images, first_score), "http://127.0.0.1:1/v2/models/digits")
    target.prepare(METADATA)
    return target


def answer(data: list[Any], *, shape: list[int] | None = None, version: str = "2", name: str = "scores") -> bytes:
    output = {"name": name, "datatype": "FP32", "shape": shape or [1, len(data)], "data": data}
    return json.dumps({"model_name": "digits", "model_version": version, "outputs": [output]}).encode()


def test_nothing_is_live_before_there_is_metadata() -> None:
    samples = Samples(np.zeros((1, 2, 2), dtype=np.float32), first_score)
    assert not Target("digits", samples, "http://127.0.0.1:1").is_live


def test_requests_are_what_the_protocol_asks_for(target: Target) -> None:
    assert [json.loads(target.body(number)) for number in range(2)] == [
        {"inputs": [{"name": "input", "datatype": "FP32", "shape": [1, 2, 2], "data": row}]}
        for row in ([0, 1, 2, 3], [4, 5, 6, 7])
    ]


def test_images_that_do_not_fit_are_refused(target: Target) -> None:
    metadata = {**METADATA, "inputs": [{"name": "input", "datatype": "FP32", "shape": [-1, 28, 28]}]}
    with pytest.raises(ValueError, match="do not fit"):
        target.prepare(metadata)


def test_a_right_answer_has_a_version_and_a_score(target: Target) -> None:
    right = target.check(1, answer([0.5, 0.25, 0.25]))
    assert (right.version, right.score) == (2, 1.5)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "cannot be understood"),
        (b"[]", "cannot be understood"),
        (answer([1, 2, 3], version="latest"), "cannot be understood"),
        (answer([1, 2, 3], shape=[1, 4]), "cannot be understood"),
        (answer([1, 2, 3], shape=[3, 1]), "cannot be understood"),
        (answer([1, 2]), "shape"),
        (answer([1, 2, 3], name="other"), "shape"),
        (answer([1, 2, None]), "not finite"),
    ],
)
def test_anything_else_is_wrong(target: Target, body: bytes, why: str) -> None:
    with pytest.raises(WrongAnswerError, match=why):
        target.check(0, body)
