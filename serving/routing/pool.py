"""Connections to other servers that are kept, and what may be under way on them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tiercel.core.addresses import split_address
from tiercel.core.errors import CapacityExceededError, DeadlineExceededError
from tiercel.serving.routing.connection import Answer, PeerConnection, PeerLostError, Room
from tiercel.serving.routing.silence import Hearing

_logger = logging.getLogger(__name__)

CONNECT_SECONDS: Final = 1.0
"""How long another server may take to accept a connection and say who it is."""
_KEPT: Final = 64
# Less than the time after which a server closes a connection that nothing happens on.
_KEPT_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class PeerLimits:
    """What may be under way at one other server at a time."""

    requests: int  # requests
    request_bytes: int  # their bytes


@dataclass(frozen=True, slots=True)
class NotSent:
    """Nothing came back, and asking somebody else is right."""

    reason: str  # why, in plain words
    # Whether the other server cannot have begun with it; else it may have, and only what may be done twice is asked for
    # again.
    is_certain: bool
    # Whether it said nothing for too long: it may be asked later, by somebody who does not wait.
    is_silent: bool = False


class Credentials:
    """What this server shows others by TLS, and whom it believes; read again when the files change.

    Args:
        identity: File with a private key and certificates, PEM; None where there is none.
        authority: File with the certificate of the authority behind other nodes.
    """

    def __init__(self, identity: Path | None, authority: Path | None) -> None:
        self._files = (identity, authority) if identity is not None and authority is not None else None
        self._context: ssl.SSLContext | None = None
        self._stamps: tuple[int, ...] = ()

    @property
    def are_there(self) -> bool:
        """Whether others can be asked by TLS at all."""
        return self._files is not None

    def context(self) -> ssl.SSLContext:
        """For the next connection.

        Raises:
            OSError: There is nothing to show; of them are the errors of ssl.
        """
        if self._files is None:
            raise OSError("this server has no certificate to show")
        stamps = tuple(file.stat().st_mtime_ns for file in self._files)
        if self._context is None or stamps != self._stamps:
            identity, authority = self._files
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.minimum_version = ssl.TLSVersion.TLSv1_3
            context.load_verify_locations(authority)
            context.load_cert_chain(identity)
            context.set_alpn_protocols(["http/1.1"])
            self._context, self._stamps = context, stamps
        return self._context


class Peer:
    """Another server.

    Args:
        address: Where it listens, ``host:port``.
        name: What its certificate has to say; empty where it is asked in the clear.
        credentials: What it is shown.
        limits: What may be under way there.
        room: For answers of all servers.

    Attributes:
        hearing: For how long nothing came back from there.
    """

    def __init__(self, address: str, name: str, credentials: Credentials, limits: PeerLimits, room: Room) -> None:
        self.address = address
        self._host, self._port = split_address(address)
        self._name = name
        self._credentials = credentials
        self._limits = limits
        self._room = room
        self._idle: list[PeerConnection] = []
        self._bytes = 0
        self._closed = False
        self.in_flight = 0
        self.hearing = Hearing()

    @property
    def is_encrypted(self) -> bool:
        """Whether it is asked by TLS, where both sides say who they are."""
        return bool(self._name)

    async def send(
        self, head: bytes, body: bytes | bytearray, deadline: float, *, is_again: bool = False
    ) -> Answer | NotSent:
        """Send a request and wait for its answer.

        Args:
            head: Request line and headers.
            body: What follows them.
            deadline: When the answer is of no use any more, seconds of the event loop's clock.
            is_again: A kept connection was of no use just now: use a new one.

        Raises:
            PeerLostError: It began to answer and did not end, or said what is no answer.
            DeadlineExceededError: It does not answer in time.
            CapacityExceededError: As much is under way there as may be.
        """
        if self.in_flight >= self._limits.requests or (
            self._bytes and self._bytes + len(body) > self._limits.request_bytes
        ):
            raise CapacityExceededError(
                "as much as may be is under way to the node that answers for this model; try again in a moment"
            )
        self.in_flight += 1
        self._bytes += len(body)
        try:
            kept = None if is_again else self._kept()
            connection = kept or await self._open(deadline)
            if isinstance(connection, NotSent):
                return connection
            answer = await connection.ask(head, body, deadline)
            self._keep(connection)
        except PeerLostError as error:
            if error.begun:
                raise
            return NotSent(error.reason, is_certain=False)
        finally:
            self.in_flight -= 1
            self._bytes -= len(body)
        return answer

    async def try_out(self) -> None:
        """Ask on a new connection whether it lives; whatever comes back is heard."""
        deadline = asyncio.get_running_loop().time() + CONNECT_SECONDS
        connection = await self._open(deadline)
        if isinstance(connection, NotSent):
            return
        head = b"GET /v2/health/live HTTP/1.1\r\nHost: %b\r\nContent-Length: 0\r\n\r\n" % self.address.encode()
        with contextlib.suppress(PeerLostError, DeadlineExceededError, CapacityExceededError):
            await connection.ask(head, b"", deadline)
        connection.close()

    def close(self) -> None:
        """Let go of the connections that are not in use, and of the others once they are not."""
        self._closed = True
        self.let_go()

    def let_go(self) -> None:
        """Let go of the connections that are not in use now."""
        for connection in self._idle:
            connection.close()
        self._idle.clear()

    def _kept(self) -> PeerConnection | None:
        oldest = asyncio.get_running_loop().time() - _KEPT_SECONDS
        while self._idle:
            connection = self._idle.pop()
            if connection.is_open and connection.idle_since > oldest:
                return connection
            connection.close()
        return None

    def _keep(self, connection: PeerConnection) -> None:
        if not connection.is_open or self._closed or len(self._idle) >= _KEPT:
            connection.close()
            return
        self._idle.append(connection)

    async def _open(self, deadline: float) -> PeerConnection | NotSent:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout_at(min(deadline, loop.time() + CONNECT_SECONDS)):
                context = self._credentials.context() if self._name else None
                _, connection = await loop.create_connection(
                    lambda: PeerConnection(self._room, self.hearing),
                    self._host,
                    self._port,
                    ssl=context,
                    server_hostname=self._name or None,
                )
        except TimeoutError:
            return NotSent("it does not accept connections", is_certain=True)
        except OSError as error:  # of them are the errors of ssl
            return NotSent(str(error) or type(error).__name__, is_certain=True)
        return connection
