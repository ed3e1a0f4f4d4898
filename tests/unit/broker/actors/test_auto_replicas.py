"""An endpoint whose job leaves it to the broker on how many nodes it answers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from testing.actors import ALICE, Actors, running, running_actors, submit
from testing.replica_nodes import ENDPOINT, ReplicaNodes, version_store
from tiercel.broker.actors.endpoint_states import Counted
from tiercel.broker.actors.replica_loads import reading_of
from tiercel.broker.lifecycle import replica_count
from tiercel.broker.lifecycle.replica_count import GROW_SECONDS, LOOK_SECONDS
from tiercel.broker.lifecycle.serving_node import ServingNode
from tiercel.broker.store.sql import Store
from tiercel.core.endpoints import DeliveryState, Endpoint, EndpointUsage, Version
from tiercel.core.jobs import AUTO_REPLICAS, Direction, Job, Tier

BEAT_SECONDS = 2.0
SOON = GROW_SECONDS + 2 * LOOK_SECONDS + BEAT_SECONDS


async def answered(nodes: ReplicaNodes) -> Job:
    """An endpoint that answers on its home, of a job that leaves it to the broker on how many."""
    actors = nodes.actors
    job = await running(actors, replicas=AUTO_REPLICAS, endpoint_objective_seconds=0.05)
    await actors.report(job.run_id, 0.85, 1)
    sha256 = f"{1:064x}"
    said = {"value": 0.85, "sha256": sha256}
    await actors.delivery(f"{job.id}-tier-1", DeliveryState.LOADING, job.node_id, **said)
    home = nodes.nodes[job.node_id]
    home.answering, home.copies[1] = 1, sha256
    await nodes.say(job.node_id)
    await actors.delivery(f"{job.id}-tier-1", DeliveryState.DELIVERED, job.node_id, **said)
    await nodes.obey()
    return job


async def asked(nodes: ReplicaNodes, seconds: float, cores: float, per_second: int = 50) -> None:
    """Requests come for so long, which take so many cores on each node that answers; nodes do what is wanted."""
    for _ in range(round(seconds / BEAT_SECONDS)):
        requests = round(per_second * BEAT_SECONDS)
        usage = EndpointUsage(
            ENDPOINT, BEAT_SECONDS, requests, requests, 0.01 * requests, cores * BEAT_SECONDS, on_time=requests
        )
        for name, node in nodes.nodes.items():
            await nodes.actors.heartbeat(node.actor, node.epoch)
            nodes.actors.agents.measure_endpoints(name, (usage,) if node.answering and requests else ())
        await nodes.actors.pass_time(BEAT_SECONDS)
        await nodes.obey(rounds=3)


def endpoint(actors: Actors) -> Endpoint:
    (found,) = actors.service.endpoints.of(ALICE.name)
    return found


async def test_it_answers_on_more_nodes_while_much_is_asked_and_on_one_again_afterwards(
    nodes: ReplicaNodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica_count, "SHRINK_SECONDS", 15.0)
    await nodes.connect("n1", "n2", "n3")
    await answered(nodes)
    assert endpoint(nodes.actors).replicas == 1
    await asked(nodes, SOON, cores=3.8)
    assert endpoint(nodes.actors).replicas == 2
    assert sorted(nodes.answering().values()) == [0, 1, 1]
    assert "2 after 1 since 95 % of its CPU was busy" in nodes.actors.service.endpoints.replicas_reason(ENDPOINT)
    await asked(nodes, 30, cores=1.9)
    assert endpoint(nodes.actors).replicas == 2
    await asked(nodes, 30, cores=0.0, per_second=0)
    assert endpoint(nodes.actors).replicas == 1
    assert sorted(nodes.answering().values()) == [0, 0, 1]
    assert nodes.versions.held(ENDPOINT) == {}
    assert all(node.history.count(0) <= 1 for node in nodes.nodes.values())


async def test_a_broker_that_begins_anew_goes_on_with_as_many_and_takes_silence_for_nothing(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica_count, "SHRINK_SECONDS", 10.0)
    async with running_actors(store, versions=version_store(tmp_path)) as actors:
        nodes = ReplicaNodes(actors)
        await nodes.connect("n1", "n2")
        await answered(nodes)
        await asked(nodes, SOON, cores=4.0)
        assert (endpoint(actors).replicas, sorted(nodes.answering().values())) == (2, [1, 1])
        before = nodes.nodes
    async with running_actors(store, versions=version_store(tmp_path)) as actors:
        nodes = ReplicaNodes(actors)
        nodes.nodes = before
        await nodes.connect("n1")
        for _ in range(8):
            await actors.heartbeat(nodes.nodes["n1"].actor, nodes.nodes["n1"].epoch)
            actors.agents.measure_endpoints("n1", ())
            await actors.pass_time(BEAT_SECONDS)
        assert (endpoint(actors).replicas, endpoint(actors).auto_replicas) == (2, True)


async def test_the_next_job_says_it_anew(nodes: ReplicaNodes) -> None:
    actors = nodes.actors
    await nodes.connect("n1", "n2")
    job = await answered(nodes)
    await asked(nodes, SOON, cores=4.0)
    assert actors.service.endpoints.replicas_reason(ENDPOINT)
    await actors.exit(job.run_id)
    await submit(actors, replicas=2, tiers=(Tier(0.99),))
    assert (endpoint(actors).replicas, endpoint(actors).auto_replicas) == (2, False)
    assert actors.service.endpoints.replicas_reason(ENDPOINT) == ""
    await asked(nodes, SOON, cores=4.0)
    assert endpoint(actors).replicas == 2


LIVE = Version(1, "j", 1, "accuracy", 0.9, 0.0, "ab", Direction.MAX, node_id="n1")
HERE = Endpoint(
    "digits",
    "alice",
    2,
    (LIVE,),
    "n1",
    0.05,
    live_versions={"": 1},
    replicas=2,
    auto_replicas=True,
    replica_nodes=("n2",),
)
NODES = {name: ServingNode(name, answering=1, cpu_cores=4.0) for name in ("n1", "n2")} | {"n3": ServingNode("n3")}
NOTHING = Counted(10.0, EndpointUsage("digits", 0.0), 0.0)
BEFORE = dict.fromkeys(("n1", "n2", "n3"), NOTHING)
AFTER = dict.fromkeys(("n1", "n2", "n3"), replace(NOTHING, heard_at=20.0))


def counted(all_cpu_seconds: float = 10.0, **changes: Any) -> Counted:
    usage = EndpointUsage("digits", 10.0, 100, 80, 40.0, 10.0, failures=20, on_time=60)
    return Counted(20.0, replace(usage, **changes), all_cpu_seconds)


def test_a_reading_is_of_all_nodes_that_answer_together() -> None:
    after = AFTER | {"n1": counted(), "n2": counted(requests=50, answers=50, failures=0, on_time=50, cpu_seconds=0.0)}
    reading = reading_of(HERE, NODES, BEFORE, after)
    assert reading is not None
    assert (reading.answering, reading.able, reading.whole, reading.ended) == (2, 3, True, 150)
    assert (reading.requests_per_second, reading.answers_per_second) == (15.0, 13.0)
    assert reading.late == pytest.approx(40 / 150)
    assert reading.under_way == 8.0
    assert reading.busy == pytest.approx(1 / (4 + 3))


@pytest.mark.parametrize(
    ("objective", "lag", "lagging"), [(0.05, 0.06, True), (0.05, 0.04, False), (None, 0.09, False)]
)
def test_a_server_that_reads_requests_late_lags(objective: float | None, lag: float, lagging: bool) -> None:
    after = AFTER | {"n1": counted(), "n2": replace(AFTER["n2"], lag_seconds=lag)}
    for told, expected in ((after, lagging), (AFTER | {"n2": after["n2"]}, False)):  # nobody asks
        reading = reading_of(replace(HERE, objective_seconds=objective), NODES, BEFORE, told)
        assert reading is not None
        assert reading.lagging is expected
    reading = reading_of(HERE, NODES, BEFORE, AFTER | {"n1": replace(counted(), lag_seconds=0.5)})
    assert reading is not None
    assert reading.under_way == pytest.approx(4.0 + 10 * 0.5), "what was not read yet waits as well"


def test_without_an_objective_what_was_answered_is_in_time() -> None:
    after = AFTER | {"n1": counted(on_time=0)}
    reading = reading_of(replace(HERE, objective_seconds=None), NODES, BEFORE, after)
    assert reading is not None
    assert reading.late == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("told", "busy"),
    [
        (counted(), 0.25),
        (counted(all_cpu_seconds=36.0), 0.7143),
        (counted(all_cpu_seconds=90.0), 1.0),
        (counted(cpu_seconds=400.0, all_cpu_seconds=400.0), 1.0),
    ],
)
def test_its_cpu_is_what_other_models_leave(told: Counted, busy: float) -> None:
    alone = replace(HERE, replicas=1, replica_nodes=())
    reading = reading_of(alone, NODES, BEFORE, AFTER | {"n1": told})
    assert reading is not None
    assert reading.busy == pytest.approx(busy, abs=1e-3)


def test_nothing_is_read_of_nodes_that_were_not_heard_and_who_cannot_take_it_is_not_counted() -> None:
    after = {"n1": counted()}
    assert reading_of(HERE, NODES, BEFORE, after) is None
    assert reading_of(HERE, NODES, after, BEFORE) is None
    unfit = [
        ServingNode("n3", takes=False),
        ServingNode("n3", leaving=True),
        ServingNode("n3", online=False),
        ServingNode("n3", failed={1: "no room"}),
    ]
    for node in unfit:
        reading = reading_of(HERE, NODES | {"n3": node}, BEFORE, AFTER)
        assert reading is not None
        assert reading.able == 2


def test_a_copy_is_waited_for_unless_its_node_is_lost_or_cannot_have_it() -> None:
    for node, whole in (
        (ServingNode("n2"), False),
        (ServingNode("n2", answering=1, online=False), False),
        (ServingNode("n2", online=False, lost=True), True),
        (ServingNode("n2", failed={1: "no room"}), True),
    ):
        reading = reading_of(HERE, NODES | {"n2": node}, BEFORE, AFTER)
        assert reading is not None
        assert (reading.answering, reading.whole) == (1, whole)
