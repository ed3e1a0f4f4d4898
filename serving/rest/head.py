"""What comes before the body of an HTTP request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Head:
    """Request line and headers, read. Requests whose heads have the same bytes share one, so nobody changes it.

    Attributes:
        method: In capital letters.
        target: Path and query, still percent-encoded.
        headers: Values by name in small letters; of a repeated header the values are joined by a comma.
        keep_alive: Whether the connection stays open after the answer.
        is_http_10: The caller speaks HTTP/1.0.
        length: Bytes of the body as announced, or None when nothing was announced.
        size: Bytes of target, names and values.
    """

    method: bytes
    target: bytes
    headers: Mapping[bytes, bytes]
    keep_alive: bool = True
    is_http_10: bool = False
    length: int | None = None
    size: int = 0
