"""Names by which callers may address the server.

A web page can have its own name resolve to this machine, and then asks us as if we were its server (DNS rebinding). Its
requests still carry that name as ``Host``. An address in it is nobody's name, so all addresses are fine, and so are the
names of nodes' certificates, below a domain that nobody can own. gRPC is not checked: no browser speaks HTTP/2 without
TLS.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Mapping
from http import HTTPStatus

from tiercel.core.trust.names import NODE_DOMAIN
from tiercel.serving.rest.messages import HttpRefusedError

ANY = "*"
_REMEMBERED = 256


class Hosts:
    """Who the server is.

    Args:
        names: Names beside ``localhost``, this machine's and any address; ``*`` for any name.
    """

    def __init__(self, names: tuple[str, ...] = ()) -> None:
        self._is_anybody = ANY in names
        own = ("localhost", socket.gethostname(), *names)
        self._names = frozenset(name.lower().rstrip(".") for name in own)
        self._known: set[bytes] = set()

    def check(self, headers: Mapping[bytes, bytes]) -> None:
        """Refuse a request that is for somebody else; one that does not say whom it is for is no browser's.

        Raises:
            HttpRefusedError: Its ``Host`` is another name.
        """
        host = headers.get(b"host", b"")
        if host in self._known:
            return
        if host and not self._is_anybody and not self._is_ours(host.decode("latin-1")):
            said = host[:100].decode("latin-1")
            raise HttpRefusedError(
                HTTPStatus.MISDIRECTED_REQUEST,
                f"Host: this server is not {said!r}; address it by localhost or its address, or add the name: "
                "--listen-name of 'tiercel up' or 'tiercel join' (--allowed-hosts of the server alone)",
            )
        if len(self._known) >= _REMEMBERED:
            self._known.clear()
        self._known.add(host)

    def _is_ours(self, host: str) -> bool:
        if host.startswith("["):
            name, bracket, port = host[1:].partition("]")
            port = port or ":" if bracket else ""
        else:
            name, colon, digits = host.partition(":")
            port = colon + digits or ":"
        if port[:1] != ":" or (port[1:] and not port[1:].isdigit()):
            return False
        try:
            ipaddress.ip_address(name)
        except ValueError:
            name = name.lower().rstrip(".")
            return name in self._names or name.endswith((".localhost", NODE_DOMAIN))
        return True
