from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

import pytest

from tiercel.serving.runtime.measure import Batching
from tiercel.serving.runtime.profile import LatencyProfile
from tiercel.serving.verification.verdict import Verdict, read_verdict

GOOD = Batching(LatencyProfile((1, 2, 4), (1e-5, 2e-5, 3e-5)), "", 64)


def said(batching: Batching | None = GOOD, **profile: Any) -> dict[str, Any]:
    """An answer as it arrives, with another profile than the honest one where that is wanted."""
    answer: dict[str, Any] = dataclasses.asdict(Verdict({"x": [2, 4]}, has_loop=True, weight_bytes=7))
    if batching is not None:
        answer["batching"] = dataclasses.asdict(batching)
        if profile:
            answer["batching"]["profile"] |= profile
    found: dict[str, Any] = json.loads(json.dumps(answer))
    return found


@pytest.mark.parametrize("batching", [GOOD, Batching(None, "the model has no inputs"), None])
def test_what_an_honest_process_says_is_understood(batching: Batching | None) -> None:
    expected = Verdict({"x": [2, 4]}, has_loop=True, weight_bytes=7, batching=batching)
    assert read_verdict(said(batching), 4) == expected


@pytest.mark.parametrize(
    "profile",
    [
        {"rows": [1, 2, 8]},  # 4 were asked about
        {"rows": [2, 3, 4]},
        {"rows": [1, 4, 2]},
        {"rows": [1, 2]},
        {"rows": [1, 2, True]},
        {"rows": "124"},
        {"rows": None},
        {"rows": [], "seconds": []},
        {"seconds": [1e-5, 2e-5, math.nan]},
        {"seconds": [1e-5, 2e-5, math.inf]},
        {"seconds": [0.0, 2e-5, 3e-5]},
        {"seconds": [-1.0, 2e-5, 3e-5]},
        {"seconds": [1e-5, 2e-5, "3e-5"]},
        {"seconds": {"1": 1e-5}},
    ],
)
def test_times_that_no_honest_process_says_are_left_out(profile: dict[str, Any]) -> None:
    assert read_verdict(said(**profile), 4).batching is None


@pytest.mark.parametrize(
    "batching",
    [
        "fast",
        [],
        {"profile": None, "reason": "", "elements": 0},
        {"profile": None, "reason": 5, "elements": 0},
        {"profile": {"rows": [1], "seconds": [1e-5]}, "reason": "", "elements": -1},
        {"profile": {"rows": [1], "seconds": [1e-5]}, "reason": ""},
        {"profile": 5, "reason": "", "elements": 1},
    ],
)
def test_what_is_no_measurement_is_left_out(batching: Any) -> None:
    assert read_verdict(said() | {"batching": batching}, 4).batching is None


def test_a_reason_is_one_line_of_bounded_length() -> None:
    batching = read_verdict(said(Batching(None, "a\nb" + "c" * 9999)), 4).batching
    assert batching is not None
    assert batching.reason == "a b" + "c" * 297


@pytest.mark.parametrize(
    "wrong",
    [
        {"shapes": None},
        {"shapes": []},
        {"shapes": {"x": 4}},
        {"shapes": {"x": [-1]}},
        {"shapes": {"x": [1.5]}},
        {"has_loop": 1},
        {"weight_bytes": -1},
        {"weight_bytes": "much"},
    ],
)
def test_what_is_no_verdict_is_none(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="no verdict"):
        read_verdict(said() | wrong, 4)
