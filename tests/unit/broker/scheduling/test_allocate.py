from __future__ import annotations

import pytest

from tiercel.broker.scheduling.allocate import Claim, divide


@pytest.mark.parametrize(
    ("claims", "capacity", "expected"),
    [
        ({}, 1.0, {}),
        ({"a": Claim(1, 0), "b": Claim(3, 0)}, 1.0, {"a": 0.25, "b": 0.75}),
        # b's part would be 0.09: it gets its floor, the others share 0.8 as 2 : 8
        ({"a": Claim(2, 0.1), "b": Claim(1, 0.2), "c": Claim(8, 0.1)}, 1.0, {"a": 0.16, "b": 0.2, "c": 0.64}),
        # c stops at its ceiling, the others share 0.5 as 1 : 3
        ({"a": Claim(1, 0), "b": Claim(3, 0), "c": Claim(96, 0, 0.5)}, 1.0, {"a": 0.125, "b": 0.375, "c": 0.5}),
        # all at their ceilings: something is left
        ({"a": Claim(1, 0, 0.25), "b": Claim(1, 0, 0.25)}, 1.0, {"a": 0.25, "b": 0.25}),
        # no weights at all: equal
        ({"a": Claim(0, 0.1), "b": Claim(0, 0.1)}, 0.8, {"a": 0.4, "b": 0.4}),
        # without a weight it stays at its floor
        ({"a": Claim(0, 0.1), "b": Claim(1, 0.1)}, 0.8, {"a": 0.1, "b": 0.7}),
        # floors use up everything
        ({"a": Claim(5, 0.5), "b": Claim(1, 0.5)}, 1.0, {"a": 0.5, "b": 0.5}),
    ],
)
def test_divide(claims: dict[str, Claim], capacity: float, expected: dict[str, float]) -> None:
    assert divide(claims, capacity) == pytest.approx(expected)
