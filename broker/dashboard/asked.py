"""What was asked: the parts of a request, each checked and bounded."""

from __future__ import annotations

import asyncio
import json
import re
from typing import TYPE_CHECKING, Any

from tiercel.core.addresses import join_address
from tiercel.core.errors import DeadlineExceededError, InvalidRequestError, TooLargeError

if TYPE_CHECKING:
    from aiohttp import StreamReader, web

MAX_BODY_BYTES = 64 * 1024
BODY_SECONDS = 10.0
# A provider's token is the longest that anybody sends.
MAX_WORDS_CHARACTERS = 8 * 1024
# JSON can say them, and they are no characters.
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_MOST = 2**31 - 1


class Asked:
    """A request.

    Args:
        request: As it came.
        body: Its body.
    """

    def __init__(self, request: web.Request, body: bytes) -> None:
        self._request = request
        self.body = body
        self._fields: dict[str, Any] | None = None

    def part(self, name: str) -> str:
        """A part of the path."""
        return self._request.match_info[name]

    def header(self, name: str) -> str:
        """A header; empty where it is missing."""
        return self._request.headers.get(name, "")

    def text(self, name: str) -> str:
        """A parameter of the query; empty where it is missing."""
        return self._request.query.get(name, "")

    def number(self, name: str, default: int, most: int) -> int:
        """A parameter that is a whole number from 1 on; the most there may be where it is more.

        Raises:
            InvalidRequestError: It is none.
        """
        text = self.text(name)
        if not text:
            return default
        if not (text.isascii() and text.isdigit() and len(text) <= 12 and int(text)):
            raise InvalidRequestError(f"{name}: {text[:40]!r} is no whole number from 1 on", field=name)
        return min(int(text), most)

    def field(self, name: str) -> Any:
        """A field of the body; None where it is missing.

        Raises:
            InvalidRequestError: The body is no JSON object.
        """
        if self._fields is None:
            self._fields = _object_of(self.body)
        return self._fields.get(name)

    def whole(self, name: str) -> int:
        """A field of the body that is a whole number.

        Raises:
            InvalidRequestError: It is none.
        """
        value = self.field(name)
        if isinstance(value, bool) or not isinstance(value, int) or abs(value) > _MOST:
            raise InvalidRequestError(f"{name}: give a whole number", field=name)
        return value

    def count(self, name: str) -> int:
        """A field of the body that is a whole number from 0 on; 0 where it is missing.

        Raises:
            InvalidRequestError: It is none.
        """
        value = 0 if self.field(name) is None else self.whole(name)
        if value < 0:
            raise InvalidRequestError(f"{name}: is less than 0", field=name)
        return value

    def flag(self, name: str) -> bool:
        """A field of the body that is true or false; false where it is missing.

        Raises:
            InvalidRequestError: It is neither.
        """
        value = self.field(name)
        if not isinstance(value, bool | None):
            raise InvalidRequestError(f"{name}: is neither true nor false", field=name)
        return bool(value)

    def words(self, name: str) -> str:
        """A field of the body that is text; empty where it is missing.

        Raises:
            InvalidRequestError: It is none.
        """
        value = self.field(name) or ""
        if not isinstance(value, str) or len(value) > MAX_WORDS_CHARACTERS or _LONE_SURROGATE.search(value):
            raise InvalidRequestError(f"{name}: is no text of up to {MAX_WORDS_CHARACTERS} characters", field=name)
        return value


async def read_body(request: web.Request, most: int = MAX_BODY_BYTES) -> bytes:
    """The body of a request.

    Raises:
        TooLargeError: It is larger than may be.
        DeadlineExceededError: It does not come.
    """
    try:
        async with asyncio.timeout(BODY_SECONDS):
            return await body_of(request.content, most)
    except TimeoutError:
        raise DeadlineExceededError(f"the body did not come within {BODY_SECONDS:g} s; send it again") from None


async def body_of(stream: StreamReader, most: int) -> bytes:
    """All of a stream.

    Raises:
        TooLargeError: It is more than may be.
    """
    found = bytearray()
    async for piece in stream.iter_any():
        found += piece
        if len(found) > most:
            raise TooLargeError(f"these are more than {most} bytes; send, or ask for, less")
    return bytes(found)


def peer_of(request: web.Request) -> str:
    """Where a request comes from, as gRPC writes it."""
    found = request.transport.get_extra_info("peername") if request.transport is not None else None
    if not found:
        return ""
    return f"{'ipv6' if ':' in found[0] else 'ipv4'}:{join_address(str(found[0]), int(found[1]))}"


def _object_of(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body or b"{}")
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise InvalidRequestError("the body is no JSON object; send one, such as {}")
    return found
