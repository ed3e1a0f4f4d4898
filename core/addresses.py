"""Addresses as text, ``HOST:PORT`` with an IPv6 address in brackets: the one place that reads and writes them."""

from __future__ import annotations

import ipaddress
import re
import socket
from typing import Final
from urllib.parse import unquote

from tiercel.core.errors import UnavailableError, wrong_field

EVERYWHERE: Final = ("0.0.0.0", "::")  # noqa: S104 - compared
"""What stands for all addresses of a machine: those of IPv4, or those of both."""
HOST_NAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9.])?")
"""A name of a host as people have them, underscores among them, which DNS itself does not take."""
_MOST_PORT: Final = 65_535


def join_address(host: str, port: int) -> str:
    """``host:port``, of an IPv6 address ``[host]:port``."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def split_address(text: str) -> tuple[str, int]:
    """Host, without brackets, and port.

    Raises:
        ValueError: It is no address; the message says why.
    """
    host, _, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
        ipaddress.IPv6Address(host.partition("%")[0])
    elif ":" in host:
        raise ValueError(f"{text!r} has an IPv6 address without brackets; write [{host}]:{port}")
    if not host or not (port.isascii() and port.isdigit() and int(port) <= _MOST_PORT):
        raise ValueError(f"{text!r} is not HOST:PORT")
    return host, int(port)


def require_host(field: str, text: str) -> str:
    """A host as others reach it, a name or an address alone; returns it.

    Args:
        field: Which option it was given with, for the sentence.
        text: What was given.

    Raises:
        InvalidSpecError: It has brackets or a port, stands for all addresses, or is of one link alone.
    """
    try:
        address = ipaddress.ip_address(text)
        is_fit = text not in EVERYWHERE and not address.is_link_local
    except ValueError:
        is_fit = HOST_NAME.fullmatch(text) is not None
    if not is_fit:
        raise wrong_field(
            field,
            f"{text!r} is not an address at which others reach this machine; give a name, or an IPv4 or IPv6 address, "
            "alone: without brackets and port, and no '*'",
        )
    return text


def port_in(text: str) -> int:
    """The port of an address; 0 where it is none."""
    try:
        return split_address(text)[1]
    except ValueError:
        return 0


def family_of(host: str) -> socket.AddressFamily:
    """The kind of socket that an address takes."""
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def require_own(host: str) -> None:
    """Check that one can listen at an address.

    Raises:
        UnavailableError: This machine has no such address.
    """
    with socket.socket(family_of(host)) as probe:
        try:
            probe.bind((host, 0))
        except OSError:
            message = f"{host} is no address of this machine; give one that 'ip address' lists."
            raise UnavailableError(message) from None


def reached_here(listening: str) -> str:
    """An address of this machine at which it reaches what listens at ``listening``."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(listening, listening)  # noqa: S104 - compared


def caller_at(peer: str) -> str:
    """The address of who calls, of what gRPC says of it: ``ipv4:127.0.0.1:4242``, ``ipv6:%5B::1%5D:4242``."""
    try:
        host, port = split_address(unquote(peer.partition(":")[2]))
    except ValueError:
        return peer
    return join_address(host.partition("%")[0], port)


def network_of(host: str) -> str:
    """Who has an address: of IPv6 the network of 64 bits that one customer gets, else the address itself."""
    try:
        parsed = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(parsed, ipaddress.IPv4Address):
        return host
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return host if parsed.is_loopback else str(ipaddress.IPv6Network((parsed, 64), strict=False))
