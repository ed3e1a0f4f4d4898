"""The services about which machines are nodes: for their operator, for who joins, and for nodes themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tiercel.broker.api.node_doors import certificate_of
from tiercel.broker.trust.membership import TOKEN_SECONDS
from tiercel.core.errors import NodeTakenError, NotFoundError, wrong_field
from tiercel.v1 import membership_pb2, membership_pb2_grpc

if TYPE_CHECKING:
    from collections.abc import Callable

    from tiercel.broker.actors.maintenance import Maintenance
    from tiercel.broker.api.auth import Context
    from tiercel.broker.trust.membership import Membership


class MembershipService(membership_pb2_grpc.MembershipServiceServicer):
    """Translates calls about membership; see ``protos/tiercel/v1/membership.proto``. The gate says who gets here.

    Args:
        membership: Decides; None where the broker listens on this machine alone.
        address: Where to join, ``host:port``.
        nodes_port: Where agents connect.
        is_own: Whether a name is that of a node on the broker's own machine.
    """

    def __init__(
        self,
        membership: Membership | None,
        maintenance: Maintenance,
        address: str,
        nodes_port: int,
        is_own: Callable[[str], bool],
    ) -> None:
        self._membership = membership
        self._maintenance = maintenance
        self._address = address
        self._nodes_port = nodes_port
        self._is_own = is_own

    async def CreateJoinToken(
        self, request: membership_pb2.CreateJoinTokenRequest, context: Context
    ) -> membership_pb2.CreateJoinTokenResponse:
        """Make a join token."""
        token, expires_at = await self._open().make_token(
            request.node_id, request.seconds or TOKEN_SECONDS, request.listen_names
        )
        answer = membership_pb2.CreateJoinTokenResponse(token=token.to_text(), address=self._address)
        answer.expires_at.FromNanoseconds(int(expires_at * 1e9))
        return answer

    async def RemoveNode(
        self, request: membership_pb2.RemoveNodeRequest, context: Context
    ) -> membership_pb2.RemoveNodeResponse:
        """Take a node off the list."""
        membership = self._open()
        if self._is_own(request.node_id) and request.node_id not in membership.nodes():
            raise NotFoundError(
                f"node_id: {request.node_id!r} is a node on the broker's machine and did not join; end its agent "
                "instead, or empty it with 'tiercel node drain'",
                field="node_id",
            )
        await membership.remove(request.node_id)
        await self._maintenance.forget(request.node_id)
        return membership_pb2.RemoveNodeResponse()

    async def DrainNode(
        self, request: membership_pb2.DrainNodeRequest, context: Context
    ) -> membership_pb2.DrainNodeResponse:
        """Have a node emptied."""
        left = await self._maintenance.drain(request.node_id, migrate=request.migrate)
        return membership_pb2.DrainNodeResponse(jobs=left.jobs, endpoints=left.endpoints)

    async def UndrainNode(
        self, request: membership_pb2.UndrainNodeRequest, context: Context
    ) -> membership_pb2.UndrainNodeResponse:
        """Let jobs start there again."""
        await self._maintenance.undrain(request.node_id)
        return membership_pb2.UndrainNodeResponse()

    async def Join(self, request: membership_pb2.JoinRequest, context: Context) -> membership_pb2.JoinResponse:
        """Let a machine in."""
        membership = self._open()
        if self._is_own(request.node_id):
            raise NodeTakenError(
                f"node_id: {request.node_id!r} is the name of a node on the broker's machine; choose another with "
                "--node-id",
                field="node_id",
            )
        is_new = request.node_id not in membership.nodes()
        admitted = await membership.join(request.token_id, request.secret, request.node_id, request.certificate_request)
        if is_new:
            await self._maintenance.welcome(request.node_id)
        return membership_pb2.JoinResponse(
            certificates=admitted.chain, nodes_port=self._nodes_port, listen_names=admitted.listen_names
        )

    def _open(self) -> Membership:
        if self._membership is None:
            raise wrong_field(
                "listen",
                "this broker listens on its own machine alone, so that no other can join; start it again with "
                "'tiercel up --listen ADDRESS'",
            )
        return self._membership


class CertificatesService(membership_pb2_grpc.CertificatesServiceServicer):
    """Gives nodes their next certificates."""

    def __init__(self, membership: Membership) -> None:
        self._membership = membership

    async def RenewCertificate(
        self, request: membership_pb2.RenewCertificateRequest, context: Context
    ) -> membership_pb2.RenewCertificateResponse:
        """Sign a node's next key."""
        certificates = await self._membership.renew(certificate_of(context), request.certificate_request)
        return membership_pb2.RenewCertificateResponse(certificates=certificates)
