"""Which connections at the encrypted doors go when there is little room: of those that have not shown who they are.

gRPC counts connections and closes whatever comes when there are too many, whoever it is. So that never happens: before
that, strangers go, those of the address with most of them first.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections import Counter
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tiercel.core.addresses import caller_at, join_address, network_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

logger = logging.getLogger(__name__)

_DESCRIPTORS = "/proc/self/fd"
_MAPPED = "::ffff:"
# Parts of what a door takes: from where on it is looked at often, from where on strangers go, and until there are
# so few connections.
_WATCHED = 0.25
_PRESSED = 0.75
_AIM = 0.5
_CALM_SECONDS = 0.25
_WATCHED_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class Seen:
    """A connection of this process."""

    descriptor: int  # its number
    inode: str  # the socket's, as ``/proc`` has it: the number may soon be another socket's
    port: int = 0  # where it was accepted; 0 of what is no connection at a door
    host: str = ""  # who is at the other end, see :func:`.network_of`
    peer: str = ""  # its address and port


class Strangers:
    """Knows which connections have shown who they are, and says which of the others go. No I/O."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: set[str] = set()

    def know(self, peer: str) -> None:
        """A call on a connection showed who it is, with a token or by a certificate.

        Args:
            peer: The other end, as gRPC calls it.
        """
        self._known.add(caller_at(peer))

    def is_quiet(self, seen: Sequence[Seen]) -> bool:
        """Whether no door has so many connections that it might be full soon."""
        return all(count < self._most * _WATCHED for count in Counter(each.port for each in seen).values())

    def whom_to_close(self, seen: Sequence[Seen]) -> list[Seen]:
        """Those that go.

        Args:
            seen: All connections at the doors, those of an address in the order in which they came.
        """
        self._known.intersection_update([each.peer for each in seen])
        return [gone for port in {each.port for each in seen} for gone in self._at([x for x in seen if x.port == port])]

    def _at(self, seen: Sequence[Seen]) -> list[Seen]:
        if len(seen) < self._most * _PRESSED:
            return []
        of_host: dict[str, list[Seen]] = {}
        for each in seen:
            if each.peer not in self._known:
                of_host.setdefault(each.host, []).append(each)
        gone: list[Seen] = []
        while of_host and len(seen) - len(gone) > self._most * _AIM:
            most = max(of_host.values(), key=len)
            gone.append(most.pop(0))
            if not most:
                del of_host[gone[-1].host]
        return gone


class RoomKeeper:
    """Watches the sockets of this process that were accepted at some ports, and closes those that have to go."""

    def __init__(self, ports: Collection[int], strangers: Strangers) -> None:
        self._ports = frozenset(ports)
        self._strangers = strangers
        self._looked_at: dict[int, Seen] = {}

    async def keep_room(self) -> None:
        """Do so for ever."""
        while True:
            seen = self._look()
            for each in self._strangers.whom_to_close(seen):
                _close(each)
            await asyncio.sleep(_CALM_SECONDS if self._strangers.is_quiet(seen) else _WATCHED_SECONDS)

    def _look(self) -> list[Seen]:
        """What is open now; of a socket that was looked at already only its number."""
        found: dict[int, Seen] = {}
        for name in _numbers():
            with suppress(OSError):  # it may be closed by now
                inode, number = os.readlink(f"{_DESCRIPTORS}/{name}"), int(name)  # noqa: PTH115
                if inode.startswith("socket:"):
                    known = self._looked_at.get(number)
                    found[number] = known if known and known.inode == inode else _inspect(number, inode)
        # In the order in which they were first seen.
        old = [each for number, each in self._looked_at.items() if found.get(number) is each]
        new = [each for number, each in found.items() if self._looked_at.get(number) is not each]
        self._looked_at = {each.descriptor: each for each in (*old, *new)}
        return [each for each in self._looked_at.values() if each.port in self._ports]


def _numbers() -> list[str]:
    try:
        return os.listdir(_DESCRIPTORS)  # noqa: PTH208 - fifty times a second, where paths cost more than all else
    except OSError:  # there are no more descriptors to be had, which passes
        return []


@contextmanager
def _copy(number: int) -> Iterator[socket.socket]:
    descriptor = os.dup(number)
    try:
        found = socket.socket(fileno=descriptor)
    except OSError:  # by now the number is no socket's
        os.close(descriptor)
        raise
    with found:
        yield found


def _inspect(number: int, inode: str) -> Seen:
    with _copy(number) as found:
        if found.type != socket.SOCK_STREAM or found.family not in {socket.AF_INET, socket.AF_INET6}:
            return Seen(number, inode)
        try:
            host, port = found.getpeername()[:2]
        except OSError:  # it listens
            return Seen(number, inode)
        host = host.removeprefix(_MAPPED).partition("%")[0]
        return Seen(number, inode, found.getsockname()[1], network_of(host), join_address(host, port))


def _close(seen: Seen) -> None:
    """End a connection as if the other end had: the descriptor stays whose it is."""
    with suppress(OSError), _copy(seen.descriptor) as found:
        # The copy is looked at, which nobody else can close and use anew.
        if f"socket:[{os.fstat(found.fileno()).st_ino}]" == seen.inode:
            found.shutdown(socket.SHUT_RDWR)
            logger.debug("a connection of %s went, which had not said who it is: others need the place", seen.host)
