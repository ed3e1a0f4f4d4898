"""Jobs that start again, each as a new job."""

from __future__ import annotations

from dataclasses import replace

import pytest

from testing.actors import ALICE, Actors, running, running_actors, submit
from testing.clock import ManualClock
from testing.jobs import AT, final_job, running_job
from tiercel.broker.lifecycle.series import LABEL, next_of
from tiercel.broker.store.sql import Store
from tiercel.core.errors import InvalidSpecError
from tiercel.core.events import JobEvent, StateChanged
from tiercel.core.jobs import Job, JobState
from tiercel.core.moments import Moment

HOUR = 3600.0


@pytest.mark.parametrize("outcome", [JobState.COMPLETED, JobState.MISSED, JobState.FAILED])
def test_the_next_one_begins_a_period_after_this_one_began(outcome: JobState) -> None:
    ended = final_job(outcome)
    ended = replace(ended, spec=replace(ended.spec, every_seconds=HOUR, labels={"team": "vision"}))
    successor = next_of(running_job(every_seconds=HOUR), ended, "j2", Moment(AT + 60, 60.0))
    assert successor is not None
    assert (successor.id, successor.starts_at, successor.submitted_at) == ("j2", AT + HOUR, AT + HOUR)
    assert successor.spec.labels == {"team": "vision", LABEL: "j1"}
    assert (successor.state, successor.attempts, successor.best_value) == (JobState.PENDING, 0, None)
    assert not successor.concerns_scheduler
    assert successor.reason == "starts at 1970-01-01 01:16:40 UTC: every 1h, after job j1"


def test_one_that_took_longer_than_the_period_is_followed_at_once_and_nothing_is_made_up_for() -> None:
    ended = final_job(JobState.FAILED)
    ended = replace(ended, spec=replace(ended.spec, every_seconds=HOUR, labels={LABEL: "j0"}))
    successor = next_of(running_job(), ended, "j2", Moment(AT + 10 * HOUR, 60.0))
    assert successor is not None
    assert (successor.starts_at, successor.spec.labels[LABEL]) == (AT + 10 * HOUR, "j0")


def test_cancelling_ends_the_series_and_what_is_over_makes_no_second_one() -> None:
    cancelled = final_job(JobState.CANCELLED)
    cancelled = replace(cancelled, spec=replace(cancelled.spec, every_seconds=HOUR))
    assert next_of(running_job(), cancelled, "j2", Moment(AT, AT)) is None
    failed = replace(final_job(JobState.FAILED), spec=cancelled.spec)
    assert next_of(failed, failed, "j2", Moment(AT, AT)) is None
    assert next_of(running_job(), final_job(JobState.FAILED), "j2", Moment(AT, AT)) is None


# --- With the actors --------------------------------------------------------------------------------------------------


async def unfinished(actors: Actors) -> list[Job]:
    await actors.settle()
    return list(await actors.service.jobs_of("alice", active_only=True))


async def test_a_job_starts_again_and_again_until_it_is_cancelled(actors: Actors) -> None:
    await actors.connect()
    first = await running(actors, every_seconds=60.0)
    assert [job.id for job in await unfinished(actors)] == [first.id], "there is one of them"
    await actors.exit(first.run_id, 1)
    (second,) = await unfinished(actors)
    assert second.spec.labels == {LABEL: first.id}
    told = [event.change for event in actors.events if isinstance(event, JobEvent) and event.job_id == second.id]
    assert told == [StateChanged(JobState.PENDING, second.reason)]
    with pytest.raises(InvalidSpecError, match=f"job '{second.id}' of the same series .every. is pending; cancel it"):
        await actors.service.resume(ALICE, first.id)
    await actors.pass_time(50)
    assert (await actors.job(second.id)).state is JobState.PENDING
    await actors.connect(runs=[])
    await actors.pass_time(9)
    await actors.connect(runs=[])
    await actors.pass_time(2)
    second = await actors.job(second.id)
    assert (second.state, second.starts_at) == (JobState.STARTING, None)
    await actors.alive(second.run_id)
    await actors.exit(second.run_id, 1)
    (third,) = await unfinished(actors)
    assert third.spec.labels == {LABEL: first.id}
    assert third.submitted_at == second.submitted_at + 60
    await actors.service.cancel("alice", third.id)
    assert await unfinished(actors) == []
    await actors.service.resume(ALICE, first.id)
    assert [job.id for job in await unfinished(actors)] == [first.id], "it may be taken up again"


async def test_others_have_the_endpoint_between_two_jobs_of_a_series(actors: Actors) -> None:
    await actors.connect()
    first = await running(actors, every_seconds=60.0)
    waits = await submit(actors, queue=True)
    await actors.exit(first.run_id, 1)
    await actors.pass_time(1)
    waits = await actors.job(waits.id)
    assert waits.state is JobState.STARTING, "a series starves nobody"
    await actors.alive(waits.run_id)
    await actors.exit(waits.run_id, 1)
    (second,) = await unfinished(actors)
    other = await submit(actors)
    assert other.state is JobState.STARTING
    await actors.alive(other.run_id)
    for _ in range(10):
        await actors.pass_time(7)
        await actors.connect(runs=[other.run_id])
        await actors.alive(other.run_id)
    second = await actors.job(second.id)
    assert second.reason == f"waits until job {other.id} is over, which feeds endpoint 'digits'"
    await actors.exit(other.run_id, 1)
    await actors.pass_time(1)
    assert (await actors.job(second.id)).state is JobState.STARTING


async def test_a_series_survives_the_broker_and_does_not_double(store: Store) -> None:
    clock = ManualClock()
    async with running_actors(store, clock) as actors:
        await actors.connect()
        first = await running(actors, every_seconds=60.0)
        await actors.exit(first.run_id)
        (second,) = await unfinished(actors)
    clock.advance(1000.0)
    async with running_actors(store, clock) as actors:
        assert [job.id for job in await unfinished(actors)] == [second.id]
        await actors.connect()
        await actors.pass_time(1)
        (again,) = await unfinished(actors)
        assert (again.id, again.state) == (second.id, JobState.STARTING)
