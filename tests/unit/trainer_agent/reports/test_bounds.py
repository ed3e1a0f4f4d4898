"""The parts that bound what a script may report."""

from __future__ import annotations

import math

from tiercel.trainer_agent.reports.metric_names import (
    BAD_NAME,
    MAX_METRICS,
    MAX_NAMES,
    TOO_MANY_METRICS,
    TOO_MANY_NAMES,
    MetricNames,
)
from tiercel.trainer_agent.reports.sieve import Goal, Milestones
from tiercel.trainer_agent.reports.token_bucket import TokenBucket
from tiercel.trainer_agent.trainer_socket.refusals import Refusals


def test_names_that_are_no_names_are_left_out_and_the_metric_of_the_tiers_never_is() -> None:
    names = MetricNames("accuracy")
    bad = {"": 1.0, "x" * 65: 1.0, "two words": 1.0, "line\n": 1.0, "größe": 1.0}
    good = {"val/top-5_acc.x": 1.0, "x" * 64: 1.0}
    assert names.accepted(bad | good) == (good, {BAD_NAME: len(bad)})
    many = {str(number): 1.0 for number in range(100)} | {"accuracy": 0.5}
    kept, left_out = names.accepted(many)
    assert kept["accuracy"] == 0.5
    assert (len(kept), left_out) == (MAX_METRICS, {TOO_MANY_METRICS: 101 - MAX_METRICS})


def test_a_run_has_so_many_different_names_and_goes_on_with_those() -> None:
    names = MetricNames("accuracy")
    for number in range(MAX_NAMES + 50):
        names.accepted({f"step_{number}": 1.0})
    kept, left_out = names.accepted({"another": 1.0, "step_3": 1.0, "accuracy": 0.5})
    assert kept == {"accuracy": 0.5, "step_3": 1.0}
    assert left_out == {TOO_MANY_NAMES: 1}


def test_a_reason_is_told_once_and_in_the_end_how_often() -> None:
    told: list[str] = []
    refusals = Refusals(told.append)
    for _ in range(1000):
        refusals.note("this is too much")
    refusals.note("that was once")
    assert told == ["this is too much.", "that was once."]
    refusals.sum_up()
    refusals.sum_up()
    assert told[2:] == ["1000 times in this run: this is too much."]


def test_a_bucket_fills_up_to_its_brim_and_debts_are_made_good() -> None:
    bucket = TokenBucket(per_second=10.0, burst=5.0, now=100.0)
    bucket.take(5.0, 100.0)
    assert bucket.seconds_until_room(100.0) == 0.0
    bucket.take(20.0, 100.0)
    assert bucket.seconds_until_room(100.0) == 2.0
    assert bucket.seconds_until_room(101.5) == 0.5
    bucket.take(5.0, 200.0)
    bucket.take(1.0, 200.0)
    assert bucket.seconds_until_room(200.0) == 0.1


def test_the_first_number_that_is_none_is_a_milestone_and_a_flood_of_them_is_not() -> None:
    milestones = Milestones(Goal("loss", smaller_is_better=True, targets=(0.5,)))
    assert [milestones.note(merit) for merit in (math.nan, math.inf, -0.6, -0.5, -0.4)] == [
        True,
        False,
        False,
        True,
        False,
    ]
