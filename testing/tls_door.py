"""An encrypted door with protocols that remember what happens to them, and callers that speak TLS byte by byte."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

import uvloop

from tiercel.broker.trust.authority import Authority
from tiercel.core.trust.certificates import Identity, key_to_pem, make_key, to_pem
from tiercel.serving.connections.handshake import Handshake, Lobby
from tiercel.serving.connections.listening import accept, open_listener

LOOPS: tuple[Callable[[], asyncio.AbstractEventLoop], ...] = (asyncio.new_event_loop, uvloop.new_event_loop)
DEADLINE = 30.0


@dataclass(frozen=True, slots=True)
class Ends:
    """What both ends go by."""

    server: ssl.SSLContext  # the door's context
    caller: ssl.SSLContext  # of a tenant called alice


def make_ends() -> Ends:
    """A server and a tenant of one authority."""
    now = datetime.now(UTC)
    authority = Authority.create(now)
    key = make_key()
    tenant = Identity(
        key_to_pem(key),
        to_pem(authority.issue_to_tenant("alice", key.public_key(), now), authority.certificate),
    )
    roots = to_pem(authority.certificate).decode()
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.minimum_version = ssl.TLSVersion.TLSv1_3
    server.verify_mode = ssl.CERT_REQUIRED
    server.load_verify_locations(cadata=roots)
    server.num_tickets = 1
    caller = ssl.create_default_context(cadata=roots)
    caller.check_hostname = False
    for context, shown in ((server, authority.issue_to_broker([], now)), (caller, tenant)):
        with tempfile.NamedTemporaryFile() as file:
            Path(file.name).write_bytes(shown.to_file())
            context.load_cert_chain(file.name)
    return Ends(server, caller)


@dataclass
class Heard(asyncio.Protocol):
    """Echoes, unless told otherwise, and remembers what happened."""

    answer: Callable[[asyncio.Transport, bytes], None] = lambda transport, data: transport.write(data)
    happened: list[str] = field(default_factory=list)
    received: bytearray = field(default_factory=bytearray)
    transport: asyncio.Transport | None = None
    answers_after_end: bool = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """asyncio."""
        self.transport = cast("asyncio.Transport", transport)
        self.happened.append("made")

    def data_received(self, data: bytes) -> None:
        """asyncio."""
        self.received += data
        assert self.transport is not None
        self.answer(self.transport, data)

    def eof_received(self) -> bool:
        """asyncio."""
        self.happened.append("ended")
        return self.answers_after_end

    def pause_writing(self) -> None:
        """asyncio."""
        self.happened.append("paused")

    def resume_writing(self) -> None:
        """asyncio."""
        self.happened.append("resumed")

    def connection_lost(self, exc: Exception | None) -> None:
        """asyncio."""
        self.happened.append("lost")


@dataclass
class Door:
    """A door that is open."""

    port: int  # where, on all of 127.0.0.0/8
    ends: Ends  # what both ends go by
    lobby: Lobby  # who knocks
    make: Callable[[], Heard] = Heard  # makes the protocol of the next connection
    guests: list[Heard] = field(default_factory=list)  # protocols of all connections that were let in
    callers: list[Caller] = field(default_factory=list)  # all that came, record by record

    async def reader(self, source: str = "127.0.0.1") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A caller as asyncio has it."""
        where = ("127.0.0.1", self.port)
        return await asyncio.open_connection(*where, ssl=self.ends.caller, local_addr=(source, 0))

    async def echoes(self, source: str = "127.0.0.1") -> bool:
        """Whether somebody who shows a certificate is answered."""
        reader, writer = await self.reader(source)
        writer.write(b"hello")
        found = await reader.readexactly(5)
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
        return found == b"hello"

    async def caller(self, context: ssl.SSLContext | None = None, session: ssl.SSLSession | None = None) -> Caller:
        """A caller that has not said anything yet."""
        plain = socket.create_connection(("127.0.0.1", self.port), DEADLINE)
        plain.setblocking(False)
        self.callers.append(Caller(plain, context or self.ends.caller, session))
        return self.callers[-1]


class Caller:
    """The other end of TLS, with its records in one's own hands."""

    def __init__(self, plain: socket.socket, context: ssl.SSLContext, session: ssl.SSLSession | None = None) -> None:
        self.plain = plain
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing, session=session)

    async def send(self, data: bytes, at_once: int = 1 << 20) -> None:
        """Send these bytes as they are, so many at a time."""
        loop = asyncio.get_running_loop()
        for begin in range(0, len(data), at_once):
            await loop.sock_sendall(self.plain, data[begin : begin + at_once])
            if at_once < 100:
                await asyncio.sleep(0)

    async def read_some(self) -> bool:
        """Take bytes; False at the end of all."""
        try:
            async with asyncio.timeout(DEADLINE):
                data = await asyncio.get_running_loop().sock_recv(self.plain, 1 << 18)
        except ConnectionError:
            return False
        self.incoming.write(data)
        return bool(data)

    async def shake_hands(self, last: bytes = b"", at_once: int = 1 << 20) -> None:
        """Do the handshake; ``last`` goes with its end."""
        while True:
            try:
                self.tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                await self.send(self.outgoing.read(), at_once)
                assert await self.read_some(), "the door was closed"
        if last:
            self.tls.write(last)
        await self.send(self.outgoing.read(), at_once)

    async def receive(self, size: int) -> bytes:
        """So many bytes, or fewer where the connection ends before."""
        found = b""
        while len(found) < size:
            try:
                part = self.tls.read(size - len(found))
            except ssl.SSLWantReadError:
                if not await self.read_some():
                    break
                continue
            except ssl.SSLZeroReturnError:  # both ends have said that it is over
                break
            if not part:
                break
            found += part
        return found

    def records(self, data: bytes) -> bytes:
        """These bytes encrypted."""
        self.tls.write(data)
        return self.outgoing.read()

    async def is_closed(self) -> bool:
        """Whether the door closes, sooner or later."""
        while await self.read_some():
            pass
        return True


@contextlib.asynccontextmanager
async def open_door(ends: Ends, most: int = 256, now: Callable[[], float] = time.time) -> AsyncIterator[Door]:
    """A door in this event loop."""
    listening = open_listener("0.0.0.0", 0)  # callers come from several addresses of loopback
    door = Door(listening.getsockname()[1], ends, Lobby(most))

    def make() -> Heard:
        door.guests.append(door.make())
        return door.guests[-1]

    server = await accept(lambda: Handshake(make, ends.server, door.lobby, now), listening)
    try:
        yield door
    finally:
        server.close()
        for caller in door.callers:
            caller.plain.close()
        for guest in door.guests:
            if guest.transport is not None:
                guest.transport.abort()
        for stranger in tuple(door.lobby):
            stranger.give_way()
        await asyncio.sleep(0.05)  # uvloop closes in the turns that follow
