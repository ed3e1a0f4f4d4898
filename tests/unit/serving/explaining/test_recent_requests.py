from __future__ import annotations

import pytest

from tiercel.serving.explaining.recent_requests import (
    FULL_MODELS,
    MOST_MODELS,
    RecentRequests,
    Remembered,
    RunTimes,
    Trace,
)


def keep(recent: RecentRequests, model: str, request_id: str, end: float = 0.0) -> None:
    Trace(recent, request_id).end(model, "3", "", 0.0, 0.0, 1, end, end)


def found(recent: RecentRequests, model: str, request_id: str) -> Remembered:
    one = recent.find(model, request_id)
    assert isinstance(one, Remembered)
    return one


def test_the_last_ones_of_each_model_are_known_and_never_more_than_twice_as_many() -> None:
    recent = RecentRequests(4)
    for number in range(1000):
        keep(recent, "m", str(number))
    known = [number for number in range(1000) if recent.find("m", str(number)) is not None]
    assert known[-4:] == [996, 997, 998, 999]
    assert 4 <= len(known) <= 8


def test_a_flood_of_one_model_leaves_those_of_another() -> None:
    recent = RecentRequests(4)
    keep(recent, "quiet", "a")
    for number in range(1000):
        keep(recent, "loud", str(number))
    assert recent.find("quiet", "a") is not None
    assert recent.find("loud", "a") is None


def test_of_more_models_than_are_kept_those_asked_longest_ago_go() -> None:
    recent = RecentRequests(MOST_MODELS)
    for number in range(MOST_MODELS):
        keep(recent, str(number), "a", float(number))
    keep(recent, "0", "b", 100.0)
    keep(recent, "another", "a", 101.0)
    gone = [number for number in range(MOST_MODELS) if recent.find(str(number), "a") is None]
    assert gone == [1]


def test_many_models_that_are_asked_little_are_all_known_and_a_flood_makes_no_more_of_them_than_there_is_room() -> None:
    recent = RecentRequests(4)
    for number in range(2 * 4 * FULL_MODELS):
        keep(recent, str(number), "a", float(number))
    assert all(recent.find(str(number), "a") for number in range(2 * 4 * FULL_MODELS))
    for number in range(100):
        keep(recent, "loud", str(number), 1000.0 + number)
    known = [number for number in range(2 * 4 * FULL_MODELS) if recent.find(str(number), "a")]
    assert known == list(range(8, 2 * 4 * FULL_MODELS)), "those asked longest ago made room for what one model may have"


def test_steps_add_up_to_all_that_it_took() -> None:
    recent = RecentRequests(4)
    trace = Trace(recent, "a")
    trace.run, trace.place = RunTimes(1.5, 0.25, 2.0, requests=3, rows=7), 2
    trace.end("m", "3", "small", 0.5, 1.0, 2, 4.0, 4.125)
    told = found(recent, "m", "a").as_json()
    assert told["steps"] == {
        "parse": 0.5, "queue": 0.5, "batch": 0.25, "run": 2.0, "return": 0.25, "encode": 0.125,
    }  # fmt: skip
    assert sum(told["steps"].values()) == told["seconds"] == 3.625
    assert told["batch"] == {"requests": 3, "place": 2, "rows": 7, "own_rows": 2}
    assert (told["version"], told["variant"], told["error"]) == ("3", "small", "")


@pytest.mark.parametrize(
    ("most", "request_id", "wanted"), [(4, "a", True), (4, "", False), (4, "a" * 129, False), (0, "a", False)]
)
def test_what_is_remembered(most: int, request_id: str, wanted: bool) -> None:
    assert RecentRequests(most).wants(request_id) is wanted
