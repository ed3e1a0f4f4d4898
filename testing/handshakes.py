"""Both ends of a TLS handshake in memory, by OpenSSL: without sockets, threads or a loop."""

from __future__ import annotations

import contextlib
import ssl
from dataclasses import dataclass

from tiercel.core.trust.certificates import Identity
from tiercel.core.trust.contexts import load_identity


@dataclass(frozen=True, slots=True)
class Shown:
    """One end."""

    identity: Identity | None  # what it shows; None for nothing
    roots: bytes  # whom it believes, PEM; empty for everybody
    context: ssl.SSLContext | None = None  # decides instead of both, or None

    def made(self, protocol: int) -> ssl.SSLContext:
        """Its context."""
        if self.context is not None:
            self.context.check_hostname = False
            return self.context
        context = ssl.SSLContext(protocol)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.check_hostname = False
        context.verify_mode = ssl.CERT_REQUIRED if self.roots else ssl.CERT_NONE
        if self.roots:
            context.load_verify_locations(cadata=self.roots.decode())
        if self.identity is not None:
            load_identity(context, self.identity)
        return context


def shake_hands(server: Shown, caller: Shown) -> str:
    """The version that both agree on, or why one of them does not let the other in."""
    to_server, to_caller = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        caller.made(ssl.PROTOCOL_TLS_CLIENT).wrap_bio(to_caller, to_server),
        server.made(ssl.PROTOCOL_TLS_SERVER).wrap_bio(to_server, to_caller, server_side=True),
    )
    try:
        for _ in range(4):
            for end in ends:
                with contextlib.suppress(ssl.SSLWantReadError):
                    end.do_handshake()
    except ssl.SSLError as error:
        return str(error)
    return ends[1].version() or ""
