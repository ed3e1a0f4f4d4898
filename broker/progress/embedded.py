"""An MQTT 3.1.1 server in this process, so that nothing has to be set up.

It tells news and takes none: only the broker publishes, and a tenant, who shows its token, reads what is its own. There
are no sessions that outlive a connection, no wills, and nothing grows with what a client sends or leaves unread: while
a connection is slow, progress is left out and of each state only the latest is told.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Self

from tiercel.broker.progress.packets import Answer, Connect
from tiercel.broker.progress.subscriber import Subscriber, SubscriberLimits
from tiercel.broker.progress.topics import Message, broker_presence, message_of
from tiercel.core.errors import InvalidSpecError, UnavailableError

if TYPE_CHECKING:
    from tiercel.broker.tenancy import Tenancy
    from tiercel.core.events import Event

_LOOK_SECONDS = 0.5
_STOP_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Rooms:
    """How many connections there may be.

    Attributes:
        unknown: Of clients that have not said who they are; beyond it the one that has waited longest is closed.
        unknown_seconds: How long they may take to say it.
        of_a_tenant: Beyond it a tenant's next client is refused.
        in_all: Of all tenants; beyond it the next client is refused.
        topics: Retained topics that are remembered; beyond it the one longest unchanged is forgotten.
    """

    unknown: int = 32
    unknown_seconds: float = 5.0
    of_a_tenant: int = 64
    in_all: int = 256
    topics: int = 10_000


class EmbeddedMqttBroker:
    """A server of news; an async context manager that listens inside.

    Args:
        tenancy: Who may read: the user name is the tenant's, the password its token.
        host: A loopback address.
        port: Where to listen; 0 for any free port.
        rooms: How many connections there may be.
        limits: What one connection may cost.
        now: The clock of what is told, seconds since the Unix epoch.

    Raises:
        InvalidSpecError: The host is not a loopback address.
    """

    def __init__(
        self,
        tenancy: Tenancy,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        rooms: Rooms | None = None,
        limits: SubscriberLimits | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        if not ipaddress.ip_address(host).is_loopback:
            message = f"The embedded MQTT broker does not encrypt, so it listens on loopback only, not on {host}."
            raise InvalidSpecError(message, field="mqtt_url")
        self._tenancy = tenancy
        self._host = host
        self._wanted_port = port
        self._port = 0
        self._rooms = rooms or Rooms()
        self._limits = limits or SubscriberLimits()
        self._now = now
        self._server: asyncio.Server | None = None
        self._looking: asyncio.TimerHandle | None = None
        self._unknown: dict[Subscriber, float] = {}
        self._known: dict[tuple[str, str], Subscriber] = {}
        self._of_tenants: Counter[str] = Counter()
        self.retained: OrderedDict[str, Message] = OrderedDict()

    @property
    def address(self) -> str:
        """Where it listens, ``host:port``."""
        return f"{self._host}:{self._port}"

    @property
    def connections(self) -> int:
        """How many there are, of known and unknown clients."""
        return len(self._unknown) + len(self._known)

    async def __aenter__(self) -> Self:
        """Begin to listen, and say that the broker is here.

        Raises:
            UnavailableError: The port is in use.
        """
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(
                lambda: Subscriber(self, self._limits), self._host, self._wanted_port
            )
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            message = f"Port {self._wanted_port} is in use; choose another MQTT port, or 0 for any free one."
            raise UnavailableError(message) from error
        self._port = self._server.sockets[0].getsockname()[1]
        self._publish(broker_presence(online=True, at=self._now()))
        self._look()
        return self

    async def __aexit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """Say that the broker goes, stop listening and end every connection."""
        if self._server is None or self._looking is None:
            return
        self._looking.cancel()
        self._server.close()
        self._publish(broker_presence(online=False, at=self._now()))
        subscribers = [*self._unknown, *self._known.values()]
        for subscriber in subscribers:
            subscriber.close()
        if subscribers:
            await asyncio.wait([subscriber.gone for subscriber in subscribers], timeout=_STOP_SECONDS)
        for subscriber in subscribers:
            subscriber.abort()
        await self._server.wait_closed()

    def publish_nowait(self, event: Event) -> None:
        """Tell ``event`` to all who may read it and have subscribed. Never blocks, never fails."""
        self._publish(message_of(event))

    def _publish(self, message: Message) -> None:
        if message.retain:
            self.retained[message.topic] = message
            self.retained.move_to_end(message.topic)
            if len(self.retained) > self._rooms.topics:
                self.retained.popitem(last=False)
        for subscriber in list(self._known.values()):
            subscriber.send(message)

    # --- What connections ask -----------------------------------------------------------------------------------------

    def arrived(self, subscriber: Subscriber) -> None:
        """A client has connected and not said yet who it is."""
        if len(self._unknown) >= self._rooms.unknown:
            # Whoever means it says so at once; who has waited longest is the least likely to.
            next(iter(self._unknown)).abort()
        self._unknown[subscriber] = asyncio.get_running_loop().time()

    def admit(self, subscriber: Subscriber, connect: Connect) -> Answer:
        """Decide on a client that has said who it is; afterwards it is known, or refused."""
        answer = self._judge(connect)
        if answer is not Answer.ACCEPTED:
            return answer
        tenant = connect.username
        key = (tenant, connect.client_id or f"\0{id(subscriber)}")
        earlier = self._known.pop(key, None)
        if earlier is not None:
            self._of_tenants[tenant] -= 1
            earlier.abort()
        elif self._of_tenants[tenant] >= self._rooms.of_a_tenant or len(self._known) >= self._rooms.in_all:
            return Answer.UNAVAILABLE
        self._unknown.pop(subscriber, None)
        self._known[key] = subscriber
        self._of_tenants[tenant] += 1
        subscriber.key = key
        return answer

    def _judge(self, connect: Connect) -> Answer:
        if not connect.known_protocol:
            return Answer.WRONG_PROTOCOL
        tenant = self._tenancy.find_tenant(connect.password)
        if tenant is None or tenant.name != connect.username:
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
            del self._known[key]
            self._of_tenants[key[0]] -= 1

    def _look(self) -> None:
        """Close who is silent for too long, from time to time."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        for subscriber, since in list(self._unknown.items()):
            if now - since > self._rooms.unknown_seconds:
                subscriber.abort()
        for subscriber in list(self._known.values()):
            if subscriber.is_silent(now):
                subscriber.abort()
        self._looking = loop.call_later(_LOOK_SECONDS, self._look)
