"""What cannot be answered is refused alike over every way to ask."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from testing.onnx_zoo import f32
from testing.serving_callers import Array, Client, RefusedError
from tiercel.core.errors import (
    DeadlineExceededError,
    InferenceFailedError,
    InvalidRequestError,
    NotFoundError,
    TiercelError,
)


@pytest.mark.parametrize(
    ("model", "inputs", "more", "error", "message"),
    [
        ("nobody", {"x": f32(1, 4)}, {}, NotFoundError, "model 'nobody' is not loaded"),
        ("bad", {"x": f32(1)}, {}, NotFoundError, "model 'bad' is not loaded"),
        (
            "plus",
            {"x": f32(1, 4)},
            {"version": "2"},
            NotFoundError,
            "version 2 of model 'plus' is not loaded; version 3",
        ),
        ("plus", {"x": f32(1, 4)}, {"version": "x"}, InvalidRequestError, "version 'x' is not a number"),
        ("plus", {"z": f32(1, 4)}, {}, InvalidRequestError, "input 'z' is unknown; model 'plus' takes x"),
        ("plus", {"x": f32(1, 3)}, {}, InvalidRequestError, "input 'x': shape is [1, 3]"),
        ("plus", {"x": f32(1, 1, 4)}, {}, InvalidRequestError, "input 'x': shape is [1, 1, 4]"),
        ("plus", {"x": np.zeros((1, 4), np.int32)}, {}, InvalidRequestError, "input 'x': datatype is INT32"),
        ("two", {"a": f32(1), "b": f32(1)}, {}, InvalidRequestError, "input 'k' of model 'two' is missing"),
        ("plus", {"x": f32(1, 4)}, {"outputs": ["z"]}, InvalidRequestError, "output 'z' is unknown"),
        ("gather", {"i": np.array([7])}, {}, InvalidRequestError, "the model does not take these inputs"),
        ("two", {"a": f32(2), "b": f32(3), "k": np.array(1)}, {}, InferenceFailedError, "the model failed"),
        ("loop", {"k": np.array(10**9)}, {"timeout": 50_000}, DeadlineExceededError, "within 0.05 seconds"),
        ("plus", {"x": f32(1, 4)}, {"timeout": -1}, InvalidRequestError, "parameter timeout must be"),
    ],
)
def test_the_same_errors_everywhere(
    client: Client,
    model: str,
    inputs: dict[str, Array],
    more: dict[str, Any],
    error: type[TiercelError],
    message: str,
) -> None:
    more = dict(more)
    outputs = more.pop("outputs", [])
    with pytest.raises(RefusedError) as caught:
        client.infer(model, inputs, outputs, **more)
    assert caught.value.is_a(error), caught.value
    assert message in caught.value.message
