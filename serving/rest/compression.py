"""Compressed request bodies: gzip and deflate, bounded against those that unpack to far more than they are."""

from __future__ import annotations

import asyncio
import zlib
from http import HTTPStatus

from tiercel.core.errors import CapacityExceededError, InvalidRequestError, TooLargeError
from tiercel.serving.rest.head import Head
from tiercel.serving.rest.messages import ACCEPTED_ENCODINGS, ByteBudget, HttpRefusedError, HttpRequest

_ZLIB_OR_GZIP = 32 + zlib.MAX_WBITS
_BARE = -zlib.MAX_WBITS
# What a byte of deflate can become at most (zlib's technical notes).
_LARGEST_RATIO = 1032


class Inflater:
    """Unpacks bodies."""

    def __init__(self, max_bytes: int, budget: ByteBudget) -> None:
        self._max_bytes = max_bytes
        self._budget = budget

    async def inflate(self, request: HttpRequest) -> None:
        """Replace a request's body with what is packed in it, and have the request account for its bytes.

        Raises:
            HttpRefusedError: It is packed in another way.
            InvalidRequestError: It is not what its header says.
            TooLargeError: It is over the limit once unpacked.
            CapacityExceededError: All connections together hold as much as they may.
        """
        encoding = request.headers[b"content-encoding"].lower()
        if encoding not in {b"gzip", b"x-gzip", b"deflate"}:
            raise HttpRefusedError(
                HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
                "bodies may be packed with gzip or deflate, one of them and once",
                ACCEPTED_ENCODINGS,
            )
        packed = bytes(request.body)
        room = min(self._max_bytes, len(packed) * _LARGEST_RATIO)
        if not self._budget.reserve(room):
            raise CapacityExceededError("the server holds as many request bodies as it may; try again in a moment")
        try:
            # Other requests come in between: this takes milliseconds per megabyte.
            body = await asyncio.to_thread(inflated, packed, encoding, self._max_bytes)
        except BaseException:
            self._budget.release(room)
            raise
        self._budget.release(room - len(body))
        request.reserved += len(body)
        request.body = body
        head = request.head
        headers = {name: value for name, value in head.headers.items() if name != b"content-encoding"}
        request.head = Head(head.method, head.target, headers, head.keep_alive, head.is_http_10, len(body), head.size)


def inflated(packed: bytes, encoding: bytes, max_bytes: int) -> bytes:
    """What is packed in ``packed``; blocks.

    Raises:
        InvalidRequestError: It is not what ``encoding`` says.
        TooLargeError: It is over ``max_bytes`` once unpacked.
    """
    # "deflate" means zlib's form, but some send it bare (RFC 9110, 8.4.1.2); the first byte of zlib's form tells.
    is_bare = encoding == b"deflate" and packed[:1] and packed[0] & 0x0F != zlib.DEFLATED
    unpacker = zlib.decompressobj(_BARE if is_bare else _ZLIB_OR_GZIP)
    try:
        body = unpacker.decompress(packed, max_bytes + 1)
    except zlib.error as error:
        raise InvalidRequestError(f"the body is not {encoding.decode('latin-1')}: {error}") from error
    if len(body) > max_bytes:
        raise TooLargeError(f"the request's body is over {max_bytes} bytes once it is unpacked")
    if not unpacker.eof or unpacker.unused_data:
        raise InvalidRequestError(f"the body is cut off, or more than one piece of {encoding.decode('latin-1')}")
    return body
