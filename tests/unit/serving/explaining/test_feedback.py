from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tiercel.core.errors import InvalidRequestError, NotFoundError
from tiercel.core.feedback import wilson
from tiercel.serving.explaining.feedback import MOST_OF_MODEL, MOST_VERSIONS, WINDOW_ROWS, Feedback, answered
from tiercel.serving.explaining.recent_requests import Answered, RecentRequests, Trace


class House:
    """Requests that were answered, and what is said of them."""

    def __init__(self) -> None:
        self.recent = RecentRequests(4096)
        self.feedback = Feedback(self.recent)

    def answer(self, request_id: str, answer: Answered | None, version: str = "3") -> None:
        Trace(self.recent, request_id).end("m", version, "", 0.0, 0.0, 1, 0.0, 0.0, answer=answer)

    def versions(self) -> dict[str, dict[str, Any]]:
        return {each["version"]: each for each in self.feedback.of("m")}


@pytest.mark.parametrize(
    ("output", "said"),
    [
        (np.array([[0.1, 0.9, 0.0], [3.0, 2.0, 1.0]], np.float32), (3, 1, 0)),
        (np.array([7, 9]), (0, 7, 9)),
        (np.array([[0.5], [1.5]], np.float32), (0, 0.5, 1.5)),
        (np.array(["cat"], object), (0, "cat")),
        (np.array(["c" * 200], object), None),
        (np.zeros((65, 2)), None),
        (np.zeros((0, 2)), None),
        (np.zeros(()), None),
        (np.zeros((1, 2, 3)), None),
    ],
)
def test_what_is_kept_of_an_output(output: Any, said: object) -> None:
    assert answered(output) == said


def test_an_answer_counts_with_the_version_that_gave_it_whichever_answers_by_now() -> None:
    house = House()
    house.answer("a", (10, 3, 4), "3")
    house.answer("b", (10, 5), "4")
    house.feedback.take("m", "a", [3, 9])
    house.feedback.take("m", "b", 5)
    versions = house.versions()
    assert list(versions) == ["4", "3"]
    assert (versions["3"]["accuracy"], versions["3"]["rows"]) == (0.5, 2)
    assert (versions["4"]["accuracy"], versions["4"]["rows"]) == (1.0, 1)


def test_how_far_off_values_are() -> None:
    house = House()
    house.answer("a", (0, 1.0, 2.0))
    house.feedback.take("m", "a", [1.5, 2])
    assert house.versions()["3"]["mean_absolute_error"] == 0.25
    house.answer("b", (0, 1.0, math.nan))
    with pytest.raises(InvalidRequestError, match="'b': label cannot be compared"):
        house.feedback.take("m", "b", [1.5, 2])
    assert house.versions()["3"]["mean_absolute_error"] == 0.25, "what cannot be compared spoils nothing"


@pytest.mark.parametrize(
    ("answer", "label"),
    [
        ((10, 3), "3"), ((10, 3), 10), ((10, 3), -1), ((10, 3), 3.0), ((10, 3), True), ((10, 3), None), ((10, 3), {}),
        ((10, 3), [3, 3]), ((10, 3), []), ((10, 3), [[3]]), ((0, 1.0), math.nan), ((0, 1.0), math.inf),
        ((0, 1.0), True), ((0, 1.0), 10**400), ((0, "cat"), 1), ((0, True), 1), (None, 3),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused_and_changes_nothing(answer: Answered | None, label: object) -> None:
    house = House()
    house.answer("a", answer)
    with pytest.raises(InvalidRequestError, match="'a': "):
        house.feedback.take("m", "a", label)
    assert house.versions() == {}
    if answer is not None:
        house.feedback.take("m", "a", answer[1])  # what was refused may be said right


def test_a_request_counts_once_and_a_flood_of_false_ids_not_at_all() -> None:
    house = House()
    house.answer("a", (10, 3))
    house.feedback.take("m", "a", 3)
    for _ in range(3):
        with pytest.raises(InvalidRequestError, match="it counts once"):
            house.feedback.take("m", "a", 4)
    for number in range(1000):
        with pytest.raises(NotFoundError):
            house.feedback.take("m", f"false {number}", 3)
    with pytest.raises(NotFoundError):
        house.feedback.take("someone else's", "a", 3)
    assert house.versions()["3"]["count"] == 1


def test_windows_are_bounded() -> None:
    house = House()
    for number in range(WINDOW_ROWS + 10):
        house.answer(str(number), (10, 3))
        house.feedback.take("m", str(number), 3 if number >= 10 else 4)
    assert (house.versions()["3"]["rows"], house.versions()["3"]["accuracy"]) == (WINDOW_ROWS, 1.0)
    assert house.feedback.accuracies()[0]["right"] == WINDOW_ROWS
    for number in range(MOST_OF_MODEL):
        house.feedback.count("m", "", f"v{number}", (10, 3), 3)
    assert len(house.versions()) == MOST_OF_MODEL
    assert "3" not in house.versions()
    house.feedback.count("another", "", "1", (10, 3), 3)
    for number in range(MOST_VERSIONS):
        house.feedback.count("m", "", f"w{number}", (10, 3), 3)
    assert house.feedback.of("another"), "versions of one model leave those of others"
    for number in range(MOST_VERSIONS):
        house.feedback.count(f"m{number}", "", "1", (10, 3), 3)
    assert (len(house.feedback.accuracies()), house.versions()) == (MOST_VERSIONS, {})


def test_the_interval_is_wilsons() -> None:
    # Known values: 8 of 10, and the ends, where the simple interval has no width.
    assert wilson(8, 10) == pytest.approx((0.4902, 0.9433), abs=1e-4)
    assert wilson(10, 10) == pytest.approx((0.7225, 1.0), abs=1e-4)
    assert wilson(0, 10) == pytest.approx((0.0, 0.2775), abs=1e-4)


def test_of_a_model_that_is_gone_neither_requests_nor_feedback_are_known() -> None:
    house = House()
    house.answer("a", (10, 3))
    house.answer("b", (10, 3))
    house.feedback.take("m", "a", 3)
    house.feedback.forget("m")
    assert house.versions() == {}
    with pytest.raises(NotFoundError, match="no request with this id is known"):
        house.feedback.take("m", "b", 3)
    house.feedback.forget("m")
    house.answer("b", (10, 3))
    house.feedback.take("m", "b", 3)
    assert list(house.versions()) == ["3"]
