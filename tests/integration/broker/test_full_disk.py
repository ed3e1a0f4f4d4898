"""A real broker whose disk is full, and one whose database somebody else has locked."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from pathlib import Path

import grpc
import pytest

from testing import onnx_models
from testing.brokers import node_token, running_broker, tenant_of, tenant_token
from testing.scripted_agent import ScriptedAgent
from testing.small_disk import fill, small_disk
from tiercel import Client
from tiercel.core.errors import CannotWriteError
from tiercel.core.jobs import Script
from tiercel.v1 import jobs_pb2

LARGE = Script("train.py", b"#" * 512 * 1024)


async def test_a_broker_with_a_full_disk_refuses_serves_and_goes_on(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 8 * 1024 * 1024) as state_dir:
        agent = ScriptedAgent(node_token(state_dir))
        token = tenant_token(state_dir)
        async with running_broker(state_dir) as broker, tenant_of(broker.broker_address, token) as alice:
            job = await alice.submit()
            run_id = f"{job.id}-1"
            async with agent.connected(broker.nodes_address):
                await agent.wait_run(run_id)
                agent.report(run_id, 0.5)
                await alice.wait(job.id, lambda job: job.epoch == 1)
                filler = fill(state_dir)
                with pytest.raises(grpc.aio.AioRpcError) as refused:
                    await alice.submit("large", script=LARGE)
                assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
                assert dict(refused.value.trailing_metadata() or ())["tiercel-error-code"] == "cannot_write"
                details = refused.value.details() or ""
                assert f"no space left in {state_dir}" in details
                assert "nothing was changed. Make room and try again." in details
                await _check_no_file_is_deployed(Client(broker.broker_address, token=token), tmp_path, state_dir)
                # What only reads goes on, and what was refused is nowhere.
                assert (await alice.get(job.id)).epoch == 1
                assert [endpoint.name for endpoint in await alice.endpoints()] == ["digits"]
                assert [node.state for node in await alice.nodes()] == [jobs_pb2.NODE_STATE_ONLINE]
                agent.report(run_id, 0.85, 0.95)
                agent.exit(run_id, 0)
                filler.unlink()
                done = await alice.wait_finished(job.id)
            assert done.state == jobs_pb2.JOB_STATE_COMPLETED
            assert [tier.version for tier in done.tiers] == [1, 2]
            await alice.submit("large", script=LARGE)


async def _check_no_file_is_deployed(client: Client, folder: Path, state_dir: Path) -> None:
    """It is refused before it is sent, and leaves nothing."""
    (folder / "plus.onnx").write_bytes(onnx_models.plus(1.0))
    async with client:
        with pytest.raises(CannotWriteError, match="Make room and try again"):
            await client.deploy(folder / "plus.onnx", "plus")
        assert [endpoint.name for endpoint in await client.list_endpoints()] == ["digits"]
    assert list((state_dir / "versions").iterdir()) == []


async def test_a_broker_whose_database_is_locked_refuses_and_goes_on(tmp_path: Path) -> None:
    token = tenant_token(tmp_path)
    async with running_broker(tmp_path) as broker, tenant_of(broker.broker_address, token) as alice:
        job = await alice.submit()
        with contextlib.closing(
            sqlite3.connect(tmp_path / "broker.sqlite", timeout=30, check_same_thread=False)
        ) as other:
            # Elsewhere, since the broker may be in the middle of writing, which it ends on this thread.
            await asyncio.to_thread(other.execute, "BEGIN EXCLUSIVE")
            for _ in range(2):
                with pytest.raises(grpc.aio.AioRpcError, match="another program has locked it") as refused:
                    await alice.cancel(job.id)
                assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert (await alice.get(job.id)).state == jobs_pb2.JOB_STATE_PENDING
            other.rollback()
        # The journal tries again by itself after a few seconds at most.
        cancelled = None
        async with asyncio.timeout(90):
            while cancelled is None:
                with contextlib.suppress(grpc.aio.AioRpcError):
                    cancelled = await alice.cancel(job.id)
        assert cancelled.state == jobs_pb2.JOB_STATE_CANCELLED
