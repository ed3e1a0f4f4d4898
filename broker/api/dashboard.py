"""The service that lets a browser in at the dashboard; see ``protos/tiercel/v1/dashboard.proto``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tiercel.broker.api.auth import token_of
from tiercel.core.wire import timestamp
from tiercel.v1 import dashboard_pb2, dashboard_pb2_grpc

if TYPE_CHECKING:
    from tiercel.broker.access.sign_in import SignIn
    from tiercel.broker.api.auth import Context


class DashboardService(dashboard_pb2_grpc.DashboardServiceServicer):
    """Makes links.

    Args:
        url_elsewhere: Where one elsewhere does; empty for nowhere.
    """

    def __init__(self, sign_in: SignIn, url: str, url_elsewhere: str) -> None:
        self._sign_in = sign_in
        self._urls = (url, url_elsewhere)

    async def CreateSignInLink(
        self, request: dashboard_pb2.CreateSignInLinkRequest, context: Context
    ) -> dashboard_pb2.CreateSignInLinkResponse:
        """Make a link; its code is in the fragment, which browsers send to nobody."""
        code, ends_at = self._sign_in.make_code(token_of(context.invocation_metadata()))
        url, elsewhere = (f"{url}/#/sign-in/{code}" if url else "" for url in self._urls)
        return dashboard_pb2.CreateSignInLinkResponse(url=url, url_elsewhere=elsewhere, expires_at=timestamp(ends_at))
