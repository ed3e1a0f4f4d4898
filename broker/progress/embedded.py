"""An MQTT 3.1.1 server in this process, so that nothing has to be set up.

It tells news and takes none: only the broker publishes, and a tenant, who shows its token, reads what is its own. There
are no sessions that outlive a connection, no wills, and nothing grows with what a client sends or leaves unread: while
a connection is slow, progress is left out and of each state only the latest is told.
"""

from __future__ import annotations

import asyncio
import ipaddress
import time
from collections import OrderedDict
from typing import TYPE_CHECKING, Self

from tiercel.broker.progress.door import Door, Place, Rooms
from tiercel.broker.progress.encryption import HandshakeLimits
from tiercel.broker.progress.subscriber import SubscriberLimits
from tiercel.broker.progress.topics import Message, broker_presence, message_of
from tiercel.core.errors import InvalidSpecError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from tiercel.broker.tenancy import Tenancy
    from tiercel.core.events import Event

_LOOK_SECONDS = 0.5


class EmbeddedMqttBroker:
    """A server of news; an async context manager that listens inside.

    Args:
        tenancy: Who may read: the user name is the tenant's, the password a token of its viewers or submitters.
        host: A loopback address.
        port: Where to listen there; 0 for any free port.
        wide: Where others reach it, encrypted; None for nowhere.
        rooms: How many connections each door takes.
        limits: What one connection may cost.
        handshakes: How many may begin to encrypt.
        now: The clock of what is told, seconds since the Unix epoch.

    Raises:
        InvalidSpecError: The host is not a loopback address, or the wide door would be in the clear.
    """

    def __init__(
        self,
        tenancy: Tenancy,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        wide: Place | None = None,
        rooms: Rooms | None = None,
        limits: SubscriberLimits | None = None,
        handshakes: HandshakeLimits | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        if not ipaddress.ip_address(host).is_loopback or (wide is not None and wide.shown is None):
            message = f"MQTT in the clear is for loopback only, not for {host if wide is None else wide.host}."
            raise InvalidSpecError(message, field="mqtt_url")
        self._now = now
        self._rooms = rooms or Rooms()
        self.retained: OrderedDict[str, Message] = OrderedDict()
        places = [Place(host, port, "--mqtt-port"), *([] if wide is None else [wide])]
        cost, knocking = limits or SubscriberLimits(), handshakes or HandshakeLimits()
        self._doors = [Door(place, tenancy, self.retained, self._rooms, cost, knocking) for place in places]
        self._looking: asyncio.TimerHandle | None = None

    @property
    def address(self) -> str:
        """Where it listens on this machine, ``host:port``."""
        return self._doors[0].address

    @property
    def wide_address(self) -> str:
        """Where others reach it, ``host:port``; empty for nowhere."""
        return self._doors[1].address if len(self._doors) > 1 else ""

    @property
    def connections(self) -> int:
        """How many there are, of known and unknown clients."""
        return sum(door.connections for door in self._doors)

    async def __aenter__(self) -> Self:
        """Begin to listen, and say that the broker is here.

        Raises:
            UnavailableError: A port is in use.
        """
        try:
            for door in self._doors:
                await door.open()
        except BaseException:
            for door in self._doors:
                door.close()
            raise
        self._publish(broker_presence(online=True, at=self._now()))
        self._look()
        return self

    async def __aexit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """Say that the broker goes, stop listening and end every connection."""
        if self._looking is None:
            return
        self._looking.cancel()
        for door in self._doors:
            door.close()
        self._publish(broker_presence(online=False, at=self._now()))
        await asyncio.gather(*(door.leave() for door in self._doors))

    def publish_nowait(self, event: Event) -> None:
        """Tell ``event`` to all who may read it and have subscribed. Never blocks, never fails."""
        self._publish(message_of(event))

    def _publish(self, message: Message) -> None:
        if message.retain:
            self.retained[message.topic] = message
            self.retained.move_to_end(message.topic)
            if len(self.retained) > self._rooms.topics:
                self.retained.popitem(last=False)
        for door in self._doors:
            door.publish(message)

    def _look(self) -> None:
        """Close who is silent for too long, from time to time."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        for door in self._doors:
            door.look(now)
        self._looking = loop.call_later(_LOOK_SECONDS, self._look)
