"""How nodes get the projects of their runs."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from testing.brokers import node_token
from testing.scripted_agent import ScriptedAgent
from testing.sent_projects import LIMIT, client_of, make_project, spec_of
from tiercel.broker.client.projects.packing import PackedProject, pack
from tiercel.broker.server import Broker
from tiercel.core.projects import Kind, Project, sha256_of
from tiercel.trainer_agent.connection.calls import BrokerCalls
from tiercel.trainer_agent.connection.dialling import LocalDialler
from tiercel.trainer_agent.errors import TransferError
from tiercel.trainer_agent.runs.projects import ProjectFetcher


async def _placed(broker: Broker, tmp_path: Path, agent: ScriptedAgent, folder: Path) -> tuple[str, PackedProject]:
    """A job whose run a node is to start; returns the run and its project."""
    async with client_of(broker, tmp_path) as client:
        job = await client.submit(spec_of(folder))
    run = await agent.wait_run(f"{job.id}-1")
    return run.run_id, pack(Project(folder=str(folder)), LIMIT)


def fetcher_of(broker: Broker, tmp_path: Path, agent: ScriptedAgent, **changes: Any) -> ProjectFetcher:
    token = node_token(tmp_path / "broker")
    calls = BrokerCalls("n1", agent.instance, LocalDialler(lambda: broker.nodes_address, lambda: token))
    return ProjectFetcher(calls, tmp_path / "cache", **changes)


async def test_a_node_fetches_a_project_once_and_only_that_of_its_runs(broker: Broker, tmp_path: Path) -> None:
    agent = ScriptedAgent(node_token(tmp_path / "broker"), delivers=False)
    folder = make_project(tmp_path / "project")
    async with agent.connected(broker.nodes_address):
        run_id, packed = await _placed(broker, tmp_path, agent, folder)
        root = packed.project.sha256
        fetcher = fetcher_of(broker, tmp_path, agent)
        async with fetcher.fetched(run_id, root) as project:
            found = dict(project.entries)
            assert project.path(found["pkg/model.py"]).read_text() == "WIDTH = 3"
            assert found["settings"].content == "config.json"
        # Several at the same time, and none of them asks again.
        quiet = ProjectFetcher(BrokerCalls("n1", "", LocalDialler(str, str)), tmp_path / "cache", patience_seconds=0.1)
        async with asyncio.TaskGroup() as tasks:
            for _ in range(5):
                tasks.create_task(_read(quiet, run_id, root))
        stranger = fetcher_of(broker, tmp_path, agent)
        (tmp_path / "cache" / root).unlink()
        with pytest.raises(TransferError, match="there is no project for run 'nobody-1' of this node"):
            await _read(stranger, "nobody-1", root)


async def _read(fetcher: ProjectFetcher, run_id: str, root: str) -> None:
    async with fetcher.fetched(run_id, root) as project:
        assert len(project.entries) == 8


async def test_what_a_node_keeps_of_projects_is_bounded_and_what_it_needs_stays(broker: Broker, tmp_path: Path) -> None:
    agent = ScriptedAgent(node_token(tmp_path / "broker"), delivers=False)
    async with agent.connected(broker.nodes_address):
        run_id, packed = await _placed(broker, tmp_path, agent, make_project(tmp_path / "project"))
        cache = tmp_path / "cache"
        cache.mkdir()
        for number in range(5):
            content = os.urandom(100_000)
            (cache / sha256_of(content)).write_bytes(content)
            os.utime(cache / sha256_of(content), (number, number))
        fetcher = fetcher_of(broker, tmp_path, agent, cache_bytes=200_000)
        async with fetcher.fetched(run_id, packed.project.sha256) as project:  # larger than what may be kept
            assert all(project.path(entry).exists() for _, entry in project.entries if entry.kind is not Kind.LINK)
        assert not any(path.stat().st_size == 100_000 for path in cache.iterdir())


async def test_a_project_that_comes_damaged_is_not_used(broker: Broker, tmp_path: Path) -> None:
    agent = ScriptedAgent(node_token(tmp_path / "broker"), delivers=False)
    async with agent.connected(broker.nodes_address):
        run_id, packed = await _placed(broker, tmp_path, agent, make_project(tmp_path / "project"))
        damaged = tmp_path / "broker" / "projects" / "alice" / sha256_of(b"WIDTH = 3")
        damaged.write_bytes(b"WIDTH = 9")
        with pytest.raises(TransferError, match=r"its project arrived damaged: .* its SHA-256 differs"):
            await _read(fetcher_of(broker, tmp_path, agent), run_id, packed.project.sha256)
        damaged.unlink()
        with pytest.raises(TransferError, match="there is no object"):
            await _read(fetcher_of(broker, tmp_path, agent), run_id, packed.project.sha256)
