"""Asks a provider which keys it signs with: two documents over HTTP, each bounded, and nothing elsewhere."""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import aiohttp

from tiercel.broker.access.people.keys import ProviderKey, read_keys
from tiercel.core.errors import UnavailableError, wrong_field
from tiercel.core.trust.trust import is_loopback

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

logger = logging.getLogger(__name__)

FETCH_SECONDS = 5.0
"""For both documents together, names looked up and all."""
MAX_DOCUMENT_BYTES = 256 * 1024
_WELL_KNOWN = "/.well-known/openid-configuration"


class Provider:
    """Whoever people sign in at.

    Args:
        issuer: Its URL, as its tokens name it.
        algorithms: Those that its tokens may be signed by.

    Raises:
        InvalidSpecError: The URL cannot be a provider's.
    """

    def __init__(self, issuer: str, algorithms: Collection[str]) -> None:
        problem = _problem_of(issuer)
        if not problem and "?" in issuer:
            problem = "has more than a host and a path"
        if problem:
            raise wrong_field("oidc_issuer", f"{issuer[:200]!r} {problem}; give it as the provider's tokens name it")
        self.issuer = issuer
        self._is_local = issuer.startswith("http:")
        self._algorithms = algorithms

    async def fetch_keys(self) -> Mapping[str, ProviderKey]:
        """The keys that it signs with now, by their ids.

        Raises:
            UnavailableError: It does not answer, or with what cannot be used.
        """
        try:
            async with (
                asyncio.timeout(FETCH_SECONDS),
                aiohttp.ClientSession(
                    # Made each time: authorities of the system change while a broker lives.
                    connector=aiohttp.TCPConnector(ssl=ssl.create_default_context()),
                    auto_decompress=False,  # a bound on what is received is one on what is read
                    cookie_jar=aiohttp.DummyCookieJar(),
                    headers={"Accept": "application/json", "Accept-Encoding": "identity"},
                ) as session,
            ):
                about = await self._read(session, self.issuer.removesuffix("/") + _WELL_KNOWN)
                if about.get("issuer") != self.issuer:
                    raise _unusable(f"says that its issuer is {str(about.get('issuer'))[:200]!r}, not {self.issuer!r}")
                listing = await self._read(session, self._checked(about.get("jwks_uri")))
        except TimeoutError:
            raise _unusable(f"did not answer within {FETCH_SECONDS:g} s") from None
        except (aiohttp.ClientError, OSError, ValueError) as error:  # the last of a host that cannot be one
            raise _unusable(f"cannot be reached ({type(error).__name__}: {str(error)[:200]})") from error
        keys = read_keys(listing.get("keys"), self._algorithms)
        if not keys:
            raise _unusable("lists no key that can be used; see broker.log for the reason of each")
        return keys

    def _checked(self, address: object) -> str:
        """Where the keys are, if they may be asked for there."""
        problem = _problem_of(address) if isinstance(address, str) else "is missing"
        if not problem and not self._is_local and str(address).startswith("http:"):
            problem = "is not encrypted"
        if problem:
            raise _unusable(f"names an address for its keys (jwks_uri) that {problem}")
        return str(address)

    async def _read(self, session: aiohttp.ClientSession, address: str) -> dict[str, Any]:
        # To go where an answer points would be to ask whatever it names, in the broker's network.
        async with session.get(address, allow_redirects=False) as response:
            if response.status != 200:
                raise _unusable(f"answered {response.status} for {address}; nothing but 200 counts, and no redirect")
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


def _problem_of(address: str) -> str:
    """Why nobody may be asked there; empty if one may."""
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


def _unusable(what: str) -> UnavailableError:
    return UnavailableError(f"the provider {what}")
