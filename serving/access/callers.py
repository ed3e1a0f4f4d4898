"""Who is at the other end of a connection, as far as the connection itself says so."""

from __future__ import annotations

import asyncio
import ipaddress
from dataclasses import dataclass
from typing import Any

from tiercel.core.trust.names import node_in, tenant_in
from tiercel.serving.connections.crowding import peer_of


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks."""

    peer: str = ""  # whose address it is, for limits; see :func:`.peer_of`
    is_local: bool = False  # asks in the clear, from this machine
    tenant: str = ""  # whom its certificate names; empty for nobody
    node: str = ""  # which node its certificate names; empty for none


NOBODY = Caller()
_LOCAL = "local"
_TENANT = "tenant:"


def caller_of(transport: asyncio.BaseTransport) -> Caller:
    """Who is at the other end; who a certificate names counts only by TLS, which has checked it."""
    address = transport.get_extra_info("peername")
    peer = peer_of(address)
    if transport.get_extra_info("sslcontext") is None:
        return Caller(peer, is_local=_is_loopback(address))
    names = _names_of(transport.get_extra_info("peercert"))
    return Caller(peer, tenant=tenant_in(names), node=node_in(names))


def handed_on_for(caller: Caller) -> str:
    """How another server is told who asks, where a request is handed on to it; empty for nobody."""
    if caller.is_local:
        return _LOCAL
    return _TENANT + caller.tenant if caller.tenant else ""


def handed_on_by(said: str) -> Caller:
    """Who asks, as a server says that is to be believed."""
    if said.startswith(_TENANT):
        return Caller(tenant=said.removeprefix(_TENANT))
    return Caller(is_local=said == _LOCAL)


def _names_of(certificate: Any) -> list[str]:
    """What a certificate names, as :meth:`ssl.SSLSocket.getpeercert` has it."""
    names = certificate.get("subjectAltName", ()) if isinstance(certificate, dict) else ()
    return [str(value) for kind, value in names if kind == "URI"]


def _is_loopback(address: Any) -> bool:
    try:
        return ipaddress.ip_address(str(address[0]).partition("%")[0]).is_loopback
    except (ValueError, TypeError, IndexError):
        return False
