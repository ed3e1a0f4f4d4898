"""The files that runs leave behind, taken from the agents that have them.

What an agent says is believed no further than it was checked: the run is its own, paths lie below the working directory
and are what the job wants to have kept, and contents have the hash that was announced.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tiercel.core.blobs import is_sha256
from tiercel.core.errors import wrong_field
from tiercel.core.files import KeptFile
from tiercel.core.path_patterns import PathPatterns, path_problem
from tiercel.v1 import nodes_pb2

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from tiercel.broker.actors.agents import AgentService
    from tiercel.broker.api.incoming import Incoming
    from tiercel.broker.store.kept_files import KeptFiles

    Messages = Incoming[nodes_pb2.SendFilesRequest]
    Write = Callable[[nodes_pb2.SendFilesResponse], Awaitable[None]]

# In one call; more than an agent takes of a run.
MAX_OFFERED = 2_000
_MAX_BYTES = 2**50


async def ingest(
    header: nodes_pb2.FilesHeader, messages: Messages, write: Write, agents: AgentService, files: KeptFiles
) -> None:
    """Take in what a run left behind.

    Raises:
        NotFoundError: The run is not the node's.
        InvalidSpecError: It is not what was announced, or not what its job wants to have kept.
        CannotWriteError: The disk is full.
        UnavailableError: It did not come.
    """
    job = agents.job_of(header.node_id, header.run_id)
    offered = _offered(header, job.spec.outputs, agents.now())
    async with files.receiving(job.tenant, job.id, offered) as incoming:
        left_out = dict(incoming.admission.left_out)
        await write(nodes_pb2.SendFilesResponse(wanted=incoming.wanted, left_out=left_out))
        while (request := await messages.next()) is not None:
            await asyncio.to_thread(incoming.write, request.data)
        await asyncio.to_thread(incoming.finish)


def _offered(header: nodes_pb2.FilesHeader, outputs: Sequence[str], now: float) -> list[KeptFile]:
    """What is offered, checked."""
    if len(header.files) > MAX_OFFERED:
        raise wrong_field("header.files", f"{len(header.files)} files are offered; at most {MAX_OFFERED} are taken")
    patterns, sizes = PathPatterns(outputs), dict[str, int]()
    for file in header.files:
        if problem := path_problem(file.path):
            raise wrong_field("header.files", f"the path {file.path[:80]!r} {problem}")
        if not patterns.matches(file.path):
            raise wrong_field("header.files", f"{file.path[:80]!r} is none of the job's outputs")
        if not is_sha256(file.sha256) or sizes.setdefault(file.sha256, file.size_bytes) != file.size_bytes:
            raise wrong_field(
                "header.files", f"{file.path[:80]!r} has no SHA-256, or one that another file of another size has"
            )
        if file.size_bytes > _MAX_BYTES:
            raise wrong_field("header.files", f"{file.path[:80]!r} cannot have {file.size_bytes} bytes")
    if len({file.path for file in header.files}) < len(header.files):
        raise wrong_field("header.files", "two files have the same path")
    return [KeptFile(file.path, file.size_bytes, file.sha256, header.run_id, now) for file in header.files]
