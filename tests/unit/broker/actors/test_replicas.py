"""An endpoint on several nodes: who has its version, in which order it is flipped, and what happens when nodes die."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from testing.actors import ALICE, Actors, running, running_actors, submit, wanted_of
from testing.replica_nodes import ReplicaNodes, endpoint, version_store
from tiercel.broker.actors.endpoint_messages import VersionChosen
from tiercel.broker.actors.maintenance import Maintenance
from tiercel.broker.actors.node_messages import DrainSet
from tiercel.broker.actors.replicas import COPY_SECONDS, FLIP_SECONDS
from tiercel.broker.actors.status import status_of
from tiercel.broker.api.endpoints import places_of
from tiercel.broker.lifecycle.job_events import MoveOrdered, RunExited
from tiercel.broker.store.carried import CheckpointFile
from tiercel.broker.store.drains import DrainStore
from tiercel.broker.store.sql import Store
from tiercel.core.drift import InputDrift
from tiercel.core.endpoints import DeliveryState, EndpointUsage, Verdict
from tiercel.core.errors import InvalidSpecError
from tiercel.core.events import EndpointEvent
from tiercel.core.feedback import VersionFeedback
from tiercel.core.jobs import Job, Tier, TierState
from tiercel.core.nodes import Drain
from tiercel.core.shares import Share


def announced(actors: Actors) -> list[int]:
    return [event.version.version for event in actors.events if isinstance(event, EndpointEvent)]


async def verdict_told(nodes: ReplicaNodes, job: Job) -> Verdict:
    """What the job's node is told of its delivery."""
    home = nodes.nodes[job.node_id]
    (wanted,) = (await wanted_of(home.actor, home.epoch)).deliveries
    return wanted.delivery.verdict


async def staged(nodes: ReplicaNodes, job: Job, tier: int, value: float) -> str:
    """A tier is reached, and its node has the model; returns the delivery."""
    delivery_id = f"{job.id}-tier-{tier}"
    await nodes.actors.report(job.run_id, value, tier)
    home = (await nodes.actors.job(job.id)).node_id
    await nodes.actors.delivery(delivery_id, DeliveryState.LOADING, home, value=value, sha256=f"{tier:064x}")
    return delivery_id


async def answers(nodes: ReplicaNodes, job: Job, tier: int, value: float) -> None:
    """The version answers on the node of its job."""
    home = (await nodes.actors.job(job.id)).node_id
    sha256 = f"{tier:064x}"
    nodes.nodes[home].answering, nodes.nodes[home].copies[tier] = tier, sha256
    await nodes.say(home)
    delivery_id = f"{job.id}-tier-{tier}"
    await nodes.actors.delivery(delivery_id, DeliveryState.DELIVERED, home, value=value, sha256=sha256)


async def deliver(nodes: ReplicaNodes, job: Job, tier: int, value: float) -> None:
    """A tier is delivered everywhere."""
    await staged(nodes, job, tier, value)
    await nodes.obey()
    await answers(nodes, job, tier, value)
    await nodes.obey()


async def other(nodes: ReplicaNodes, job: Job) -> str:
    return next(name for name in nodes.nodes if name != job.node_id)


async def told(nodes: ReplicaNodes, job: Job) -> str:
    """Why its first tier is not delivered yet, as its tenant is told, of the endpoint as well."""
    service = nodes.actors.service
    reason = service.explained(await nodes.actors.job(job.id)).tiers[0].reason
    assert "".join(service.endpoints.awaited("digits")) == reason
    return reason


async def test_copies_are_made_first_then_all_flip_then_it_is_announced(nodes: ReplicaNodes) -> None:
    actors = nodes.actors
    await nodes.connect("n1", "n2")
    job = await running(actors, replicas=2)
    home, copy = job.node_id, await other(nodes, job)
    await staged(nodes, job, 1, 0.85)
    assert await verdict_told(nodes, job) is Verdict.OPEN, "no copy is there"
    begin = f"version 1 waits for its copy on node {copy}: "
    assert await told(nodes, job) == f"{begin}node {home} has sent the broker nothing yet; for 0 s, at most 120 s"
    with nodes.versions.begin("digits", 1, [CheckpointFile("model.onnx", 3 << 20, "0" * 64)]) as writer:
        writer.write(bytes(1 << 20))
        assert (
            await told(nodes, job) == f"{begin}node {home} has sent the broker 1 MiB of 3 MiB; for 0 s, at most 120 s"
        )
    await nodes.obey(home)
    assert await told(nodes, job) == f"{begin}the broker has it for that; for 0 s, at most 120 s"
    await nodes.obey()
    assert (await verdict_told(nodes, job), await told(nodes, job)) == (Verdict.LIVE, "")
    assert nodes.answering() == {"n1": 0, "n2": 0}
    await answers(nodes, job, 1, 0.85)
    assert (announced(actors), (await actors.job(job.id)).tiers[0].state) == ([], TierState.REACHED)
    begin = f"version 1 answers on node {home}, and is announced once node {copy} does as well"
    assert await told(nodes, job) == f"{begin}; for 0 s, at most 60 s"
    await nodes.obey()
    assert nodes.answering() == {"n1": 1, "n2": 1}
    assert await told(nodes, job) == ""
    assert (announced(actors), (await actors.job(job.id)).tiers[0].state) == ([1], TierState.DELIVERED)
    assert endpoint(actors).replica_nodes == (await other(nodes, job),)


async def test_a_promoted_or_rolled_back_version_answers_on_all_nodes(nodes: ReplicaNodes) -> None:
    await nodes.connect("n1", "n2")
    job = await running(nodes.actors, replicas=2)
    await deliver(nodes, job, 1, 0.85)
    await deliver(nodes, job, 2, 0.95)
    assert nodes.answering() == {"n1": 2, "n2": 2}
    await nodes.actors.service.endpoints.change_versions("alice", "digits", VersionChosen(None, back=True))
    await nodes.obey()
    assert nodes.answering() == {"n1": 1, "n2": 1}
    await nodes.actors.service.endpoints.change_versions("alice", "digits", VersionChosen(2))
    await nodes.obey()
    assert nodes.answering() == {"n1": 2, "n2": 2}
    assert all(0 not in node.history for node in nodes.nodes.values()), "there was always somebody"


async def test_a_node_that_cannot_take_the_copy_holds_nothing_up_and_another_takes_its_place(
    nodes: ReplicaNodes,
) -> None:
    await nodes.connect("n1", "n2", "n3")
    job = await running(nodes.actors, replicas=2)
    await staged(nodes, job, 1, 0.85)
    await nodes.obey(job.node_id, rounds=1)
    (first,) = [name for name in nodes.nodes if await asked_for_copy(nodes, name, 1)]
    nodes.nodes[first].refuses.add(1)
    await nodes.obey()
    await answers(nodes, job, 1, 0.85)
    await nodes.obey()
    assert announced(nodes.actors) == [1]
    assert sorted(nodes.answering().values()) == [0, 1, 1]
    assert nodes.answering()[first] == 0


async def asked_for_copy(nodes: ReplicaNodes, name: str, version: int) -> bool:
    node = nodes.nodes[name]
    models = (await wanted_of(node.actor, node.epoch)).models
    return any(files.version == version for model in models for files in model.copies)


async def test_what_takes_too_long_is_announced_without_and_caught_up_with(nodes: ReplicaNodes) -> None:
    actors = nodes.actors
    await nodes.connect("n1", "n2")
    job = await running(actors, replicas=2)
    await deliver(nodes, job, 1, 0.85)
    copy = await other(nodes, job)
    nodes.nodes[copy].is_stuck = True
    await staged(nodes, job, 2, 0.95)
    await pass_time(nodes, COPY_SECONDS / 2)
    assert await verdict_told(nodes, job) is Verdict.OPEN
    await pass_time(nodes, COPY_SECONDS / 2 + 1)
    assert await verdict_told(nodes, job) is Verdict.LIVE
    await answers(nodes, job, 2, 0.95)
    assert announced(actors) == [1], "the other one answers with version 1 still"
    await pass_time(nodes, FLIP_SECONDS + 1)
    assert announced(actors) == [1, 2]
    wanted = await wanted_of(nodes.nodes[copy].actor, nodes.nodes[copy].epoch)
    assert [model.version for model in wanted.models] == [0], "it shall not answer with what is old"
    assert [model.paced for model in wanted.models] == [True], "another one answers"
    nodes.nodes[copy].is_stuck = False
    await nodes.obey()
    assert set(nodes.answering().values()) == {2}


async def pass_time(nodes: ReplicaNodes, seconds: float) -> None:
    """Time passes in which all nodes are heard."""
    for _ in range(round(seconds / 5)):
        for node in nodes.nodes.values():
            await nodes.actors.heartbeat(node.actor, node.epoch)
        await nodes.actors.pass_time(5.0)


async def test_a_lost_node_is_replaced_and_answers_with_nothing_old_when_it_comes_back(nodes: ReplicaNodes) -> None:
    actors = nodes.actors
    await nodes.connect("n1", "n2", "n3")
    job = await running(actors, replicas=2)
    await deliver(nodes, job, 1, 0.85)
    (lost,) = endpoint(actors).replica_nodes
    third = next(name for name in nodes.nodes if name not in {lost, job.node_id})
    for _ in range(4):
        for name in (job.node_id, third):
            await actors.heartbeat(nodes.nodes[name].actor, nodes.nodes[name].epoch)
        await actors.pass_time(3.0)
    await nodes.obey(job.node_id, third)
    assert endpoint(actors).replica_nodes == (third,)
    assert nodes.answering()[third] == 1
    await nodes.connect(lost)
    await nodes.obey()
    assert nodes.answering() == {job.node_id: 1, third: 1, lost: 0}
    assert nodes.nodes[lost].copies == {}


async def test_a_lost_home_leaves_the_others_answering_and_they_make_one_more(nodes: ReplicaNodes) -> None:
    actors = nodes.actors
    await nodes.connect("n1", "n2", "n3")
    job = await running(actors, replicas=2)
    await deliver(nodes, job, 1, 0.85)
    home = job.node_id
    others = [name for name in nodes.nodes if name != home]
    for _ in range(4):
        for name in others:
            await actors.heartbeat(nodes.nodes[name].actor, nodes.nodes[name].epoch)
        await actors.pass_time(3.0)
    await nodes.obey(*others)
    assert sorted(endpoint(actors).replica_nodes) == others
    assert [nodes.answering()[name] for name in others] == [1, 1], "of what the broker holds"
    await nodes.connect(home)
    await nodes.obey()
    assert sorted(nodes.answering().values()) == [0, 1, 1]
    assert nodes.answering()[home] == 1


async def moved_to(node_id: str, actors: Actors, job: Job) -> Job:
    """The job once it runs on another node."""
    mover = actors.registry.job_of(job.run_id)
    assert mover is not None
    await mover.send(MoveOrdered(node_id, Share(1.0, None, ""), 2))
    await mover.send(RunExited(job.run_id, 0, carried=True))
    await actors.settle()
    await actors.alive(f"{job.id}-2")
    return await actors.job(job.id)


async def test_a_job_that_moves_to_the_node_of_a_copy_leaves_a_copy_behind(nodes: ReplicaNodes) -> None:
    actors = nodes.actors
    await nodes.connect("n1", "n2")
    job = await running(actors, replicas=2)
    await deliver(nodes, job, 1, 0.85)
    first, second = job.node_id, await other(nodes, job)
    moved = await moved_to(second, actors, job)
    assert moved.node_id == second
    await deliver(nodes, moved, 2, 0.95)
    assert announced(actors) == [1, 2]
    assert (endpoint(actors).node_id, endpoint(actors).replica_nodes) == (second, (first,))
    assert nodes.answering() == {first: 2, second: 2}
    assert all(0 not in node.history for node in nodes.nodes.values())


async def test_fewer_replicas_of_a_new_job_leave_one_node(nodes: ReplicaNodes) -> None:
    actors = nodes.actors
    await nodes.connect("n1", "n2")
    job = await running(actors, replicas=2, tiers=(Tier(0.8),))
    await deliver(nodes, job, 1, 0.85)
    await actors.exit(job.run_id)
    copy = await other(nodes, job)
    await submit(actors)
    await nodes.obey()
    await actors.pass_time(1.0)
    await nodes.obey()
    assert endpoint(actors).replica_nodes == ()
    assert (nodes.answering()[job.node_id], nodes.answering()[copy], nodes.nodes[copy].copies) == (1, 0, {})
    assert nodes.versions.held("digits") == {}


async def test_a_broker_that_was_killed_between_copies_and_flips_goes_on(store: Store, tmp_path: Path) -> None:
    async with running_actors(store, versions=version_store(tmp_path)) as actors:
        nodes = ReplicaNodes(actors)
        await nodes.connect("n1", "n2")
        job = await running(actors, replicas=2)
        await staged(nodes, job, 1, 0.85)
        await nodes.obey()
        await answers(nodes, job, 1, 0.85)
        copy = await other(nodes, job)
        assert (endpoint(actors).live_version, announced(actors)) == (1, [])
        before = nodes.nodes
    async with running_actors(store, versions=version_store(tmp_path)) as actors:
        nodes = ReplicaNodes(actors)
        nodes.nodes = before
        await nodes.connect("n1", "n2")
        await nodes.obey()
        assert (nodes.answering()[copy], announced(actors)[-1:]) == (1, [1])
        assert (await actors.job(job.id)).tiers[0].state is TierState.DELIVERED
        assert endpoint(actors).replica_nodes == (copy,)


async def test_a_deleted_endpoint_leaves_no_copies(nodes: ReplicaNodes) -> None:
    await nodes.connect("n1", "n2")
    job = await running(nodes.actors, replicas=2, tiers=(Tier(0.8),))
    await deliver(nodes, job, 1, 0.85)
    await nodes.actors.exit(job.run_id)
    await nodes.actors.service.endpoints.delete(ALICE.name, "digits")
    await nodes.obey()
    assert [(node.answering, node.copies) for node in nodes.nodes.values()] == [(0, {})] * 2
    assert nodes.versions.held("digits") == {}


@pytest.mark.parametrize("count", [1, 2])
async def test_a_drained_node_answers_until_another_one_does(nodes: ReplicaNodes, count: int) -> None:
    actors = nodes.actors
    await nodes.connect("n1", "n2", "n3")
    job = await running(actors, replicas=count, tiers=(Tier(0.8),))
    await deliver(nodes, job, 1, 0.85)
    await actors.exit(job.run_id)
    home = job.node_id
    await nodes.nodes[home].actor.send(DrainSet(Drain.WAIT))
    await actors.pass_time(1.0)
    await nodes.obey(home)
    assert nodes.answering()[home] == 1, "nobody has taken its place"
    await nodes.obey()
    assert nodes.answering()[home] == 0
    assert sorted(nodes.answering().values()) == [0] * (3 - count) + [1] * count
    serving = actors.service.endpoints.replicas("digits")
    known = {name: actor.node for name, actor in actors.registry.nodes.items()}
    (place, *_) = places_of(endpoint(actors), known, serving)
    assert (place.node_id, place.problem) == (home, "the node is drained, and others answer in its place")
    await nodes.nodes[home].actor.send(DrainSet(Drain.NO))
    await actors.pass_time(1.0)
    await nodes.obey()
    assert nodes.answering()[home] == 1
    assert sorted(nodes.answering().values()) == [0] * (3 - count) + [1] * count


async def test_who_answers_for_a_drained_node_goes_on_when_that_is_removed(nodes: ReplicaNodes, store: Store) -> None:
    actors, maintenance = nodes.actors, Maintenance(DrainStore(store), nodes.actors.registry)
    await nodes.connect("n1", "n2")
    job = await running(actors, tiers=(Tier(0.8),))
    await deliver(nodes, job, 1, 0.85)
    await actors.exit(job.run_id)
    home = job.node_id
    (other,) = nodes.answering().keys() - {home}
    await pass_time(nodes, 15.0)  # the broker waits no longer for nodes that it has not heard of since it began
    await maintenance.drain(home, migrate=True)
    await actors.pass_time(1.0)
    await nodes.obey()
    assert nodes.answering() == {home: 0, other: 1}
    removing = asyncio.ensure_future(maintenance.forget(home))  # its agent hears what is wanted for a moment still
    await actors.settle()
    await nodes.obey()
    await removing
    assert nodes.answering() == {home: 0, other: 1}
    await pass_time(nodes, 60.0)
    assert nodes.answering()[other] == 1
    assert (endpoint(actors).node_id, endpoint(actors).replica_nodes) == (other, ()), "it is at home there now"
    found = status_of(actors.registry, "")
    assert [node.id for node in found.nodes] == [other], "nothing is left there"
    assert found.problems() == ()
    # One that joins by this name later is told to keep nothing.
    await nodes.connect(home)
    await nodes.obey()
    assert (nodes.answering(), nodes.nodes[home].copies) == ({home: 0, other: 1}, {})


async def test_a_node_that_is_removed_while_it_is_away_is_listed_until_others_have_taken_its_place(
    nodes: ReplicaNodes, store: Store
) -> None:
    actors, maintenance = nodes.actors, Maintenance(DrainStore(store), nodes.actors.registry)
    await nodes.connect("n1", "n2")
    job = await running(actors, tiers=(Tier(0.8),), replicas=2)
    await deliver(nodes, job, 1, 0.85)
    home = job.node_id
    (other,) = nodes.answering().keys() - {home}
    for _ in range(4):
        await actors.heartbeat(nodes.nodes[other].actor, nodes.nodes[other].epoch)
        await actors.pass_time(3.0)
    await nodes.obey(other)
    assert endpoint(actors).node_id == home, "it may come back"
    await maintenance.forget(home)
    await actors.settle()
    assert endpoint(actors).node_id == other
    assert [node.id for node in status_of(actors.registry, "").nodes] == [home, other], "its job is there"
    await actors.exit(job.run_id)
    await actors.pass_time(1.0)
    assert [node.id for node in status_of(actors.registry, "").nodes] == [other]


async def test_what_only_a_removed_node_had_cannot_be_gone_back_to_and_its_word_counts_no_more(
    nodes: ReplicaNodes, store: Store
) -> None:
    actors, maintenance = nodes.actors, Maintenance(DrainStore(store), nodes.actors.registry)
    await nodes.connect("n1", "n2")
    job = await running(actors)
    await deliver(nodes, job, 1, 0.85)
    first, second = job.node_id, await other(nodes, job)
    await deliver(nodes, await moved_to(second, actors, job), 2, 0.95)
    said = InputDrift(2, 500, 500, 4, drifted=True, bound=0.2)
    for name, right in ((first, 10), (second, 90)):
        usage = EndpointUsage("digits", 1.0, feedback=(VersionFeedback(2, 100, right),), inputs=(said,))
        actors.agents.measure_endpoints(name, (usage,))
    assert actors.registry.feedback.of("digits")[2].right == 100
    await pass_time(nodes, 15.0)  # the broker waits no longer for nodes that it has not heard of since it began
    await maintenance.forget(first)
    await actors.settle()
    assert actors.registry.feedback.of("digits") == {2: VersionFeedback(2, 100, 90)}
    asked = actors.registry.inputs.of(replace(endpoint(actors), replica_nodes=(first,)))
    assert asked == {2: (replace(said, node_id=second),)}
    for change in (VersionChosen(None, back=True), VersionChosen(1)):
        with pytest.raises(InvalidSpecError, match=f"on no node but {first}, which was removed"):
            await actors.service.endpoints.change_versions("alice", "digits", change)
        await actors.registry.endpoints["digits"].call(change)  # asked while it was there still: nothing changes
    assert (endpoint(actors).node_id, endpoint(actors).live_version) == (second, 2)
