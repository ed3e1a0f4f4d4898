"""The sockets on which a server listens, opened apart from it so that it can hand them to the process that follows."""

from __future__ import annotations

import socket

_BACKLOG = 1024


def open_listener(host: str, port: int) -> socket.socket:
    """A socket that listens.

    Args:
        host: Address or name; of a name with several addresses an IPv4 one is taken.
        port: Port; 0 for any free one.

    Raises:
        OSError: The address is not free, or not of this machine.
    """
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, kind, protocol, _, address = min(found, key=lambda each: each[0] is not socket.AF_INET)
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family is socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    return listener


def port_of(listener: socket.socket) -> int:
    """The port it listens on."""
    port: int = listener.getsockname()[1]
    return port
