"""A version's file, for its tenant: asked of a node that has it, held for a while, never of more than a few at once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from testing.actors import Actors, running
from testing.replica_nodes import ENDPOINT, ReplicaNodes
from testing.until import until
from tiercel.broker.actors import model_files
from tiercel.broker.actors.endpoint_messages import VersionRemoved
from tiercel.broker.actors.endpoint_states import EndpointsMeasured
from tiercel.broker.actors.mailbox import send
from tiercel.broker.actors.model_files import ModelFiles
from tiercel.broker.actors.replicas import MAX_PULLS, PULL_SECONDS
from tiercel.core.endpoints import DelayWindow, DeliveryState, EndpointUsage, Version
from tiercel.core.errors import NodeOfflineError, NotFoundError, OverloadedError
from tiercel.core.jobs import Tier


async def delivered(nodes: ReplicaNodes, count: int) -> tuple[Version, ...]:
    """Versions of an endpoint, which its node has."""
    await nodes.connect("n1")
    job = await running(nodes.actors, tiers=tuple(Tier(0.1 * number) for number in range(1, count + 1)))
    for number in range(1, count + 1):
        if number == count:  # asked of the version before
            window = DelayWindow(60.0, answers=10, p50_seconds=0.002, p95_seconds=0.004)
            usage = EndpointUsage(ENDPOINT, 1.0, requests=10, answers=10, windows=(window,))
            send(nodes.actors.registry.scheduler, EndpointsMeasured("n1", (usage,)))
            await nodes.actors.settle()
            nodes.actors.registry.scheduler.endpoints.views(["n1"])
        await nodes.actors.report(job.run_id, 0.1 * number, number)
        facts: dict[str, Any] = {"value": 0.1 * number, "sha256": f"{number:064x}", "size_bytes": 1_000 + number}
        for state in (DeliveryState.LOADING, DeliveryState.DELIVERED):
            await nodes.actors.delivery(f"{job.id}-tier-{number}", state, **facts)
        nodes.nodes["n1"].answering, nodes.nodes["n1"].copies[number] = number, f"{number:064x}"
        await nodes.say("n1")
    return nodes.actors.service.endpoints.find("alice", ENDPOINT).versions


def files_of(nodes: ReplicaNodes) -> ModelFiles:
    actors: Actors = nodes.actors
    return ModelFiles(actors.service, actors.registry, nodes.versions)


async def test_versions_say_what_was_promised_and_how_fast_they_were_when_they_stopped_to_answer(
    nodes: ReplicaNodes,
) -> None:
    first, second = await delivered(nodes, 2)
    assert [(each.target, each.size_bytes) for each in (first, second)] == [(0.1, 1_001), (0.2, 1_002)]
    assert (first.p50_seconds, first.p95_seconds) == (0.002, 0.004)
    assert second.p50_seconds is None


async def test_a_file_is_sent_for_its_tenant_held_for_a_while_and_gone_then(nodes: ReplicaNodes) -> None:
    await delivered(nodes, 2)
    files = files_of(nodes)
    with pytest.raises(NotFoundError):
        await files.open("bob", ENDPOINT, 1)
    with pytest.raises(NotFoundError, match="no files of version 7; it keeps 1, 2"):
        await files.open("alice", ENDPOINT, 7)
    pulls = [asyncio.create_task(files.open("alice", ENDPOINT, 1)) for _ in range(2)]  # two of the same
    await until(lambda: nodes.actors.registry.endpoints[ENDPOINT].pulled)
    await nodes.obey()
    for pull in pulls:
        file, known = await pull
        file.close()
        assert (known.name, known.size_bytes) == ("model.onnx", 0)
    assert nodes.versions.held(ENDPOINT).keys() == {1}
    await nodes.actors.pass_time(PULL_SECONDS + 1)
    nodes.actors.registry.look_after_replicas()
    await nodes.actors.settle()
    assert nodes.versions.held(ENDPOINT) == {}


async def test_who_waits_for_files_that_somebody_removes_meanwhile_is_told_so(
    nodes: ReplicaNodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_files, "LOOK_SECONDS", 0.01)
    await delivered(nodes, 2)
    pull = asyncio.create_task(files_of(nodes).open("alice", ENDPOINT, 1))
    await until(lambda: nodes.actors.registry.endpoints[ENDPOINT].pulled)
    await nodes.actors.service.endpoints.change_versions("alice", ENDPOINT, VersionRemoved(1))
    with pytest.raises(NotFoundError, match="no files of version 1; it keeps 2"):
        async with asyncio.timeout(20):
            await pull


async def test_one_whose_node_is_away_is_refused_at_once_and_a_flood_of_versions_too(nodes: ReplicaNodes) -> None:
    versions = await delivered(nodes, MAX_PULLS + 1)
    files = files_of(nodes)
    waiting = [asyncio.create_task(files.open("alice", ENDPOINT, each.version)) for each in versions[:MAX_PULLS]]
    await until(lambda: len(nodes.actors.registry.endpoints[ENDPOINT].pulled) == MAX_PULLS)
    with pytest.raises(OverloadedError, match="1, 2, 3, 4"):
        await files.open("alice", ENDPOINT, MAX_PULLS + 1)
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    await nodes.actors.pass_time(PULL_SECONDS + 1)
    nodes.actors.registry.look_after_replicas()
    await nodes.actors.settle()
    # No UnavailableError: a client tries again for a minute after one.
    with pytest.raises(NodeOfflineError, match="is on node n1, which is offline"):
        await files.open("alice", ENDPOINT, 1)
