"""The record of who changed what, read on a connection with the operator's token."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tiercel.core.audit import AuditRow, AuditStart
from tiercel.core.wire import from_proto, timestamp
from tiercel.v1 import audit_pb2, audit_pb2_grpc

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from tiercel.broker.client.connection import Connection


async def read_audit(connection: Connection, since: float = 0.0) -> AsyncGenerator[AuditStart | AuditRow]:
    """Where the record begins, then its rows, oldest first.

    Args:
        connection: To the broker.
        since: Leaves out what was before, seconds since the Unix epoch.

    Raises:
        TiercelError: What the broker answered, or that the connection broke.
    """
    stub = audit_pb2_grpc.AuditServiceStub(connection.channel)
    request = audit_pb2.ReadAuditRequest(since=timestamp(since) if since else None)
    async for response in connection.stream(stub.ReadAudit, request):
        if response.HasField("start"):
            yield from_proto(AuditStart, response.start)
        for row in response.rows:
            yield from_proto(AuditRow, row)
