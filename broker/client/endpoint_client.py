"""Asks endpoints at one address, without a broker: what an application needs that has a key, or for public ones."""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Collection, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

from tiercel.broker.client.asking import Asking
from tiercel.broker.client.options import ClientOptions
from tiercel.broker.client.places import Place
from tiercel.core.errors import NotFoundError, TiercelError, UnavailableError, wrong_field
from tiercel.core.trust.trust import Trust, is_loopback

if TYPE_CHECKING:
    from tiercel.broker.client.inference import InferenceClient
    from tiercel.core.trust.pinning import Believed

# It becomes a part of a path.
_ENDPOINT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")


class EndpointClient(Asking):
    """Asks any endpoint of a cluster at the address of any of its nodes, or of a proxy; an async context manager.

    Every method raises :class:`~tiercel.core.errors.TiercelError` with a sentence for the user.

    Args:
        address: What ``tiercel endpoints`` shows under SERVING, ``host:port`` or ``https://host:port``.
        key: The endpoint's; None for what ``TIERCEL_KEY`` in the environment says, if anything.
        options: How long requests may take.
        trust: Who vouches for nodes on other machines, see :class:`~tiercel.broker.client.client.Client`. Where nothing
            is said, those whom the system believes in, as for a proxy with a certificate of its own.

    Raises:
        InvalidSpecError: It is no address, or one of another machine without encryption.
    """

    def __init__(
        self, address: str, *, key: str | None = None, options: ClientOptions | None = None, trust: Trust | None = None
    ) -> None:
        self._own_key = key
        self._shown(None)  # refused here rather than with the first request
        self._options = options or ClientOptions()
        self._place = OnePlace(address, Trust.from_environment(os.environ) if trust is None else trust)
        self._inference: InferenceClient | None = None

    async def __aenter__(self) -> Self:
        """Get ready; connects with the first request."""
        from tiercel.broker.client.inference import InferenceClient

        self._inference = InferenceClient(self._options, self._place)
        return self

    async def __aexit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """End the connections."""
        if self._inference is not None:
            await self._inference.close()
            self._inference = None

    def _asking(self) -> InferenceClient:
        if self._inference is None:
            raise TiercelError("The client is not open; use it in 'async with EndpointClient(...) as client:'.")
        return self._inference


class OnePlace:
    """One address, which is asked for every endpoint.

    Args:
        address: As :class:`EndpointClient` takes it.
        trust: Who vouches for whoever answers there.

    Raises:
        InvalidSpecError: As there.
    """

    def __init__(self, address: str, trust: Trust) -> None:
        self.url, self._dialled = _url_of(address)
        self._trust = trust
        self._believed: Believed | None = None
        self._context: ssl.SSLContext | None = None

    async def find(self, endpoint: str, silent: Collection[str] = ()) -> Place:
        """The address; whoever answers there is looked at, since it may be another node than before."""
        del silent  # there is no other
        if not _ENDPOINT.fullmatch(endpoint):
            raise NotFoundError(f"No endpoint is called {endpoint[:100]!r}: that is no name", field="endpoint")
        if self.url.startswith("https://") and self._trust:
            from tiercel.core.trust.servers import believe_server

            believed = await believe_server(self._dialled, self._trust)
            if believed != self._believed:
                self._believed, self._context = believed, _context(believed.roots)
        return Place(self.url)

    async def encryption(self, place: Place, *, has_key: bool) -> Mapping[str, Any]:
        """A context that believes those, and shows nothing."""
        del has_key
        if not place.url.startswith("https://"):
            return {}
        if self._context is None:
            self._context = _context(b"")
        name = self._believed.name if self._believed is not None else ""
        return {"ssl": self._context, **({"server_hostname": name} if name else {})}

    def forget_trust(self) -> None:
        """Nothing: whoever answers is looked at each time that the address is looked up."""


def _url_of(address: str) -> tuple[str, str]:
    """The URL that an address stands for, and ``host:port`` of it."""
    text = address.strip().rstrip("/")
    if "://" not in text:
        text = f"{'http' if is_loopback(text) else 'https'}://{text}"
    try:
        parts = urlsplit(text)
        port = parts.port or {"http": 80}.get(parts.scheme, 443)
    except ValueError:
        parts, port = urlsplit(""), 0
    extra = parts.username is not None or parts.path or parts.query or parts.fragment
    if parts.scheme not in {"http", "https"} or not parts.hostname or extra:
        raise wrong_field(
            "address", f"{address!r} is none; give HOST:PORT or https://HOST:PORT, as 'tiercel endpoints' shows it"
        )
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    dialled = f"{host}:{port}"
    if parts.scheme == "http" and not is_loopback(dialled):
        raise wrong_field(
            "address", f"{address} is another machine, to which nothing is sent unencrypted; give https://{dialled}"
        )
    return f"{parts.scheme}://{dialled}", dialled


def _context(roots: bytes) -> ssl.SSLContext:
    """Believes in these authorities, PEM, or in those of the system where there are none."""
    try:
        context = ssl.create_default_context(cadata=roots.decode() or None)
    except (ssl.SSLError, UnicodeDecodeError) as error:
        raise UnavailableError(f"The authority's certificates are of no use ({error}).") from error
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    return context
