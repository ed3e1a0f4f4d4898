"""One connection of the embedded MQTT server: reads what a client asks, writes what it may read, within bounds."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from tiercel.broker.progress import packets
from tiercel.broker.progress.packets import Answer, Connect, Kind, PacketError, PacketReader
from tiercel.broker.progress.reading import matches, may_read, may_subscribe
from tiercel.broker.progress.topics import Message

# The standard: one and a half of the time after which a client promised to say something.
_PATIENCE = 1.5
_LAST_PACKET_ID = 65_535


@dataclass(frozen=True, slots=True)
class SubscriberLimits:
    """What one connection may cost."""

    packet_bytes: int = 8 * 1024  # the longest packet that a client may send
    filters: int = 64  # how many it may subscribe to
    buffered_bytes: int = 256 * 1024  # what waits to be sent, before it counts as slow
    unconfirmed: int = 1_000  # messages at QoS 1 that it has not confirmed, before it counts as slow


class Server(Protocol):
    """What a connection asks of the server."""

    @property
    def retained(self) -> Mapping[str, Message]:
        """The latest state, by topic."""

    def arrived(self, client: asyncio.Protocol, transport: asyncio.Transport) -> None:
        """It is there."""

    def admit(self, subscriber: Subscriber, connect: Connect) -> Answer:
        """It has said who it is."""

    def left(self, subscriber: Subscriber) -> None:
        """It has ended."""


class Subscriber(asyncio.Protocol):
    """A client's connection.

    Args:
        limits: What it may cost.

    Attributes:
        key: Tenant and client id, once they are known.
        gone: Done when the connection has ended.
    """

    def __init__(self, server: Server, limits: SubscriberLimits) -> None:
        self._server = server
        self._limits = limits
        self._reader = PacketReader(limits.packet_bytes)
        self._transport: asyncio.Transport | None = None
        self._filters: dict[str, int] = {}
        # State that is to be told once the client is quick enough, and whether as what was retained.
        self._behind: OrderedDict[str, bool] = OrderedDict()
        self._unconfirmed: set[int] = set()
        self._new_filters: set[str] = set()
        self._packet_id = 0
        self._is_slow = False
        self._is_closing = False
        self._silence_seconds = 0.0
        self._heard_at = 0.0
        self.key: tuple[str, str] | None = None
        self.gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    # --- What the server asks -----------------------------------------------------------------------------------------

    def send(self, message: Message) -> None:
        """Tell a message, if it is for this client."""
        qos = self._qos(message)
        if qos is None:
            return
        if not self._is_behind:
            self._write(message, qos, retained=False)
        elif message.retain:
            self._behind[message.topic] = False

    def is_silent(self, now: float) -> bool:
        """Whether it broke its promise to say something from time to time."""
        return bool(self._silence_seconds) and now - self._heard_at > self._silence_seconds

    def close(self) -> None:
        """End the connection once what waits is sent."""
        # Where it is encrypted, more may come in until the other end agrees.
        self._is_closing = True
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """End the connection now."""
        # Before the transport tells it, so that its place is free at once.
        self._server.left(self)
        if self._transport is not None:
            self._transport.abort()

    # --- What the transport tells -------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - what a server makes for a socket
        self._transport = transport
        transport.set_write_buffer_limits(high=self._limits.buffered_bytes)
        self._server.arrived(self, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection has ended."""
        self._server.left(self)
        if not self.gone.done():
            self.gone.set_result(None)

    def data_received(self, data: bytes) -> None:
        """Octets have come."""
        if self._is_over():
            return
        self._heard_at = asyncio.get_running_loop().time()
        try:
            for kind, body in self._reader.feed(data):
                self._take(kind, body)
                if self._is_over():
                    return
        except PacketError:
            self.abort()
        # Once for all that came together, or a client could keep us looking for as long as it likes.
        self._send_retained()

    def _is_over(self) -> bool:
        return self._is_closing or self._transport is None or self._transport.is_closing()

    def pause_writing(self) -> None:
        """More waits to be sent than may; nothing is read that would have to be answered."""
        self._is_slow = True
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        """It has read on."""
        self._is_slow = False
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()
            self._catch_up()

    # --- Packets ------------------------------------------------------------------------------------------------------

    def _take(self, kind: Kind, body: bytes) -> None:
        if (kind is Kind.CONNECT) is not (self.key is None):
            raise PacketError("CONNECT comes first, and once")
        match kind:
            case Kind.CONNECT:
                self._connect(packets.read_connect(body))
            case Kind.SUBSCRIBE:
                self._subscribe(*packets.read_subscribe(body))
            case Kind.UNSUBSCRIBE:
                packet_id, filters = packets.read_unsubscribe(body)
                for topic_filter in filters:
                    self._filters.pop(topic_filter, None)
                self._send(packets.unsuback(packet_id))
            case Kind.PUBACK:
                self._unconfirmed.discard(packets.read_puback(body))
                self._catch_up()
            case Kind.PINGREQ:
                self._send(packets.PINGRESP)
            case Kind.DISCONNECT:
                self.close()

    def _connect(self, connect: Connect) -> None:
        answer = self._server.admit(self, connect)
        self._send(packets.connack(answer))
        if answer is not Answer.ACCEPTED:
            self.close()
        self._silence_seconds = connect.keepalive_seconds * _PATIENCE

    def _subscribe(self, packet_id: int, filters: list[tuple[str, int]]) -> None:
        assert self.key is not None  # noqa: S101 - CONNECT came first
        tenant, _ = self.key
        codes = []
        for topic_filter, qos in filters:
            room = topic_filter in self._filters or len(self._filters) < self._limits.filters
            if not room or not may_subscribe(tenant, topic_filter):
                codes.append(packets.REFUSED)
                continue
            self._filters[topic_filter] = min(qos, 1)
            self._new_filters.add(topic_filter)
            codes.append(min(qos, 1))
        self._send(packets.suback(packet_id, codes))

    # --- Messages -----------------------------------------------------------------------------------------------------

    def _send_retained(self) -> None:
        filters, self._new_filters = self._new_filters, set()
        if not filters or self.key is None:
            return
        for topic in self._server.retained:
            if may_read(self.key[0], topic) and any(matches(topic_filter, topic) for topic_filter in filters):
                self._behind[topic] = True
        self._catch_up()

    @property
    def _is_behind(self) -> bool:
        return self._is_slow or bool(self._behind) or len(self._unconfirmed) >= self._limits.unconfirmed

    def _qos(self, message: Message) -> int | None:
        """At which QoS this client gets a message; None if it does not."""
        granted = [qos for topic_filter, qos in self._filters.items() if matches(topic_filter, message.topic)]
        if not granted or self.key is None or not may_read(self.key[0], message.topic):
            return None
        return min(max(granted), message.qos)

    def _catch_up(self) -> None:
        while self._behind and not self._is_slow and len(self._unconfirmed) < self._limits.unconfirmed:
            topic, retained = self._behind.popitem(last=False)
            message = self._server.retained.get(topic)
            qos = None if message is None else self._qos(message)
            if message is not None and qos is not None:
                self._write(message, qos, retained=retained)

    def _write(self, message: Message, qos: int, *, retained: bool) -> None:
        packet_id = self._next_packet_id() if qos else None
        self._send(packets.publish(message.topic, message.payload, retained=retained, packet_id=packet_id))

    def _next_packet_id(self) -> int:
        while True:
            self._packet_id = self._packet_id % _LAST_PACKET_ID + 1
            if self._packet_id not in self._unconfirmed:
                self._unconfirmed.add(self._packet_id)
                return self._packet_id

    def _send(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)
