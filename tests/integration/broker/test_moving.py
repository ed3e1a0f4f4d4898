"""Checkpoints through a real broker, from agents that may say anything."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest

from testing.brokers import Tenant, node_token, running_broker, tenant_of, tenant_token
from testing.scripted_agent import ScriptedAgent
from tiercel.broker.lifecycle.job_events import MoveOrdered
from tiercel.broker.server import Broker
from tiercel.core.shares import Share
from tiercel.v1 import jobs_pb2, nodes_pb2, nodes_pb2_grpc

CONTENT = b"what the run has learnt" * 20_000


class PatientAgent(ScriptedAgent):
    """An agent whose runs end only when the test says so."""

    def _make(self, wanted: nodes_pb2.WantedRun) -> None:
        known = self.runs.get(wanted.run_id)
        if known is None:
            super()._make(wanted)
        else:
            known.wanted = wanted

    def leave(self, run_id: str, *, carried: bool) -> None:
        """The run ends since it goes on elsewhere."""
        status = nodes_pb2.RunStatus(
            run_id=run_id,
            state=nodes_pb2.RUN_STATE_EXITED,
            exit_code=0,
            reason="its job goes on as another run",
            carried=carried,
        )
        self.tell_raw(nodes_pb2.ConnectRequest(run=status))


@dataclass
class Moving:
    """A broker with two nodes and a job that is to go from n1 to n2."""

    broker: Broker
    state_dir: Path
    agents: dict[str, PatientAgent]
    tenant: Tenant
    channel: grpc.aio.Channel
    job_id: str

    @property
    def held(self) -> list[str]:
        """Everything in the folder of checkpoints."""
        return sorted(path.name for path in (self.state_dir / "checkpoints").iterdir())

    async def send(
        self,
        *contents: bytes,
        node_id: str = "n1",
        run_id: str = "",
        files: Sequence[nodes_pb2.CheckpointFile] = (),
        token: str | None = None,
    ) -> grpc.StatusCode:
        """Send a checkpoint; by default the right one."""
        described = files or [file_of("latest.pt", b"".join(contents))]
        header = nodes_pb2.CheckpointHeader(
            node_id=node_id, run_id=run_id or f"{self.job_id}-1", files=described, instance=self._instance(node_id)
        )
        call = self._stub.SendCheckpoint(metadata=self._metadata(token), timeout=90)
        with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            await call.write(nodes_pb2.SendCheckpointRequest(header=header))
            if await call.read() is not grpc.aio.EOF:
                for content in contents:
                    await call.write(nodes_pb2.SendCheckpointRequest(data=content))
                await call.done_writing()
                await call.read()
        status: grpc.StatusCode = await call.code()
        return status

    async def fetch(self, node_id: str, run_id: str) -> tuple[grpc.StatusCode, list[str], bytes]:
        """Fetch a checkpoint: the status, the names of its files, and their content."""
        request = nodes_pb2.FetchCheckpointRequest(node_id=node_id, run_id=run_id, instance=self._instance(node_id))
        call = self._stub.FetchCheckpoint(request, metadata=self._metadata(None), timeout=90)
        names, content = list[str](), b""
        with contextlib.suppress(grpc.aio.AioRpcError):
            async for response in call:
                names += [file.name for file in response.header.files]
                content += response.data
        return await call.code(), names, content

    async def wait_state(self, state: jobs_pb2.JobState.ValueType, node_id: str = "") -> jobs_pb2.Job:
        return await self.tenant.wait(self.job_id, lambda job: job.state == state and node_id in {"", job.node_id})

    def _instance(self, node_id: str) -> str:
        return self.agents[node_id].instance if node_id in self.agents else "nobody"

    @property
    def _stub(self) -> Any:
        return nodes_pb2_grpc.NodesServiceStub(self.channel)

    def _metadata(self, token: str | None) -> tuple[tuple[str, str], ...]:
        return (("authorization", f"Bearer {node_token(self.state_dir) if token is None else token}"),)


def file_of(name: str, content: bytes) -> nodes_pb2.CheckpointFile:
    return nodes_pb2.CheckpointFile(name=name, size_bytes=len(content), sha256=hashlib.sha256(content).hexdigest())


@pytest.fixture
async def moving(tmp_path: Path) -> AsyncIterator[Moving]:
    async with contextlib.AsyncExitStack() as stack:
        broker = await stack.enter_async_context(running_broker(tmp_path, policy="fair"))
        nodes = broker.nodes_address
        agents = {name: PatientAgent(node_token(tmp_path), name) for name in ("n1", "n2")}
        await stack.enter_async_context(agents["n1"].connected(nodes))
        tenant = await stack.enter_async_context(tenant_of(broker.broker_address, tenant_token(tmp_path)))
        channel = await stack.enter_async_context(grpc.aio.insecure_channel(nodes))
        job_id = (await tenant.submit()).id
        await agents["n1"].wait_run(f"{job_id}-1")
        await stack.enter_async_context(agents["n2"].connected(nodes))
        agents["n1"].report(f"{job_id}-1", 0.1)
        await tenant.wait(job_id, lambda job: job.epoch == 1)
        service = broker._service
        assert service is not None
        service._registry.send_to_job(job_id, MoveOrdered("n2", Share(1.0, None, "moved"), 2))
        await agents["n1"].until(lambda: agents["n1"].runs[f"{job_id}-1"].wanted.carry)
        yield Moving(broker, tmp_path, agents, tenant, channel, job_id)


async def test_a_checkpoint_goes_from_one_agent_to_the_other_and_is_dropped(moving: Moving) -> None:
    source, target = moving.agents["n1"], moving.agents["n2"]
    target.starts_runs = False
    assert source.runs[f"{moving.job_id}-1"].wanted.stop
    assert await moving.send(CONTENT[:7], CONTENT[7:]) is grpc.StatusCode.OK
    assert moving.held == [moving.job_id]
    source.leave(f"{moving.job_id}-1", carried=True)
    job = await moving.wait_state(jobs_pb2.JOB_STATE_STARTING, "n2")
    assert job.reason == "starting on node n2 from the checkpoint that came from node n1"
    await target.until(lambda: target.wanted is not None and target.wanted.runs)
    assert target.wanted is not None
    assert target.wanted.runs[0].carried_run_id == f"{moving.job_id}-1"
    next_run = f"{moving.job_id}-2"
    assert await moving.fetch("n2", next_run) == (grpc.StatusCode.OK, ["latest.pt"], CONTENT)
    for node_id, run_id in (("n1", next_run), ("n2", f"{moving.job_id}-1"), ("n2", "../x-1")):
        assert (await moving.fetch(node_id, run_id))[0] is grpc.StatusCode.NOT_FOUND
    target.starts_runs = True
    target._ingest(target.wanted)
    await moving.wait_state(jobs_pb2.JOB_STATE_RUNNING, "n2")
    await source.until(lambda: moving.held == [])


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"run_id": "unknown-1"}, grpc.StatusCode.NOT_FOUND),
        ({"run_id": "../../x-1"}, grpc.StatusCode.NOT_FOUND),
        ({"node_id": "n2"}, grpc.StatusCode.NOT_FOUND),
        ({"token": "somebody's"}, grpc.StatusCode.UNAUTHENTICATED),
        ({"files": [file_of("../escape", b"x")]}, grpc.StatusCode.INVALID_ARGUMENT),
        ({"files": [file_of("latest.pt", b"y")]}, grpc.StatusCode.INVALID_ARGUMENT),
        ({"files": [file_of("latest.pt", b"xx")]}, grpc.StatusCode.INVALID_ARGUMENT),
        (
            {"files": [nodes_pb2.CheckpointFile(name="a", size_bytes=1 << 40, sha256="0" * 64)]},
            grpc.StatusCode.INVALID_ARGUMENT,
        ),
    ],
)
async def test_what_is_not_wanted_or_not_sound_is_refused_and_leaves_nothing(
    moving: Moving, changes: dict[str, object], status: grpc.StatusCode
) -> None:
    before = sorted(path.name for path in moving.state_dir.iterdir())
    assert await moving.send(b"x", **changes) is status  # type: ignore[arg-type]
    assert moving.held == []
    assert sorted(path.name for path in moving.state_dir.iterdir()) == before


async def test_the_word_of_a_node_that_it_has_sent_a_checkpoint_is_not_enough(moving: Moving) -> None:
    moving.agents["n1"].starts_runs = False
    moving.agents["n1"].leave(f"{moving.job_id}-1", carried=True)
    job = await moving.tenant.wait(moving.job_id, lambda job: job.attempts == 2)
    assert (job.node_id, job.reason) == ("n1", "starting on node n1")
    async for event in moving.tenant.events(moving.job_id):
        if "it could not be moved to node n2" in event.state_changed.reason:
            return
    pytest.fail("nobody said that it could not be moved")


async def test_a_job_on_its_way_holds_something_of_both_nodes(moving: Moving) -> None:
    nodes = {node.id: node for node in await moving.tenant.nodes()}
    assert nodes["n1"].memory_reserved_bytes == nodes["n2"].memory_reserved_bytes > 0
    assert await moving.send(CONTENT) is grpc.StatusCode.OK
    moving.agents["n1"].leave(f"{moving.job_id}-1", carried=True)
    await moving.wait_state(jobs_pb2.JOB_STATE_RUNNING, "n2")
    nodes = {node.id: node for node in await moving.tenant.nodes()}
    assert (nodes["n1"].memory_reserved_bytes, nodes["n2"].jobs) == (0, 1)


async def test_a_job_that_is_cancelled_on_the_way_needs_no_checkpoint(moving: Moving) -> None:
    assert await moving.send(CONTENT) is grpc.StatusCode.OK
    await moving.tenant.cancel(moving.job_id)
    assert await moving.send(CONTENT) is grpc.StatusCode.NOT_FOUND
    moving.agents["n1"].exit(f"{moving.job_id}-1", 0)
    await moving.wait_state(jobs_pb2.JOB_STATE_CANCELLED)
    await moving.agents["n1"].until(lambda: moving.held == [])
