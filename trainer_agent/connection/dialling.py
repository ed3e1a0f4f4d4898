"""How an agent reaches its broker: on the same machine with a token, from another one with a certificate.

All of it is read again before every dial: the broker may move, and certificates are renewed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, Protocol

import grpc
from cryptography import x509
from grpc import aio

from tiercel.core.backoff import Attempts, Backoff
from tiercel.core.complaints import Complaint
from tiercel.core.private_files import write_private
from tiercel.core.trust.certificates import (
    BROKER_NAME,
    CertificateError,
    Identity,
    authorities_in,
    is_issued_by,
    key_to_pem,
    look_seconds,
    make_key,
    make_request,
    node_of,
    pin_of,
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
_MOST_AUTHORITIES: Final = 8
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

    def heed(self, authorities: Sequence[str], clock_ahead_seconds: float) -> None:
        """What the broker says.

        Args:
            authorities: Whom to believe, by their pins, the one first that is to vouch for this node.
            clock_ahead_seconds: By how much this machine's clock is ahead of the broker's, which dates certificates.
        """

    @property
    def outdated(self) -> asyncio.Event:
        """Set once a channel that is opened now would show something else than those there are, which should end."""

    async def keep_fresh(self) -> None:
        """Renew what runs out, for as long as that may be needed."""


@dataclass(frozen=True, slots=True)
class LocalDialler:
    """On the broker's own machine."""

    find: Callable[[], str]  # where the broker listens
    token: Callable[[], str]  # the agents' token
    outdated: asyncio.Event = field(default_factory=asyncio.Event)  # see :class:`Dialler`: never set

    def address(self) -> str:
        """See :class:`Dialler`."""
        return self.find()

    def open(self, options: Options) -> aio.Channel:
        """See :class:`Dialler`."""
        return aio.insecure_channel(self.find(), options=options)

    def metadata(self) -> Metadata:
        """See :class:`Dialler`."""
        return (("authorization", f"Bearer {self.token()}"),)

    def heed(self, authorities: Sequence[str], clock_ahead_seconds: float) -> None:
        """There is nobody to believe."""

    async def keep_fresh(self) -> None:
        """Nothing runs out."""


class JoinedDialler:
    """From a machine that joined.

    Args:
        find: Where the broker listens.
        file: With the node's key, its certificate and those of whom it believes; replaced when they are renewed.
            Beside it ``authority.pem`` has the last ones alone.
        now: The time.
    """

    def __init__(
        self, find: Callable[[], str], file: Path, now: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self.find = find
        self.file = file
        self.now = now
        self._heeded: tuple[str, ...] = ()
        self._ahead = timedelta(0)
        self._told = asyncio.Event()
        self._outdated = asyncio.Event()

    def address(self) -> str:
        """See :class:`Dialler`."""
        return self.find()

    def open(self, options: Options) -> aio.Channel:
        """See :class:`Dialler`."""
        identity = self._read()
        own = identity.certificate
        authorities = self._believed(identity)
        if self._brokers_now() > own.not_valid_after_utc:
            raise DialError(
                f"The node's certificate ran out at {own.not_valid_after_utc}, by this machine's clock: set that if it "
                "is wrong; else give this machine a new line of 'tiercel node token', by the same name and with the "
                "same --state-dir; what runs here goes on."
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

    @property
    def outdated(self) -> asyncio.Event:
        """See :class:`Dialler`."""
        return self._outdated

    def heed(self, authorities: Sequence[str], clock_ahead_seconds: float) -> None:
        """See :class:`Dialler`."""
        self._ahead = timedelta(seconds=clock_ahead_seconds)
        told = tuple(authorities[:_MOST_AUTHORITIES])
        if told and told != self._heeded:
            self._heeded = told
            self._told.set()

    async def keep_fresh(self) -> None:
        """See :class:`Dialler`; a broker that is away is asked again.

        What is old is known once the broker has told its time, or a look later where it does not.
        """
        attempts = Attempts(_RETRY)
        complaint = Complaint(_log, "the node's certificate cannot be renewed now: %s")
        jitter = random.random()  # noqa: S311 - spreads load
        while True:
            try:
                await asyncio.to_thread(self._write_believed)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._look_seconds()):
                        await self._told.wait()
                self._told.clear()
                if self._is_due(jitter):
                    await self.renew()
                    attempts.reset()
                complaint.note("")
            except (DialError, aio.AioRpcError, CertificateError, OSError) as error:
                complaint.note(_words(error))
                await asyncio.sleep(min(attempts.next_seconds(), self._look_seconds()))
                self._told.set()  # it is looked at again at once

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
        authorities_in(read_chain(fresh.chain))
        await asyncio.to_thread(write_private, self.file, fresh.to_file())
        outdated, self._outdated = self._outdated, asyncio.Event()
        outdated.set()
        await asyncio.to_thread(self._write_believed)
        _log.info("the node has a new certificate, good until %s", fresh.certificate.not_valid_after_utc)

    def _brokers_now(self) -> datetime:
        return self.now() - self._ahead

    def _look_seconds(self) -> float:
        try:
            own = self._read().certificate
        except DialError:
            return _LOOK_SECONDS
        return look_seconds(own.not_valid_after_utc - own.not_valid_before_utc, _LOOK_SECONDS)

    def _is_due(self, jitter: float) -> bool:
        """Whether the certificate is old, or not as the broker wants it."""
        identity = self._read()
        if self._brokers_now() >= renewal_time(identity.certificate, jitter):
            return True
        believed = {pin_of(each): each for each in self._believed(identity)}
        if not self._heeded:
            return False
        signer = believed.get(self._heeded[0])
        is_its = signer is not None and is_issued_by(identity.certificate, signer)
        return not is_its or believed.keys() != set(self._heeded)

    def _believed(self, identity: Identity) -> list[x509.Certificate]:
        try:
            return authorities_in(read_chain(identity.chain))
        except CertificateError as error:
            raise DialError(
                f"{self.file} does not say who vouches for the broker; join again with a new token."
            ) from error

    def _write_believed(self) -> None:
        """For the inference server, which lets in whom these vouch for."""
        believed, file = to_pem(*self._believed(self._read())), self.file.with_name("authority.pem")
        if not file.exists() or file.read_bytes() != believed:
            write_private(file, believed)

    def _read(self) -> Identity:
        try:
            return Identity.from_file(self.file.read_bytes())
        except (OSError, CertificateError) as error:
            raise DialError(f"{self.file} has no key and certificate of a node ({error}); join again.") from error


def _words(error: Exception) -> str:
    return f"{error.code().name}: {error.details()}" if isinstance(error, aio.AioRpcError) else str(error)
