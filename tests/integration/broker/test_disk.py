"""What takes room at a real broker and on its nodes, and what of it goes."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from testing.brokers import Tenant, node_token, running_broker, tenant_of, tenant_token
from testing.scripted_agent import ScriptedAgent
from tiercel import Client
from tiercel.broker.cli import app
from tiercel.v1 import disk_pb2, jobs_pb2, nodes_pb2

NOTHING_IS_KEPT = {"keep_events_seconds": 0, "keep_logs_seconds": 0, "keep_files_seconds": 0}


@dataclass
class There:
    state_dir: Path
    agent: ScriptedAgent
    tenants: dict[str, Tenant]
    clients: dict[str, Client]

    async def finished(self, tenant: str, endpoint: str, *values: float) -> jobs_pb2.Job:
        """A job that said something, reported, and is over: cancelled, unless its values reach all tiers."""
        job = await self.tenants[tenant].submit(endpoint)
        run_id = f"{job.id}-1"
        await self.agent.wait_run(run_id)
        self.agent.write(run_id, b"x" * 1_000)
        self.agent.report(run_id, *values)
        await self.tenants[tenant].wait(job.id, lambda job: job.epoch == len(values))
        if max(values) < 0.9:
            await self.tenants[tenant].cancel(job.id)
        return await self.tenants[tenant].wait_finished(job.id)

    async def tiercel(self, *arguments: str) -> Result:
        command = [*arguments, "--broker", self.clients["alice"].address]
        return await asyncio.to_thread(CliRunner().invoke, app, command)


@contextlib.asynccontextmanager
async def a_broker(state_dir: Path, **settings: Any) -> AsyncIterator[There]:
    async with contextlib.AsyncExitStack() as stack:
        broker = await stack.enter_async_context(running_broker(state_dir, **settings))
        address, tenants, clients = broker.broker_address, dict[str, Tenant](), dict[str, Client]()
        for name in ("alice", "bob"):
            token = tenant_token(state_dir, name)
            tenants[name] = await stack.enter_async_context(tenant_of(address, token))
            clients[name] = await stack.enter_async_context(Client(address, token=token))
        agent = ScriptedAgent(node_token(state_dir))
        await stack.enter_async_context(agent.connected(broker.nodes_address))
        yield There(state_dir, agent, tenants, clients)


async def events_of(client: Client, job_id: str) -> int:
    return len([event async for event in client.events(job_id=job_id)])


async def test_only_what_the_tenant_has_and_nobody_needs_goes_and_a_dry_run_says_so_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIERCEL_TOKEN", tenant_token(tmp_path))
    async with a_broker(tmp_path, **NOTHING_IS_KEPT) as there:
        alice = there.clients["alice"]
        delivered = await there.finished("alice", "digits", 0.85, 0.95)
        cancelled = await there.finished("alice", "other", 0.1, 0.2)
        bobs = await there.finished("bob", "bobs", 0.1)
        lives = await there.tenants["alice"].submit("lives")
        await there.agent.wait_run(f"{lives.id}-1")
        before = {job.id: await events_of(alice, job.id) for job in (delivered, cancelled)}

        planned = json.loads((await there.tiercel("gc", "--dry-run", "--json")).stdout)
        assert {(each["job_id"], each["what"]) for each in planned} == {
            (cancelled.id, "events"),
            (cancelled.id, "logs"),
        }
        assert await events_of(alice, cancelled.id) == before[cancelled.id]

        told = await there.tiercel("gc")
        assert told.stdout.splitlines()[1].split()[:2] == [cancelled.id, "events"]
        assert "KiB went" in told.stderr
        assert await events_of(alice, cancelled.id) == 0
        assert [piece async for piece in alice.logs(cancelled.id)] == []
        # What a version comes from stays, and what is another's.
        assert await events_of(alice, delivered.id) == before[delivered.id]
        assert [piece async for piece in alice.logs(delivered.id)] == [b"x" * 1_000]
        assert await events_of(there.clients["bob"], bobs.id) > 0
        assert (await alice.get_job(cancelled.id)).best_value == 0.2
        assert [removal async for removal in alice.collect_garbage()] == []


async def test_numbers_of_events_go_on_after_all_of_them_went(tmp_path: Path) -> None:
    async with a_broker(tmp_path, **NOTHING_IS_KEPT) as there:
        job = await there.finished("alice", "digits", 0.1)
        last = max([event.sequence async for event in there.clients["alice"].events(job_id=job.id)])
        assert [removal.job_id async for removal in there.clients["alice"].collect_garbage()]
    async with a_broker(tmp_path, **NOTHING_IS_KEPT) as there:
        job = await there.finished("alice", "digits", 0.1)
        first = min([event.sequence async for event in there.clients["alice"].events(job_id=job.id)])
        assert first == last + 1


async def test_what_takes_room_is_told_by_kind_and_by_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIERCEL_TOKEN", tenant_token(tmp_path))
    async with a_broker(tmp_path) as there:
        await there.finished("alice", "digits", 0.1)
        use = await there.clients["alice"].disk_use()
        own = {part.name: (part.size_bytes, part.count) for part in use.own}
        assert own["logs"] == (1_000, 1)
        assert own["events"][1] > 3
        assert own["files"] == (0, 0)
        assert {part.name for part in use.broker} == {
            *("database", "backups", "logs", "checkpoints", "files", "projects")
        }
        assert all(part.size_bytes > 0 for part in use.broker if part.name in {"database", "logs"})
        assert use.nodes == ()
        assert {part.size_bytes for part in (await there.clients["bob"].disk_use()).own} == {0}

        parts = [disk_pb2.RoomTaken(name=name, size_bytes=7) for name in ("jobs", "a\x1b[2J", "n" * 65, *"x" * 40)]
        disk = disk_pb2.NodeDisk(node_id="forged", parts=parts, free_bytes=5 << 30, total_bytes=2**64 - 1)
        there.agent._tell(heartbeat=nodes_pb2.Heartbeat(number=99, fenced=True, disk=disk))
        async with asyncio.timeout(60):
            while not (use := await there.clients["alice"].disk_use()).nodes:  # noqa: ASYNC110 - there is no event
                await asyncio.sleep(0.01)
        (node,) = use.nodes
        assert (node.node_id, node.free_bytes, node.total_bytes) == (there.agent.node_id, 5 << 30, 2**62)
        assert [part.name for part in node.parts] == ["jobs", *"x" * 29]

        told = await there.tiercel("du")
        assert told.stdout.splitlines()[0].split() == ["WHERE", "WHAT", "SIZE", "NUMBER"]
        assert "(free)" in told.stdout
        assert set(json.loads((await there.tiercel("du", "--json")).stdout)) == {"own", "broker", "nodes"}


async def test_who_operates_the_broker_sees_and_collects_of_all_tenants(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIERCEL_TOKEN", tenant_token(tmp_path, "bob"))
    async with a_broker(tmp_path, **NOTHING_IS_KEPT) as there:
        jobs = {tenant: await there.finished(tenant, tenant, 0.1) for tenant in ("alice", "bob")}
        operator = ("--all-tenants", "--state-dir", str(tmp_path))
        told = json.loads((await there.tiercel("du", "--json", *operator)).stdout)
        assert set(told) == {"tenants", "broker", "nodes"}
        logs = {
            name: part["size_bytes"] for name, own in told["tenants"].items() for part in own if part["name"] == "logs"
        }
        assert {name: logs[name] for name in jobs} == {"alice": 1_000, "bob": 1_000}
        lines = (await there.tiercel("du", *operator)).stdout.splitlines()
        assert {"alice", "bob"} <= {line.split()[1] for line in lines if line.startswith("tenant ")}
        assert any(line.startswith("broker ") for line in lines)

        lines = (await there.tiercel("gc", "--dry-run", *operator)).stdout.splitlines()
        assert {tuple(line.split()[:2]) for line in lines[1:]} == {(name, job.id) for name, job in jobs.items()}
        await there.tiercel("gc", *operator)
        for tenant, job in jobs.items():
            assert [piece async for piece in there.clients[tenant].logs(job.id)] == []

        for command in ("du", "gc"):
            refused = await there.tiercel(command, "--all-tenants", "--state-dir", str(tmp_path / "elsewhere"))
            assert (refused.exit_code, "no tokens of tenants" in refused.stderr) == (1, True)
