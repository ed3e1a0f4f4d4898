"""How an agent reaches its broker: on the same machine with a token, from another one with a certificate.

All of it is read again before every dial: the broker may move, and certificates are renewed.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Protocol

import grpc
from grpc import aio

from tiercel.core.backoff import Attempts, Backoff
from tiercel.core.private_files import write_private
from tiercel.core.trust.certificates import (
    BROKER_NAME,
    CertificateError,
    Identity,
    key_to_pem,
    make_key,
    make_request,
    node_of,
    read_chain,
    renewal_time,
    to_pem,
)
from tiercel.trainer_agent.connection.address import DialError
from tiercel.v1 import membership_pb2, membership_pb2_grpc

_log = logging.getLogger(__name__)

_LOOK_SECONDS: Final = 600.0
_RENEW_SECONDS: Final = 20.0
_RETRY: Final = Backoff(5.0, 600.0)
_OPTIONS: Final = (("grpc.enable_http_proxy", 0), ("grpc.use_local_subchannel_pool", 1))

Options = Sequence[tuple[str, Any]]
Metadata = tuple[tuple[str, str], ...]


class Dialler(Protocol):
    """Opens channels to the broker."""

    def address(self) -> str:
        """Where the broker listens for this agent, ``host:port``.

        Raises:
            DialError: It is not known now.
        """

    def open(self, options: Options) -> aio.Channel:
        """A channel to it.

        Raises:
            DialError: It cannot be dialled now.
        """

    def metadata(self) -> Metadata:
        """What every call carries.

        Raises:
            DialError: It is not known now.
        """

    async def keep_fresh(self) -> None:
        """Renew what runs out, for as long as that may be needed."""


@dataclass(frozen=True, slots=True)
class LocalDialler:
    """On the broker's own machine.

    Attributes:
        find: Where the broker listens.
        token: The agents' token.
    """

    find: Callable[[], str]
    token: Callable[[], str]

    def address(self) -> str:
        """See :class:`Dialler`."""
        return self.find()

    def open(self, options: Options) -> aio.Channel:
        """See :class:`Dialler`."""
        return aio.insecure_channel(self.find(), options=options)

    def metadata(self) -> Metadata:
        """See :class:`Dialler`."""
        return (("authorization", f"Bearer {self.token()}"),)

    async def keep_fresh(self) -> None:
        """Nothing runs out."""


@dataclass(frozen=True, slots=True)
class JoinedDialler:
    """From a machine that joined.

    Attributes:
        find: Where the broker listens.
        file: With the node's key, its certificate and the authority's; replaced when they are renewed.
        now: The time.
    """

    find: Callable[[], str]
    file: Path
    now: Callable[[], datetime] = lambda: datetime.now(UTC)

    def address(self) -> str:
        """See :class:`Dialler`."""
        return self.find()

    def open(self, options: Options) -> aio.Channel:
        """See :class:`Dialler`."""
        identity = self._read()
        own, *authorities = read_chain(identity.chain)
        if not authorities:
            raise DialError(f"{self.file} does not say who vouches for the broker; join again with a new token.")
        if self.now() > own.not_valid_after_utc:
            raise DialError(
                f"The node's certificate ran out at {own.not_valid_after_utc}; remove the node and join again."
            )
        credentials = grpc.ssl_channel_credentials(to_pem(*authorities), identity.key, identity.chain)
        # The name that the broker's certificate has wherever it listens.
        named = [*options, ("grpc.ssl_target_name_override", BROKER_NAME)]
        return aio.secure_channel(self.find(), credentials, options=named)

    def metadata(self) -> Metadata:
        """See :class:`Dialler`: the certificate says it all."""
        return ()

    def node_id(self) -> str:
        """The node that the certificate speaks for; empty for none.

        Raises:
            DialError: The file cannot be read.
        """
        return node_of(self._read().certificate)

    async def keep_fresh(self) -> None:
        """See :class:`Dialler`; a broker that is away is asked again."""
        attempts = Attempts(_RETRY)
        jitter = random.random()  # noqa: S311 - spreads load
        while True:
            try:
                if self.now() >= renewal_time(self._read().certificate, jitter):
                    await self.renew()
                    attempts.reset()
                await asyncio.sleep(_LOOK_SECONDS)
            except (DialError, aio.AioRpcError, CertificateError, OSError) as error:
                _log.warning("the node's certificate cannot be renewed now: %s", _words(error))
                await asyncio.sleep(attempts.next_seconds())

    async def renew(self) -> None:
        """Have a new key signed, and put both in place of the earlier ones.

        Raises:
            AioRpcError: The broker does not do it.
            DialError: It cannot be dialled.
            CertificateError: It answers with something else.
            OSError: The file cannot be written.
        """
        key = make_key()
        request = membership_pb2.RenewCertificateRequest(certificate_request=make_request(key))
        async with self.open(_OPTIONS) as channel:
            stub = membership_pb2_grpc.CertificatesServiceStub(channel)
            answer = await stub.RenewCertificate(request, timeout=_RENEW_SECONDS)
        fresh = Identity(key_to_pem(key), answer.certificates)
        if fresh.certificate.public_key() != key.public_key():
            raise CertificateError("the broker's answer is not for the key that was sent")
        await asyncio.to_thread(write_private, self.file, fresh.to_file())
        _log.info("the node has a new certificate, good until %s", fresh.certificate.not_valid_after_utc)

    def _read(self) -> Identity:
        try:
            return Identity.from_file(self.file.read_bytes())
        except (OSError, CertificateError) as error:
            raise DialError(f"{self.file} has no key and certificate of a node ({error}); join again.") from error


def _words(error: Exception) -> str:
    return f"{error.code().name}: {error.details()}" if isinstance(error, aio.AioRpcError) else str(error)
