"""The connection of an agent that joined, without anything to run: it dials, renews and dials again as a real one."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tiercel.core.trust.certificates import Identity
from tiercel.core.wire import timestamp
from tiercel.trainer_agent.connection.dialling import JoinedDialler
from tiercel.trainer_agent.connection.outbox import Reporter
from tiercel.trainer_agent.connection.stream import BrokerConnection
from tiercel.v1 import PROTOCOL, nodes_pb2


class JoinedAgent:
    """One node's connection.

    Attributes:
        file: Its certificate.
        welcomes: How often the broker welcomed it.
        answered: The last heartbeat that the broker answered.

    Args:
        clock_ahead: By how much its clock is ahead of this machine's.
    """

    def __init__(
        self,
        node_id: str,
        folder: Path,
        address: Callable[[], str],
        identity: Identity,
        clock_ahead: timedelta = timedelta(0),
    ) -> None:
        folder.mkdir(exist_ok=True)
        self.file = folder / "identity.pem"
        self.file.write_bytes(identity.to_file())
        self.node_id = node_id
        self.welcomes = 0
        self.answered = 0
        self._address = address
        self._instance = secrets.token_hex(16)
        self._beats = 0
        self._clock_ahead = clock_ahead

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Keep its connection up inside."""
        dialler = JoinedDialler(self._address, self.file, self._now)
        connection = BrokerConnection(dialler=dialler, node=self, reporter=Reporter(), facts=self)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(connection.run()), group.create_task(dialler.keep_fresh())]
            try:
                yield
            finally:
                for task in tasks:
                    task.cancel()

    @property
    def identity(self) -> Identity:
        """Its key and certificates of now."""
        return Identity.from_file(self.file.read_bytes())

    def was_answered(self, heartbeats: int) -> bool:
        """Whether the broker answered so many of its heartbeats."""
        return self.answered >= heartbeats

    def hello(self) -> nodes_pb2.NodeHello:
        """See :class:`.Node`, as of all below."""
        return nodes_pb2.NodeHello(
            node_id=self.node_id, cpu_cores=1.0, memory_bytes=1024**3, protocol=PROTOCOL, instance=self._instance
        )

    def heartbeat(self) -> nodes_pb2.Heartbeat:
        """Nothing but its number, and the time by its clock."""
        self._beats += 1
        return nodes_pb2.Heartbeat(number=self._beats, at=timestamp(self._now().timestamp()))

    def ended(self) -> list[nodes_pb2.RunStatus]:
        """None."""
        return []

    def note_welcome(self, welcome: nodes_pb2.Welcome) -> None:
        """Counts them."""
        self.welcomes += 1

    def note_taken(self, taken: nodes_pb2.Taken) -> None:
        """Remembers the last."""
        self.answered = max(self.answered, taken.heartbeat)

    def ingest(self, wanted: nodes_pb2.WantedState) -> None:
        """Nothing is."""

    def _now(self) -> datetime:
        return datetime.now(UTC) + self._clock_ahead

    def log(self, run_id: str) -> None:
        """There are no runs."""

    def reports(self, run_id: str) -> None:
        """There are none."""
