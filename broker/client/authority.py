"""What the operator says about the broker's authority, on a connection with the operator's token."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tiercel.core.authority import AuthorityState
from tiercel.core.wire import from_proto
from tiercel.v1 import authority_pb2, authority_pb2_grpc

if TYPE_CHECKING:
    from tiercel.broker.client.connection import Connection


async def authority_state(connection: Connection) -> AuthorityState:
    """Which authority there is, and how far its rotation is.

    Raises:
        TiercelError: What the broker answered, or that it does not answer.
    """
    stub = authority_pb2_grpc.AuthorityServiceStub(connection.channel)
    answer = await connection.call(stub.GetAuthority, authority_pb2.GetAuthorityRequest())
    return from_proto(AuthorityState, answer.authority)


async def rotate_authority(connection: Connection) -> AuthorityState:
    """Have the broker make another authority, which signs from now on; both are believed.

    Raises:
        ConflictError: A rotation is under way.
        TiercelError: What the broker answered, or that it does not answer.
    """
    stub = authority_pb2_grpc.AuthorityServiceStub(connection.channel)
    answer = await connection.call(stub.RotateAuthority, authority_pb2.RotateAuthorityRequest())
    return from_proto(AuthorityState, answer.authority)


async def finish_rotation(connection: Connection, *, force: bool) -> AuthorityState:
    """Have the broker believe the earlier authority no more.

    Args:
        connection: To the broker.
        force: Whoever that cuts off.

    Raises:
        NotFoundError: No rotation is under way.
        ConflictError: Somebody would be cut off.
        TiercelError: What the broker answered, or that it does not answer.
    """
    stub = authority_pb2_grpc.AuthorityServiceStub(connection.channel)
    answer = await connection.call(stub.FinishRotation, authority_pb2.FinishRotationRequest(force=force))
    return from_proto(AuthorityState, answer.authority)
