"""Which ports to listen on."""

from __future__ import annotations

import errno
import socket

from tiercel.core.addresses import family_of, port_in, require_own
from tiercel.core.errors import UnavailableError

HOST = "127.0.0.1"


def choose_port(flag: str, wanted: int, earlier: str, host: str = HOST) -> int:
    """The port to ask for.

    Args:
        flag: The option it was given with, for the sentence.
        wanted: As given; 0 for any.
        earlier: Address that was used the last time, ``host:port``, or empty.
        host: The address of this machine that it is wanted of.

    Returns:
        ``wanted``; or else the earlier one if it is free, so that clients find things where they were; or else 0.

    Raises:
        UnavailableError: The wanted port is in use or not ours to use, or this machine has no such address.
    """
    if wanted == 0:
        before = port_in(earlier)
        return before if before and _trouble(before, host) is None else 0
    require_own(host)
    trouble = _trouble(wanted, host)
    if trouble is not None:
        raise UnavailableError(f"Port {wanted} ({flag}) {trouble}; choose another, or 0 for any free one.")
    return wanted


def _trouble(port: int, host: str) -> str | None:
    with socket.socket(family_of(host)) as probe:
        # As servers do: a port whose last connections are still being wound up is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OverflowError:
            return "is no port"
        except OSError as error:
            return "is in use" if error.errno == errno.EADDRINUSE else f"cannot be used ({error.strerror})"
    return None
