"""The service that tells tenants where their endpoints answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tiercel.broker.api.auth import tenant_of
from tiercel.core.wire import to_proto
from tiercel.v1 import addresses_pb2, addresses_pb2_grpc, routes_pb2

if TYPE_CHECKING:
    from tiercel.broker.actors.service import BrokerService
    from tiercel.broker.api.auth import Context
    from tiercel.broker.tenancy import Tenancy


class AddressesService(addresses_pb2_grpc.AddressesServiceServicer):
    """Translates tenants' calls; see ``protos/tiercel/v1/addresses.proto``.

    Args:
        tenancy: Who may call.
    """

    def __init__(self, service: BrokerService, tenancy: Tenancy) -> None:
        self._service = service
        self._tenancy = tenancy

    async def ListRoutes(
        self, request: addresses_pb2.ListRoutesRequest, context: Context
    ) -> addresses_pb2.ListRoutesResponse:
        """Tell the tenant's part of the table."""
        del request
        routes = self._service.endpoints.routes(tenant_of(context, self._tenancy).name)
        return addresses_pb2.ListRoutesResponse(routes=to_proto(routes, routes_pb2.Routes))
