from __future__ import annotations

import math
from typing import Any

import pytest

from tiercel.core.errors import InvalidRequestError
from tiercel.serving.canary_plan import AT_ONCE, CanaryPlan, plan_from
from tiercel.serving.models.canary.judgement import Comparison, Counts, Outcome, Split, decide

PLAN = CanaryPlan(0.1, seconds=60.0)
NOTHING = Comparison()
OLD = Counts(9000, 0, 9.0)


def test_the_split_gives_exactly_its_share_and_spreads_it() -> None:
    split = Split(0.25)
    taken = [split.takes_next() for _ in range(100)]
    assert taken == [False, False, False, True] * 25


@pytest.mark.parametrize("fraction", [0.1, 0.3, 0.9])
def test_the_split_keeps_its_share_over_many_requests(fraction: float) -> None:
    split = Split(fraction)
    assert abs(sum(split.takes_next() for _ in range(10_000)) - 10_000 * fraction) <= 1


def test_a_trial_runs_until_its_time_is_up_and_is_promoted_then() -> None:
    new = Counts(1000, 0, 1.0)
    assert decide(PLAN, 59.9, OLD, new, NOTHING)[0] is Outcome.RUNNING
    assert decide(PLAN, 60.0, OLD, new, NOTHING)[0] is Outcome.PROMOTED


def test_a_trial_ends_early_with_the_requests_that_were_asked_for() -> None:
    plan = CanaryPlan(0.1, seconds=60.0, requests=100)
    assert decide(plan, 1.0, OLD, Counts(99, 0, 0.1), NOTHING)[0] is Outcome.RUNNING
    assert decide(plan, 1.0, OLD, Counts(100, 0, 0.1), NOTHING)[0] is Outcome.PROMOTED


def test_a_version_that_nobody_asked_anything_is_promoted() -> None:
    assert decide(PLAN, 60.0, Counts(), Counts(), NOTHING)[0] is Outcome.PROMOTED


def test_failures_roll_back_as_soon_as_they_are_no_chance() -> None:
    assert decide(PLAN, 1.0, OLD, Counts(0, 19), NOTHING)[0] is Outcome.RUNNING, "too few to say"
    outcome, reason = decide(PLAN, 1.0, OLD, Counts(10, 10), NOTHING)
    assert outcome is Outcome.ROLLED_BACK
    assert reason == "10 of 20 requests failed (50 %), of the old version's 0 of 9000 (0 %)"
    assert decide(PLAN, 1.0, OLD, Counts(98, 2), NOTHING)[0] is Outcome.RUNNING, "that may be chance"
    assert decide(PLAN, 60.0, OLD, Counts(98, 2), NOTHING)[0] is Outcome.ROLLED_BACK


def test_failures_that_the_old_version_has_too_are_no_fault() -> None:
    assert decide(PLAN, 60.0, Counts(500, 500, 1.0), Counts(50, 50, 0.1), NOTHING)[0] is Outcome.PROMOTED


def test_slower_answers_roll_back_at_the_end() -> None:
    slow = Counts(1000, 0, 2.5)
    assert decide(PLAN, 59.0, OLD, slow, NOTHING)[0] is Outcome.RUNNING
    outcome, reason = decide(PLAN, 60.0, OLD, slow, NOTHING)
    assert (outcome, "2.5 ms on average against 1 ms" in reason) == (Outcome.ROLLED_BACK, True)
    assert decide(PLAN, 60.0, OLD, Counts(19, 0, 1.0), NOTHING)[0] is Outcome.PROMOTED, "too few to say"


def test_outputs_that_differ_roll_back_at_once() -> None:
    plan = CanaryPlan(0.1, max_difference=0.5)
    assert decide(plan, 1.0, OLD, Counts(), Comparison(1, 1, 0, 0.5))[0] is Outcome.RUNNING
    assert decide(plan, 1.0, OLD, Counts(), Comparison(1, 1, 0, 0.51))[0] is Outcome.ROLLED_BACK
    assert decide(PLAN, 1.0, OLD, Counts(), Comparison(1, 1, 0, math.inf))[0] is Outcome.RUNNING, "nobody minds"


def test_too_little_agreement_rolls_back_when_it_is_certain_or_over() -> None:
    plan = CanaryPlan(0.1, min_agreement=0.9)
    assert decide(plan, 1.0, OLD, Counts(), Comparison(100, 88))[0] is Outcome.RUNNING
    assert decide(plan, 60.0, OLD, Counts(), Comparison(100, 88))[0] is Outcome.ROLLED_BACK
    assert decide(plan, 60.0, OLD, Counts(), Comparison(100, 90))[0] is Outcome.PROMOTED
    outcome, reason = decide(plan, 1.0, OLD, Counts(), Comparison(100, 50))
    assert (outcome, reason) == (
        Outcome.ROLLED_BACK,
        "50 of 100 compared rows agree (0.5), less than min_agreement 0.9",
    )


def test_runs_that_only_the_old_version_can_do_roll_back() -> None:
    assert decide(PLAN, 60.0, OLD, Counts(), Comparison(10, 10, failed=1))[0] is Outcome.ROLLED_BACK


def test_a_plan_is_read_from_parameters_as_numbers_or_strings() -> None:
    assert plan_from({}) is None
    assert plan_from({"version": "3"}) is None
    assert plan_from({"canary_fraction": "0.1"}) == CanaryPlan(0.1)
    assert plan_from({"canary_fraction": 1}) == AT_ONCE
    plan = plan_from({"canary_fraction": 0.5, "canary_seconds": 5, "canary_requests": 100, "canary_min_agreement": 1})
    assert plan == CanaryPlan(0.5, 5.0, 100, compare_fraction=0.1, min_agreement=1.0)


@pytest.mark.parametrize(
    ("parameters", "reason"),
    [
        ({"canary_seconds": 5}, "canary_seconds needs canary_fraction"),
        ({"canary_fraction": 0}, "above 0 and at most 1"),
        ({"canary_fraction": 1.1}, "above 0 and at most 1"),
        ({"canary_fraction": True}, "canary_fraction must be a number"),
        ({"canary_fraction": "a lot"}, "canary_fraction must be a number, not 'a lot'"),
        ({"canary_fraction": 0.1, "canary_requests": 0}, "canary_requests must be 1 or more"),
        ({"canary_fraction": 0.1, "canary_requests": float("inf")}, "canary_requests must be"),
        ({"canary_fraction": 0.1, "canary_seconds": 1e9}, "canary_seconds must be from 0.1 to 86400"),
        (
            {"canary_fraction": 0.1, "canary_max_latency_ratio": float("nan")},
            "canary_max_latency_ratio must be a number",
        ),
    ],
)
def test_impossible_plans_are_refused_by_name(parameters: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidRequestError, match=reason):
        plan_from(parameters)
