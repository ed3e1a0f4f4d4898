"""Checkpoints that agents send: of jobs that are moved, and copies for the case that a node is lost.

They are given to the agent that goes on from them.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tiercel.broker.lifecycle.job_events import CheckpointCopied
from tiercel.broker.store.carried import CheckpointFile
from tiercel.core.errors import NotFoundError
from tiercel.v1 import nodes_pb2

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from tiercel.broker.actors.agents import AgentService
    from tiercel.broker.api.incoming import Incoming
    from tiercel.broker.store.carried import Checkpoint
    from tiercel.broker.store.checkpoints import CheckpointStore

    Messages = Incoming[nodes_pb2.SendCheckpointRequest]
    Accept = Callable[[int], Awaitable[None]]


async def ingest(
    header: nodes_pb2.CheckpointHeader, messages: Messages, accept: Accept, agents: AgentService, store: CheckpointStore
) -> None:
    """Take in the checkpoint of a run that is being moved, or whose job asks for copies.

    Raises:
        NotFoundError: No such checkpoint is wanted.
        InvalidSpecError: It is not what was announced, or too large.
        UnavailableError: It did not come.
    """
    if not agents.expects_checkpoint(header.node_id, header.run_id):
        raise NotFoundError(f"run_id: no checkpoint of run {header.run_id!r} is wanted of this node", field="run_id")
    files = [CheckpointFile(file.name, file.size_bytes, file.sha256) for file in header.files]
    with store.begin(header.run_id, files, resumes=header.resumes) as writer:
        await accept(writer.offset_bytes)
        while (request := await messages.next()) is not None:
            writer.write(request.data)
        await asyncio.to_thread(writer.finish)
    if not agents.needs_checkpoint(header.run_id):  # its job ended meanwhile, and nobody would ever drop it
        store.drop(header.run_id.rpartition("-")[0])
        return
    await agents.deliver_to_job(header.node_id, header.run_id, CheckpointCopied(header.run_id, agents.now()))


async def find_for(
    request: nodes_pb2.FetchCheckpointRequest, agents: AgentService, store: CheckpointStore
) -> Checkpoint:
    """The checkpoint that a run goes on from.

    Raises:
        NotFoundError: It goes on from none, or that is not here.
    """
    checkpoint = store.find(agents.carried_run_of(request.node_id, request.run_id))
    if checkpoint is None:
        raise NotFoundError(f"run_id: there is no checkpoint for run {request.run_id!r}", field="run_id")
    return checkpoint


async def give_out(
    request: nodes_pb2.FetchCheckpointRequest, checkpoint: Checkpoint, store: CheckpointStore
) -> AsyncGenerator[nodes_pb2.FetchCheckpointResponse]:
    """What the agent is sent, in order."""
    files = [nodes_pb2.CheckpointFile(name=f.name, size_bytes=f.size_bytes, sha256=f.sha256) for f in checkpoint.files]
    header = nodes_pb2.CheckpointHeader(node_id=request.node_id, run_id=checkpoint.run_id, files=files)
    header.offset_bytes = request.offset_bytes if request.offset_bytes <= checkpoint.size_bytes else 0
    yield nodes_pb2.FetchCheckpointResponse(header=header)
    pieces = store.read(checkpoint.run_id, header.offset_bytes)
    while piece := await asyncio.to_thread(next, pieces, b""):
        yield nodes_pb2.FetchCheckpointResponse(data=piece)
