"""From the bytes of a stream's body to gRPC's messages, within limits. No I/O."""

from __future__ import annotations

from tiercel.serving.grpc.server.wire import PREFIX, CallError, Status, decompress, too_large
from tiercel.serving.http2.streams import Budget


class Assembler:
    """Collects the messages of one call.

    Args:
        max_message_bytes: Largest message, compressed or not.
        compressed: Whether messages may be compressed.
        budget: Bytes that all calls together may hold of messages that are not whole yet.
    """

    __slots__ = ("_budget", "_compressed", "_is_compressed", "_max", "_missing", "_parts", "_prefix", "_reserved")

    def __init__(self, max_message_bytes: int, compressed: bool, budget: Budget) -> None:
        self._max = max_message_bytes
        self._compressed = compressed
        self._budget = budget
        self._prefix = b""
        self._parts: list[bytes] = []
        self._missing = -1
        self._is_compressed = False
        self._reserved = 0

    @property
    def is_between_messages(self) -> bool:
        """Whether no message has begun."""
        return self._missing < 0 and not self._prefix

    def feed(self, data: bytes) -> list[bytes]:
        """The messages that ``data`` completes.

        Raises:
            CallError: They are malformed or too large, or there is no room for them now.
        """
        messages: list[bytes] = []
        while True:
            if self._missing < 0:
                data = self._prefix + data
                if len(data) < PREFIX.size:
                    self._prefix = data
                    return messages
                self._begin(*PREFIX.unpack_from(data))
                data = data[PREFIX.size :]
            part, data = data[: self._missing], data[self._missing :]
            self._missing -= len(part)
            self._parts.append(part)
            if self._missing:
                self._reserve(len(part))
                return messages
            messages.append(self._take())

    def forget(self) -> None:
        """Give up what has not arrived as a whole."""
        self._budget.release(self._reserved)
        self._reserved = 0
        self._parts.clear()

    def _begin(self, flag: int, length: int) -> None:
        if flag > 1 or (flag and not self._compressed):
            raise CallError(Status.INTERNAL, "a message's compressed flag does not fit the call's grpc-encoding")
        if length > self._max:
            raise too_large(self._max)
        self._prefix = b""
        self._missing = length
        self._is_compressed = bool(flag)

    def _reserve(self, size: int) -> None:
        if not self._budget.reserve(size):
            raise no_room()
        self._reserved += size

    def _take(self) -> bytes:
        message = b"".join(self._parts)
        self.forget()
        self._missing = -1
        return decompress(message, self._max) if self._is_compressed else message


def no_room() -> CallError:
    """The error for a message that the server cannot hold now."""
    return CallError(
        Status.RESOURCE_EXHAUSTED, "the server holds as many request bodies as it may; try again in a moment"
    )
