"""Header blocks as they arrive: without padding and priority, in one frame or in several."""

from __future__ import annotations

from tiercel.serving.http2 import frames
from tiercel.serving.http2.frames import ConnectionFailedError

_PRIORITY_BYTES = 5
INTERRUPTED = "a header block is interrupted"


def part_of(flags: int, payload: bytes) -> bytes:
    """What a HEADERS frame has of a block.

    Raises:
        ConnectionFailedError: Its padding or its priority does not fit in.
    """
    if not flags & (frames.PADDED | frames.HAS_PRIORITY):
        return payload
    payload = frames.without_padding(flags, payload)
    if not flags & frames.HAS_PRIORITY:
        return payload
    if len(payload) < _PRIORITY_BYTES:
        raise ConnectionFailedError(frames.FRAME_SIZE_ERROR, "HEADERS is too short for its priority")
    return payload[_PRIORITY_BYTES:]


class PartialBlock:
    """A header block whose end has not arrived.

    Args:
        flags: Of the HEADERS frame that began it.
        stream: Number of its stream.
        most_bytes: How large it may become.
    """

    __slots__ = ("_most_bytes", "_parts", "flags", "stream")

    def __init__(self, flags: int, stream: int, most_bytes: int) -> None:
        self.flags = flags
        self.stream = stream
        self._most_bytes = most_bytes
        self._parts = bytearray()

    def extend(self, part: bytes) -> None:
        """More of it arrived.

        Raises:
            ConnectionFailedError: It is too large now.
        """
        self._parts += part
        if len(self._parts) > self._most_bytes:
            raise ConnectionFailedError(frames.ENHANCE_YOUR_CALM, "a header block is too large")

    def __bytes__(self) -> bytes:
        return bytes(self._parts)
