from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import nn

from tiercel.trainer_agent.trainer import connect
from tiercel.trainer_agent.trainer.pytorch.calling import apply, as_tensors, fitted, named_outputs, tensors_of
from tiercel.trainer_agent.trainer.signature import ExampleInput, Signature, unpack

ROWS = np.ones((1, 3), dtype=np.float32)


class Named(NamedTuple):
    scores: torch.Tensor
    states: list[torch.Tensor]


@dataclass
class Fields:
    scores: torch.Tensor
    loss: torch.Tensor | None


@pytest.mark.parametrize(
    ("example", "names"),
    [
        (ROWS, ("input",)),
        (torch.ones(1, 3), ("input",)),
        ((ROWS,), ("input",)),
        ((ROWS, torch.ones(1, 2)), ("input_0", "input_1")),
        ({"image": ROWS, "mask": ROWS}, ("image", "mask")),
    ],
)
def test_inputs_get_names(example: ExampleInput, names: tuple[str, ...]) -> None:
    signature = Signature.from_example(example)
    assert signature.input_names == names
    assert len(signature.example) == len(names)


def test_the_example_is_a_copy() -> None:
    rows = torch.ones(1, 3)
    signature = Signature.from_example(rows)
    rows += 1
    assert np.array_equal(signature.example[0], ROWS)


@pytest.mark.parametrize("example", [(), np.float32(1.0), np.ones((0, 3), dtype=np.float32)])
def test_an_example_without_rows_is_refused(example: ExampleInput) -> None:
    with pytest.raises((ValueError, TypeError)):
        Signature.from_example(example)


def test_arrays_are_cast_to_the_types_of_the_example() -> None:
    (tensor,) = tensors_of(Signature.from_example(ROWS), [np.ones((2, 3), dtype=np.float64)])
    assert tensor.dtype == torch.float32


def test_too_few_arrays_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"2 inputs \(image, mask\), got 1"):
        Signature.from_example({"image": ROWS, "mask": ROWS}).arrays([ROWS])


@pytest.mark.parametrize(
    ("result", "names"),
    [
        (torch.ones(1), ["output"]),
        ((torch.ones(1),), ["output"]),
        ([torch.ones(1), torch.ones(1)], ["output_0", "output_1"]),
        ({"scores": torch.ones(1)}, ["scores"]),
        ({"loss": None, "states": (torch.ones(1), {"last": torch.ones(1)})}, ["states_0", "states_1_last"]),
        (Named(torch.ones(1), [torch.ones(1), torch.ones(1)]), ["scores", "states_0", "states_1"]),
        (Fields(torch.ones(1), None), ["scores"]),
    ],
)
def test_outputs_get_names(result: object, names: list[str]) -> None:
    assert list(named_outputs(result)) == names


@pytest.mark.parametrize(
    "result", [None, 1.0, "scores", {}, (torch.ones(1), None), {"a": [torch.ones(1)] * 2, "a_0": torch.ones(1)}]
)
def test_what_is_not_made_of_tensors_cannot_be_served(result: object) -> None:
    with pytest.raises(TypeError, match="served"):
        named_outputs(result)


def test_one_array_is_not_wrapped() -> None:
    assert unpack([ROWS]) is ROWS
    assert unpack([ROWS, ROWS]) == (ROWS, ROWS)


class _Two(nn.Module):
    def forward(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        return left - right


def test_a_mapping_is_passed_by_name_where_the_model_takes_these_names() -> None:
    example = {"right": torch.ones(1, 2), "left": torch.full((1, 2), 3.0)}
    signature = fitted(Signature.from_example(example), _Two())
    assert signature.by_name
    assert apply(_Two(), signature, as_tensors(signature.example))["output"].tolist() == [[2.0, 2.0]]


def test_names_none_of_which_the_model_takes_are_what_it_is_served_under() -> None:
    signature = fitted(Signature.from_example({"a": torch.full((1, 2), 3.0), "b": torch.ones(1, 2)}), _Two())
    assert not signature.by_name
    assert apply(_Two(), signature, as_tensors(signature.example))["output"].tolist() == [[2.0, 2.0]]


def test_a_name_beside_those_that_the_model_takes_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"example_input has middle, which forward\(\) of _Two does not take; it takes left, right"
    ):
        fitted(Signature.from_example({"left": torch.ones(1, 2), "middle": torch.ones(1, 2)}), _Two())


@pytest.mark.parametrize("axes", [{"left": {2: "tokens"}}, {"nobody": {1: "tokens"}}])
def test_axes_that_are_none_are_refused(axes: dict[str, dict[int, str]]) -> None:
    signature = Signature.from_example({"left": torch.ones(1, 2), "right": torch.ones(1, 2)})
    with pytest.raises(ValueError, match="dynamic_axes"):
        fitted(signature, _Two(), axes)


def test_what_is_neither_module_nor_estimator_is_refused_at_once() -> None:
    with pytest.raises(TypeError, match=r"takes a torch\.nn\.Module or an estimator, and model is numpy's ndarray"):
        connect(np.ones(2), torch.ones(1, 2), lambda _: 0.0)  # type: ignore[call-overload]
