"""How the client shows who it is to models that answer on machines which joined."""

from __future__ import annotations

import asyncio
import ssl
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from tiercel.core.errors import UnavailableError
from tiercel.core.trust.certificates import (
    CertificateError,
    Identity,
    authorities_in,
    key_to_pem,
    make_key,
    make_request,
    read_chain,
    renewal_time,
    to_pem,
)
from tiercel.core.trust.contexts import load_identity
from tiercel.v1 import access_pb2, access_pb2_grpc

if TYPE_CHECKING:
    from tiercel.broker.client.connection import Connection


class Access:
    """Keeps the tenant's certificate, with a key that is made here and kept nowhere.

    Args:
        connection: To the broker.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._asking = asyncio.Lock()
        self._context: ssl.SSLContext | None = None
        self._fresh_until = datetime.min.replace(tzinfo=UTC)

    async def context(self) -> ssl.SSLContext:
        """What TLS needs to ask a model; whoever answers must be vouched for by the broker's authority.

        Raises:
            TiercelError: The broker gives no certificate.
        """
        async with self._asking:
            if self._context is None or datetime.now(UTC) >= self._fresh_until:
                self._context = await self._ask()
            return self._context

    async def _ask(self) -> ssl.SSLContext:
        identity = await certify(self._connection)
        chain = read_chain(identity.chain)
        try:
            context = ssl.create_default_context(cadata=to_pem(*authorities_in(chain)).decode())
            context.minimum_version = ssl.TLSVersion.TLSv1_3
            load_identity(context, identity)
        except OSError as error:
            raise _useless(error) from error
        self._fresh_until = renewal_time(chain[0])
        return context


async def certify(connection: Connection) -> Identity:
    """A key that is made here, and the tenant's certificate for it, good for a day.

    Raises:
        TiercelError: The broker gives none.
    """
    key = make_key()
    stub = access_pb2_grpc.AccessServiceStub(connection.channel)
    request = access_pb2.IssueCertificateRequest(certificate_request=make_request(key))
    answer = await connection.call(stub.IssueCertificate, request)
    try:
        authorities_in(read_chain(answer.certificates))
    except CertificateError as error:
        raise _useless(error) from error
    return Identity(key_to_pem(key), answer.certificates)


def _useless(error: Exception) -> UnavailableError:
    return UnavailableError(f"The broker's certificate is of no use ({error}); try again.")
