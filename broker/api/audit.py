"""The service by which the operator reads who changed what; see ``protos/tiercel/v1/audit.proto``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tiercel.core.wire import seconds_of, to_proto
from tiercel.v1 import audit_pb2, audit_pb2_grpc

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tiercel.broker.access.audit import Audit
    from tiercel.broker.api.auth import Context


class AuditService(audit_pb2_grpc.AuditServiceServicer):
    """Translates the operator's calls."""

    def __init__(self, audit: Audit) -> None:
        self._audit = audit

    async def ReadAudit(
        self, request: audit_pb2.ReadAuditRequest, context: Context
    ) -> AsyncIterator[audit_pb2.ReadAuditResponse]:
        """Tell the rows."""
        since = seconds_of(request.since) if request.HasField("since") else 0.0
        start, pages = await self._audit.rows(since)
        yield audit_pb2.ReadAuditResponse(start=to_proto(start, audit_pb2.AuditStart))
        async for page in pages:
            yield audit_pb2.ReadAuditResponse(rows=[to_proto(row, audit_pb2.AuditRow) for row in page])
