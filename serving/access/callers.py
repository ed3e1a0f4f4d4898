"""Who is at the other end of a connection, as far as the connection itself says so."""

from __future__ import annotations

import asyncio
import ipaddress
from dataclasses import dataclass
from typing import Any

from tiercel.core.trust.names import tenant_in
from tiercel.serving.connections.crowding import peer_of


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks.

    Attributes:
        peer: Whose address it is, for limits; see :func:`.peer_of`.
        is_local: Asks in the clear, from this machine.
        tenant: Whom its certificate names; empty for nobody.
    """

    peer: str = ""
    is_local: bool = False
    tenant: str = ""


NOBODY = Caller()


def caller_of(transport: asyncio.BaseTransport) -> Caller:
    """Who is at the other end; who a certificate names counts only by TLS, which has checked it."""
    address = transport.get_extra_info("peername")
    peer = peer_of(address)
    if transport.get_extra_info("sslcontext") is None:
        return Caller(peer, is_local=_is_loopback(address))
    return Caller(peer, tenant=_tenant_of(transport.get_extra_info("peercert")))


def _tenant_of(certificate: Any) -> str:
    """The tenant that a certificate names, as :meth:`ssl.SSLSocket.getpeercert` has it."""
    names = certificate.get("subjectAltName", ()) if isinstance(certificate, dict) else ()
    return tenant_in([str(value) for kind, value in names if kind == "URI"])


def _is_loopback(address: Any) -> bool:
    try:
        return ipaddress.ip_address(str(address[0]).partition("%")[0]).is_loopback
    except (ValueError, TypeError, IndexError):
        return False
