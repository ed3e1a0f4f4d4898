"""Which addresses a fetch may connect to: those of the internet, unless the node's operator trusts the place."""

from __future__ import annotations

import ipaddress
import sys
from typing import Any, Final

from tiercel.trainer_agent.data.transfer import FetchError

_EMBEDS_IPV4: Final = ipaddress.ip_network("64:ff9b::/96")
_CONNECTS: Final = frozenset({"socket.connect", "socket.sendto", "socket.sendmsg"})


def is_public(address: str) -> bool:
    """Whether an address is one of the internet: not of this machine, its network, or who runs the machine."""
    found = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(found, ipaddress.IPv6Address):
        inner = found.ipv4_mapped or found.sixtofour
        if found in _EMBEDS_IPV4:
            inner = ipaddress.IPv4Address(int(found) & 0xFFFFFFFF)
        if inner is not None:
            return is_public(str(inner))
        if found.teredo is not None:
            return False
    return found.is_global and not found.is_multicast


def elsewhere(address: str) -> FetchError:
    """Why nothing is fetched from an address that is not public."""
    return FetchError(
        f"its host leads to {address}, which is no address of the internet; the node's operator may trust the host "
        "(--data-sources)"
    )


class InternetOnly:
    """Holds a whole process to addresses of the internet, whatever its libraries and settings say.

    It goes by what Python is about to connect, in any library; there is no way back.

    Attributes:
        refused: The last address that was refused, or empty.
    """

    def __init__(self) -> None:
        self.refused = ""

    def install(self) -> None:
        """From now on."""
        sys.addaudithook(self._audit)

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event not in _CONNECTS or len(arguments) < 2 or arguments[1] is None:
            return
        place = arguments[1]
        address = str(place[0]) if isinstance(place, tuple) else "a socket of the node"
        try:
            allowed = isinstance(place, tuple) and is_public(address)
        except ValueError:  # a name, which the socket would look up by itself
            allowed = False
        if not allowed:
            self.refused = address
            raise OSError(f"{address} is no address of the internet")
