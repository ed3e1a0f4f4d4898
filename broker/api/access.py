"""The service by which tenants are known beyond the broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tiercel.broker.api.auth import tenant_of
from tiercel.core.errors import wrong_field
from tiercel.v1 import access_pb2, access_pb2_grpc

if TYPE_CHECKING:
    from tiercel.broker.api.auth import Context
    from tiercel.broker.tenancy import Tenancy
    from tiercel.broker.trust.membership import Membership


class AccessService(access_pb2_grpc.AccessServiceServicer):
    """Translates tenants' calls; see ``protos/tiercel/v1/access.proto``.

    Args:
        membership: Signs certificates; None where the broker listens on this machine alone.
        tenancy: Who may call.
    """

    def __init__(self, membership: Membership | None, tenancy: Tenancy) -> None:
        self._membership = membership
        self._tenancy = tenancy

    async def ListAuthorities(
        self, request: access_pb2.ListAuthoritiesRequest, context: Context
    ) -> access_pb2.ListAuthoritiesResponse:
        """Tell who vouches for nodes."""
        del request
        tenant_of(context, self._tenancy)
        return access_pb2.ListAuthoritiesResponse(certificates=self._open().authority_pem)

    async def IssueCertificate(
        self, request: access_pb2.IssueCertificateRequest, context: Context
    ) -> access_pb2.IssueCertificateResponse:
        """Sign a tenant's key."""
        tenant = tenant_of(context, self._tenancy)
        certificates = self._open().certify_tenant(tenant.name, request.certificate_request)
        return access_pb2.IssueCertificateResponse(certificates=certificates)

    def _open(self) -> Membership:
        if self._membership is None:
            raise wrong_field(
                "listen", "this broker listens on its own machine alone, and no model answers anywhere else"
            )
        return self._membership
