"""The actors together: nodes that come and go, and restarts of the broker."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from testing.actors import Actors, make_node, running, running_actors, submit, wanted_of
from testing.clock import ManualClock
from tiercel.broker.actors.life import PRUNE_SECONDS
from tiercel.broker.store.sql import Store
from tiercel.core.endpoints import DeliveryState
from tiercel.core.errors import (
    TiercelError,
)
from tiercel.core.events import EndpointEvent, JobEvent, NodeEvent
from tiercel.core.jobs import Job, JobState, TierState

# --- Nodes that come and go -------------------------------------------------------------------------------------------


async def test_a_silent_node_disconnects_its_jobs_and_its_stream(actors: Actors) -> None:
    node, epoch = await actors.connect()
    job = await running(actors)
    await actors.pass_time(11)
    assert (await actors.job(job.id)).state is JobState.DISCONNECTED
    assert await node.wait_wanted(10_000, epoch) is None, "its stream is ended"
    node, epoch = await actors.connect(runs=[job.run_id])
    await actors.alive(job.run_id)
    assert (await actors.job(job.id)).state is JobState.RUNNING
    presence = [event.online for event in actors.events if isinstance(event, NodeEvent)]
    assert presence == [True, False, True]


@pytest.mark.parametrize("seconds", [400.0, -400.0])
async def test_a_machine_whose_clock_is_set_loses_no_node_and_no_run(actors: Actors, seconds: float) -> None:
    node, epoch = await actors.connect()
    job = await running(actors, report_timeout_seconds=30.0)
    actors.clock.set_forward(seconds)
    for sequence in range(1, 4):
        await actors.pass_time(9)
        await actors.heartbeat(node, epoch)
        await actors.report(job.run_id, 0.5, sequence=sequence)
    job = await actors.job(job.id)
    assert (job.state, job.attempts, node.node.online) == (JobState.RUNNING, 1, True)
    waiting = await submit(actors, "b")
    assert waiting.state is JobState.STARTING, "the scheduler goes on as well"
    for _ in range(4):
        await actors.pass_time(9)
        await actors.heartbeat(node, epoch)
    assert "reported nothing for 30 s" in (await actors.job(job.id)).reason


async def test_after_a_restart_of_the_broker_silence_begins_afresh(store: Store) -> None:
    clock = ManualClock()
    async with running_actors(store, clock) as actors:
        await actors.connect()
        job = await running(actors, report_timeout_seconds=30.0)
    clock.advance(400)
    async with running_actors(store, clock) as actors:
        node, epoch = await actors.connect(runs=[job.run_id])
        await actors.alive(job.run_id)
        await actors.pass_time(9)
        assert (await actors.job(job.id)).state is JobState.RUNNING
        for _ in range(3):
            await actors.heartbeat(node, epoch)
            await actors.pass_time(9)
        assert "reported nothing for 30 s" in (await actors.job(job.id)).reason


async def test_two_streams_at_once_get_two_epochs(actors: Actors) -> None:
    connected = await asyncio.gather(*(actors.agents.connect_node(make_node(), frozenset(), "agent") for _ in range(5)))
    assert [epoch for _, epoch in connected] == [1, 2, 3, 4, 5]


async def test_jobs_of_a_gone_node_start_elsewhere_and_deliver_there(actors: Actors) -> None:
    await actors.connect()
    job = await running(actors)
    await actors.report(job.run_id, 0.85)
    node, epoch = await actors.connect(make_node("n2"))
    for _ in range(8):
        await actors.pass_time(9)
        await actors.heartbeat(node, epoch)
    job = await actors.job(job.id)
    assert (job.state, job.node_id, job.attempts) == (JobState.STARTING, "n2", 2)
    wanted = await wanted_of(node, epoch)
    assert [(d.delivery.id, d.delivery.version, d.run_id) for d in wanted.deliveries] == [
        (f"{job.id}-tier-1", 1, job.run_id)
    ]
    old, old_epoch = await actors.connect()
    leftovers = await wanted_of(old, old_epoch)
    assert (leftovers.runs, leftovers.deliveries) == ((), ()), "the node that comes back is told to leave it all"

    await actors.delivery(f"{job.id}-tier-1", DeliveryState.FAILED, "n1", reason="its run is gone")
    assert (await actors.job(job.id)).tiers[0].state is TierState.REACHED, "a failure elsewhere does not count"
    await actors.delivered(f"{job.id}-tier-1", "n2")
    assert (await actors.job(job.id)).tiers[0].state is TierState.DELIVERED
    assert actors.service.endpoints.of("alice")[0].node_id == "n2"


async def test_a_node_that_goes_offline_while_a_job_is_placed_on_it_is_noticed(actors: Actors) -> None:
    """The placement reaches the node after it was found silent: the job must hear of it all the same."""
    node, _ = await actors.connect()
    job = await running(actors)
    actors.clock.advance(11)
    placed = await submit(actors, "b")
    await actors.pass_time(1)
    assert node.node.online is False
    assert (await actors.job(placed.id)).state in {JobState.DISCONNECTED, JobState.PENDING}
    await actors.pass_time(60)
    for known in (job, placed):
        assert (await actors.job(known.id)).state is JobState.PENDING


async def test_a_node_that_comes_back_without_a_run_has_lost_it(actors: Actors) -> None:
    await actors.connect()
    job = await running(actors)
    await actors.report(job.run_id, 0.5, sequence=7)
    await actors.connect(runs=[])
    again = await actors.job(job.id)
    assert (again.state, again.run_id) == (JobState.STARTING, f"{job.id}-2")
    await actors.report(again.run_id, 0.6, sequence=1)
    assert (await actors.job(job.id)).latest_value == 0.6


async def test_a_lost_run_does_not_fail_its_delivery(actors: Actors) -> None:
    node, epoch = await actors.connect()
    job = await running(actors)
    await actors.report(job.run_id, 0.85)
    await actors.exit(job.run_id, None, lost=True)
    await actors.delivery(f"{job.id}-tier-1", DeliveryState.EXPORTING)
    again = await actors.job(job.id)
    assert (again.state, again.tiers[0].state) == (JobState.STARTING, TierState.REACHED)
    wanted = await wanted_of(node, epoch)
    assert [delivery.run_id for delivery in wanted.deliveries] == [again.run_id]


async def test_a_model_of_a_lost_run_that_answers_already_is_delivered(actors: Actors) -> None:
    await actors.connect()
    job = await running(actors)
    await actors.report(job.run_id, 0.85)
    await actors.pass_time(75)
    assert (await actors.job(job.id)).state is JobState.PENDING
    await actors.delivered(f"{job.id}-tier-1")
    assert (await actors.job(job.id)).tiers[0].state is TierState.DELIVERED


# --- Restarts ---------------------------------------------------------------------------------------------------------


async def test_a_restart_at_any_point_finishes_the_job_and_delivers_once(store: Store) -> None:
    """The broker is killed after every single step of a whole life."""
    clock = ManualClock()
    async with running_actors(store, clock) as actors:
        await actors.connect()
        job = await submit(actors)
    run_id = job.run_id

    async def killed() -> Job:
        async with running_actors(store, clock) as actors:
            known = await actors.job(job.id)
            assert known.state in {JobState.DISCONNECTED, JobState.STOPPING}
            node, epoch = await actors.connect(runs=[run_id])
            wanted = await wanted_of(node, epoch)
            assert [run.run_id for run in wanted.runs] == [run_id], "the whole wanted state at once"
            reached = [tier for tier in known.tiers if tier.state is TierState.REACHED]
            assert [wanted_one.delivery.tier for wanted_one in wanted.deliveries] == [tier.number for tier in reached]
            await step(actors)
            return await actors.job(job.id)

    async def step(actors: Actors) -> None:
        await actors.alive(run_id)
        for action in todo:
            await action(actors)

    todo: list[Any] = []
    await killed()
    todo = [lambda actors: actors.report(run_id, 0.85)]
    assert (await killed()).tiers[0].state is TierState.REACHED
    todo += [lambda actors: actors.delivered(f"{job.id}-tier-1")]
    assert (await killed()).tiers[0].version == 1
    todo += [lambda actors: actors.report(run_id, 0.95, sequence=2)]
    assert (await killed()).tiers[1].state is TierState.REACHED
    todo += [lambda actors: actors.delivered(f"{job.id}-tier-2")]
    assert (await killed()).state is JobState.STOPPING
    todo = [lambda actors: actors.exit(run_id)]
    done = await killed()
    assert (done.state, [tier.version for tier in done.tiers]) == (JobState.COMPLETED, [1, 2])
    sequences = [event.sequence for event in await store.events_after(0, limit=1000)]
    assert sequences == sorted(set(sequences))


async def test_a_delivery_that_was_stored_but_not_told_is_told_after_the_restart(store: Store) -> None:
    """Killed between the endpoint's commit and the job's."""
    clock = ManualClock()
    async with running_actors(store, clock) as actors:
        await actors.connect()
        job = await running(actors)
        await actors.report(job.run_id, 0.85)
        before = await actors.job(job.id)
        await actors.delivered(f"{job.id}-tier-1")
    await store.save(jobs=[before])
    async with running_actors(store, clock) as actors:
        assert (await actors.job(job.id)).tiers[0].state is TierState.DELIVERED
        assert len(actors.service.endpoints.of("alice")[0].versions) == 1


async def test_a_tier_that_was_stored_but_not_asked_for_is_asked_for_after_the_restart(store: Store) -> None:
    """Killed between the job's commit and the endpoint's."""
    clock = ManualClock()
    async with running_actors(store, clock) as actors:
        await actors.connect()
        job = await running(actors)
        (endpoint,) = await store.load_endpoints()
        await actors.report(job.run_id, 0.85)
    await store.save(endpoints=[endpoint])
    async with running_actors(store, clock) as actors:
        assert (await store.load_endpoints())[0].next_version in {1, 2}
        assert (await store.load_deliveries())[0].version == 1
        node, epoch = await actors.connect(runs=[job.run_id])
        assert [wanted.delivery.version for wanted in (await wanted_of(node, epoch)).deliveries] == [1]


async def test_a_restart_tells_again_what_is_the_case(store: Store) -> None:
    """Whoever keeps the latest of each topic is right again."""
    clock = ManualClock()
    async with running_actors(store, clock) as actors:
        await actors.connect()
        job = await running(actors)
        await actors.report(job.run_id, 0.85)
        await actors.delivered(f"{job.id}-tier-1")
        last = actors.journal.sequence
    async with running_actors(store, clock) as actors:
        kinds = [type(event.change).__name__ for event in actors.events if isinstance(event, JobEvent)]
        assert kinds == ["StateChanged", "TierChanged", "ShareChanged", "StateChanged"]
        retold = [event.sequence for event in actors.events if isinstance(event, JobEvent)]
        assert retold == [last, last, last, last + 1], "only what is new gets a number"
        assert [event.version.version for event in actors.events if isinstance(event, EndpointEvent)] == [1]


async def test_a_node_that_does_not_come_back_after_a_restart_is_gone_in_the_end(store: Store) -> None:
    clock = ManualClock()
    async with running_actors(store, clock) as actors:
        await actors.connect()
        job = await running(actors)
    async with running_actors(store, clock) as actors:
        await actors.pass_time(62)
        again = await actors.job(job.id)
        assert (again.state, again.node_id) == (JobState.PENDING, "")


async def test_old_progress_is_dropped_and_cursors_still_work(actors: Actors, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tiercel.broker.actors.life.KEPT_PROGRESS_EVENTS", 3)
    await actors.connect()
    job = await running(actors)
    for sequence in range(1, 11):
        await actors.report(job.run_id, 0.5, sequence=sequence)
    actors.clock.advance(PRUNE_SECONDS)
    async with asyncio.timeout(90):
        while len(await actors.store.load_progress(job.id, limit=100)) != 3:  # noqa: ASYNC110 - nobody is told
            await asyncio.sleep(0.01)
    await actors.settle()  # the job was silent for as long, which is written down as well
    assert actors.journal.sequence == await actors.store.last_sequence()


def test_every_error_has_a_code_of_its_own() -> None:
    def tree(kind: type[TiercelError]) -> list[type[TiercelError]]:
        return [kind, *(leaf for child in kind.__subclasses__() for leaf in tree(child))]

    codes = [kind.code for kind in tree(TiercelError) if kind.code != "internal" and "broker" in kind.__module__]
    assert len(codes) == len(set(codes))
