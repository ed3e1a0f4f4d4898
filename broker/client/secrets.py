"""The part of the client that keeps secrets."""

from __future__ import annotations

from tiercel.broker.client.connection import Connection
from tiercel.core.secrets import Secret, validate_secret
from tiercel.core.wire import from_proto
from tiercel.v1 import secrets_pb2, secrets_pb2_grpc


class Secrets:
    """The tenant's secrets: values that its jobs find in their environment, and that nobody is ever told.

    Args:
        connection: To the broker.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._stub = secrets_pb2_grpc.SecretsServiceStub(connection.channel)

    async def set(self, name: str, value: str) -> Secret:
        """Keep a value, in place of an earlier one; runs that have begun keep what they were started with.

        Args:
            name: The name of the variable that holds it.
            value: At most 32 KiB of text.

        Raises:
            InvalidSpecError: The name or the value is wrong.
            QuotaExceededError: The tenant has as many secrets as it may.
        """
        validate_secret(name, value)
        request = secrets_pb2.SetSecretRequest(name=name, value=value)
        response = await self._connection.call(self._stub.SetSecret, request)
        return from_proto(Secret, response.secret)

    async def list(self) -> tuple[Secret, ...]:
        """All of them by name, without their values, which nobody is told."""
        response = await self._connection.call(self._stub.ListSecrets, secrets_pb2.ListSecretsRequest())
        return tuple(from_proto(Secret, secret) for secret in response.secrets)

    async def remove(self, name: str) -> None:
        """Forget one.

        Raises:
            NotFoundError: There is none of this name.
        """
        await self._connection.call(self._stub.RemoveSecret, secrets_pb2.RemoveSecretRequest(name=name))
