"""Files that people deploy as versions, without any job: their order, restarts in the middle, and what is refused."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from pathlib import Path
from typing import Any

import pytest

from testing.actors import running, running_actors, submit, wanted_of
from testing.replica_nodes import ENDPOINT, ReplicaNodes, endpoint, version_store
from testing.until import until
from tiercel.broker.actors import endpoint_service
from tiercel.broker.actors.endpoint_messages import VersionChosen
from tiercel.broker.actors.replicas import DEPLOY_SECONDS
from tiercel.broker.lifecycle.deployment import Arrived
from tiercel.broker.store.carried import CheckpointFile
from tiercel.broker.store.sql import Store
from tiercel.core.checkpoints import Artefact
from tiercel.core.deploying import MAX_COMING, Deploy
from tiercel.core.endpoints import Delivery, DeliveryState, Signature, Tensor, Verdict, deployment_id
from tiercel.core.errors import (
    EndpointBusyError,
    InvalidSpecError,
    NotFoundError,
    OverloadedError,
    QuotaExceededError,
    UnavailableError,
)
from tiercel.core.events import EndpointEvent
from tiercel.core.jobs import Tier

TAKES_FOUR = Signature((Tensor("x", "FP32", (-1, 4)),), (Tensor("y", "FP32", (-1, 4)),))


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


async def deploy(
    nodes: ReplicaNodes, content: bytes = b"a", tenant: str = "alice", signature: Signature = TAKES_FOUR, **said: Any
) -> Delivery:
    """Somebody sends a file and waits for what becomes of it."""
    asked = Deploy(**{"endpoint": ENDPOINT, "file": "model.onnx", "model": Artefact(sha256(content), 1), **said})
    upload = nodes.versions.upload([CheckpointFile("model.onnx", len(content), sha256(content))])

    async def put(name: str, version: int) -> None:
        upload.put(name, version)
        nodes.versions.finished(name, version)

    held = contextlib.ExitStack()
    held.enter_context(upload)
    upload.write(content)
    return await nodes.actors.service.endpoints.deploy(tenant, Arrived(asked, tenant, signature), put, held)


async def begun(nodes: ReplicaNodes, content: bytes = b"a", **said: Any) -> asyncio.Task[Delivery]:
    """The same, once the file is on its way to be a version."""
    task = asyncio.create_task(deploy(nodes, content, **said))

    def is_taken() -> bool:
        known = nodes.actors.registry.endpoints.get(said.get("endpoint", ENDPOINT))
        coming = known.endpoint.coming if known is not None else ()
        return task.done() or any(each.delivery.sha256 == sha256(content) for each in coming)

    await until(is_taken)
    await nodes.actors.settle()
    return task


async def answered(nodes: ReplicaNodes, version: int, node_id: str = "n1", **said: Any) -> None:
    """A node says that it answers with a file."""
    await nodes.actors.delivery(deployment_id(ENDPOINT, version), DeliveryState.DELIVERED, node_id, **said)


async def wanted(nodes: ReplicaNodes, name: str = "n1") -> list[tuple[int, Verdict]]:
    """The files that a node shall answer with, and whether."""
    node = nodes.nodes[name]
    found = (await wanted_of(node.actor, node.epoch)).deliveries
    return [(each.delivery.version, each.delivery.verdict) for each in found]


async def test_a_file_is_the_first_version_of_a_new_endpoint_and_says_who_deployed_it(nodes: ReplicaNodes) -> None:
    await nodes.connect("n1")
    task = await begun(nodes, metric="accuracy", value=0.9, objective_seconds=0.05)
    assert (endpoint(nodes.actors).live, endpoint(nodes.actors).objective_seconds) == ((), 0.05)
    assert await wanted(nodes) == [(1, Verdict.LIVE)]
    files = nodes.actors.agents.wanted_of_version("n1", ENDPOINT, 1, sends=False)
    assert files.sha256 == nodes.versions.held(ENDPOINT)[1] == sha256(b"a")
    await answered(nodes, 1)
    assert (await task).state is DeliveryState.DELIVERED
    known = endpoint(nodes.actors)
    (version,) = known.live
    assert (version.deployed_by, version.file, version.job_id) == ("alice", "model.onnx", "")
    assert (version.metric, version.value, version.signature) == ("accuracy", 0.9, TAKES_FOUR)
    assert (known.coming, known.node_id, await wanted(nodes)) == ((), "n1", [])
    assert nodes.versions.held(ENDPOINT) == {}, "nobody needs the broker's copy any more"
    assert [event.version for event in nodes.actors.events if isinstance(event, EndpointEvent)] == [version]


async def test_two_at_once_answer_in_the_order_in_which_they_came_and_can_be_rolled_back(nodes: ReplicaNodes) -> None:
    await nodes.connect("n1")
    first, second = await begun(nodes, b"a"), await begun(nodes, b"b")
    assert await wanted(nodes) == [(1, Verdict.LIVE)]
    await answered(nodes, 1)
    await nodes.actors.pass_time(1.0)
    assert await wanted(nodes) == [(2, Verdict.LIVE)]
    await answered(nodes, 2)
    assert [(await task).version for task in (first, second)] == [1, 2]
    assert endpoint(nodes.actors).live_version == 2
    back = await nodes.actors.service.endpoints.change_versions("alice", ENDPOINT, VersionChosen(None, back=True))
    assert back.live_version == 1
    third = await begun(nodes, b"c")
    assert await wanted(nodes) == [(3, Verdict.HELD)], "what somebody chose stays"
    await answered(nodes, 3)
    assert "version 1 was chosen and stays" in (await third).reason


async def test_the_same_file_once_more_is_the_same_version_unless_something_else_is_asked_for(
    nodes: ReplicaNodes,
) -> None:
    await nodes.connect("n1", "n2")
    measured: dict[str, Any] = {"metric": "accuracy", "value": 0.9, "node_id": "n1"}
    tasks = [await begun(nodes, **measured) for _ in range(2)]
    await answered(nodes, 1)
    assert [(await task).version for task in tasks] == [1, 1]
    assert (await deploy(nodes, **measured, replace=True, replicas=2)).version == 1
    assert (endpoint(nodes.actors).next_version, endpoint(nodes.actors).replicas) == (2, 2)
    worse = {**measured, "value": 0.8}
    for said, number in ((worse, 2), (worse | {"replace": True}, 3), (measured, 4), (measured | {"node_id": "n2"}, 5)):
        task = await begun(nodes, **said)
        await nodes.obey()
        await answered(nodes, number, said["node_id"])
        await nodes.obey()
        assert (await task).version == number
        if number == 2:
            assert "0.8" in endpoint(nodes.actors).versions[-1].held
            assert (await deploy(nodes, **said)).version == 2
    assert nodes.versions.held(ENDPOINT).keys() <= {5}


async def test_what_a_node_refuses_is_no_version_and_what_answered_goes_on(nodes: ReplicaNodes) -> None:
    await nodes.connect("n1")
    first = await begun(nodes, b"a")
    await answered(nodes, 1)
    await first
    broken = await begun(nodes, b"b")
    await nodes.actors.delivery(deployment_id(ENDPOINT, 2), DeliveryState.FAILED, reason="it is not valid ONNX")
    with pytest.raises(InvalidSpecError, match="file: it is not valid ONNX"):
        await broken
    known = endpoint(nodes.actors)
    assert ([each.version for each in known.versions], known.coming, known.live_version) == ([1], (), 1)
    assert nodes.versions.held(ENDPOINT) == {}


async def test_a_broker_that_is_killed_in_the_middle_goes_on_and_one_without_the_file_forgets_it(
    store: Store, tmp_path: Path
) -> None:
    async with running_actors(store, versions=version_store(tmp_path)) as actors:
        nodes = ReplicaNodes(actors)
        await nodes.connect("n1")
        tasks = [await begun(nodes, content) for content in (b"a", b"b")]
    for task in tasks:
        task.cancel()
    held = version_store(tmp_path)
    assert held.held(ENDPOINT).keys() == {1, 2}
    held.keep_only(ENDPOINT, {1})
    async with running_actors(store, versions=held) as actors:
        nodes = ReplicaNodes(actors)
        await nodes.connect("n1")
        assert await wanted(nodes) == [(1, Verdict.LIVE)]
        again = await begun(nodes, b"b")
        await answered(nodes, 1)
        await actors.pass_time(1.0)
        with pytest.raises(InvalidSpecError, match="the broker has lost it; deploy it again"):
            await again
        known = endpoint(actors)
        assert ([each.version for each in known.versions], known.coming, known.live_version) == ([1], (), 1)
        assert await wanted(nodes) == []
    async with running_actors(store, versions=version_store(tmp_path)) as actors:
        assert endpoint(actors).live_version == 1


async def test_a_node_that_goes_away_or_never_answers_is_given_up_and_told_to_keep_nothing(nodes: ReplicaNodes) -> None:
    await nodes.connect("n1")
    lost = await begun(nodes, b"a")
    await nodes.actors.pass_time(12.0)
    with pytest.raises(InvalidSpecError, match="node n1 went away before it answered with it; deploy it again"):
        await lost
    await nodes.connect("n1")
    # It had not heard of that, and comes back with the file.
    await answered(nodes, 1)
    node = nodes.nodes["n1"]
    (model,) = (await wanted_of(node.actor, node.epoch)).models
    assert (model.version, model.kept, nodes.actors.service.endpoints.of("alice")) == (0, (), [])
    silent = await begun(nodes, b"b")
    for _ in range(int(DEPLOY_SECONDS / 5.0) + 1):
        nodes.actors.clock.advance(5.0)
        await nodes.actors.heartbeat(node.actor, nodes.nodes["n1"].epoch)
        nodes.actors.registry.look_after_replicas()
        await nodes.actors.settle()
        if silent.done():
            break
    with pytest.raises(InvalidSpecError, match="node n1 did not answer with it in time"):
        await silent


async def test_the_place_is_the_endpoints_home_or_the_node_that_is_named(nodes: ReplicaNodes) -> None:
    with pytest.raises(UnavailableError, match="no node does answer for models now"):
        await deploy(nodes)
    await nodes.connect("n1", "n2")
    with pytest.raises(NotFoundError, match="there is no node 'n3'"):
        await deploy(nodes, node_id="n3")
    first = await begun(nodes, b"a", node_id="n2")
    assert await wanted(nodes, "n2") == [(1, Verdict.LIVE)]
    await answered(nodes, 1, "n2")
    await first
    second = await begun(nodes, b"b")
    assert await wanted(nodes, "n2") == [(2, Verdict.LIVE)]
    await answered(nodes, 2, "n1")
    assert not second.done(), "nobody asked that node"
    await answered(nodes, 2, "n2")
    await second


async def test_copies_on_other_nodes_are_there_before_a_file_answers_anywhere(nodes: ReplicaNodes) -> None:
    await nodes.connect("n1", "n2")
    task = await begun(nodes, replicas=2, node_id="n1")
    assert await wanted(nodes) == [(1, Verdict.OPEN)]
    await nodes.obey()
    assert await wanted(nodes) == [(1, Verdict.LIVE)]
    nodes.nodes["n1"].answering, nodes.nodes["n1"].copies[1] = 1, sha256(b"a")
    await nodes.say("n1")
    await answered(nodes, 1)
    assert not task.done()
    await nodes.obey()
    await task
    assert nodes.answering() == {"n1": 1, "n2": 1}


async def test_a_tenant_has_so_many_endpoints_and_no_more(nodes: ReplicaNodes, monkeypatch: pytest.MonkeyPatch) -> None:
    await submit(nodes.actors, "first")
    monkeypatch.setattr(endpoint_service, "MAX_ENDPOINTS", 1)
    with pytest.raises(QuotaExceededError, match="has 1 endpoints, and no tenant may have more") as caught:
        await deploy(nodes, endpoint="second")
    assert caught.value.field == "endpoint"
    with pytest.raises(QuotaExceededError, match="no tenant may have more"):
        await submit(nodes.actors, "third")
    nodes.actors.service.endpoints.check_deploy("alice", "first")  # what it has may be fed


async def test_what_others_have_or_what_takes_something_else_is_refused(nodes: ReplicaNodes) -> None:
    await nodes.connect("n1")
    first = await begun(nodes, b"a", metric="accuracy", value=0.9)
    with pytest.raises(EndpointBusyError, match=r"'model\.onnx' is being deployed"):
        await nodes.actors.service.endpoints.delete("alice", ENDPOINT)
    await answered(nodes, 1)
    await first
    with pytest.raises(EndpointBusyError, match="belongs to another tenant"):
        await deploy(nodes, tenant="bob")
    other = Signature((Tensor("x", "FP32", (-1, 5)),), TAKES_FOUR.outputs)
    with pytest.raises(InvalidSpecError, match=r"file: it takes 'x' as FP32 \[-1, 5\], and version 1 took"):
        await deploy(nodes, signature=other)
    await nodes.actors.service.endpoints.delete("alice", ENDPOINT)
    await submit(nodes.actors, "variants", variant="small", tiers=(Tier(0.5),))
    with pytest.raises(EndpointBusyError, match=r"has variants \(small\), to which no file can be deployed"):
        await deploy(nodes, endpoint="variants")
    tasks = [await begun(nodes, bytes([number])) for number in range(MAX_COMING)]
    with pytest.raises(OverloadedError, match="has 4 files that are being deployed"):
        await deploy(nodes, b"too many")
    assert nodes.versions.held(ENDPOINT).keys() == {2, 3, 4, 5}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize(
    ("measured", "verdict"),
    [
        ({}, Verdict.LIVE),
        ({"metric": "accuracy", "value": 0.95}, Verdict.LIVE),
        ({"metric": "accuracy", "value": 0.5}, Verdict.HELD),
        ({"metric": "accuracy", "value": 0.5, "replace": True}, Verdict.LIVE),
        ({"metric": "loss", "value": 0.5}, Verdict.HELD),
    ],
)
async def test_a_file_answers_unless_it_is_said_to_be_worse(
    nodes: ReplicaNodes, measured: dict[str, Any], verdict: Verdict
) -> None:
    await nodes.connect("n1")
    job = await running(nodes.actors)
    await nodes.actors.report(job.run_id, 0.85)
    for state in (DeliveryState.LOADING, DeliveryState.DELIVERED):
        await nodes.actors.delivery(f"{job.id}-tier-1", state, value=0.85, sha256="ab", signature=TAKES_FOUR)
    task = await begun(nodes, **measured)
    assert await wanted(nodes) == [(2, verdict)]
    await answered(nodes, 2)
    await task
    assert endpoint(nodes.actors).live_version == (2 if verdict is Verdict.LIVE else 1)
    if not measured:  # what a job delivers then is not known to be better
        await nodes.actors.report(job.run_id, 0.95, 2)
        await nodes.actors.delivery(f"{job.id}-tier-2", DeliveryState.LOADING, value=0.95, sha256="cd")
        assert await wanted(nodes) == [(3, Verdict.HELD)]
