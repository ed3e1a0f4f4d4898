"""A node that is drained where all variants of an endpoint answer: they go to another one, and nobody is without."""

from __future__ import annotations

import pytest

from testing.actors import running
from testing.replica_nodes import ReplicaNodes, endpoint
from tiercel.broker.actors.node_messages import DrainSet
from tiercel.core.endpoints import DeliveryState
from tiercel.core.jobs import Job
from tiercel.core.nodes import Drain

LIVE = {"small": 1, "large": 2}


async def delivers(nodes: ReplicaNodes, job: Job, version: int, tier: int, value: float) -> None:
    """A variant's next version answers on the node of its job."""
    actors, known, sha256 = nodes.actors, f"{job.id}-tier-{tier}", f"{version:064x}"
    job = await actors.job(job.id)
    await actors.report(job.run_id, value, tier)
    await actors.delivery(known, DeliveryState.LOADING, job.node_id, value=value, sha256=sha256)
    node = nodes.nodes[job.node_id]
    node.variants[job.spec.variant], node.copies[version] = version, sha256
    await nodes.say(job.node_id)
    await actors.delivery(known, DeliveryState.DELIVERED, job.node_id, value=value, sha256=sha256)


async def two_variants(nodes: ReplicaNodes) -> list[Job]:
    """They answer on n1, and their jobs run there."""
    await nodes.connect("n1")
    jobs = [await running(nodes.actors, variant=name) for name in LIVE]
    await nodes.actors.pass_time(5.0)
    for version, job in enumerate(jobs, 1):
        await nodes.actors.alive((await nodes.actors.job(job.id)).run_id)
        await delivers(nodes, job, version, 1, 0.85)
    return jobs


async def beats(nodes: ReplicaNodes) -> None:
    """A second passes, and all nodes are heard."""
    await nodes.actors.pass_time(1.0)
    for node in nodes.nodes.values():
        await nodes.actors.heartbeat(node.actor, node.epoch)


def shown(nodes: ReplicaNodes) -> dict[str, dict[str, int]]:
    """What answers, by node."""
    return {
        name: {variant: version for variant, version in node.variants.items() if version}
        for name, node in nodes.nodes.items()
    }


async def test_all_of_them_answer_on_another_node_before_the_first_one_stops(nodes: ReplicaNodes) -> None:
    for job in await two_variants(nodes):
        await nodes.actors.service.cancel("alice", job.id)
        await nodes.actors.exit((await nodes.actors.job(job.id)).run_id)
    await nodes.connect("n2", "n3")
    await nodes.nodes["n1"].actor.send(DrainSet(Drain.MOVE))
    seen = []
    for _ in range(8):
        await beats(nodes)
        for name in nodes.nodes:  # one at a time, in the order in which it would hurt
            await nodes.obey(name, rounds=1)
            seen.append(shown(nodes))
    assert all(LIVE in each.values() for each in seen), "all variants answer on one node at any time"
    assert shown(nodes) == {"n1": {}, "n2": LIVE, "n3": {}}
    assert endpoint(nodes.actors).node_id == "n2"
    assert nodes.nodes["n1"].actor.answers_for == ()
    assert nodes.nodes["n1"].copies == {}, "what is elsewhere is kept there no more"
    assert nodes.nodes["n3"].copies == {}
    assert not nodes.versions.held("digits"), "they were on their way only"


@pytest.mark.parametrize("others", [(), ("n2",)])
async def test_it_goes_on_where_nobody_can_take_its_place(nodes: ReplicaNodes, others: tuple[str, ...]) -> None:
    await two_variants(nodes)
    await nodes.connect(*others)
    for name in others:
        nodes.nodes[name].refuses = {2}
    await nodes.nodes["n1"].actor.send(DrainSet(Drain.MOVE))
    for _ in range(6):
        await beats(nodes)
        await nodes.obey()
    assert shown(nodes)["n1"] == LIVE
    assert endpoint(nodes.actors).node_id == "n1"


async def test_one_that_is_drained_no_more_before_all_is_there_keeps_them(nodes: ReplicaNodes) -> None:
    await two_variants(nodes)
    await nodes.connect("n2")
    nodes.nodes["n2"].is_stuck = True
    await nodes.nodes["n1"].actor.send(DrainSet(Drain.MOVE))
    for _ in range(3):
        await beats(nodes)
        await nodes.obey()
    await nodes.nodes["n1"].actor.send(DrainSet(Drain.NO))
    nodes.nodes["n2"].is_stuck = False
    for _ in range(4):
        await beats(nodes)
        await nodes.obey()
    assert shown(nodes) == {"n1": LIVE, "n2": {}}
    assert nodes.nodes["n2"].copies == {}


async def test_one_that_dies_while_the_other_one_loads_is_waited_for_by_nobody(nodes: ReplicaNodes) -> None:
    await two_variants(nodes)
    await nodes.connect("n2")
    await nodes.nodes["n1"].actor.send(DrainSet(Drain.MOVE))
    for _ in range(8):
        await beats(nodes)
        await nodes.obey("n1", rounds=1)
        await nodes.obey("n2", rounds=1)
        if endpoint(nodes.actors).node_id == "n2":
            break
    del nodes.nodes["n1"]  # with all that it had
    for _ in range(20):
        await beats(nodes)
        await nodes.obey()
    assert shown(nodes) == {"n2": LIVE}


async def test_their_jobs_follow_them_and_deliver_there(nodes: ReplicaNodes) -> None:
    jobs = await two_variants(nodes)
    await nodes.connect("n2")
    await nodes.nodes["n1"].actor.send(DrainSet(Drain.MOVE))
    for _ in range(8):
        await beats(nodes)
        await nodes.obey()
    assert endpoint(nodes.actors).node_id == "n2"
    for job in jobs:
        going = await nodes.actors.job(job.id)
        assert going.moving_to is not None, going.reason
        assert going.moving_to.node_id == "n2"


async def test_what_is_delivered_there_after_all_follows_the_others(nodes: ReplicaNodes) -> None:
    first, _ = await two_variants(nodes)
    await nodes.connect("n2")
    await nodes.nodes["n1"].actor.send(DrainSet(Drain.WAIT))  # jobs run there to their end
    for _ in range(8):
        await beats(nodes)
        await nodes.obey()
    assert shown(nodes) == {"n1": {}, "n2": LIVE}
    await delivers(nodes, first, 3, 2, 0.95)
    for _ in range(8):
        await beats(nodes)
        await nodes.obey()
    assert shown(nodes) == {"n1": {}, "n2": {"small": 3, "large": 2}}
    assert endpoint(nodes.actors).node_id == "n2"
