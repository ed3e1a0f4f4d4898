"""The service for tenants about what their jobs left behind; see ``protos/tiercel/v1/files.proto``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tiercel.broker.api.auth import tenant_of
from tiercel.core.errors import NotFoundError
from tiercel.core.wire import to_proto
from tiercel.v1 import files_pb2, files_pb2_grpc

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tiercel.broker.actors.service import BrokerService
    from tiercel.broker.api.auth import Context
    from tiercel.broker.store.kept_files import KeptFiles
    from tiercel.broker.tenancy import Tenancy

PIECE_BYTES = 1 << 20


class FilesService(files_pb2_grpc.FilesServiceServicer):
    """Translates tenants' calls.

    Args:
        tenancy: Who may call.
    """

    def __init__(self, service: BrokerService, files: KeptFiles, tenancy: Tenancy) -> None:
        self._service = service
        self._files = files
        self._tenancy = tenancy

    async def ListFiles(self, request: files_pb2.ListFilesRequest, context: Context) -> files_pb2.ListFilesResponse:
        """List the files that are kept of a job."""
        job = await self._service.find_job(tenant_of(context, self._tenancy).name, request.job_id)
        found = await self._files.of_job(job.id)
        return files_pb2.ListFilesResponse(files=[to_proto(file, files_pb2.KeptFile) for file in found])

    async def FetchFile(
        self, request: files_pb2.FetchFileRequest, context: Context
    ) -> AsyncIterator[files_pb2.FetchFileResponse]:
        """Stream the content of a file."""
        job = await self._service.find_job(tenant_of(context, self._tenancy).name, request.job_id)
        found = {file.path: file for file in await self._files.of_job(job.id)}.get(request.path)
        if found is None or found.sha256 != request.sha256:
            raise NotFoundError(
                f"path: job {job.id} has no file {request.path[:80]!r} with that content any more; list its files "
                "again",
                field="path",
            )
        async for piece in self._files.read(found, request.offset_bytes, PIECE_BYTES):
            yield files_pb2.FetchFileResponse(data=piece)
