"""The service for tenants about the models of their endpoints; see ``protos/tiercel/v1/models.proto``."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

from tiercel.broker.actors.endpoint_messages import KeptSet, VersionRemoved
from tiercel.broker.api.auth import caller_by_metadata, tenant_of
from tiercel.broker.api.deploying import deploy, deployer
from tiercel.broker.api.gate import Places
from tiercel.broker.api.incoming import Incoming, drop
from tiercel.broker.store.carried import CHUNK_BYTES
from tiercel.core.errors import NotFoundError, TiercelError
from tiercel.core.model_files import MODEL_FILE
from tiercel.core.onnx_data import DATA_FILE
from tiercel.v1 import models_pb2, models_pb2_grpc

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tiercel.broker.actors.model_files import ModelFiles
    from tiercel.broker.actors.service import BrokerService
    from tiercel.broker.api.auth import Context
    from tiercel.broker.store.version_files import VersionStore
    from tiercel.broker.tenancy import Tenancy


# Files on their way in at once.
UPLOADS_OF_A_TENANT = 4
UPLOADS = 16


class ModelsService(models_pb2_grpc.ModelsServiceServicer):
    """Translates tenants' calls.

    Args:
        versions: Where files of versions arrive.
        tenancy: Who may call.
    """

    def __init__(self, service: BrokerService, files: ModelFiles, versions: VersionStore, tenancy: Tenancy) -> None:
        self._service = service
        self._files = files
        self._versions = versions
        self._uploads = Places("tenants who deploy files", UPLOADS_OF_A_TENANT, UPLOADS)
        self._tenancy = tenancy

    async def FetchModel(
        self, request: models_pb2.FetchModelRequest, context: Context
    ) -> AsyncIterator[models_pb2.FetchModelResponse]:
        """Stream a file of a version."""
        tenant = tenant_of(context, self._tenancy)
        name = request.file or MODEL_FILE
        if name not in {MODEL_FILE, DATA_FILE}:
            raise NotFoundError(f"file: {name[:80]!r} is neither {MODEL_FILE} nor {DATA_FILE}", field="file")
        file, known = await self._files.open(tenant.name, request.endpoint, request.version, name)
        size_bytes = known.size_bytes
        with file:
            yield models_pb2.FetchModelResponse(size_bytes=size_bytes, sha256=known.sha256)
            left = max(size_bytes - request.offset_bytes, 0)
            file.seek(min(request.offset_bytes, size_bytes), os.SEEK_CUR)
            while left and (piece := await asyncio.to_thread(file.read, min(CHUNK_BYTES, left))):
                left -= len(piece)
                yield models_pb2.FetchModelResponse(data=piece)

    async def DeployModel(
        self, request_iterator: AsyncIterator[models_pb2.DeployModelRequest], context: Context
    ) -> models_pb2.DeployModelResponse:
        """Make a file the next version of an endpoint."""
        caller = caller_by_metadata(context.invocation_metadata(), self._tenancy)
        tenant = tenant_of(context, self._tenancy).name
        messages = Incoming(
            lambda: anext(aiter(request_iterator), None), models_pb2.DeployModelRequest, "deploy the file"
        )
        by = deployer(caller, self._tenancy)
        try:
            with self._uploads.taken(tenant):
                delivery, was_there = await deploy(tenant, by, messages, self._service.endpoints, self._versions)
        except TiercelError:
            await drop(request_iterator)
            raise
        return models_pb2.DeployModelResponse(endpoint=delivery.endpoint, version=delivery.version, was_there=was_there)

    async def RemoveVersion(
        self, request: models_pb2.RemoveVersionRequest, context: Context
    ) -> models_pb2.RemoveVersionResponse:
        """Remove the files of a version."""
        tenant = tenant_of(context, self._tenancy).name
        await self._service.endpoints.change_versions(tenant, request.endpoint, VersionRemoved(request.version))
        return models_pb2.RemoveVersionResponse()

    async def KeepVersions(
        self, request: models_pb2.KeepVersionsRequest, context: Context
    ) -> models_pb2.KeepVersionsResponse:
        """Say of how many versions files are kept."""
        tenant = tenant_of(context, self._tenancy).name
        await self._service.endpoints.change_versions(tenant, request.endpoint, KeptSet(request.count))
        return models_pb2.KeepVersionsResponse()
