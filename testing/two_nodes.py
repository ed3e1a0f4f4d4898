"""A real broker in the test's own event loop and two real agents, as if each had a machine of its own."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from testing.agent_process import AgentProcess, agent_process
from testing.brokers import make_settings, node_token, tenant_token
from testing.until import until
from tiercel import Client
from tiercel.broker.lifecycle.job_events import MoveOrdered
from tiercel.broker.server import Broker
from tiercel.core.jobs import Job
from tiercel.core.shares import Share

NODES = ("n1", "n2")
# Only decides how long a broken test takes.
JOB_SECONDS = 150.0


@dataclass
class TwoNodes:
    """Two nodes and their broker."""

    folder: Path  # everything of theirs
    settings: dict[str, Any]  # of the broker
    agents: dict[str, AgentProcess] = field(default_factory=dict)  # by node
    _broker: Broker | None = None
    _port: int = 0
    _nodes_port: int = 0
    _stack: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    async def start_broker(self) -> None:
        """Start the broker, on the port that it had before."""
        settings = make_settings(
            self.folder / "broker", broker_port=self._port, nodes_port=self._nodes_port, **self.settings
        )
        self._broker = await Broker(settings).__aenter__()
        self._port = int(self._broker.broker_address.rpartition(":")[2])
        self._nodes_port = int(self._broker.nodes_address.rpartition(":")[2])

    async def stop_broker(self) -> None:
        """End the broker, if it runs."""
        broker, self._broker = self._broker, None
        if broker is not None:
            await broker.__aexit__(None, None, None)

    async def start_agent(self, node: str) -> None:
        """Start an agent, with the state that it had before."""
        secret = node_token(self.folder / "broker")
        address = f"127.0.0.1:{self._nodes_port}"
        process = agent_process(self.folder / node, address, node_id=node, node_token=secret)
        self.agents[node] = self._stack.enter_context(process)
        await until(lambda: any(known.id == node and known.online for known in self._service.nodes()), seconds=60.0)

    def client(self) -> Client:
        """An SDK client; to be entered."""
        return Client(f"127.0.0.1:{self._port}", token=tenant_token(self.folder / "broker"))

    def job(self, job_id: str) -> Job:
        """An active job as its actor knows it."""
        job: Job = self._service._registry.jobs[job_id].job
        return job

    async def order_move(self, job_id: str, node: str) -> None:
        """Send a job to another node, as the scheduler does, once it may be moved."""
        actor = self._service._registry.jobs[job_id]
        share = Share(1.0, None, f"moved to {node} because the test wants it")

        def is_on_its_way() -> bool:
            if (view := actor._view()) is not None and view.migratable:
                # Until it is taken: what may be moved now may not be so once it is told.
                self._service._registry.send_to_job(job_id, MoveOrdered(node, share, actor.job.attempts + 1))
            return bool(actor.job.is_moving) or actor.job.node_id == node

        await until(is_on_its_way, seconds=JOB_SECONDS)

    def output(self, run_id: str) -> str:
        """A run's output as far as the broker has it."""
        return (self.folder / "broker" / "logs" / f"{run_id}.log").read_text()

    def carried(self) -> list[str]:
        """Checkpoints that the broker holds."""
        return sorted(path.name for path in (self.folder / "broker" / "checkpoints").iterdir())

    @property
    def _service(self) -> Any:
        assert self._broker is not None
        assert self._broker._service is not None
        return self._broker._service

    async def close(self) -> None:
        """End everything: the agents first, which report to the broker."""
        await asyncio.to_thread(self._stack.close)
        await self.stop_broker()


@contextlib.asynccontextmanager
async def two_nodes(folder: Path, **settings: Any) -> AsyncIterator[TwoNodes]:
    """Two nodes, n1 and n2, that are online."""
    nodes = TwoNodes(folder, {"policy": "fair", "heartbeat_seconds": 0.5} | settings)
    await nodes.start_broker()
    try:
        for node in NODES:
            await nodes.start_agent(node)
        yield nodes
    finally:
        await nodes.close()
