"""Checkpoints that come in: kept only while somebody may go on from them."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from tiercel.broker.api import checkpoints
from tiercel.broker.api.incoming import Incoming
from tiercel.broker.lifecycle.job_events import CheckpointCopied
from tiercel.broker.store.checkpoints import CheckpointStore
from tiercel.core.errors import UnavailableError
from tiercel.v1 import nodes_pb2

if TYPE_CHECKING:
    from tiercel.broker.actors.agents import AgentService

CONTENT = b"weights"
HEADER = nodes_pb2.CheckpointHeader(
    node_id="n1",
    run_id="j1-1",
    resumes=True,
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


async def send(store: CheckpointStore, agents: FakeAgents, messages: Sequence[object]) -> int:
    left, offsets = iter(messages), list[int]()

    async def read() -> object:
        message = next(left, None)
        if isinstance(message, Exception):
            raise message
        return message

    async def accept(offset_bytes: int) -> None:
        offsets.append(offset_bytes)

    incoming = Incoming(read, nodes_pb2.SendCheckpointRequest, "send it again")
    await checkpoints.ingest(HEADER, incoming, accept, cast("AgentService", cast("Any", agents)), store)
    return offsets[0]


@pytest.mark.parametrize("still_needed", [True, False])
async def test_a_checkpoint_of_a_job_that_ended_while_it_came_is_not_kept(tmp_path: Path, still_needed: bool) -> None:
    store = CheckpointStore(tmp_path)
    agents = FakeAgents(still_needed)
    await send(store, agents, [nodes_pb2.SendCheckpointRequest(data=CONTENT)])
    assert (store.find("j1-1") is not None) is still_needed
    assert agents.told == ([("n1", "j1-1", CheckpointCopied("j1-1", 7.0))] if still_needed else [])
    assert len(list(tmp_path.iterdir())) == still_needed


async def test_one_that_was_broken_off_goes_on_where_it_was_also_in_the_next_life(tmp_path: Path) -> None:
    store, agents = CheckpointStore(tmp_path / "first"), FakeAgents(still_needed=True)
    pieces = [nodes_pb2.SendCheckpointRequest(data=CONTENT[at : at + 2]) for at in range(0, len(CONTENT), 2)]
    for piece in pieces[:2]:
        with pytest.raises(UnavailableError, match="cable"):
            await send(store, agents, [piece, UnavailableError("its cable was pulled")])
    shutil.copytree(tmp_path / "first", tmp_path / "again")
    store.drop("j1")
    again = CheckpointStore(tmp_path / "again")
    again.keep_only({"j1"})
    assert await send(again, agents, pieces[2:]) == 4
    assert b"".join(again.read("j1-1")) == CONTENT
    assert [path.name for path in (tmp_path / "again").iterdir()] == ["j1"]
    assert list((tmp_path / "first").iterdir()) == []


async def test_what_an_agent_has_of_one_it_is_not_given_again(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    await send(store, FakeAgents(still_needed=True), [nodes_pb2.SendCheckpointRequest(data=CONTENT)])
    checkpoint = store.find("j1-1")
    assert checkpoint is not None
    for offset, begins in ((0, 0), (3, 3), (len(CONTENT), len(CONTENT)), (len(CONTENT) + 1, 0)):
        request = nodes_pb2.FetchCheckpointRequest(node_id="n2", run_id="j1-2", offset_bytes=offset)
        first, *rest = [response async for response in checkpoints.give_out(request, checkpoint, store)]
        assert (first.header.node_id, first.header.run_id, first.header.offset_bytes) == ("n2", "j1-1", begins)
        assert b"".join(each.data for each in rest) == CONTENT[begins:]
