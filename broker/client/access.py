"""How the client shows who it is to models that answer on machines which joined."""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
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
    shown_for,
    to_pem,
)
from tiercel.core.trust.contexts import load_identity
from tiercel.v1 import access_pb2, access_pb2_grpc

if TYPE_CHECKING:
    from tiercel.broker.client.connection import Connection

# For so long nobody asks again who vouches for nodes.
_AUTHORITY_LIFE = timedelta(hours=1)


class Access:
    """Keeps what TLS needs to ask a model: whom to believe, and the tenant's certificate.

    Its key is made here and kept nowhere.

    Args:
        connection: To the broker.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._asking = asyncio.Lock()
        self._own: _Fresh | None = None
        self._strangers: _Fresh | None = None

    async def context(self) -> ssl.SSLContext:
        """Shows the tenant's certificate; whoever answers must be vouched for by the broker's authority.

        Raises:
            TiercelError: The broker gives no certificate, such as to a viewer.
        """
        async with self._asking:
            if self._own is None or self._own.is_over():
                self._own = await self._ask()
            return self._own.context

    async def stranger_context(self) -> ssl.SSLContext:
        """The same without a certificate, for what anybody may ask, or whoever has a key.

        Raises:
            TiercelError: The broker does not say who vouches for nodes.
        """
        async with self._asking:
            if self._strangers is None or self._strangers.is_over():
                authorities = await authorities_of(self._connection)
                self._strangers = _Fresh(_believing(authorities), datetime.now(UTC) + _AUTHORITY_LIFE)
            return self._strangers.context

    async def _ask(self) -> _Fresh:
        identity = await certify(self._connection)
        chain = read_chain(identity.chain)
        context = _believing(to_pem(*authorities_in(chain)))
        try:
            load_identity(context, identity)
        except OSError as error:
            raise _useless(error) from error
        return _Fresh(context, datetime.now(UTC) + shown_for(chain[0]))


@dataclass(frozen=True, slots=True)
class _Fresh:
    """A context, and until when it is used."""

    context: ssl.SSLContext
    until: datetime

    def is_over(self) -> bool:
        return datetime.now(UTC) >= self.until


def _believing(authorities: bytes) -> ssl.SSLContext:
    """A context that believes in these, PEM, and in nobody else."""
    try:
        context = ssl.create_default_context(cadata=authorities.decode())
    except (OSError, UnicodeDecodeError) as error:
        raise _useless(error) from error
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    return context


async def authorities_of(connection: Connection) -> bytes:
    """Certificates of those who vouch for nodes, PEM.

    Raises:
        TiercelError: The broker gives none.
    """
    stub = access_pb2_grpc.AccessServiceStub(connection.channel)
    answer = await connection.call(stub.ListAuthorities, access_pb2.ListAuthoritiesRequest())
    try:
        return to_pem(*read_chain(answer.certificates))
    except CertificateError as error:
        raise _useless(error) from error


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
