"""HPACK (RFC 7541): compressed header fields.

The decoder is complete. It remembers what blocks decoded to while its dynamic table stays the same, since the requests
of one caller have the same headers again and again. The encoder keeps no state: static table and literals only.
"""

from __future__ import annotations

from collections.abc import Iterable

from tiercel.serving.http2 import huffman

Field = tuple[bytes, bytes]

TABLE_SIZE = 4096  # bytes; the default of SETTINGS_HEADER_TABLE_SIZE, which this server does not change
_ENTRY_OVERHEAD = 32  # RFC 7541, section 4.1
_MAX_INTEGER = 2**28
_REMEMBERED_BLOCKS = 32
_REMEMBERED_BLOCK_SIZE = 1024
_SHORT_STRING = 256

_WITH_VALUES: tuple[Field, ...] = (
    (b":authority", b""), (b":method", b"GET"), (b":method", b"POST"), (b":path", b"/"), (b":path", b"/index.html"),
    (b":scheme", b"http"), (b":scheme", b"https"), (b":status", b"200"), (b":status", b"204"), (b":status", b"206"),
    (b":status", b"304"), (b":status", b"400"), (b":status", b"404"), (b":status", b"500"), (b"accept-charset", b""),
    (b"accept-encoding", b"gzip, deflate"),
)  # fmt: skip
_NAMES_ONLY = b"""
    accept-language accept-ranges accept access-control-allow-origin age allow authorization cache-control
    content-disposition content-encoding content-language content-length content-location content-range content-type
    cookie date etag expect expires from host if-match if-modified-since if-none-match if-range if-unmodified-since
    last-modified link location max-forwards proxy-authenticate proxy-authorization range referer refresh retry-after
    server set-cookie strict-transport-security transfer-encoding user-agent vary via www-authenticate
""".split()
# RFC 7541, appendix A; index 1 comes first.
STATIC_TABLE: tuple[Field, ...] = _WITH_VALUES + tuple((name, b"") for name in _NAMES_ONLY)
_STATIC = len(STATIC_TABLE)
_STATIC_FIELDS = {field: index for index, field in reversed(list(enumerate(STATIC_TABLE, 1)))}
_STATIC_NAMES = {name: index for index, (name, _) in reversed(list(enumerate(STATIC_TABLE, 1)))}


class HpackError(ValueError):
    """A header block is malformed; the connection's compression state is lost with it."""


class HeaderBlock:
    """Decoded header fields.

    Attributes:
        fields: Names and values in order; empty if they were too large.
        too_large: Whether they were over the limit.
        request: What they mean as a request; kept here by the connection, so that it is found out once.
    """

    __slots__ = ("fields", "request", "too_large")

    def __init__(self, fields: tuple[Field, ...], too_large: bool = False) -> None:
        self.fields = fields
        self.too_large = too_large
        self.request: object = None


class DynamicTable:
    """Header fields that the peer wants remembered, newest last.

    Attributes:
        generation: Changes whenever an index may mean another field than before.
    """

    __slots__ = ("_entries", "_max_size", "_size", "generation")

    def __init__(self) -> None:
        self._entries: list[Field] = []
        self._size = 0
        self._max_size = TABLE_SIZE
        self.generation = 0

    def field(self, index: int) -> Field:
        """The field at an index of both tables together, counted from 1.

        Raises:
            HpackError: There is none.
        """
        if 0 < index <= _STATIC:
            return STATIC_TABLE[index - 1]
        index -= _STATIC
        if not 0 < index <= len(self._entries):
            raise HpackError("an index is beyond the header table")
        return self._entries[-index]

    def add(self, field: Field) -> None:
        """Remember a field; one larger than the table empties it."""
        size = len(field[0]) + len(field[1]) + _ENTRY_OVERHEAD
        self.generation += 1
        self._evict(self._max_size - size)
        if size <= self._max_size:
            self._entries.append(field)
            self._size += size

    def resize(self, size: int) -> None:
        """Hold at most ``size`` bytes.

        Raises:
            HpackError: That is more than this side allows.
        """
        if size > TABLE_SIZE:
            raise HpackError(f"a header table of {size} bytes is wanted; {TABLE_SIZE} are allowed")
        self.generation += 1
        self._max_size = size
        self._evict(size)

    def _evict(self, size: int) -> None:
        entries = self._entries
        gone = 0
        while self._size > size and gone < len(entries):
            name, value = entries[gone]
            self._size -= len(name) + len(value) + _ENTRY_OVERHEAD
            gone += 1
        del entries[:gone]


class Decoder:
    """Decodes the header blocks of one connection, in the order in which they came.

    Args:
        max_list_size: Bytes of names and values that a block may have, each field with 32 more; beyond that its
            fields are not kept, but the block still changes the dynamic table as it must.
    """

    __slots__ = ("_max_list_size", "_remembered", "_table")

    def __init__(self, max_list_size: int) -> None:
        self._max_list_size = max_list_size
        self._table = DynamicTable()
        self._remembered: dict[bytes, HeaderBlock] = {}

    def decode(self, block: bytes) -> HeaderBlock:
        """The fields of a block.

        Raises:
            HpackError: It is malformed.
        """
        known = self._remembered.get(block)
        if known is not None:
            return known
        generation = self._table.generation
        try:
            decoded = self._decode(block)
        except IndexError as error:
            raise HpackError("a header block is cut off") from error
        except huffman.HuffmanError as error:
            raise HpackError(str(error)) from error
        if self._table.generation != generation:
            self._remembered.clear()
        elif len(block) <= _REMEMBERED_BLOCK_SIZE:
            if len(self._remembered) >= _REMEMBERED_BLOCKS:
                self._remembered.clear()
            self._remembered[block] = decoded
        return decoded

    def _decode(self, block: bytes) -> HeaderBlock:
        table = self._table
        fields: list[Field] = []
        room = self._max_list_size
        position = 0
        begun = False
        while position < len(block):
            first = block[position]
            if first & 0xE0 == 0x20:
                if begun:
                    raise HpackError("the header table's size changes in the midst of a block")
                size, position = _integer(block, position, 5)
                table.resize(size)
                continue
            begun = True
            if first & 0x80:
                index, position = _integer(block, position, 7)
                field = table.field(index)
            else:
                field, position = self._literal(block, position, 6 if first & 0x40 else 4)
                if first & 0x40:
                    table.add(field)
            room -= len(field[0]) + len(field[1]) + _ENTRY_OVERHEAD
            if room >= 0:
                fields.append(field)
        return HeaderBlock(tuple(fields)) if room >= 0 else HeaderBlock((), too_large=True)

    def _literal(self, block: bytes, position: int, bits: int) -> tuple[Field, int]:
        index, position = _integer(block, position, bits)
        if index:
            name = self._table.field(index)[0]
        else:
            name, position = _string(block, position)
        value, position = _string(block, position)
        return (name, value), position


def _integer(block: bytes, position: int, bits: int) -> tuple[int, int]:
    """An integer with a prefix of ``bits``, and the position after it."""
    limit = (1 << bits) - 1
    value = block[position] & limit
    position += 1
    if value < limit:
        return value, position
    shift = 0
    while True:
        byte = block[position]
        position += 1
        value += (byte & 0x7F) << shift
        if not byte & 0x80:
            return value, position
        shift += 7
        if shift > 28 or value > _MAX_INTEGER:
            raise HpackError("an integer is too large")


def _string(block: bytes, position: int) -> tuple[bytes, int]:
    """A string literal, and the position after it."""
    is_coded = block[position] & 0x80
    length, start = _integer(block, position, 7)
    position = start + length
    if position > len(block):
        raise HpackError("a header block is cut off")
    data = block[start:position]
    if not is_coded:
        return data, position
    return huffman.decode_short(data) if length <= _SHORT_STRING else huffman.decode(data), position


def encode_integer(value: int, bits: int, first: int = 0) -> bytes:
    """``value`` with a prefix of ``bits``; ``first`` has what stands before the prefix in the first byte."""
    limit = (1 << bits) - 1
    if value < limit:
        return bytes((first | value,))
    encoded = bytearray((first | limit,))
    value -= limit
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def encode(fields: Iterable[Field]) -> bytes:
    """A header block that neither needs nor changes any dynamic table, so that it may be sent on any connection."""
    parts: list[bytes] = []
    for name, value in fields:
        index = _STATIC_FIELDS.get((name, value))
        if index is not None:
            parts.append(encode_integer(index, 7, 0x80))
            continue
        index = _STATIC_NAMES.get(name, 0)
        parts.append(encode_integer(index, 4))
        if not index:
            parts += (encode_integer(len(name), 7), name)
        parts += (encode_integer(len(value), 7), value)
    return b"".join(parts)
