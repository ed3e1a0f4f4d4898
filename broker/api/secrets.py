"""The service for tenants' secrets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tiercel.broker.api.auth import tenant_of
from tiercel.core.wire import to_proto
from tiercel.v1 import secrets_pb2, secrets_pb2_grpc

if TYPE_CHECKING:
    from tiercel.broker.actors.secrets import SecretService
    from tiercel.broker.api.auth import Context
    from tiercel.broker.tenancy import Tenancy


class SecretsService(secrets_pb2_grpc.SecretsServiceServicer):
    """Translates tenants' calls; see ``protos/tiercel/v1/secrets.proto``.

    Args:
        tenancy: Who may call.
    """

    def __init__(self, secrets: SecretService, tenancy: Tenancy) -> None:
        self._secrets = secrets
        self._tenancy = tenancy

    async def SetSecret(self, request: secrets_pb2.SetSecretRequest, context: Context) -> secrets_pb2.SetSecretResponse:
        """Keep a value."""
        tenant = tenant_of(context, self._tenancy)
        secret = await self._secrets.set(tenant.name, request.name, request.value)
        return secrets_pb2.SetSecretResponse(secret=to_proto(secret, secrets_pb2.Secret))

    async def ListSecrets(
        self, request: secrets_pb2.ListSecretsRequest, context: Context
    ) -> secrets_pb2.ListSecretsResponse:
        """List names."""
        tenant = tenant_of(context, self._tenancy)
        found = await self._secrets.list(tenant.name)
        return secrets_pb2.ListSecretsResponse(secrets=[to_proto(secret, secrets_pb2.Secret) for secret in found])

    async def RemoveSecret(
        self, request: secrets_pb2.RemoveSecretRequest, context: Context
    ) -> secrets_pb2.RemoveSecretResponse:
        """Forget one."""
        tenant = tenant_of(context, self._tenancy)
        await self._secrets.remove(tenant.name, request.name)
        return secrets_pb2.RemoveSecretResponse()
