"""The service for tenants about where versions come from; see ``protos/tiercel/v1/lineage.proto``."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tiercel.broker.api.auth import tenant_of
from tiercel.broker.lifecycle.lineage import lineage_of
from tiercel.core.errors import NotFoundError
from tiercel.core.wire import to_proto
from tiercel.v1 import lineage_pb2, lineage_pb2_grpc

if TYPE_CHECKING:
    from tiercel.broker.actors.service import BrokerService
    from tiercel.broker.api.auth import Context
    from tiercel.broker.store.sql import Store
    from tiercel.broker.tenancy import Tenancy
    from tiercel.core.endpoints import Delivery, Endpoint, Version
    from tiercel.core.events import JobEvent
    from tiercel.core.jobs import Job
    from tiercel.core.lineage import Lineage

# Of a job; its reports are fewer, since older ones are dropped.
MAX_EVENTS = 10_000


class LineageService(lineage_pb2_grpc.LineageServiceServicer):
    """Translates tenants' calls.

    Args:
        tenancy: Who may call.
    """

    def __init__(self, service: BrokerService, store: Store, tenancy: Tenancy) -> None:
        self._service = service
        self._store = store
        self._tenancy = tenancy

    async def GetLineage(
        self, request: lineage_pb2.GetLineageRequest, context: Context
    ) -> lineage_pb2.GetLineageResponse:
        """Say where versions come from."""
        tenant = tenant_of(context, self._tenancy)
        endpoint = self._service.endpoints.find(tenant.name, request.endpoint)
        if request.version:
            found = [await self._lineage(endpoint, _find(endpoint, request.version), {})]
        else:
            known: dict[str, _Known] = {}
            newest_first = reversed(endpoint.versions)
            found = [replace(await self._lineage(endpoint, each, known), curve=()) for each in newest_first]
        return lineage_pb2.GetLineageResponse(versions=[to_proto(each, lineage_pb2.Lineage) for each in found])

    async def _lineage(self, endpoint: Endpoint, version: Version, known: dict[str, _Known]) -> Lineage:
        if version.job_id not in known:
            known[version.job_id] = (
                await self._store.get_job(version.job_id),
                await self._store.load_deliveries(version.job_id),
                await self._store.events_after(0, job_id=version.job_id, limit=MAX_EVENTS),
            )
        return lineage_of(endpoint, version, *known[version.job_id])


if TYPE_CHECKING:
    _Known = tuple[Job | None, list[Delivery], list[JobEvent]]


def _find(endpoint: Endpoint, number: int) -> Version:
    for version in endpoint.versions:
        if version.version == number:
            return version
    numbers = ", ".join(str(each.version) for each in endpoint.versions) or "none"
    raise NotFoundError(
        f"version: endpoint {endpoint.name!r} has no version {number}; there is {numbers}", field="version"
    )
