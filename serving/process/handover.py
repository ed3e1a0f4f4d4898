"""One server process hands over to a fresh one, so that its memory comes back, or a new release begins, without a gap.

::

    predecessor                                   successor
    starts it; sockets and lock are inherited ──►  imports, begins to verify
    versions and shares ────────────────────────►  loads all of them
             ◄──────────────────────────── loaded
    takes no more loads; versions again,
    trials, delays of the last minute ──────────►  loads what changed; accepts; writes the state file
             ◄───────────────────────────── ready
    accepts no more, answers what is in flight, asks connections to come again, leaves

Whatever fails before "ready" leaves the predecessor as it was. Both hold one and the same lock, so it is never free.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from tiercel.core.errors import SetupError, UnavailableError

_logger = logging.getLogger(__name__)

_VARIABLE: Final = "TIERCEL_SERVING_INHERITED"
_LINE_BYTES: Final = 16 * 1024**2
# The successor loads all models; each has a limit of its own.
_PATIENCE_SECONDS: Final = 900.0

Message = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Inheritance:
    """What passes from one process to the next, as open files."""

    http: socket.socket  # listens for REST
    grpc: socket.socket  # listens for gRPC
    lock: int  # descriptor of the lock file, locked
    https: socket.socket | None = None  # listens for REST from other machines, encrypted; None for nobody
    grpcs: socket.socket | None = None  # the same for gRPC

    def descriptors(self) -> dict[str, int]:
        """All that is there, by name."""
        sockets = {"http": self.http, "grpc": self.grpc, "https": self.https, "grpcs": self.grpcs}
        return {name: each.fileno() for name, each in sockets.items() if each is not None} | {"lock": self.lock}


@dataclass(frozen=True, slots=True)
class Predecessor:
    """The process that hands over, as its successor sees it."""

    inheritance: Inheritance  # what it gave
    talk: socket.socket  # socket to it

    @contextlib.asynccontextmanager
    async def conversation(self) -> AsyncIterator[Conversation]:
        """Talk to it."""
        async with _conversation(self.talk) as conversation:
            yield conversation


class Conversation:
    """Messages one way and the other, each a line of JSON."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def send(self, message: Message) -> None:
        """Send a message; nothing happens if nobody is there any more."""
        with contextlib.suppress(ConnectionError):
            self._writer.write(json.dumps(message).encode() + b"\n")
            await self._writer.drain()

    async def receive(self) -> Message | None:
        """The next message, or None when the other side is gone or silent for too long."""
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                line = await self._reader.readline()
        except (TimeoutError, ConnectionError, ValueError):
            return None
        if not line.endswith(b"\n"):
            return None
        message: Message = json.loads(line)
        return message


@contextlib.asynccontextmanager
async def _conversation(talk: socket.socket) -> AsyncIterator[Conversation]:
    talk.setblocking(False)
    reader, writer = await asyncio.open_unix_connection(sock=talk, limit=_LINE_BYTES)
    try:
        yield Conversation(reader, writer)
    finally:
        writer.close()


def predecessor() -> Predecessor | None:
    """The process that hands over to this one, or None when this one was started by itself. Call it once."""
    inherited = os.environ.pop(_VARIABLE, None)
    if inherited is None:
        return None
    numbers: dict[str, int] = json.loads(inherited)
    for number in numbers.values():
        os.set_inheritable(number, False)
    lock = numbers.pop("lock")
    sockets = {name: socket.socket(fileno=number) for name, number in numbers.items()}
    talk = sockets.pop("talk")
    return Predecessor(Inheritance(lock=lock, **sockets), talk)


class Successor:
    """A fresh process that is to take over, as the one that hands over sees it."""

    def __init__(self, process: subprocess.Popen[bytes], conversation: Conversation) -> None:
        self._process = process
        self._conversation = conversation

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def kill(self) -> None:
        """End it."""
        self._process.kill()

    async def send_state(self, versions: Mapping[str, int], shares: Message, carried: Message | None = None) -> None:
        """Say what has to be live, what models may use, and what may be of use; see :mod:`.carried`."""
        await self._conversation.send({"versions": dict(versions), "shares": shares, "carried": carried})

    async def expect(self, what: str) -> None:
        """Wait until it says that it got so far.

        Raises:
            UnavailableError: It did not; the message says why.
        """
        message = await self._conversation.receive()
        if message is not None and message.get("is") == what:
            return
        reason = "it ended or did not answer; see the server's log" if message is None else message.get("failed")
        raise UnavailableError(f"the process that was to follow did not get {what}, and this one goes on: {reason}")


@contextlib.asynccontextmanager
async def successor(inheritance: Inheritance) -> AsyncIterator[Successor]:
    """Start the process that follows; it is ended when the context ends with an error.

    Raises:
        UnavailableError: It cannot be started from this process.
    """
    if os.getpid() == 1:
        raise UnavailableError("a container ends with its process 1, which cannot hand over; start a new container")
    ours, theirs = socket.socketpair()
    numbers = inheritance.descriptors() | {"talk": theirs.fileno()}
    with theirs:
        # Not asyncio's: that would end the process together with this one's event loop.
        try:
            process = await asyncio.to_thread(
                subprocess.Popen,
                [sys.executable, *sys.orig_argv[1:]],
                env=os.environ | {_VARIABLE: json.dumps(numbers)},
                pass_fds=tuple(numbers.values()),
                stdin=subprocess.DEVNULL,
            )
        except OSError as error:
            ours.close()
            raise UnavailableError(f"no process can be started to follow this one, which goes on: {error}") from error
    _logger.info("Process %d is to take over", process.pid)
    try:
        async with _conversation(ours) as conversation:
            yield Successor(process, conversation)
    except BaseException:
        process.kill()
        await asyncio.shield(asyncio.to_thread(process.wait))
        raise


def gone(what: str) -> SetupError:
    """What a successor says whose predecessor left in the middle of it."""
    return SetupError(f"The server that was handing over is gone before {what}; nothing was taken over.")
