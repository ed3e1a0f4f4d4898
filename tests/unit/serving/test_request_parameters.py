from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from tiercel.core.errors import InvalidRequestError
from tiercel.serving import request_parameters as given


@pytest.mark.parametrize(
    ("read", "value", "expected"),
    [
        (given.timeout, None, None),
        (given.timeout, 0, None),
        (given.timeout, 2_000_000, 2.0),
        (given.priority, None, 0),
        (given.priority, 2**32 - 1, 2**32 - 1),
        (given.minimum_accuracy, None, None),
        (given.minimum_accuracy, 1, 1.0),
        (given.minimum_accuracy, 0.5, 0.5),
        (lambda value: given.classification(value, "y"), 3, 3),
    ],
)
def test_what_parameters_are_here(read: Callable[[object], object], value: object, expected: object) -> None:
    assert read(value) == expected
    assert type(read(value)) is type(expected)


@pytest.mark.parametrize(
    ("read", "values"),
    [
        (given.timeout, (True, -1, 1.0, "1")),
        (given.priority, (False, -1, 2**32, 1.0)),
        (given.minimum_accuracy, (True, -0.1, 1.1, math.nan, "1")),
        (lambda value: given.classification(value, "y"), (True, 0, 2**31, 1.0)),
        (lambda value: given.refuse_sequence("sequence_id", value), (1, "a", True)),
    ],
)
def test_what_they_may_not_be(read: Callable[[object], object], values: tuple[object, ...]) -> None:
    for value in values:
        with pytest.raises(InvalidRequestError, match="parameter"):
            read(value)


def test_no_sequence_and_no_shared_memory_are_fine() -> None:
    for nothing in (None, 0, "", False):
        given.refuse_sequence("sequence_id", nothing)
    given.refuse_shared_memory(["binary_data"], "input 'x'", "send")
    with pytest.raises(InvalidRequestError, match="input 'x': shared memory is not supported; send the data"):
        given.refuse_shared_memory(["shared_memory_region"], "input 'x'", "send")
