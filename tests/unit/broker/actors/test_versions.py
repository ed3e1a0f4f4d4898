"""Which version of an endpoint its nodes are told to let answer, over judgements, choices, moves and restarts."""

from __future__ import annotations

import pytest

from testing.actors import Actors, make_node, running, running_actors, wanted_of
from testing.replica_nodes import endpoint
from tiercel.broker.actors.endpoint_messages import VersionChosen
from tiercel.broker.actors.node import NodeActor
from tiercel.broker.actors.node_messages import NodeReported, ServedStatus, ServingReported
from tiercel.broker.lifecycle.job_events import MoveOrdered, RunExited
from tiercel.broker.lifecycle.versions import WantedModel
from tiercel.broker.store.sql import Store
from tiercel.core.endpoints import DeliveryState, Verdict
from tiercel.core.errors import NotFoundError
from tiercel.core.events import EndpointEvent
from tiercel.core.jobs import JobState, Tier, TierState
from tiercel.core.shares import Share


async def deliver(actors: Actors, delivery_id: str, value: float, node_id: str = "n1", sha256: str = "") -> None:
    """A node says what a model is, and then that it answers or is kept, as it was told."""
    facts = {"value": value, "sha256": sha256 or delivery_id}
    await actors.delivery(delivery_id, DeliveryState.LOADING, node_id, **facts)
    await actors.delivery(delivery_id, DeliveryState.DELIVERED, node_id, **facts)


async def wanted_models(actors: Actors, node_id: str = "n1") -> tuple[WantedModel, ...]:
    await actors.settle()
    node: NodeActor = actors.registry.nodes[node_id]
    return (await wanted_of(node, node.node.lease_epoch)).models


async def test_a_retrained_job_whose_early_tiers_are_below_what_answers_keeps_them(actors: Actors) -> None:
    node, epoch = await actors.connect()
    first = await running(actors, tiers=(Tier(0.8),))
    await actors.report(first.run_id, 0.95)
    await deliver(actors, f"{first.id}-tier-1", 0.95)
    await actors.exit(first.run_id)
    again = await running(actors, tiers=(Tier(0.1),))
    await actors.report(again.run_id, 0.2)
    delivery_id = f"{again.id}-tier-1"
    (asked,) = (await wanted_of(node, epoch)).deliveries
    assert asked.delivery.verdict is Verdict.OPEN
    await actors.delivery(delivery_id, DeliveryState.LOADING, value=0.2, sha256="cd")
    (told,) = (await wanted_of(node, epoch)).deliveries
    assert told.delivery.verdict is Verdict.HELD
    await actors.delivery(delivery_id, DeliveryState.DELIVERED, value=0.2, sha256="cd")
    await actors.exit(again.run_id)
    done = await actors.job(again.id)
    number = done.tiers[0].version
    held = (
        f"version {number} is kept but not live: 0.2 is worse than 0.95 of version 1; "
        f"'tiercel models promote digits {number}' lets it answer all the same"
    )
    assert (done.tiers[0].state, done.tiers[0].reason) == (TierState.DELIVERED, held)
    assert (done.state, done.reason) == (JobState.COMPLETED, f"its tier is delivered; {held}")
    assert endpoint(actors).live_version == 1
    assert [event.version.version for event in actors.events if isinstance(event, EndpointEvent)] == [1]


async def test_a_spec_that_says_replace_lets_its_models_answer(actors: Actors) -> None:
    await actors.connect()
    first = await running(actors)
    await actors.report(first.run_id, 0.85)
    await deliver(actors, f"{first.id}-tier-1", 0.85)
    await actors.exit(first.run_id)
    again = await running(actors, tiers=(Tier(0.1),), replace=True)
    await actors.report(again.run_id, 0.2)
    await deliver(actors, f"{again.id}-tier-1", 0.2)
    assert endpoint(actors).live_version == 2


async def test_two_tiers_in_one_report_make_one_version(actors: Actors) -> None:
    await actors.connect()
    job = await running(actors)
    await actors.report(job.run_id, 0.95)
    for tier in (1, 2):
        await actors.delivery(f"{job.id}-tier-{tier}", DeliveryState.LOADING, value=0.95, sha256="ab")
    await actors.delivery(f"{job.id}-tier-1", DeliveryState.DELIVERED, value=0.95, sha256="ab")
    await actors.exit(job.run_id)
    done = await actors.job(job.id)
    assert (done.state, [tier.version for tier in done.tiers]) == (JobState.COMPLETED, [1, 1])
    assert ([each.version for each in endpoint(actors).versions], endpoint(actors).next_version) == ([1], 2)


async def test_what_was_chosen_is_told_to_the_node_also_by_a_broker_that_was_killed(store: Store) -> None:
    async with running_actors(store) as actors:
        await actors.connect()
        job = await running(actors)
        for tier, value in ((1, 0.85), (2, 0.95)):
            await actors.report(job.run_id, value, tier)
            await deliver(actors, f"{job.id}-tier-{tier}", value)
        assert await wanted_models(actors) == (WantedModel("digits", "", 2, (1, 2)),)
        chosen = await actors.service.endpoints.change_versions("alice", "digits", VersionChosen(None, back=True))
        assert (chosen.live_version, chosen.pinned) == (1, frozenset({""}))
        assert await wanted_models(actors) == (WantedModel("digits", "", 1, (1, 2)),)
        for name, number in (("digits", 7), ("other", 1)):
            with pytest.raises(NotFoundError):
                await actors.service.endpoints.change_versions("alice", name, VersionChosen(number))
        with pytest.raises(NotFoundError):
            await actors.service.endpoints.change_versions("bob", "digits", VersionChosen(1))
    async with running_actors(store) as actors:
        await actors.connect()
        assert await wanted_models(actors) == (WantedModel("digits", "", 1, (1, 2)),)
        await actors.service.endpoints.change_versions("alice", "digits", VersionChosen(None))
        assert await wanted_models(actors) == (WantedModel("digits", "", 2, (1, 2)),)


async def test_a_node_that_an_endpoint_has_left_is_told_once_the_new_one_has_delivered(actors: Actors) -> None:
    await actors.connect()
    await actors.connect(make_node("n2"))
    job = await running(actors)
    first, second = (job.node_id, "n2" if job.node_id == "n1" else "n1")
    await actors.report(job.run_id, 0.85)
    await deliver(actors, f"{job.id}-tier-1", 0.85, first)
    mover = actors.registry.job_of(job.run_id)
    assert mover is not None
    await mover.send(MoveOrdered(second, Share(1.0, None, ""), 2))
    await mover.send(RunExited(job.run_id, 0, carried=True))
    await actors.settle()
    run_id = f"{job.id}-2"
    await actors.alive(run_id)
    await actors.report(run_id, 0.95)
    assert await wanted_models(actors, second) == ()
    await deliver(actors, f"{job.id}-tier-2", 0.95, second)
    assert await wanted_models(actors, first) == (WantedModel("digits", "", 0, (1,)),)
    assert await wanted_models(actors, second) == (WantedModel("digits", "", 2, (2,)),)
    assert endpoint(actors).node_id == second


async def test_a_broker_without_a_memory_numbers_on_from_what_answers(actors: Actors) -> None:
    node, epoch = await actors.connect()
    heard = {("digits", ""): ServedStatus(7), ("other", ""): ServedStatus(9)}
    await node.send(NodeReported(epoch, serving=ServingReported("h:1", "h:2", heard)))
    job = await running(actors)
    assert await wanted_models(actors) == (), "what it does not know stays"
    await actors.report(job.run_id, 0.85)
    await deliver(actors, f"{job.id}-tier-1", 0.85)
    assert [each.version for each in endpoint(actors).versions] == [8]


async def test_what_answers_is_what_the_node_says_and_an_offline_node_says_nothing(actors: Actors) -> None:
    node, epoch = await actors.connect()
    job = await running(actors)
    await actors.report(job.run_id, 0.85)
    await deliver(actors, f"{job.id}-tier-1", 0.85)
    assert actors.service.endpoints.served("digits") == {}
    said = ServedStatus(7, "no room")
    await node.send(NodeReported(epoch, serving=ServingReported("h:1", "h:2", {("digits", ""): said})))
    await actors.settle()
    assert actors.service.endpoints.served("digits") == {"": said}
    await actors.pass_time(12.0)
    assert actors.service.endpoints.served("digits") == {}
