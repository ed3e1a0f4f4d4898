"""Packets of MQTT: whatever comes, in whatever pieces, is read the same way or refused, within bounds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tiercel.broker.progress import packets
from tiercel.broker.progress.packets import Kind, PacketError, PacketReader

LONGEST = 64
BODIES = st.lists(st.tuples(st.sampled_from([Kind.SUBSCRIBE, Kind.PUBACK, Kind.PINGREQ]), st.binary(max_size=LONGEST)))


def written(kind: Kind, body: bytes) -> bytes:
    return bytes(((kind << 4) | (2 if kind is Kind.SUBSCRIBE else 0), len(body))) + body


@given(BODIES, st.integers(1, 50))
def test_pieces_of_any_size_make_the_same_packets(given_packets: list[tuple[Kind, bytes]], size: int) -> None:
    octets = b"".join(written(kind, body) for kind, body in given_packets)
    reader = PacketReader(LONGEST)
    read = [one for at in range(0, len(octets), size) for one in reader.feed(octets[at : at + size])]
    assert read == given_packets


@given(st.lists(st.binary(max_size=40), max_size=20))
def test_nonsense_is_refused_and_not_hoarded(pieces: list[bytes]) -> None:
    reader = PacketReader(LONGEST)
    try:
        for piece in pieces:
            for kind, body in reader.feed(piece):
                assert len(body) <= LONGEST
                _understand(kind, body)
            assert len(reader._held) <= LONGEST + 5 + len(piece)
    except PacketError:
        pass


def _understand(kind: Kind, body: bytes) -> None:
    match kind:
        case Kind.CONNECT:
            packets.read_connect(body)
        case Kind.SUBSCRIBE:
            packets.read_subscribe(body)
        case Kind.UNSUBSCRIBE:
            packets.read_unsubscribe(body)
        case Kind.PUBACK:
            packets.read_puback(body)
        case _:
            pass


@given(st.text(max_size=20), st.binary(max_size=70_000), st.booleans(), st.none() | st.integers(1, 65_535))
def test_a_message_is_written_as_the_standard_says(
    topic: str, payload: bytes, retained: bool, packet_id: int | None
) -> None:
    octets = packets.publish(topic, payload, retained=retained, packet_id=packet_id)
    assert octets[0] == 0x30 | retained | (0 if packet_id is None else 2)
    length, at = 0, 1
    while True:
        length |= (octets[at] & 0x7F) << (7 * (at - 1))
        at += 1
        if octets[at - 1] < 0x80:
            break
    assert len(octets) == at + length
    name = topic.encode()
    assert octets[at:].startswith(len(name).to_bytes(2, "big") + name)
    assert octets.endswith((b"" if packet_id is None else packet_id.to_bytes(2, "big")) + payload)
