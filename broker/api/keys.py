"""The service for who may ask endpoints, and for their keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tiercel.broker.api.auth import tenant_of
from tiercel.core.endpoint_access import EndpointAccess
from tiercel.core.errors import wrong_field
from tiercel.core.wire import to_proto
from tiercel.v1 import common_pb2, keys_pb2, keys_pb2_grpc

if TYPE_CHECKING:
    from tiercel.broker.actors.endpoint_keys import KeyService
    from tiercel.broker.actors.service import BrokerService
    from tiercel.broker.api.auth import Context
    from tiercel.broker.tenancy import Tenancy

_ACCESS = {
    common_pb2.ENDPOINT_ACCESS_PUBLIC: EndpointAccess.PUBLIC,
    common_pb2.ENDPOINT_ACCESS_TENANT: EndpointAccess.TENANT,
    common_pb2.ENDPOINT_ACCESS_KEY: EndpointAccess.KEY,
}


class KeysService(keys_pb2_grpc.KeysServiceServicer):
    """Translates tenants' calls; see ``protos/tiercel/v1/keys.proto``.

    Args:
        tenancy: Who may call.
    """

    def __init__(self, keys: KeyService, service: BrokerService, tenancy: Tenancy) -> None:
        self._keys = keys
        self._service = service
        self._tenancy = tenancy

    async def CreateKey(self, request: keys_pb2.CreateKeyRequest, context: Context) -> keys_pb2.CreateKeyResponse:
        """Make a key."""
        tenant = tenant_of(context, self._tenancy)
        key, secret = await self._keys.create(
            tenant.name, request.endpoint, request.name, request.per_second, request.seconds
        )
        return keys_pb2.CreateKeyResponse(key=to_proto(key, keys_pb2.Key), secret=secret)

    async def ListKeys(self, request: keys_pb2.ListKeysRequest, context: Context) -> keys_pb2.ListKeysResponse:
        """List keys."""
        tenant = tenant_of(context, self._tenancy)
        found = self._keys.list(tenant.name, request.endpoint)
        return keys_pb2.ListKeysResponse(keys=[to_proto(key, keys_pb2.Key) for key in found])

    async def RevokeKey(self, request: keys_pb2.RevokeKeyRequest, context: Context) -> keys_pb2.RevokeKeyResponse:
        """End a key."""
        tenant = tenant_of(context, self._tenancy)
        await self._keys.revoke(tenant.name, request.id)
        return keys_pb2.RevokeKeyResponse()

    async def SetEndpointAccess(
        self, request: keys_pb2.SetEndpointAccessRequest, context: Context
    ) -> keys_pb2.SetEndpointAccessResponse:
        """Say who may ask an endpoint."""
        tenant = tenant_of(context, self._tenancy)
        access = _ACCESS.get(request.access)
        if access is None:
            raise wrong_field("access", "is none that this broker knows; give public, tenant or key")
        await self._service.endpoints.set_access(tenant.name, request.endpoint, access)
        return keys_pb2.SetEndpointAccessResponse()
