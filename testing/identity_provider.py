"""A stand-in OpenID Connect provider: real tokens, signed by real keys, which it lists over real HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from joserfc import jws, jwt
from joserfc.jwk import ECKey, RSAKey

AUDIENCE = "tiercel"
ABOUT, KEYS = "/.well-known/openid-configuration", "/keys"
Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass
class IdentityProvider:
    """Signs tokens, and says with which keys."""

    port: int = 0  # where it listens, on 127.0.0.1
    scheme: str = "http"  # how it is asked
    # What it signs with; its id is ``kid`` of its parameters.
    key: ECKey | RSAKey = field(default_factory=lambda: new_key("first"))
    listed: list[Any] = field(default_factory=list)  # what it lists; anything
    about: dict[str, Any] = field(default_factory=dict)  # what it says of itself besides
    answers: dict[str, Answer] = field(default_factory=dict)  # what it does instead when a path is asked for
    asked: Counter[str] = field(default_factory=Counter)  # how often each path was
    now: Callable[[], float] = time.time  # seconds since the Unix epoch

    def __post_init__(self) -> None:
        self.listed = self.listed or [self.key.as_dict(private=False)]

    @property
    def issuer(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}"

    def rotate(self, key_id: str) -> None:
        """From now on sign with another key, and list no other."""
        self.key = new_key(key_id)
        self.listed = [self.key.as_dict(private=False)]

    def claims(self, subject: str = "ann", *, seconds: float = 300.0, **changes: Any) -> dict[str, Any]:
        """What a token says; None takes a claim out."""
        now = int(self.now())
        said = {"iss": self.issuer, "aud": AUDIENCE, "sub": subject, "iat": now, "exp": now + seconds, **changes}
        return {name: value for name, value in said.items() if value is not None}

    def token(
        self, subject: str = "ann", *, key: Any = None, header: dict[str, Any] | None = None, **claims: Any
    ) -> str:
        """A token, signed."""
        key = key or self.key
        algorithm = "ES256" if isinstance(key, ECKey) else "RS256"
        written = {"alg": algorithm, "kid": key.kid, **(header or {})}
        registry = jws.JWSRegistry(algorithms=[written["alg"]], strict_check_header=False)
        return jwt.encode(written, self.claims(subject, **claims), key, registry=registry)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.asked[request.path] += 1
        if request.path in self.answers:
            return await self.answers[request.path](request)
        if request.path == ABOUT:
            return web.json_response({"issuer": self.issuer, "jwks_uri": f"{self.issuer}{KEYS}", **self.about})
        return web.json_response({"keys": self.listed})


def new_key(key_id: str) -> ECKey:
    return ECKey.generate_key("P-256", {"kid": key_id, "use": "sig"}, private=True)


@contextlib.asynccontextmanager
async def identity_provider(encryption: ssl.SSLContext | None = None) -> AsyncIterator[IdentityProvider]:
    """One that answers, for as long as this is entered; by TLS if it is told how."""
    provider = IdentityProvider(scheme="http" if encryption is None else "https")
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", provider.handle)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=encryption)
    await site.start()
    provider.port = runner.addresses[0][1]
    try:
        yield provider
    finally:
        await runner.cleanup()


async def hang(_: web.Request) -> web.StreamResponse:
    """Never answer."""
    await asyncio.Event().wait()
    raise AssertionError
