"""An endpoint that answers on two nodes: real agents and servers, copies by way of the broker, flips in order."""

from __future__ import annotations

import asyncio
import contextlib
import re
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from testing import onnx_models
from testing.product_use import digits_job
from testing.small_disk import small_disk
from testing.two_nodes import JOB_SECONDS, TwoNodes, two_nodes
from testing.until import until
from tiercel import JobState
from tiercel.broker.actors import replica_loads
from tiercel.broker.api import version_files
from tiercel.broker.client import EndpointInfo
from tiercel.broker.lifecycle import replica_count
from tiercel.core.jobs import AUTO_REPLICAS
from tiercel.v1.nodes_pb2 import FetchCheckpointRequest, FetchCheckpointResponse

# Two nodes for all tests, each of which has an endpoint of its own.
pytestmark = [pytest.mark.end_to_end, pytest.mark.timeout(300), pytest.mark.asyncio(loop_scope="module")]

RESERVE_BYTES = 512 * 1024**2
"""What agents leave free, if nobody says otherwise."""
BODY = {"inputs": [{"name": "input", "shape": [1, 8, 8], "datatype": "FP32", "data": [0.5] * 64}]}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def nodes(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[TwoNodes]:
    # A node that is only busy must not count as one that is away.
    async with two_nodes(tmp_path_factory.mktemp("nodes"), lease_seconds=8.0) as running:
        yield running


async def endpoint(nodes: TwoNodes, name: str) -> EndpointInfo:
    async with nodes.client() as alice:
        (found,) = [each for each in await alice.list_endpoints() if each.name == name]
    return found


async def answering(nodes: TwoNodes, name: str) -> dict[str, int | None]:
    """The version that answers, by node."""
    return {place.node_id: place.answering_version for place in (await endpoint(nodes, name)).places}


async def wait_answering(nodes: TwoNodes, name: str, wanted: dict[str, int | None]) -> None:
    """Wait until these versions answer on these nodes."""
    async with asyncio.timeout(JOB_SECONDS):
        while (found := await answering(nodes, name)) != wanted:  # noqa: ASYNC110 - nobody says when that is so
            await asyncio.sleep(0.1)
    assert found == wanted


class Asked:
    """Asks the endpoint on all of its nodes, and notes what it was told."""

    def __init__(self, nodes: TwoNodes) -> None:
        self._nodes = nodes
        self.versions: set[tuple[str, int]] = set()
        self.rounds_without_answer = 0

    async def run(self) -> None:
        """Ask until cancelled."""
        async with aiohttp.ClientSession() as session:
            while True:
                found = await self.round(session)
                self.versions |= found
                if self.versions and not found:
                    self.rounds_without_answer += 1
                await asyncio.sleep(0.02)

    async def round(self, session: aiohttp.ClientSession) -> set[tuple[str, int]]:
        """Ask each node once, not the broker, which hears of it later; the version that answers by node."""
        nodes = [node for node in self._nodes._service.nodes() if node.serving_http]
        return {each for node in nodes if (each := await self._version(session, node.id, node.serving_http))}

    async def _version(self, session: aiohttp.ClientSession, node_id: str, address: str) -> tuple[str, int] | None:
        with contextlib.suppress(aiohttp.ClientError, KeyError):
            async with session.get(f"http://{address}/v2/models/digits") as response:
                if response.status == 200:
                    return node_id, int((await response.json())["versions"][-1])
        return None


async def test_tiers_answer_on_two_nodes_when_they_are_announced_and_one_that_was_away_for_a_flip_catches_up(
    nodes: TwoNodes, tmp_path: Path
) -> None:
    asked, go = Asked(nodes), tmp_path / "go"
    async with asyncio.TaskGroup() as group:
        task = group.create_task(asked.run())
        async with nodes.client() as alice:
            arguments = ("--waits-for", str(go), "--epochs", "10000")
            spec = digits_job(targets=(0.70, 0.90), arguments=arguments, max_epochs=10_000, replicas=2)
            handle = await alice.submit(spec)
            await until(lambda: asked.versions == {("n1", 1), ("n2", 1)}, seconds=JOB_SECONDS)
            go.touch()
            done = await handle.wait(JOB_SECONDS)
            assert done.state is JobState.COMPLETED, done.reason
        # It was announced: from now on nobody answers with anything else.
        async with aiohttp.ClientSession() as session:
            assert await asked.round(session) == {("n1", 2), ("n2", 2)}
        task.cancel()
    assert {version for _, version in asked.versions} == {1, 2}
    assert {node for node, _ in asked.versions} == {"n1", "n2"}
    assert asked.rounds_without_answer == 0
    stored = [nodes.folder / node / "agent" / "models" / "digits" / "2" for node in ("n1", "n2")]
    (first, second) = ({path.name: path.read_bytes() for path in folder.iterdir()} for folder in stored)
    assert first == second
    assert set(first) == {"model.onnx", "reference.npz", "accuracy.json"}
    await catches_up(nodes)
    (tmp_path / "plus.onnx").write_bytes(onnx_models.plus(1.0))
    async with nodes.client() as alice:
        await alice.deploy(tmp_path / "plus.onnx", "plus", accuracy=0.9, replicas=2)
    await wait_answering(nodes, "plus", {"n1": 1, "n2": 1})
    stored = [nodes.folder / node / "agent" / "models" / "plus" / "1" for node in ("n1", "n2")]
    assert [(folder / "accuracy.json").read_text() for folder in stored] == ['{"accuracy": 0.9}'] * 2


async def catches_up(nodes: TwoNodes) -> None:
    """The agent of the copy is away for a flip, its inference server is not; then all flip again."""
    home, copy = (place.node_id for place in (await endpoint(nodes, "digits")).places)
    async with nodes.client() as alice:
        await nodes.agents[copy].kill()
        await alice.models.rollback("digits")
        await wait_answering(nodes, "digits", {home: 1, copy: None})
        nodes.agents[copy].start()
        await wait_answering(nodes, "digits", {home: 1, copy: 1})
        await alice.models.promote("digits")
        await wait_answering(nodes, "digits", {home: 2, copy: 2})


async def test_a_copy_that_is_damaged_or_broken_off_is_fetched_again(
    nodes: TwoNodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first copy arrives damaged; during the second one its agent is killed."""
    real, attempts, killed = version_files.give_out, 0, asyncio.Event()

    async def disturbed(request: FetchCheckpointRequest, *arguments: Any) -> AsyncIterator[FetchCheckpointResponse]:
        nonlocal attempts
        attempts += 1
        attempt = attempts
        async for response in real(request, *arguments):
            if attempt == 1 and response.data:
                response.data = b"?" + response.data[1:]
            if attempt == 2 and response.data:
                nodes.agents[request.node_id].process.kill()  # this call ends with it
                killed.set()
            yield response

    monkeypatch.setattr(version_files, "give_out", disturbed)
    async with nodes.client() as alice:
        handle = await alice.submit(digits_job("copied", targets=(0.70,), replicas=2))
        async with asyncio.timeout(60):
            await killed.wait()
        await until(lambda: any(agent.process.poll() is not None for agent in nodes.agents.values()))
        (copy,) = [name for name, agent in nodes.agents.items() if agent.process.poll() is not None]
        nodes.agents[copy].start()
        done = await handle.wait(JOB_SECONDS)
    assert done.state is JobState.COMPLETED, done.reason
    await wait_answering(nodes, "copied", {"n1": 1, "n2": 1})
    assert attempts == 3
    assert list((nodes.folder / copy / "agent" / "models" / ".staging").iterdir()) == []


async def test_auto_answers_on_two_nodes_while_answers_are_late_and_on_one_again_afterwards(
    nodes: TwoNodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every answer is late, by an objective that none can meet; what is counted comes all the way from the servers."""
    monkeypatch.setattr(replica_loads, "LOOK_SECONDS", 1.0)
    for name, value in {"GROW_SECONDS": 1.0, "SHRINK_SECONDS": 2.0, "WAITING": 0.0}.items():
        monkeypatch.setattr(replica_count, name, value)
    async with nodes.client() as alice:
        job = digits_job("late", targets=(0.70,), replicas=AUTO_REPLICAS, endpoint_objective_seconds=1e-6)
        done = await (await alice.submit(job)).wait(JOB_SECONDS)
        assert done.state is JobState.COMPLETED, done.reason
        found, reasons = await endpoint(nodes, "late"), set()
        address = found.serving_http
        async with aiohttp.ClientSession() as session, asyncio.timeout(60):
            while [place.answering_version for place in found.places] != [1, 1]:
                for _ in range(20):
                    async with session.post(f"http://{address}/v2/models/late/infer", json=BODY) as response:
                        assert response.status == 200
                found = await endpoint(nodes, "late")
                reasons.add(found.replicas_reason)
        assert any(" late, " in reason for reason in reasons)
        async with asyncio.timeout(60):
            while len(await answering(nodes, "late")) != 1:  # noqa: ASYNC110 - nobody says when that is so
                await asyncio.sleep(0.1)
        found = await endpoint(nodes, "late")
        assert (found.replicas, found.auto_replicas) == (1, True)


async def test_of_three_nodes_the_one_without_room_is_named_and_answers_with_the_same_once_there_is_some(
    nodes: TwoNodes,
) -> None:
    with small_disk(nodes.folder / "n3", RESERVE_BYTES + 48 * 1024**2) as disk:
        await nodes.start_agent("n3")
        try:
            filler = disk / "filler"
            filler.write_bytes(bytes(shutil.disk_usage(disk).free - RESERVE_BYTES + 4096))
            await has_no_room_and_then_some(nodes, filler)
        finally:
            await nodes.agents["n3"].leave()


async def has_no_room_and_then_some(nodes: TwoNodes, filler: Path) -> None:
    async with nodes.client() as alice:
        handle = await alice.submit(digits_job("three", targets=(0.70,), replicas=3))
        done = await handle.wait(JOB_SECONDS)
        assert done.state is JobState.COMPLETED, done.reason
    await wait_answering(nodes, "three", {"n1": 1, "n2": 1, "n3": None})
    problems = {place.node_id: place.problem for place in (await endpoint(nodes, "three")).places if place.problem}
    assert list(problems) == ["n3"]
    assert re.fullmatch(
        r"the node's disk has no room for its \d+ bytes, as 536870912 have to be left; make room", problems["n3"]
    )
    stored = [nodes.folder / node / "agent" / "models" / "three" / "1" / "model.onnx" for node in ("n1", "n2", "n3")]
    assert [file.exists() for file in stored] == [True, True, False]
    filler.unlink()
    await wait_answering(nodes, "three", {"n1": 1, "n2": 1, "n3": 1})
    assert len({file.read_bytes() for file in stored}) == 1
    assert list((nodes.folder / "n3" / "agent" / "models" / ".staging").iterdir()) == []
