"""The service that tells of the cluster at a glance; see ``protos/tiercel/v1/status.proto``."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tiercel.broker.actors.status import status_of
from tiercel.broker.api.auth import caller_by_metadata
from tiercel.core.wire import to_proto
from tiercel.v1 import status_pb2, status_pb2_grpc

if TYPE_CHECKING:
    from tiercel.broker.actors.registry import ActorRegistry
    from tiercel.broker.api.auth import Context
    from tiercel.broker.tenancy import Tenancy
    from tiercel.broker.trust.rotation import Rotation


class StatusService(status_pb2_grpc.StatusServiceServicer):
    """Translates calls of tenants and operators.

    Args:
        rotation: Knows how far a rotation of the authority is; None where the broker listens on this machine alone.
    """

    def __init__(self, registry: ActorRegistry, tenancy: Tenancy, rotation: Rotation | None) -> None:
        self._registry = registry
        self._tenancy = tenancy
        self._rotation = rotation

    async def GetStatus(self, request: status_pb2.GetStatusRequest, context: Context) -> status_pb2.GetStatusResponse:
        """Tell of the cluster: an operator of all, a tenant of what is its own."""
        tenant = caller_by_metadata(context.invocation_metadata(), self._tenancy).tenant
        status = status_of(self._registry, tenant.name if tenant is not None else "")
        if self._rotation is not None and (state := self._rotation.state()).earlier_pin:
            status = replace(status, rotation=state)
        return to_proto(status, status_pb2.GetStatusResponse)
