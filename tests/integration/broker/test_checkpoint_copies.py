"""Copies of checkpoints at a real broker: a job whose node is gone goes on from them, across restarts of the broker."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import grpc

from testing.brokers import Tenant, node_token, running_broker, tenant_of, tenant_token
from testing.scripted_agent import ScriptedAgent
from tiercel.broker.store.carried import CheckpointFile
from tiercel.broker.store.checkpoints import CheckpointStore
from tiercel.v1 import jobs_pb2, nodes_pb2, nodes_pb2_grpc

CONTENT = b"what the run has learnt" * 20_000
NEWER = b"and some more"


async def fetch(agent: ScriptedAgent, nodes: str, state_dir: Path, run_id: str) -> bytes:
    async with grpc.aio.insecure_channel(nodes) as channel:
        metadata = (("authorization", f"Bearer {node_token(state_dir)}"),)
        request = nodes_pb2.FetchCheckpointRequest(node_id=agent.node_id, run_id=run_id, instance=agent.instance)
        call = nodes_pb2_grpc.NodesServiceStub(channel).FetchCheckpoint(request, metadata=metadata, timeout=90)
        return b"".join([response.data async for response in call])


async def trains(tenant: Tenant, agent: ScriptedAgent, **spec: Any) -> str:
    """A job that the agent has, and that has reported."""
    job_id = (await tenant.submit(**spec)).id
    await agent.wait_run(f"{job_id}-1")
    agent.report(f"{job_id}-1", 0.1)
    await tenant.wait(job_id, lambda job: job.epoch == 1)
    return job_id


async def test_a_copy_outlives_its_node_and_a_restart_of_the_broker(tmp_path: Path) -> None:
    patience = {"heartbeat_seconds": 1.0, "lease_seconds": 4.0, "gone_after_seconds": 4.0}
    first, second = (ScriptedAgent(node_token(tmp_path), name) for name in ("n1", "n2"))
    async with (
        running_broker(tmp_path, **patience) as broker,
        tenant_of(broker.broker_address, tenant_token(tmp_path)) as tenant,
        first.connected(broker.nodes_address),
    ):
        job_id = await trains(tenant, first, copy_checkpoint_seconds=60.0)
        run_id = f"{job_id}-1"
        for content in (b"older", CONTENT):
            assert await first.send_checkpoint(broker.nodes_address, run_id, content) is grpc.StatusCode.OK
        job = await tenant.wait(job_id, lambda job: job.HasField("checkpoint_copied_seconds"))
        assert job.state == jobs_pb2.JOB_STATE_RUNNING
    held = CheckpointStore(tmp_path / "checkpoints")
    assert b"".join(held.read(run_id)) == CONTENT
    # As if the copy of another run had come just before the broker died, which had not noted it.
    file = CheckpointFile("latest.pt", len(NEWER), hashlib.sha256(NEWER).hexdigest())
    with held.begin(f"{job_id}-7", [file]) as writer:
        writer.write(NEWER)
        writer.finish()
    async with (
        running_broker(tmp_path, **patience) as broker,
        tenant_of(broker.broker_address, tenant_token(tmp_path)) as tenant,
        second.connected(broker.nodes_address),
        second.beating(),
    ):
        second.starts_runs = False
        job = await tenant.wait(job_id, lambda job: job.node_id == "n2")
        assert job.reason == "starting on node n2 from the checkpoint that the broker holds"
        await second.until(lambda: second.wanted is not None and second.wanted.runs)
        assert await fetch(second, broker.nodes_address, tmp_path, f"{job_id}-2") == NEWER
        second.starts_runs = True
        assert second.wanted is not None
        second._ingest(second.wanted)
        await tenant.wait(job_id, lambda job: job.state == jobs_pb2.JOB_STATE_RUNNING)
        assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == [job_id], (
            "it serves until there is a newer"
        )
        assert await second.send_checkpoint(broker.nodes_address, f"{job_id}-2", b"newer") is grpc.StatusCode.OK
        assert held.find(f"{job_id}-2") is not None
        second.exit(f"{job_id}-2", 0)
        await second.until(lambda: not list((tmp_path / "checkpoints").iterdir()))


async def test_only_jobs_that_ask_for_copies_have_them(tmp_path: Path) -> None:
    agent = ScriptedAgent(node_token(tmp_path), "n1")
    async with (
        running_broker(tmp_path, checkpoints_bytes=len(CONTENT) - 1) as broker,
        tenant_of(broker.broker_address, tenant_token(tmp_path)) as tenant,
        agent.connected(broker.nodes_address),
    ):
        nodes = broker.nodes_address
        plain = await trains(tenant, agent)
        assert await agent.send_checkpoint(nodes, f"{plain}-1", CONTENT) is grpc.StatusCode.NOT_FOUND
        asks = await trains(tenant, agent, endpoint="other", copy_checkpoint_seconds=60.0)
        assert await agent.send_checkpoint(nodes, f"{asks}-1", CONTENT) is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert await agent.send_checkpoint(nodes, f"{asks}-1", b"small") is grpc.StatusCode.OK
        await tenant.cancel(asks)
        agent.exit(f"{asks}-1", 0)
        await agent.until(lambda: not list((tmp_path / "checkpoints").iterdir()))
        assert await agent.send_checkpoint(nodes, f"{asks}-1", b"small") is grpc.StatusCode.NOT_FOUND
