"""One door of the embedded MQTT server: where it listens, who is let in, and how many.

Doors share what is told and nothing else: those who crowd at the one for other machines keep nobody out on this one.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tiercel.broker.progress.encryption import HandshakeLimits, Handshakes, Knock, ServerContext
from tiercel.broker.progress.packets import Answer, Connect
from tiercel.broker.progress.subscriber import Subscriber, SubscriberLimits
from tiercel.core.addresses import EVERYWHERE, family_of, join_address, network_of
from tiercel.core.errors import NotAuthenticatedError, UnavailableError
from tiercel.core.roles import Role

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tiercel.broker.progress.topics import Message
    from tiercel.broker.tenancy import Caller, Tenancy
    from tiercel.broker.trust.doors import Shown

_STOP_SECONDS = 1.0
_READERS = frozenset({Role.VIEWER, Role.SUBMITTER})


@dataclass(frozen=True, slots=True)
class Rooms:
    """How many connections a door takes."""

    # Of clients that have not said who they are; beyond it one of the address with the most of them is closed, the one
    # that has waited longest.
    unknown: int = 32
    unknown_seconds: float = 5.0  # how long they may take to say it
    of_a_tenant: int = 64  # beyond it a tenant's next client is refused
    in_all: int = 256  # of all tenants; beyond it the next client is refused
    topics: int = 10_000  # retained topics that are remembered; beyond it the one longest unchanged is forgotten


@dataclass(frozen=True, slots=True)
class Place:
    """Where a door is."""

    host: str  # address to listen on
    port: int  # port there; 0 for any free one
    option: str  # what chooses the port, for the sentence that says that it is taken
    shown: Shown | None = None  # who the door says that it is, by TLS; None for a door in the clear
    called: str = ""  # how others call the host; empty for as it listens


@dataclass(frozen=True, slots=True)
class _Waiting:
    since: float
    address: str
    transport: asyncio.Transport


class Door:
    """Lets tenants in.

    Args:
        tenancy: Who may read: the user name is the tenant's, the password a token of its viewers or submitters.
        retained: The latest state, by topic.
        rooms: How many connections there may be.
        limits: What one connection may cost.
        handshakes: How many may begin to encrypt.
    """

    def __init__(
        self,
        place: Place,
        tenancy: Tenancy,
        retained: Mapping[str, Message],
        rooms: Rooms,
        limits: SubscriberLimits,
        handshakes: HandshakeLimits,
    ) -> None:
        self.retained = retained
        self._place = place
        self._tenancy = tenancy
        self._rooms = rooms
        self._limits = limits
        self._handshakes = Handshakes(handshakes)
        self._context = ServerContext(place.shown) if place.shown is not None else None
        self._server: asyncio.Server | None = None
        self._port = 0
        self._unknown: dict[asyncio.Protocol, _Waiting] = {}
        self._known: dict[tuple[str, str], Subscriber] = {}
        self._callers: dict[tuple[str, str], Caller] = {}
        self._of_tenants: Counter[str] = Counter()

    @property
    def address(self) -> str:
        """Where it listens, ``host:port``."""
        return join_address(self._place.called or self._place.host, self._port)

    @property
    def connections(self) -> int:
        """How many there are, of known and unknown clients."""
        return len(self._unknown) + len(self._known)

    async def open(self) -> None:
        """Begin to listen.

        Raises:
            UnavailableError: The port is in use.
        """
        self._server = await asyncio.get_running_loop().create_server(self._make, sock=listen_at(self._place))
        self._port = self._server.sockets[0].getsockname()[1]

    def _make(self) -> asyncio.Protocol:
        subscriber = Subscriber(self, self._limits)
        if self._context is None:
            return subscriber
        return Knock(self, subscriber, self._context, self._handshakes.limits.seconds)

    def close(self) -> None:
        """Listen no more."""
        if self._server is not None:
            self._server.close()

    async def leave(self) -> None:
        """End every connection."""
        for waiting in list(self._unknown.values()):
            waiting.transport.abort()
        subscribers = list(self._known.values())
        for subscriber in subscribers:
            subscriber.close()
        if subscribers:
            await asyncio.wait([subscriber.gone for subscriber in subscribers], timeout=_STOP_SECONDS)
        for subscriber in subscribers:
            subscriber.abort()
        if self._server is not None:
            await self._server.wait_closed()

    def publish(self, message: Message) -> None:
        """Tell a message to all who may read it and have subscribed."""
        for subscriber in list(self._known.values()):
            subscriber.send(message)

    def look(self, now: float) -> None:
        """Close who is silent for too long, or whose token is good no more; to be called each half second.

        Args:
            now: Seconds of the event loop's clock.
        """
        self._handshakes.forget()
        for waiting in list(self._unknown.values()):
            if now - waiting.since > self._rooms.unknown_seconds:
                waiting.transport.abort()
        for key, subscriber in list(self._known.items()):
            if subscriber.is_silent(now) or not self._may_stay(self._callers[key]):
                subscriber.abort()

    def _may_stay(self, caller: Caller) -> bool:
        try:
            self._tenancy.check(caller)
        except NotAuthenticatedError:
            return False
        return True

    # --- What connections ask -----------------------------------------------------------------------------------------

    def knocked(self, inner: asyncio.Protocol, transport: asyncio.Transport) -> bool:
        """Whether a connection may begin to encrypt."""
        if not self._handshakes.may_begin(_address(transport)):
            return False
        self.arrived(inner, transport)
        return True

    def went(self, inner: asyncio.Protocol) -> None:
        """A connection has ended, perhaps before it was encrypted."""
        self._unknown.pop(inner, None)

    def arrived(self, client: asyncio.Protocol, transport: asyncio.Transport) -> None:
        """A client has connected and not said yet who it is."""
        if client in self._unknown:
            return  # it knocked before
        if len(self._unknown) >= self._rooms.unknown:
            self._make_room()
        self._unknown[client] = _Waiting(asyncio.get_running_loop().time(), _address(transport), transport)

    def _make_room(self) -> None:
        """Whoever means it says so at once; who has waited longest is the least likely to."""
        of_addresses = Counter(waiting.address for waiting in self._unknown.values())
        crowd, _ = of_addresses.most_common(1)[0]
        client, first = next(each for each in self._unknown.items() if each[1].address == crowd)
        del self._unknown[client]
        first.transport.abort()

    def admit(self, subscriber: Subscriber, connect: Connect) -> Answer:
        """Decide on a client that has said who it is; afterwards it is known, or refused."""
        tenant, caller = connect.username, self._caller(connect)
        answer = self._judge(connect, caller)
        if caller is None or answer is not Answer.ACCEPTED:
            return answer
        key = (tenant, connect.client_id or f"\0{id(subscriber)}")
        earlier = self._known.pop(key, None)
        if earlier is not None:
            self._of_tenants[tenant] -= 1
            earlier.abort()
        elif self._of_tenants[tenant] >= self._rooms.of_a_tenant or len(self._known) >= self._rooms.in_all:
            return Answer.UNAVAILABLE
        self._unknown.pop(subscriber, None)
        self._known[key] = subscriber
        self._callers[key] = caller
        self._of_tenants[tenant] += 1
        subscriber.key = key
        return answer

    def _caller(self, connect: Connect) -> Caller | None:
        """Who shows a token of the tenant that it says to be; None for anybody else."""
        try:
            caller = self._tenancy.find_caller(connect.password)
        except NotAuthenticatedError:
            return None
        if caller is None or caller.tenant is None or caller.role not in _READERS:
            return None
        if caller.person is not None:
            return None  # it would be known here only if it had been verified elsewhere before
        return caller if caller.tenant.name == connect.username else None

    @staticmethod
    def _judge(connect: Connect, caller: Caller | None) -> Answer:
        if not connect.known_protocol:
            return Answer.WRONG_PROTOCOL
        if caller is None:
            return Answer.WRONG_PASSWORD
        if connect.has_will:
            return Answer.NOT_ALLOWED
        if not connect.client_id and not connect.clean:
            return Answer.WRONG_CLIENT_ID
        return Answer.ACCEPTED

    def left(self, subscriber: Subscriber) -> None:
        """A connection has ended."""
        self._unknown.pop(subscriber, None)
        key = subscriber.key
        if key is not None and self._known.get(key) is subscriber:
            del self._known[key], self._callers[key]
            self._of_tenants[key[0]] -= 1


def listen_at(place: Place) -> socket.socket:
    """A socket that listens, where :: is wanted at all addresses, those of IPv4 too.

    Raises:
        UnavailableError: The port is in use.
    """
    family = family_of(place.host)
    dual = family is socket.AF_INET6 and place.host in EVERYWHERE
    try:
        return socket.create_server((place.host, place.port), family=family, dualstack_ipv6=dual)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        message = f"Port {place.port} is in use; choose another for {place.option}, or 0 for any free one."
        raise UnavailableError(message) from error


def _address(transport: asyncio.Transport) -> str:
    peer = transport.get_extra_info("peername")
    return network_of(str(peer[0])) if peer else ""
