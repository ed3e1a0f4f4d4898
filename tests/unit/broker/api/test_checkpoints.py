"""Checkpoints that come in: kept only while somebody may go on from them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from tiercel.broker.api import checkpoints
from tiercel.broker.api.incoming import Incoming
from tiercel.broker.lifecycle.job_events import CheckpointCopied
from tiercel.broker.store.checkpoints import CheckpointStore
from tiercel.v1 import nodes_pb2

if TYPE_CHECKING:
    from tiercel.broker.actors.agents import AgentService

CONTENT = b"weights"
HEADER = nodes_pb2.CheckpointHeader(
    node_id="n1",
    run_id="j1-1",
    files=[
        nodes_pb2.CheckpointFile(name="latest.pt", size_bytes=len(CONTENT), sha256=hashlib.sha256(CONTENT).hexdigest())
    ],
)


@dataclass(slots=True)
class FakeAgents:
    """Wants the checkpoint at first, and perhaps still when it is there."""

    still_needed: bool
    told: list[object] = field(default_factory=list)

    def expects_checkpoint(self, node_id: str, run_id: str) -> bool:
        return (node_id, run_id) == ("n1", "j1-1")

    def needs_checkpoint(self, run_id: str) -> bool:
        return self.still_needed and run_id == "j1-1"

    def now(self) -> float:
        return 7.0

    async def deliver_to_job(self, node_id: str, run_id: str, message: object) -> bool:
        self.told.append((node_id, run_id, message))
        return True


async def send(store: CheckpointStore, agents: FakeAgents, messages: Sequence[object]) -> None:
    left = iter(messages)

    async def read() -> object:
        return next(left, None)

    async def accept() -> None:
        """Nobody waits for it."""

    incoming = Incoming(read, nodes_pb2.SendCheckpointRequest, "send it again")
    await checkpoints.ingest(HEADER, incoming, accept, cast("AgentService", cast("Any", agents)), store)


@pytest.mark.parametrize("still_needed", [True, False])
async def test_a_checkpoint_of_a_job_that_ended_while_it_came_is_not_kept(tmp_path: Path, still_needed: bool) -> None:
    store = CheckpointStore(tmp_path)
    agents = FakeAgents(still_needed)
    await send(store, agents, [nodes_pb2.SendCheckpointRequest(data=CONTENT)])
    assert (store.find("j1-1") is not None) is still_needed
    assert agents.told == ([("n1", "j1-1", CheckpointCopied("j1-1", 7.0))] if still_needed else [])
    assert len(list(tmp_path.iterdir())) == still_needed
