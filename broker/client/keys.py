"""The part of the client that says who may ask endpoints, and makes keys for them."""

from __future__ import annotations

from tiercel.broker.client.connection import Connection
from tiercel.core.endpoint_access import EndpointAccess, Key, validate_key
from tiercel.core.wire import from_proto
from tiercel.v1 import common_pb2, keys_pb2, keys_pb2_grpc


class Keys:
    """Who may ask the tenant's endpoints, and the keys of those that take keys.

    Args:
        connection: To the broker.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._stub = keys_pb2_grpc.KeysServiceStub(connection.channel)

    async def create(
        self, endpoint: str, *, name: str = "", per_second: float = 0.0, seconds: float = 0.0
    ) -> tuple[Key, str]:
        """A key for an endpoint, and what is to be presented, which nobody is told again.

        Args:
            endpoint: What it is to be good for.
            name: A word for it, or none.
            per_second: How many requests a second it is good for on all nodes together; 0 for any number.
            seconds: How long it is good; 0 for ever.

        Raises:
            InvalidSpecError: Something is out of bounds; names it.
            NotFoundError: The tenant has no such endpoint.
            QuotaExceededError: It has as many keys as it may.
        """
        validate_key(name, per_second, seconds)
        request = keys_pb2.CreateKeyRequest(endpoint=endpoint, name=name, per_second=per_second, seconds=seconds)
        response = await self._connection.call(self._stub.CreateKey, request)
        return from_proto(Key, response.key), response.secret

    async def list(self, endpoint: str = "") -> tuple[Key, ...]:
        """All keys by endpoint and age, or those of one endpoint; none of them is told again."""
        response = await self._connection.call(self._stub.ListKeys, keys_pb2.ListKeysRequest(endpoint=endpoint))
        return tuple(from_proto(Key, key) for key in response.keys)

    async def revoke(self, key_id: str) -> None:
        """End a key, within about a second on every node that is connected.

        Raises:
            NotFoundError: There is none of this id.
        """
        await self._connection.call(self._stub.RevokeKey, keys_pb2.RevokeKeyRequest(id=key_id))

    async def set_access(self, endpoint: str, access: EndpointAccess) -> None:
        """Say who may ask an endpoint from now on.

        Raises:
            NotFoundError: The tenant has no such endpoint.
        """
        number = common_pb2.EndpointAccess.Value(f"ENDPOINT_ACCESS_{access.name}")
        request = keys_pb2.SetEndpointAccessRequest(endpoint=endpoint, access=number)
        await self._connection.call(self._stub.SetEndpointAccess, request)
