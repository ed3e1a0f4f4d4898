"""The cluster at a glance, as a tenant or an operator is told."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tiercel.core.status import ClusterStatus
from tiercel.core.wire import from_proto
from tiercel.v1 import status_pb2, status_pb2_grpc

if TYPE_CHECKING:
    from tiercel.broker.client.connection import Connection


async def cluster_status(connection: Connection) -> ClusterStatus:
    """Ask the broker.

    Args:
        connection: With a tenant's token, or an operator's.

    Raises:
        TiercelError: What the broker answered, or that it does not answer.
    """
    stub = status_pb2_grpc.StatusServiceStub(connection.channel)
    answer = await connection.call(stub.GetStatus, status_pb2.GetStatusRequest())
    return from_proto(ClusterStatus, answer)
