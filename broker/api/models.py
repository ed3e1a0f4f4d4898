"""The service for tenants about the models of their endpoints; see ``protos/tiercel/v1/models.proto``."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

from tiercel.broker.actors.endpoint_messages import KeptSet, VersionRemoved
from tiercel.broker.api.auth import tenant_of
from tiercel.broker.store.checkpoints import CHUNK_BYTES
from tiercel.v1 import models_pb2, models_pb2_grpc

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tiercel.broker.actors.model_files import ModelFiles
    from tiercel.broker.actors.service import BrokerService
    from tiercel.broker.api.auth import Context
    from tiercel.broker.tenancy import Tenancy


class ModelsService(models_pb2_grpc.ModelsServiceServicer):
    """Translates tenants' calls.

    Args:
        tenancy: Who may call.
    """

    def __init__(self, service: BrokerService, files: ModelFiles, tenancy: Tenancy) -> None:
        self._service = service
        self._files = files
        self._tenancy = tenancy

    async def FetchModel(
        self, request: models_pb2.FetchModelRequest, context: Context
    ) -> AsyncIterator[models_pb2.FetchModelResponse]:
        """Stream the ONNX file of a version."""
        tenant = tenant_of(context, self._tenancy)
        version, file, size_bytes = await self._files.open(tenant.name, request.endpoint, request.version)
        with file:
            yield models_pb2.FetchModelResponse(size_bytes=size_bytes, sha256=version.sha256)
            left = max(size_bytes - request.offset_bytes, 0)
            file.seek(min(request.offset_bytes, size_bytes), os.SEEK_CUR)
            while left and (piece := await asyncio.to_thread(file.read, min(CHUNK_BYTES, left))):
                left -= len(piece)
                yield models_pb2.FetchModelResponse(data=piece)

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
