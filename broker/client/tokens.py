"""What the operator says about tokens, on a connection with the operator's token."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tiercel.core.issued_tokens import IssuedToken
from tiercel.core.wire import from_proto
from tiercel.v1 import rights_pb2, tokens_pb2, tokens_pb2_grpc

if TYPE_CHECKING:
    from tiercel.broker.client.connection import Connection
    from tiercel.core.roles import Role


async def create_token(
    connection: Connection, name: str, *, tenant: str, role: Role, seconds: float
) -> tuple[str, IssuedToken]:
    """Have the broker give out a token; returns it, secret and all, and what is known of it.

    Args:
        connection: To the broker.
        name: What it is for.
        tenant: Whose things it is about; empty for an operator's.
        role: What its bearer may call.
        seconds: How long it is good for; 0 for 90 days.

    Raises:
        TiercelError: What the broker answered, or that it does not answer.
    """
    stub = tokens_pb2_grpc.TokensServiceStub(connection.channel)
    number = rights_pb2.Role.Value(f"ROLE_{role.name}")
    request = tokens_pb2.CreateTokenRequest(name=name, tenant=tenant, role=number, seconds=seconds)
    answer = await connection.call(stub.CreateToken, request)
    return answer.token, from_proto(IssuedToken, answer.issued)


async def list_tokens(connection: Connection) -> tuple[IssuedToken, ...]:
    """All tokens, without their secrets, which nobody is told; those that are good no more for a month."""
    stub = tokens_pb2_grpc.TokensServiceStub(connection.channel)
    answer = await connection.call(stub.ListTokens, tokens_pb2.ListTokensRequest())
    return tuple(from_proto(IssuedToken, token) for token in answer.tokens)


async def revoke_token(connection: Connection, token_id: str) -> IssuedToken:
    """Take a token back.

    Raises:
        NotFoundError: There is none of this id.
    """
    stub = tokens_pb2_grpc.TokensServiceStub(connection.channel)
    answer = await connection.call(stub.RevokeToken, tokens_pb2.RevokeTokenRequest(token_id=token_id))
    return from_proto(IssuedToken, answer.issued)
