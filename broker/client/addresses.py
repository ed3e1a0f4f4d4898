"""Where the tenant's endpoints answer, for those who ask in others' place, such as a proxy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tiercel.core.routes import Routes, seen_from_elsewhere
from tiercel.core.wire import from_proto
from tiercel.v1 import addresses_pb2, addresses_pb2_grpc

if TYPE_CHECKING:
    from tiercel.broker.client.connection import Connection


async def list_routes(connection: Connection, *, is_elsewhere: bool) -> Routes:
    """The table of the tenant's endpoints.

    Args:
        connection: To the broker, with the tenant's token.
        is_elsewhere: Whether this is another machine than the broker's, where its loopback addresses mean nothing.

    Raises:
        UnavailableError: The broker does not answer, or does not know yet.
        TiercelError: What else the broker answered.
    """
    stub = addresses_pb2_grpc.AddressesServiceStub(connection.channel)
    answer = await connection.call(stub.ListRoutes, addresses_pb2.ListRoutesRequest())
    routes = from_proto(Routes, answer.routes)
    return seen_from_elsewhere(routes) if is_elsewhere else routes
