from __future__ import annotations

import dataclasses

import pytest

from testing.scheduling import job, snapshot, tiers
from tiercel.broker.scheduling.interface import JobView
from tiercel.broker.scheduling.las import LasPolicy, LasSettings


def used(job_id: str, cpu_seconds: float, submitted_at: float) -> JobView:
    return dataclasses.replace(job(job_id, submitted_at=submitted_at), cpu_seconds=cpu_seconds)


def order(*jobs: JobView, settings: LasSettings | None = None) -> list[str]:
    policy = LasPolicy(settings)
    plan, _ = policy.plan(snapshot(jobs), policy.initial_state())
    return [entry.job_id for entry in plan.assignments]


# The queues by default: below 4, below 16, below 64 CPU seconds, and the rest.
MUCH = used("much", 64.0, 0)
SOME = used("some", 15.9, 1)
LITTLE = used("little", 4.0, 2)
NONE = used("none", 3.9, 3)


def test_queues_go_by_cpu_seconds_and_within_one_submission_counts() -> None:
    assert order(MUCH, SOME, LITTLE, NONE) == ["none", "some", "little", "much"]


def test_without_thresholds_the_cpu_seconds_themselves_count() -> None:
    assert order(MUCH, SOME, LITTLE, NONE, settings=LasSettings(thresholds="")) == ["none", "little", "some", "much"]


def test_a_tier_reached_counts_more_than_cpu_seconds() -> None:
    reached = dataclasses.replace(NONE, tiers=tiers(0.5, 0.9, reached=1))
    assert order(MUCH, reached) == ["much", "none"]
    assert order(MUCH, reached, settings=LasSettings(tier_first=False)) == ["none", "much"]


def test_the_reason_names_the_queue() -> None:
    policy = LasPolicy()
    plan, _ = policy.plan(snapshot([SOME]), policy.initial_state())
    assert plan.assignments[0].share.reason.startswith("works for its tier 1, has used 15.9 CPU seconds, queue 2 of 4:")


@pytest.mark.parametrize("thresholds", ["4/4", "0/1", "nan", "1/nan", "much"])
def test_thresholds_that_make_no_sense_are_refused(thresholds: str) -> None:
    with pytest.raises(ValueError, match=r"rise|convert"):
        LasSettings(thresholds=thresholds)
