"""What tenants may use, asked and changed on a connection."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from tiercel.core.quotas import Allowance, Quota
from tiercel.core.wire import from_proto
from tiercel.v1 import quotas_pb2, quotas_pb2_grpc

if TYPE_CHECKING:
    from tiercel.broker.client.connection import Connection


async def get_quotas(connection: Connection, tenant: str = "") -> tuple[Quota, ...]:
    """What the caller may use and does; with the operator's token what a tenant does, or (empty) all of them.

    Raises:
        NotFoundError: There is no such tenant.
    """
    stub = quotas_pb2_grpc.QuotasServiceStub(connection.channel)
    answer = await connection.call(stub.GetQuotas, quotas_pb2.GetQuotasRequest(tenant=tenant))
    return tuple(from_proto(Quota, quota) for quota in answer.quotas)


async def set_quota(connection: Connection, tenant: str, changes: Allowance) -> Quota:
    """Say what a tenant may use; as the operator.

    Args:
        connection: To the broker.
        tenant: The tenant.
        changes: What is None stays; all None: ``tenants.toml`` says it again.

    Raises:
        NotFoundError: There is no such tenant.
        InvalidSpecError: That is too many.
    """
    stub = quotas_pb2_grpc.QuotasServiceStub(connection.channel)
    request = quotas_pb2.SetQuotaRequest(tenant=tenant, **asdict(changes))
    answer = await connection.call(stub.SetQuota, request)
    return from_proto(Quota, answer.quota)
