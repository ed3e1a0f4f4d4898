"""TLS 1.3 for who asks from other machines: both sides show a certificate, or callers may where other rules hold.

The files are read again when they change. Connections that are open keep what they began with.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from pathlib import Path

from tiercel.core.errors import SetupError
from tiercel.serving.connections.door import EncryptedDoor
from tiercel.serving.connections.handshake import Lobby

_logger = logging.getLogger(__name__)

_LOOK_SECONDS = 5.0


class Encryption:
    """Keeps what the encrypted doors show, and whom they believe.

    Args:
        identity: File with a private key, its certificate and those up to the authority's, PEM.
        authority: File with the certificate of the authority that vouches for callers, PEM.
        required: Whether nobody gets in without one; a wrong one never does.

    Attributes:
        http: The door of REST.
        grpc: The door of gRPC.

    Raises:
        SetupError: They are of no use.
    """

    def __init__(self, identity: Path, authority: Path, *, required: bool = True) -> None:
        self._identity = identity
        self._stamp = self._look()
        try:
            lobby = Lobby()
            self.http = EncryptedDoor(_context("http/1.1", identity, authority, required=required), lobby)
            self.grpc = EncryptedDoor(_context("h2", identity, authority, required=required), lobby)
        except (OSError, ValueError) as error:  # of them are the errors of ssl
            raise SetupError(
                f"--tls-identity {identity} or --tls-authority {authority} is of no use ({error}). Give a file with a "
                "private key and its certificate, and one with the certificate of the authority behind callers, PEM."
            ) from error

    def refresh(self) -> None:
        """Show what is in the file by now; what is of no use is not, and what was before stays."""
        stamp = self._look()
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            # Tried apart first: half of a pair in a context that is in use would break it.
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self._identity)
            for door in (self.http, self.grpc):
                door.context.load_cert_chain(self._identity)
        except (OSError, ValueError) as error:
            _logger.warning("%s is of no use (%s); the certificate of before is shown on", self._identity, error)
        else:
            _logger.info("%s has changed, and is shown from now on", self._identity)

    async def watch(self) -> None:
        """Look at the file for ever."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            self.refresh()

    def _look(self) -> tuple[int, int]:
        try:
            found = self._identity.stat()
        except OSError:
            return 0, 0
        return found.st_mtime_ns, found.st_ino


def _context(protocol: str, identity: Path, authority: Path, *, required: bool) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED if required else ssl.CERT_OPTIONAL
    context.load_verify_locations(authority)
    context.load_cert_chain(identity)
    context.set_alpn_protocols([protocol])
    context.num_tickets = 1
    return context
