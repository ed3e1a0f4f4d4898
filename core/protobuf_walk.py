"""A walk over a protocol buffer in a file, field by field: what is stepped over is not read, and nothing is trusted."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

MAX_NAME_BYTES: Final = 256


class NoMessageError(ValueError):
    """These bytes are no protocol buffer of this kind, or say more than is read."""


@dataclass(frozen=True, slots=True)
class Message:
    """A part of a file that is a message."""

    data: mmap.mmap
    start: int
    end: int

    def fields(self) -> Iterator[tuple[int, int | Message]]:
        """Numbers of fields, and what they hold: a number or a part of the file; others are left out."""
        return ((number, value) for number, value, _ in self.places() if value is not None)

    def places(self) -> Iterator[tuple[int, int | Message | None, slice]]:
        """The same with others as None, and where each field lies in the file."""
        at = self.start
        while at < self.end:
            begin = at
            key, at = self._varint(at)
            value: int | Message | None = None
            match key & 7:
                case 0:
                    value, at = self._varint(at)
                case 1:
                    at += 8
                case 2:
                    size, inner = self._varint(at)
                    at = inner + size
                    if at > self.end:
                        raise NoMessageError
                    value = Message(self.data, inner, at)
                case 5:
                    at += 4
                case _:
                    raise NoMessageError
            yield key >> 3, value, slice(begin, at)

    def parts(self, number: int) -> Iterator[Message]:
        """What the fields of this number hold, where that is a part of the file."""
        return (value for field, value in self.fields() if field == number and isinstance(value, Message))

    def number(self, number: int) -> int | None:
        """What the last field of this number holds, where that is a number."""
        found = [value for field, value in self.fields() if field == number and isinstance(value, int)]
        return found[-1] if found else None

    def text(self, number: int) -> str:
        """What the last field of this number holds, as text."""
        name = ""
        for part in self.parts(number):
            if part.end - part.start > MAX_NAME_BYTES:
                raise NoMessageError
            name = self.data[part.start : part.end].decode()
        return name

    def _varint(self, at: int) -> tuple[int, int]:
        value = shift = 0
        while at < self.end and shift < 64:
            byte = self.data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value, at
            shift += 7
        raise NoMessageError


def field_of(number: int, content: bytes) -> bytes:
    """A field that holds so many bytes, as it is written."""
    return _varint_of(number << 3 | 2) + _varint_of(len(content)) + content


def _varint_of(value: int) -> bytes:
    written = bytearray()
    while value >= 0x80:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*written, value))
