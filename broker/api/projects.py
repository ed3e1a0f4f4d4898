"""The service for tenants' projects; see ``protos/tiercel/v1/projects.proto``."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from typing import TYPE_CHECKING

from tiercel.broker.api.auth import tenant_of
from tiercel.broker.api.gate import Places
from tiercel.broker.api.incoming import Incoming, drop
from tiercel.core.commands import check_command
from tiercel.core.errors import TiercelError, UnavailableError, wrong_field
from tiercel.core.projects import OBJECTS_AT_A_TIME, PIECE_BYTES
from tiercel.core.tasks import run_in_thread
from tiercel.v1 import nodes_pb2, projects_pb2, projects_pb2_grpc

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

    from tiercel.broker.api.auth import Context
    from tiercel.broker.store.projects import ProjectStore
    from tiercel.broker.tenancy import Tenancy
    from tiercel.core.jobs import JobSpec

UPLOAD_SECONDS = 3600.0
UPLOADS_OF_A_TENANT = 4


class ProjectsService(projects_pb2_grpc.ProjectsServiceServicer):
    """Takes in projects.

    Args:
        tenancy: Who may call.
    """

    def __init__(self, projects: ProjectStore, tenancy: Tenancy) -> None:
        self._projects = projects
        self._tenancy = tenancy
        self._uploads = Places("tenants who send projects", UPLOADS_OF_A_TENANT)

    async def FindMissingObjects(
        self, request: projects_pb2.FindMissingObjectsRequest, context: Context
    ) -> projects_pb2.FindMissingObjectsResponse:
        """Say what the tenant has not sent yet."""
        tenant = tenant_of(context, self._tenancy)
        _check_number(request.sha256)
        missing = await asyncio.to_thread(self._projects.missing, tenant.name, request.sha256)
        return projects_pb2.FindMissingObjectsResponse(sha256=missing, project_limit_bytes=self._projects.project_bytes)

    async def SendObjects(
        self, request_iterator: AsyncIterator[projects_pb2.SendObjectsRequest], context: Context
    ) -> projects_pb2.SendObjectsResponse:
        """Take in objects."""
        tenant = tenant_of(context, self._tenancy)
        with self._uploads.taken(tenant.name):
            try:
                async with asyncio.timeout(UPLOAD_SECONDS):
                    await self._receive(tenant.name, request_iterator)
            except TimeoutError:
                message = f"took more than {UPLOAD_SECONDS:g} s; ask what is missing and send that"
                raise UnavailableError(message) from None
            except TiercelError:
                await drop(request_iterator)
                raise
        return projects_pb2.SendObjectsResponse()

    async def _receive(self, tenant: str, requests: AsyncIterator[projects_pb2.SendObjectsRequest]) -> None:
        remedy = "ask what is missing and send that"
        messages = Incoming(lambda: anext(aiter(requests), None), projects_pb2.SendObjectsRequest, remedy)
        with ExitStack() as stack:
            receiver = await asyncio.to_thread(stack.enter_context, self._projects.receive(tenant))
            while (request := await messages.next()) is not None:
                if sum(len(piece.data) for piece in request.pieces) > PIECE_BYTES:
                    raise wrong_field("pieces", f"have more than {PIECE_BYTES} bytes together")
                for piece in request.pieces:
                    await run_in_thread(receiver.write, piece.sha256, piece.size_bytes, piece.data)
            await run_in_thread(receiver.finish)


async def check_project(projects: ProjectStore, tenant: str, spec: JobSpec) -> None:
    """Check that the project of a job is here, and that its command starts something in it.

    Raises:
        InvalidSpecError: Either does not hold.
    """
    if spec.project is not None:
        found = await asyncio.to_thread(projects.check, tenant, spec.project.sha256)
        check_command(spec.command, found)


async def give_out(
    projects: ProjectStore, tenant: str, names: Sequence[str]
) -> AsyncIterator[nodes_pb2.FetchObjectsResponse]:
    """Objects of a tenant as an agent is sent them, small ones together.

    Raises:
        NotFoundError: One of them is not here.
        InvalidSpecError: There are too many.
    """
    _check_number(names)
    messages = _packed(projects.pieces(tenant, names))
    while (message := await asyncio.to_thread(next, messages, None)) is not None:
        yield message


def _packed(pieces: Iterator[tuple[str, int, bytes]]) -> Iterator[nodes_pb2.FetchObjectsResponse]:
    message, room = nodes_pb2.FetchObjectsResponse(), PIECE_BYTES
    for name, size, data in pieces:
        if len(data) > room:
            yield message
            message, room = nodes_pb2.FetchObjectsResponse(), PIECE_BYTES
        message.pieces.add(sha256=name, size_bytes=size, data=data)
        room -= len(data)
    yield message


def _check_number(names: Sequence[str]) -> None:
    if len(names) > OBJECTS_AT_A_TIME:
        raise wrong_field("sha256", f"are {len(names)}; ask for {OBJECTS_AT_A_TIME} at a time")
