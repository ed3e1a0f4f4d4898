"""The service that says what tenants may use; see ``protos/tiercel/v1/quotas.proto``."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tiercel.broker.api.auth import caller_by_metadata
from tiercel.core.errors import NotFoundError
from tiercel.core.quotas import Allowance
from tiercel.core.wire import to_proto
from tiercel.v1 import quotas_pb2, quotas_pb2_grpc

if TYPE_CHECKING:
    from tiercel.broker.access.quotas import Quotas
    from tiercel.broker.actors.registry import ActorRegistry
    from tiercel.broker.api.auth import Context
    from tiercel.broker.tenancy import Tenancy
    from tiercel.core.jobs import Job
    from tiercel.core.quotas import Quota

_ALLOWED: Final = ("max_active_jobs", "max_core_hours", "max_accelerator_hours")


class QuotasService(quotas_pb2_grpc.QuotasServiceServicer):
    """Translates calls.

    Args:
        quotas: Knows what tenants may use.
    """

    def __init__(self, quotas: Quotas, registry: ActorRegistry, tenancy: Tenancy) -> None:
        self._quotas = quotas
        self._registry = registry
        self._tenancy = tenancy

    async def GetQuotas(self, request: quotas_pb2.GetQuotasRequest, context: Context) -> quotas_pb2.GetQuotasResponse:
        """Tell an operator of anybody, a tenant of itself."""
        own = caller_by_metadata(context.invocation_metadata(), self._tenancy).tenant
        if own is not None and request.tenant not in {"", own.name}:
            raise NotFoundError(f"tenant: there is no tenant {request.tenant!r} for you to see", field="tenant")
        found = await self._quotas.of(own.name if own is not None else request.tenant, self._jobs())
        return quotas_pb2.GetQuotasResponse(quotas=[self._told(quota) for quota in found])

    async def SetQuota(self, request: quotas_pb2.SetQuotaRequest, context: Context) -> quotas_pb2.SetQuotaResponse:
        """Say what a tenant may use."""
        changes = Allowance(*(getattr(request, name) if request.HasField(name) else None for name in _ALLOWED))
        quota = await self._quotas.set(request.tenant, changes, self._jobs())
        return quotas_pb2.SetQuotaResponse(quota=self._told(quota))

    def _told(self, quota: Quota) -> quotas_pb2.Quota:
        factor = self._registry.scheduler.fair_factor(quota.tenant)
        return to_proto(replace(quota, fair_factor=factor), quotas_pb2.Quota)

    def _jobs(self) -> list[Job]:
        return [actor.job for actor in self._registry.jobs.values()]
