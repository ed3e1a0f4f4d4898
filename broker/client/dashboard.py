"""The way into the dashboard, on a connection with the token of whoever is to be signed in."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from tiercel.v1 import dashboard_pb2, dashboard_pb2_grpc

if TYPE_CHECKING:
    from tiercel.broker.client.connection import Connection


@dataclass(frozen=True, slots=True)
class SignInLink:
    """What signs a browser in, once."""

    url: str  # for a browser on the broker's machine
    url_elsewhere: str  # for one elsewhere; empty where the broker listens on its machine alone
    expires_at: datetime  # when it does no more


async def create_sign_in_link(connection: Connection) -> SignInLink:
    """Ask the broker for a link.

    Raises:
        TiercelError: What the broker answered, or that it does not answer.
    """
    stub = dashboard_pb2_grpc.DashboardServiceStub(connection.channel)
    answer = await connection.call(stub.CreateSignInLink, dashboard_pb2.CreateSignInLinkRequest())
    return SignInLink(answer.url, answer.url_elsewhere, answer.expires_at.ToDatetime(UTC))
