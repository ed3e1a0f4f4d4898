"""MQTT 3.1.1 packets as a server of news needs them: what comes in is read within bounds, what goes out is written.

The standard: https://docs.oasis-open.org/mqtt/mqtt/v3.1.1/mqtt-v3.1.1.html
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

# The most bytes that say how long a packet is.
_LENGTH_BYTES: Final = 4
_PROTOCOLS: Final = {(b"MQTT", 4), (b"MQIsdp", 3)}


class PacketError(Exception):
    """What came is no packet, or one that is not taken; the connection must end."""


class Kind(IntEnum):
    """Kinds of packets that a server of news takes; PUBLISH is not among them."""

    CONNECT = 1
    PUBACK = 4
    SUBSCRIBE = 8
    UNSUBSCRIBE = 10
    PINGREQ = 12
    DISCONNECT = 14


class Answer(IntEnum):
    """What CONNACK says."""

    ACCEPTED = 0
    WRONG_PROTOCOL = 1
    WRONG_CLIENT_ID = 2
    UNAVAILABLE = 3
    WRONG_PASSWORD = 4
    NOT_ALLOWED = 5


# The standard asks for exactly these flags.
_FLAGS: Final = {Kind.SUBSCRIBE: 2, Kind.UNSUBSCRIBE: 2}
REFUSED: Final = 0x80
"""In SUBACK: this filter is not granted."""


@dataclass(frozen=True, slots=True)
class Connect:
    """The first packet of a client."""

    known_protocol: bool  # whether it is 3.1.1 or 3.1; else nothing more of it was read
    client_id: str = ""  # as the client gave it, perhaps empty
    clean: bool = True  # whether it wants to begin anew
    has_will: bool = False  # whether something is to be published when it goes
    username: str = ""  # empty if it gave none
    password: str = ""  # empty if it gave none
    keepalive_seconds: int = 0  # 0 for no promise to say something from time to time


class PacketReader:
    """Cuts a stream of bytes into packets.

    Args:
        longest_bytes: The longest body that is taken; it is refused once its length is known.
    """

    def __init__(self, longest_bytes: int) -> None:
        self._longest_bytes = longest_bytes
        self._held = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[Kind, bytes]]:
        """The packets that are complete by now: kind and body.

        Raises:
            PacketError: One is malformed, too long, or of a kind that is not taken.
        """
        self._held += data
        while (header := self._header()) is not None:
            kind, begin, length = header
            if len(self._held) < begin + length:
                return
            body = bytes(self._held[begin : begin + length])
            del self._held[: begin + length]
            yield kind, body

    def _header(self) -> tuple[Kind, int, int] | None:
        """Kind, where the body begins and its length; None while that is not known."""
        if not self._held:
            return None
        kind = _kind(self._held[0])
        length = 0
        for place, byte in enumerate(self._held[1 : 1 + _LENGTH_BYTES]):
            length |= (byte & 0x7F) << (7 * place)
            if byte < REFUSED:
                if length > self._longest_bytes:
                    raise PacketError(f"a packet of {length} bytes is longer than {self._longest_bytes}")
                return kind, 2 + place, length
        if len(self._held) > _LENGTH_BYTES:
            raise PacketError("the length of a packet has no end")
        return None


def _kind(first: int) -> Kind:
    try:
        kind = Kind(first >> 4)
    except ValueError:
        raise PacketError(f"packets of kind {first >> 4} are not taken") from None
    if first & 0x0F != _FLAGS.get(kind, 0):
        raise PacketError(f"{kind.name} has wrong flags")
    return kind


class _Fields:
    """Reads one field after the other from a packet's body."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._at = 0

    @property
    def at_end(self) -> bool:
        return self._at == len(self._body)

    def take(self, count: int) -> bytes:
        part = self._body[self._at : self._at + count]
        if len(part) < count:
            raise PacketError("a packet ends in the middle of a field")
        self._at += count
        return part

    def number(self, count: int = 2) -> int:
        return int.from_bytes(self.take(count), "big")

    def sized_bytes(self) -> bytes:
        return self.take(self.number())

    def text(self) -> str:
        try:
            text = self.sized_bytes().decode()
        except UnicodeDecodeError:
            raise PacketError("a text is not UTF-8") from None
        if "\0" in text:
            raise PacketError("a text has a NUL")
        return text


def read_connect(body: bytes) -> Connect:
    """What a CONNECT says.

    Raises:
        PacketError: It is malformed.
    """
    fields = _Fields(body)
    if (fields.sized_bytes(), fields.number(1)) not in _PROTOCOLS:
        return Connect(known_protocol=False)
    flags = fields.number(1)
    if flags & 0x01:
        raise PacketError("CONNECT has a reserved flag")
    keepalive = fields.number()
    client_id = fields.text()
    if flags & 0x04:
        fields.text()
        fields.sized_bytes()
    username = fields.text() if flags & 0x80 else ""
    password = fields.text() if flags & 0x40 else ""
    if not fields.at_end:
        raise PacketError("CONNECT goes on behind its end")
    return Connect(
        known_protocol=True,
        client_id=client_id,
        clean=bool(flags & 0x02),
        has_will=bool(flags & 0x04),
        username=username,
        password=password,
        keepalive_seconds=keepalive,
    )


def read_subscribe(body: bytes) -> tuple[int, list[tuple[str, int]]]:
    """The packet's id, and filters with the QoS that is asked for.

    Raises:
        PacketError: It is malformed.
    """
    fields = _Fields(body)
    packet_id, filters = _read_id(fields), []
    while not fields.at_end:
        filters.append((fields.text(), fields.number(1)))
    if not filters or any(qos > 2 for _, qos in filters):
        raise PacketError("SUBSCRIBE asks for nothing, or for a QoS that there is not")
    return packet_id, filters


def read_unsubscribe(body: bytes) -> tuple[int, list[str]]:
    """The packet's id, and filters.

    Raises:
        PacketError: It is malformed.
    """
    fields = _Fields(body)
    packet_id, filters = _read_id(fields), []
    while not fields.at_end:
        filters.append(fields.text())
    if not filters:
        raise PacketError("UNSUBSCRIBE names nothing")
    return packet_id, filters


def read_puback(body: bytes) -> int:
    """The id of the packet that has arrived.

    Raises:
        PacketError: It is malformed.
    """
    return _read_id(_Fields(body))


def _read_id(fields: _Fields) -> int:
    packet_id = fields.number()
    if not packet_id:
        raise PacketError("a packet has the id 0")
    return packet_id


def connack(answer: Answer) -> bytes:
    """Answers CONNECT; there is never a session of before."""
    return bytes((0x20, 2, 0, answer))


def suback(packet_id: int, codes: list[int]) -> bytes:
    """Answers SUBSCRIBE: for each filter the QoS that is granted, or ``REFUSED``."""
    return _packet(0x90, packet_id.to_bytes(2, "big") + bytes(codes))


def unsuback(packet_id: int) -> bytes:
    """Answers UNSUBSCRIBE."""
    return _packet(0xB0, packet_id.to_bytes(2, "big"))


PINGRESP: Final = b"\xd0\x00"


def publish(topic: str, payload: bytes, *, retained: bool, packet_id: int | None) -> bytes:
    """A message; with a packet's id at QoS 1, else at QoS 0."""
    name = topic.encode()
    identifier = b"" if packet_id is None else packet_id.to_bytes(2, "big")
    first = 0x30 | (0 if packet_id is None else 0x02) | retained
    return _packet(first, len(name).to_bytes(2, "big") + name + identifier + payload)


def _packet(first: int, body: bytes) -> bytes:
    length, data = len(body), bytearray((first,))
    while True:
        length, byte = length >> 7, length & 0x7F
        data.append(byte | (0x80 if length else 0))
        if not length:
            return bytes(data) + body
