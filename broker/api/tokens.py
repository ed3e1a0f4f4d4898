"""The service by which the operator gives out tokens; see ``protos/tiercel/v1/tokens.proto``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tiercel.core.errors import wrong_field
from tiercel.core.roles import Role
from tiercel.core.wire import to_proto
from tiercel.v1 import rights_pb2, tokens_pb2, tokens_pb2_grpc

if TYPE_CHECKING:
    from tiercel.broker.access.tokens import Tokens
    from tiercel.broker.api.auth import Context


class TokensService(tokens_pb2_grpc.TokensServiceServicer):
    """Translates the operator's calls."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens

    async def CreateToken(
        self, request: tokens_pb2.CreateTokenRequest, context: Context
    ) -> tokens_pb2.CreateTokenResponse:
        """Give out a token."""
        token, issued = await self._tokens.create(request.name, request.tenant, _role(request.role), request.seconds)
        return tokens_pb2.CreateTokenResponse(issued=to_proto(issued, tokens_pb2.IssuedToken), token=token)

    async def ListTokens(
        self, request: tokens_pb2.ListTokensRequest, context: Context
    ) -> tokens_pb2.ListTokensResponse:
        """List them."""
        found = [to_proto(token, tokens_pb2.IssuedToken) for token in self._tokens.list()]
        return tokens_pb2.ListTokensResponse(tokens=found)

    async def RevokeToken(
        self, request: tokens_pb2.RevokeTokenRequest, context: Context
    ) -> tokens_pb2.RevokeTokenResponse:
        """Take one back."""
        token = await self._tokens.revoke(request.token_id)
        return tokens_pb2.RevokeTokenResponse(issued=to_proto(token, tokens_pb2.IssuedToken))


def _role(number: int) -> Role:
    try:
        return Role(rights_pb2.Role.Name(number).removeprefix("ROLE_").lower())  # type: ignore[arg-type]
    except ValueError:
        raise wrong_field("role", "is none; give viewer, submitter or operator") from None
