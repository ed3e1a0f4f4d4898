"""Jobs that get another try, by the broker's actors over real stores."""

from __future__ import annotations

import asyncio

import pytest

from testing.actors import ALICE, BOB, GIB, Actors, running, running_actors, submit, wanted_of
from testing.clock import ManualClock
from tiercel.broker.store.sql import Store
from tiercel.core.endpoints import DeliveryState
from tiercel.core.errors import EndpointBusyError, InvalidSpecError, NotFoundError
from tiercel.core.events import JobEvent, PriorityChanged, StateChanged
from tiercel.core.jobs import JobState, Resources, TierState


async def test_a_script_that_crashes_is_placed_again_after_a_pause_where_its_checkpoint_is(actors: Actors) -> None:
    node, epoch = await actors.connect()
    job = await running(actors, retries=1)
    await actors.exit(job.run_id, 1)
    waiting = await actors.job(job.id)
    assert (waiting.state, waiting.retries) == (JobState.PENDING, 1)
    assert (await wanted_of(node, epoch)).runs == ()
    await actors.pass_time(1.5)
    again = await actors.job(job.id)
    assert (again.state, again.run_id, again.node_id) == (JobState.STARTING, f"{job.id}-2", "n1")
    await actors.alive(again.run_id)
    await actors.exit(again.run_id, -9)
    assert (await actors.job(job.id)).state is JobState.FAILED


async def test_a_broker_that_restarts_in_the_pause_before_a_retry_starts_it_all_the_same(store: Store) -> None:
    clock = ManualClock()
    async with running_actors(store, clock) as actors:
        await actors.connect()
        job = await running(actors, retries=1)
        await actors.exit(job.run_id, 1)
    async with running_actors(store, clock) as actors:
        await actors.connect()
        assert (await actors.job(job.id)).state is JobState.STARTING


async def test_a_failed_job_is_resumed_and_delivers_under_its_id(actors: Actors) -> None:
    node, epoch = await actors.connect()
    job = await running(actors)
    await actors.report(job.run_id, 0.85)
    await actors.delivered(f"{job.id}-tier-1")
    await actors.exit(job.run_id, 1)
    assert (await actors.job(job.id)).state is JobState.FAILED
    assert job.id not in actors.registry.jobs, "its actor is gone"

    both = await asyncio.gather(*(actors.service.resume(ALICE, job.id) for _ in range(2)))
    assert {each.id for each in both} == {job.id}
    again = await actors.job(job.id)
    assert (again.state, again.run_id, again.node_id) == (JobState.STARTING, f"{job.id}-2", "n1")
    assert [run.run_id for run in (await wanted_of(node, epoch)).runs] == [again.run_id]
    await actors.alive(again.run_id)
    await actors.report(again.run_id, 0.95)
    await actors.delivered(f"{job.id}-tier-2")
    await actors.exit(again.run_id, -15)
    done = await actors.job(job.id)
    assert (done.state, [tier.version for tier in done.tiers]) == (JobState.COMPLETED, [1, 2])
    changes = [event.change for event in actors.events if isinstance(event, JobEvent)]
    finals = [change.state for change in changes if isinstance(change, StateChanged) and change.state.is_final]
    assert finals == [JobState.FAILED, JobState.COMPLETED]


async def test_a_delivery_that_failed_is_tried_anew_once_the_job_is_resumed(actors: Actors) -> None:
    node, epoch = await actors.connect()
    job = await running(actors)
    await actors.report(job.run_id, 0.85)
    await actors.delivery(f"{job.id}-tier-1", DeliveryState.FAILED, reason="the disk was full")
    await actors.exit(job.run_id, -15)
    assert (await actors.job(job.id)).state is JobState.FAILED
    await actors.service.resume(ALICE, job.id)
    again = await actors.job(job.id)
    await actors.alive(again.run_id)
    await actors.report(again.run_id, 0.86)
    (wanted,) = (await wanted_of(node, epoch)).deliveries
    assert (wanted.delivery.id, wanted.delivery.version, wanted.run_id) == (f"{job.id}-tier-1-again-1", 2, again.run_id)
    await actors.delivered(wanted.delivery.id)
    assert (await actors.job(job.id)).tiers[0].state is TierState.DELIVERED


async def test_what_cannot_be_resumed_says_why(actors: Actors) -> None:
    await actors.connect()
    done = await running(actors)
    await actors.report(done.run_id, 0.95)
    for tier in (1, 2):
        await actors.delivered(f"{done.id}-tier-{tier}")
    await actors.exit(done.run_id, -15)
    with pytest.raises(InvalidSpecError, match="nothing to resume"):
        await actors.service.resume(ALICE, done.id)

    failed = await running(actors)
    with pytest.raises(NotFoundError):
        await actors.service.resume(BOB, failed.id)
    await actors.exit(failed.run_id, 1)
    other = await submit(actors)
    with pytest.raises(EndpointBusyError, match=other.id):
        await actors.service.resume(ALICE, failed.id)
    assert (await actors.job(failed.id)).state is JobState.FAILED


async def test_a_suspended_job_frees_what_it_holds_for_others_and_outlives_the_broker(store: Store) -> None:
    clock = ManualClock()
    big = Resources(memory_bytes=8 * GIB)
    async with running_actors(store, clock) as actors:
        node, epoch = await actors.connect()
        job = await running(actors, resources=big)
        await actors.report(job.run_id, 0.5)
        other = await submit(actors, endpoint="other", resources=big)
        assert (await actors.job(other.id)).state is JobState.PENDING, "there is no room"
        assert (await actors.service.suspend("alice", job.id)).state is JobState.STOPPING
        await actors.settle()
        (wanted,) = (await wanted_of(node, epoch)).runs
        assert wanted.stop
        await actors.exit(job.run_id, -15)
        assert (await actors.job(job.id)).state is JobState.SUSPENDED
        await actors.pass_time(3.0)
        assert (await actors.job(other.id)).state is JobState.STARTING
        await actors.alive(f"{other.id}-1")
        with pytest.raises(EndpointBusyError, match=job.id):
            await submit(actors)
    async with running_actors(store, clock) as actors:
        await actors.connect(runs=[f"{other.id}-1"])
        assert (await actors.job(job.id)).state is JobState.SUSPENDED
        assert (await actors.service.resume(ALICE, job.id, 200)).spec.max_epochs == 200
        assert (await actors.job(job.id)).state is JobState.PENDING, "now it waits for room"
        await actors.service.cancel("alice", job.id)
        with pytest.raises(InvalidSpecError, match="is cancelled, so that there is nothing to suspend"):
            await actors.service.suspend("alice", job.id)


async def test_a_job_is_retried_as_itself_and_from_scratch_as_another_one(actors: Actors) -> None:
    await actors.connect()
    job = await running(actors, labels={"sweep": "7"})
    with pytest.raises(InvalidSpecError, match="not over; cancel it first"):
        await actors.service.retry(ALICE, job.id, from_scratch=True)
    await actors.report(job.run_id, 0.5)
    await actors.exit(job.run_id, 1)
    again = await actors.service.retry(ALICE, job.id, from_scratch=False)
    assert (again.id, again.state, again.best_value) == (job.id, JobState.PENDING, 0.5)
    await actors.service.cancel("alice", job.id)
    await actors.settle()
    await actors.exit(f"{job.id}-2", -15)
    both = [await actors.service.retry(ALICE, job.id, from_scratch=True, idempotency_key="k") for _ in range(2)]
    assert {each.id for each in both} != {job.id}
    assert both[0].id == both[1].id
    fresh = both[0]
    assert (fresh.best_value, fresh.attempts) == (None, 0)
    assert fresh.spec.labels == {"sweep": "7", "tiercel/repeats": job.id}
    with pytest.raises(NotFoundError):
        await actors.service.retry(BOB, job.id, from_scratch=True)


async def test_a_priority_that_is_changed_changes_places_at_once(actors: Actors) -> None:
    await actors.connect()
    jobs = [await submit(actors, endpoint=name, resources=Resources(memory_bytes=7 * GIB)) for name in "abc"]
    await actors.settle()
    running_one, *waiting = [await actors.job(job.id) for job in jobs]
    assert running_one.state is JobState.STARTING
    changed = await actors.service.set_priority("alice", waiting[1].id, 5)
    assert changed.spec.priority == 5
    assert PriorityChanged(5) in [each.change for each in actors.events if isinstance(each, JobEvent)]
    await actors.exit(running_one.run_id, 1)
    await actors.pass_time(3.0)
    assert [(await actors.job(job.id)).state for job in waiting] == [JobState.PENDING, JobState.STARTING]
    for job_id, priority, said in ((waiting[0].id, 101, "-100 to 100"), (running_one.id, 1, "is failed")):
        with pytest.raises(InvalidSpecError, match=said):
            await actors.service.set_priority("alice", job_id, priority)
