"""Checkpoints that come in: kept only while somebody may go on from them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from tiercel.broker.api import checkpoints
from tiercel.broker.api.incoming import Incoming
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

    def expects_checkpoint(self, node_id: str, run_id: str) -> bool:
        return (node_id, run_id) == ("n1", "j1-1")

    def needs_checkpoint(self, run_id: str) -> bool:
        return self.still_needed and run_id == "j1-1"


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
    await send(store, FakeAgents(still_needed), [nodes_pb2.SendCheckpointRequest(data=CONTENT)])
    assert (store.find("j1-1") is not None) is still_needed
    assert len(list(tmp_path.iterdir())) == still_needed
