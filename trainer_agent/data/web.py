"""Data over http and https, from servers that nobody vouches for.

Which address a connection goes to is checked where it is made: neither a name nor a redirection leads elsewhere.
"""

from __future__ import annotations

import asyncio
import itertools
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import urlsplit

import aiohttp

from tiercel.trainer_agent.data.addresses import elsewhere, is_public
from tiercel.trainer_agent.data.sources import file_name
from tiercel.trainer_agent.data.transfer import PIECE_BYTES, FetchError, Found

_CONNECT_SECONDS: Final = 30.0
_MAX_REDIRECTIONS: Final = 5
_TRY_AGAIN: Final = frozenset({408, 425, 429, 500, 502, 503, 504})


class Guard:
    """Makes sockets for connections to allowed addresses only."""

    def __init__(self, trusted: frozenset[tuple[str, int]]) -> None:
        self._trusted = trusted
        self.refused = ""

    def socket(self, info: Any) -> socket.socket:
        """A socket for a connection, as aiohttp's connector asks for it.

        Raises:
            OSError: The address is not allowed.
        """
        family, kind, protocol, _, place = info
        address, port = place[0], place[1]
        if (address, port) not in self._trusted and not is_public(address):
            self.refused = address
            raise OSError(f"{address} is no address of the internet")
        return socket.socket(family, kind, protocol)


class Web:
    """One file of a web server.

    Args:
        url: The file.
        is_trusted: Whether the operator trusts its host, wherever that is.
        silence_seconds: How long the server may say nothing.
    """

    def __init__(self, url: str, *, is_trusted: bool, silence_seconds: float) -> None:
        self._url = url
        self._is_trusted = is_trusted
        self._silence_seconds = silence_seconds

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[tuple[Found, Callable[[Callable[[bytes], None]], Any]]]:
        """What there is, and a function that hands it over piece by piece.

        Raises:
            FetchError: The server does not give it out.
        """
        guard = Guard(await self._trusted_places())
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS, sock_read=self._silence_seconds)
        try:
            async with (
                aiohttp.ClientSession(
                    connector=aiohttp.TCPConnector(socket_factory=guard.socket),
                    timeout=timeout,
                    auto_decompress=False,
                    headers={"Accept-Encoding": "identity", "User-Agent": "tiercel"},
                ) as session,
                session.get(self._url, max_redirects=_MAX_REDIRECTIONS) as response,
            ):
                _check(response)
                yield self._found(response), lambda write: _read(response, write)
        except (aiohttp.NonHttpUrlClientError, aiohttp.InvalidURL, aiohttp.TooManyRedirects) as error:
            raise FetchError("the URL, or where its server sends from there, is no place on the web") from error
        except aiohttp.ClientSSLError as error:
            raise FetchError(f"its server cannot be trusted: {error}") from error
        except (aiohttp.ClientError, TimeoutError) as error:
            if guard.refused:
                raise elsewhere(guard.refused) from error
            words = "its server says nothing" if isinstance(error, TimeoutError) else str(error)
            raise FetchError(words or type(error).__name__, again=True) from error

    async def _trusted_places(self) -> frozenset[tuple[str, int]]:
        if not self._is_trusted:
            return frozenset()
        parts = urlsplit(self._url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        try:
            found = await asyncio.get_running_loop().getaddrinfo(parts.hostname, port, type=socket.SOCK_STREAM)
        except OSError as error:
            raise FetchError(f"its host is not known ({error.strerror})", again=True) from error
        return frozenset((str(place[0]), port) for *_, place in found)

    def _found(self, response: aiohttp.ClientResponse) -> Found:
        headers = response.headers
        version = headers.get("ETag", "")
        if not version and "Last-Modified" in headers:
            version = f"{headers['Last-Modified']} {response.content_length}"
        size = -1 if response.content_length is None else response.content_length
        return Found(version[:1024], size, file_name(self._url))


def _check(response: aiohttp.ClientResponse) -> None:
    urls = [each.url for each in response.history] + [response.url]
    if any(before.scheme == "https" and after.scheme != "https" for before, after in itertools.pairwise(urls)):
        raise FetchError("its server sends from https to http, where anybody could change it")
    if response.status != 200:
        raise FetchError(f"its server answers {response.status} {response.reason}", again=response.status in _TRY_AGAIN)
    if response.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise FetchError("its server sends it compressed without being asked to")


async def _read(response: aiohttp.ClientResponse, write: Callable[[bytes], None]) -> None:
    """All of it; aiohttp holds the server to the length that it said."""
    async for piece in response.content.iter_chunked(PIECE_BYTES):
        write(piece)
