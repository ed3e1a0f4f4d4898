"""What comes before the body of an HTTP request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Head:
    """Request line and headers, read. Requests whose heads have the same bytes share one, so nobody changes it."""

    method: bytes  # in capital letters
    target: bytes  # path and query, still percent-encoded
    # Values by name in small letters; of a repeated header the values are joined by a comma.
    headers: Mapping[bytes, bytes]
    keep_alive: bool = True  # whether the connection stays open after the answer
    is_http_10: bool = False  # the caller speaks HTTP/1.0
    length: int | None = None  # bytes of the body as announced, or None when nothing was announced
    size: int = 0  # bytes of target, names and values
