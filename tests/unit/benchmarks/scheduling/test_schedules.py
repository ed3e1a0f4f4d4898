from __future__ import annotations

import pytest

from benchmarks.scheduling.kinds import KINDS, Kind
from benchmarks.scheduling.schedules import SCHEDULES, TRAINING_SEEDS, make_schedule
from tiercel.core.validation import validate_spec


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_schedule_is_the_same_each_time_and_another_one_each_repetition(name: str) -> None:
    schedules = [make_schedule(name, repetition) for repetition in range(3)]
    assert schedules == [make_schedule(name, repetition) for repetition in range(3)]
    drawn = {tuple((job.name, job.at_seconds, job.training_seed) for job in schedule.jobs) for schedule in schedules}
    assert len(drawn) == len(schedules)
    assert make_schedule(name, 0, seed=1).jobs != make_schedule(name, 0, seed=2).jobs


@pytest.mark.parametrize("name", SCHEDULES)
def test_jobs_come_in_order_under_names_of_their_own(name: str) -> None:
    schedule = make_schedule(name, 4)
    times = [job.at_seconds for job in schedule.jobs]
    assert times == sorted(times)
    assert times[0] >= 0
    assert len({job.name for job in schedule.jobs}) == len(schedule.jobs)
    assert {job.training_seed for job in schedule.jobs} == {4 % TRAINING_SEEDS}


def test_no_kind_comes_again_before_every_kind_has_come() -> None:
    kinds = [job.kind for job in make_schedule("fifteen", 0).jobs]
    assert set(kinds[: len(KINDS)]) | set(kinds) == set(KINDS)
    assert max(kinds.count(kind) for kind in KINDS) - min(kinds.count(kind) for kind in KINDS) <= 1


def test_only_what_is_right_or_wrong_is_under_load() -> None:
    for repetition in range(5):
        schedule = make_schedule("mixed", repetition)
        assert schedule.requests_per_second > 0
        assert {KINDS[job.kind].metric for job in schedule.jobs} == {"accuracy"}


def test_an_unknown_schedule_is_refused_with_those_there_are() -> None:
    with pytest.raises(ValueError, match="at-once"):
        make_schedule("nonsense", 0)


@pytest.mark.parametrize("kind", KINDS.values(), ids=list(KINDS))
def test_a_kind_makes_a_spec_that_the_broker_takes(kind: Kind) -> None:
    spec = kind.spec("a-job", 2, "process")
    validate_spec(spec)
    assert spec.continue_after_last_tier
    assert spec.arguments[-2:] == ("--seed", "2")
    assert kind.long_epochs >= kind.max_epochs
