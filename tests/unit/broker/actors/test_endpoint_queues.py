"""Jobs that wait until the endpoint they feed is free, in the order of submission."""

from __future__ import annotations

from dataclasses import replace

import pytest

from testing.actors import ALICE, BOB, Actors, running, running_actors, submit
from testing.jobs import new_job
from tiercel.broker.actors.endpoint_queues import MAX_QUEUED, queue_steps
from tiercel.broker.store.sql import Store
from tiercel.core.errors import EndpointBusyError
from tiercel.core.jobs import Job, JobState


def job(job_id: str, number: int, **spec: object) -> Job:
    return replace(new_job(**spec), id=job_id, queued=number)


def test_the_one_submitted_first_goes_first_and_the_others_say_what_they_wait_for() -> None:
    last, first, middle = job("a", 3), job("c", 1), job("b", 2)
    steps = queue_steps([last, first, middle], 0.0)
    assert steps.turns == (first,)
    assert steps.waiting == {
        "b": "waits until job c is over, which feeds endpoint 'digits'",
        "a": "waits until job c is over, which feeds endpoint 'digits', and 1 more job queued before this one",
    }


def test_nobody_has_a_turn_while_a_job_feeds_the_endpoint() -> None:
    feeding = job("a", 0)
    assert queue_steps([feeding, job("b", 1)], 0.0).turns == ()
    over = replace(feeding, state=JobState.FAILED)
    assert [each.id for each in queue_steps([over, job("b", 1)], 0.0).turns] == ["b"]


def test_endpoints_and_variants_have_queues_of_their_own() -> None:
    jobs = [
        job("a", 0),
        job("b", 7, endpoint="letters"),
        job("c", 1, variant="small"),
        job("d", 1, variant="large"),
        job("e", 2, variant="small"),
    ]
    steps = queue_steps(jobs, 0.0)
    assert [each.id for each in steps.turns] == ["c", "d", "b"]
    assert set(steps.waiting) == {"e"}


def test_the_next_job_of_a_series_holds_nobody_up_before_its_time() -> None:
    series = replace(job("s", 1), starts_at=100.0, submitted_at=100.0)
    late = replace(job("b", 1), submitted_at=50.0)
    assert [each.id for each in queue_steps([series, late], 60.0).turns] == ["b"]
    feeding = replace(late, queued=0)
    assert queue_steps([series, feeding], 60.0) == ((), {}), "it says when it begins"
    assert set(queue_steps([series, feeding], 100.0).waiting) == {"s"}
    assert [each.id for each in queue_steps([series], 100.0).turns] == ["s"]


# --- With the actors --------------------------------------------------------------------------------------------------


async def test_a_job_waits_for_its_endpoint_and_has_it_in_the_order_of_submission(actors: Actors) -> None:
    await actors.connect()
    first = await running(actors)
    second = await submit(actors, queue=True)
    third = await submit(actors, queue=True)
    assert (second.state, second.run_active) == (JobState.PENDING, False)
    assert second.reason == f"waits until job {first.id} is over, which feeds endpoint 'digits'"
    assert third.reason.endswith(", and 1 more job queued before this one")
    await actors.pass_time(5)
    assert (await actors.job(second.id)).state is JobState.PENDING
    with pytest.raises(EndpointBusyError, match=f"is being fed by job {first.id}"):
        await submit(actors)
    await actors.exit(first.run_id, 1)
    with pytest.raises(EndpointBusyError, match="is being fed by job"):
        await submit(actors)  # nobody slips in between
    await actors.pass_time(1)
    second, third = await actors.job(second.id), await actors.job(third.id)
    assert (second.state, third.state) == (JobState.STARTING, JobState.PENDING)
    assert third.reason == f"waits until job {second.id} is over, which feeds endpoint 'digits'"
    await actors.service.cancel("alice", second.id)
    await actors.exit(second.run_id, -15)
    await actors.pass_time(1)
    assert (await actors.job(third.id)).state is JobState.STARTING


async def test_a_queued_job_that_is_cancelled_never_runs(actors: Actors) -> None:
    await actors.connect()
    first = await running(actors)
    second, third = await submit(actors, queue=True), await submit(actors, queue=True)
    assert (await actors.service.cancel("alice", second.id)).state is JobState.CANCELLED
    await actors.exit(first.run_id)
    await actors.pass_time(1)
    assert (await actors.job(second.id)).attempts == 0
    assert (await actors.job(third.id)).state is JobState.STARTING


async def test_an_endpoint_that_is_free_makes_nobody_wait(actors: Actors) -> None:
    await actors.connect()
    assert (await submit(actors, queue=True)).state is JobState.STARTING


async def test_the_objective_of_a_queued_job_counts_from_its_turn_on(actors: Actors) -> None:
    await actors.connect()
    first = await running(actors, endpoint_objective_seconds=0.1)
    await submit(actors, queue=True, endpoint_objective_seconds=0.2)
    assert actors.service.endpoints.find("alice", "digits").objective_seconds == 0.1
    await actors.exit(first.run_id)
    await actors.pass_time(1)
    assert actors.service.endpoints.find("alice", "digits").objective_seconds == 0.2


async def test_so_many_wait_for_an_endpoint_and_no_more(actors: Actors) -> None:
    await actors.connect()
    await submit(actors)
    for _ in range(MAX_QUEUED):
        await submit(actors, queue=True)
    with pytest.raises(EndpointBusyError, match="queue: 16 jobs wait for endpoint 'digits' already") as refused:
        await submit(actors, queue=True)
    assert refused.value.field == "queue"


async def test_nobody_waits_for_the_endpoint_of_another_tenant(actors: Actors) -> None:
    await actors.connect()
    await running(actors)
    with pytest.raises(EndpointBusyError, match="belongs to another tenant"):
        await submit(actors, tenant=BOB, queue=True)


async def test_a_queue_survives_the_broker(store: Store) -> None:
    async with running_actors(store) as actors:
        await actors.connect()
        first = await running(actors)
        second = await submit(actors, queue=True)
    async with running_actors(store) as actors:
        await actors.pass_time(1)
        second = await actors.job(second.id)
        assert (second.state, second.queued) == (JobState.PENDING, 1)
        await actors.connect(runs=[first.run_id])
        await actors.alive(first.run_id)
        assert (await actors.job(second.id)).state is JobState.PENDING
        await actors.exit(first.run_id)
        await actors.pass_time(1)
        assert (await actors.job(second.id)).state is JobState.STARTING


async def test_a_job_that_is_resumed_does_not_wait_in_a_queue(actors: Actors) -> None:
    await actors.connect()
    first = await running(actors)
    second = await submit(actors, queue=True)
    await actors.service.cancel("alice", second.id)
    with pytest.raises(EndpointBusyError, match=f"is being fed by job {first.id}"):
        await actors.service.resume(ALICE, second.id)
    await actors.exit(first.run_id)
    resumed = await actors.service.resume(ALICE, second.id)
    assert not resumed.queued
    assert (await actors.job(second.id)).state is JobState.STARTING
