"""Asks a provider over HTTP: encrypted, with every answer bounded, and nobody to whom an answer points elsewhere."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import aiohttp

from tiercel.core.errors import UnavailableError, wrong_field
from tiercel.core.trust.trust import is_loopback

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

FETCH_SECONDS = 5.0
"""For all that is asked at one time, names looked up and all."""
MAX_DOCUMENT_BYTES = 256 * 1024
_WELL_KNOWN = "/.well-known/openid-configuration"
# What a form may be answered with: what was asked for, or why not.
_ANSWERS = frozenset({200, 400, 401, 403, 429})


class ProviderSite:
    """Where a provider answers.

    Args:
        issuer: Its URL, as its tokens name it.

    Raises:
        InvalidSpecError: The URL cannot be a provider's.
    """

    def __init__(self, issuer: str) -> None:
        problem = problem_of(issuer)
        if not problem and {"?", "#"} & set(issuer):
            problem = "has more than a host and a path"
        if problem:
            raise wrong_field("oidc_issuer", f"{issuer[:200]!r} {problem}; give it as the provider's tokens name it")
        self.issuer = issuer

    @contextlib.asynccontextmanager
    async def asking(self) -> AsyncIterator[Asking]:
        """For a few questions at one time.

        Raises:
            UnavailableError: On leaving: it did not answer, or with what cannot be used.
        """
        try:
            async with (
                asyncio.timeout(FETCH_SECONDS),
                aiohttp.ClientSession(
                    connector=aiohttp.TCPConnector(ssl=self._authorities()),
                    auto_decompress=False,  # a bound on what is received is one on what is read
                    cookie_jar=aiohttp.DummyCookieJar(),
                    headers={"Accept": "application/json", "Accept-Encoding": "identity"},
                ) as session,
            ):
                yield Asking(self.issuer, session)
        except TimeoutError:
            raise _unusable(f"did not answer within {FETCH_SECONDS:g} s") from None
        except (aiohttp.ClientError, OSError, ValueError) as error:  # the last of a host that cannot be one
            raise _unusable(f"cannot be reached ({type(error).__name__}: {str(error)[:200]})") from error

    def _authorities(self) -> ssl.SSLContext | bool:
        # Read anew each time: those of the system change while a broker lives.
        return ssl.create_default_context() if self.issuer.startswith("https:") else True


class Asking:
    """Questions to a provider; errors are those of :meth:`ProviderSite.asking`.

    Args:
        issuer: Its URL.
    """

    def __init__(self, issuer: str, session: aiohttp.ClientSession) -> None:
        self._issuer = issuer
        self._session = session

    async def about(self) -> Mapping[str, Any]:
        """What it says of itself."""
        about = await self.read(self._issuer.removesuffix("/") + _WELL_KNOWN)
        if about.get("issuer") != self._issuer:
            raise _unusable(f"says that its issuer is {str(about.get('issuer'))[:200]!r}, not {self._issuer!r}")
        return about

    def address_in(self, about: Mapping[str, Any], name: str) -> str:
        """An address that it names, if it may be asked there."""
        address = about.get(name)
        problem = problem_of(address) if isinstance(address, str) else "is missing"
        if not problem and not self._issuer.startswith("http:") and str(address).startswith("http:"):
            problem = "is not encrypted"
        if problem:
            raise _unusable(f"names an address ({name}) that {problem}")
        return str(address)

    async def read(self, address: str) -> Mapping[str, Any]:
        """A document."""
        # To go where an answer points would be to ask whatever it names, in the broker's network.
        async with self._session.get(address, allow_redirects=False) as response:
            if response.status != 200:
                raise _unusable(f"answered {response.status} for {address}; nothing but 200 counts, and no redirect")
            return await _document(response, address)

    async def send(self, address: str, form: Mapping[str, str]) -> Mapping[str, Any]:
        """The answer to a form; its ``error`` says why there is nothing else in it."""
        async with self._session.post(address, data=form, allow_redirects=False) as response:
            if response.status not in _ANSWERS:
                raise _unusable(f"answered {response.status} for {address}")
            document = await _document(response, address)
        return document if response.status == 200 or "error" in document else {"error": f"status {response.status}"}


def problem_of(address: str) -> str:
    """Why nobody may be asked at an address; empty if one may."""
    try:
        parts = urlsplit(address)
        host = parts.netloc if parts.port is not None else f"{parts.netloc}:0"
    except ValueError:
        return "is no URL"
    if not parts.hostname or parts.scheme not in {"https", "http"}:
        return "is no https:// URL"
    if parts.username is not None or parts.fragment or not address.isascii() or not address.isprintable():
        return "has more than a host, a path and a query"
    if parts.scheme == "http" and not is_loopback(host):
        return "is not encrypted: http is for this machine alone"
    return ""


async def _document(response: aiohttp.ClientResponse, address: str) -> Mapping[str, Any]:
    if response.headers.get("Content-Encoding", "identity") != "identity":
        raise _unusable(f"compressed its answer for {address}, which was not asked for")
    content = bytearray()
    async for piece in response.content.iter_any():
        content += piece
        if len(content) > MAX_DOCUMENT_BYTES:
            raise _unusable(f"answered with more than {MAX_DOCUMENT_BYTES} bytes for {address}")
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        raise _unusable(f"answered with what is no JSON for {address}") from None
    if not isinstance(document, dict):
        raise _unusable(f"answered with what is no JSON object for {address}")
    return document


def _unusable(what: str) -> UnavailableError:
    return UnavailableError(f"the provider {what}")
