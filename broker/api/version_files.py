"""Files of versions that several nodes are to have: taken from an agent that has them, given to those that lack them.

They come through the broker, as nodes need not reach each other; it passes on what has come while the rest is on its
way.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from tiercel.broker.store.carried import CheckpointFile
from tiercel.broker.store.version_files import sha256_of
from tiercel.core.errors import NotFoundError, wrong_field
from tiercel.v1 import nodes_pb2

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from tiercel.broker.actors.agents import AgentService
    from tiercel.broker.api.incoming import Incoming
    from tiercel.broker.store.version_files import VersionStore


async def ingest(
    header: nodes_pb2.CheckpointHeader,
    messages: Incoming[nodes_pb2.SendCheckpointRequest],
    accept: Callable[[int], Awaitable[None]],
    agents: AgentService,
    store: VersionStore,
) -> None:
    """Take in the files of a version that the node was asked for.

    Raises:
        NotFoundError: It was not asked for it.
        InvalidSpecError: It is not what was announced or asked for, or too large.
        UnavailableError: It did not come.
    """
    wanted = agents.wanted_of_version(header.node_id, header.endpoint, header.version, sends=True)
    files = [CheckpointFile(file.name, file.size_bytes, file.sha256) for file in header.files]
    if sha256_of(files) != wanted.sha256:
        raise wrong_field("header.files", "its model is not the one that was asked for: its SHA-256 differs")
    with store.begin(header.endpoint, header.version, files, resumes=header.resumes) as writer:
        await accept(writer.offset_bytes)
        agents.look_after_replicas()  # others may fetch what comes
        while (request := await messages.next()) is not None:
            writer.write(request.data)
        await asyncio.to_thread(writer.finish)
    store.finished(header.endpoint, header.version)
    agents.look_after_replicas()


async def give_out(
    request: nodes_pb2.FetchCheckpointRequest, agents: AgentService, store: VersionStore
) -> AsyncGenerator[nodes_pb2.FetchCheckpointResponse]:
    """What the agent is sent of a version that it shall have, in order.

    Raises:
        NotFoundError: It shall not have it.
        UnavailableError: It is not here yet.
    """
    wanted = agents.wanted_of_version(request.node_id, request.endpoint, request.version, sends=False)
    held = store.find(request.endpoint, request.version)
    if sha256_of(held.files) != wanted.sha256:
        raise NotFoundError("version: its files are others than these by now", field="version")
    files = [nodes_pb2.CheckpointFile(name=f.name, size_bytes=f.size_bytes, sha256=f.sha256) for f in held.files]
    header = nodes_pb2.CheckpointHeader(
        node_id=request.node_id, endpoint=request.endpoint, version=request.version, files=files
    )
    total = sum(file.size_bytes for file in files)
    header.offset_bytes = request.offset_bytes if request.offset_bytes < total else 0
    yield nodes_pb2.FetchCheckpointResponse(header=header)
    pieces = store.read(request.endpoint, request.version, request.node_id, header.offset_bytes)
    async with contextlib.aclosing(pieces):
        async for piece in pieces:
            yield nodes_pb2.FetchCheckpointResponse(data=piece)
