"""gRPC calls between servers: the message goes as it is in the body of a request over REST, and so does the answer.

That keeps one kind of connection between servers; status, message and details of the call are headers of the answer.
"""

from __future__ import annotations

import asyncio
import base64
import struct
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol

PATH: Final = "/v2/between/"
"""Before the name of a method."""
_STATUS: Final = b"tiercel-grpc-status"
_MESSAGE: Final = b"tiercel-grpc-message"
_DETAILS: Final = b"tiercel-grpc-details"
_SEVERAL: Final = b"tiercel-grpc-several"
_MOST_CHARACTERS: Final = 1000
_LENGTH: Final = struct.Struct(">I")
_CODES: Final = range(17)
_FAILURES: Final = frozenset({500, 502, 503})
_CALL_FAILURES: Final = frozenset({b"2", b"13", b"14"})  # UNKNOWN, INTERNAL, UNAVAILABLE
_FULL: Final = b"8"  # RESOURCE_EXHAUSTED


@dataclass(frozen=True, slots=True)
class CallAnswer:
    """How a call ended."""

    status: int = 0  # gRPC's status code
    message: str = ""  # what is wrong; empty for nothing
    details: bytes = b""  # a ``google.rpc.Status``, or empty
    body: bytes = b""  # the message that answers, where nothing is wrong
    before: tuple[bytes, ...] = ()  # messages before it, of a stream's request that has several answers

    @property
    def content(self) -> bytes:
        """The body of the answer between servers: the message, or each of several after its length."""
        if not self.before:
            return self.body
        return b"".join(_LENGTH.pack(len(message)) + message for message in (*self.before, self.body))

    def headers(self) -> bytes:
        """Whole lines that say all but the body."""
        lines = b"%b: %d\r\n" % (_STATUS, self.status)
        if self.before:
            lines += b"%b: 1\r\n" % _SEVERAL
        if self.message:
            text = urllib.parse.quote(self.message[:_MOST_CHARACTERS], errors="replace").encode()
            lines += b"%b: %b\r\n" % (_MESSAGE, text)
        if self.details:
            lines += b"%b: %b\r\n" % (_DETAILS, base64.b64encode(self.details))
        return lines


def read_answer(headers: Mapping[bytes, bytes], body: bytes) -> CallAnswer | None:
    """What another server answered to a call; None where that makes no sense."""
    status = headers.get(_STATUS, b"")
    if not status.isdigit() or len(status) > 2 or int(status) not in _CODES:
        return None
    try:
        details = base64.b64decode(headers.get(_DETAILS, b""), validate=True)
        *before, last = _messages(body) if _SEVERAL in headers else (body,)
    except ValueError:
        return None
    message = urllib.parse.unquote(headers.get(_MESSAGE, b"").decode("latin-1"), errors="replace")
    return CallAnswer(int(status), message[:_MOST_CHARACTERS], details, last, tuple(before))


def _messages(content: bytes) -> tuple[bytes, ...]:
    """What :attr:`CallAnswer.content` holds of several messages; raises ValueError where it is cut off."""
    messages: list[bytes] = []
    end = 0
    while end < len(content):
        begin = end + _LENGTH.size
        if begin > len(content):
            raise ValueError("a length is cut off")
        end = begin + _LENGTH.unpack_from(content, end)[0]
        if end > len(content):
            raise ValueError("a message is cut off")
        messages.append(content[begin:end])
    return tuple(messages)


def is_failure(status: int, headers: Mapping[bytes, bytes]) -> bool:
    """Whether an answer is no answer for a reason that is its server's: it is full, leaves, or is broken.

    What its callers ask in a wrong way, too often, or with too little time says nothing of a server.
    """
    call = headers.get(_STATUS)
    if call is None:
        return status in _FAILURES
    # A key's rate, which is the caller's, comes with details of when to ask again.
    return call in _CALL_FAILURES or (call == _FULL and not headers.get(_DETAILS))


class Cancellable(Protocol):
    """Work that nobody may want any more."""

    def cancel(self) -> None:
        """Do not answer any more."""


class Handed:
    """A request that is being handed on, as whoever waits for it sees it."""

    def __init__(self) -> None:
        self._task: asyncio.Task[object] | None = None
        self._instead: Cancellable | None = None
        self._is_cancelled = False

    def cancel(self) -> None:
        """Nobody waits any more: the other node learns of it as its connection ends."""
        self._is_cancelled = True
        if self._instead is not None:
            self._instead.cancel()
        elif self._task is not None:
            self._task.cancel()

    def go_on_with(self, work: Cancellable | None) -> None:
        """It is done here after all."""
        self._instead, self._task = work, None

    def begin(self) -> bool:
        """Called by the task that does it; whether anybody still waits."""
        self._task = asyncio.current_task()
        return not self._is_cancelled
