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
        authority: File with the certificates of authorities that vouch for callers, PEM.
        required: Whether nobody gets in without one; a wrong one never does.

    Attributes:
        http: The door of REST.
        grpc: The door of gRPC.

    Raises:
        SetupError: They are of no use.
    """

    def __init__(self, identity: Path, authority: Path, *, required: bool = True) -> None:
        self._files = (identity, authority)
        self._required = required
        self._stamp = self._look()
        try:
            lobby = Lobby()
            self.http = EncryptedDoor(self._context("http/1.1"), lobby)
            self.grpc = EncryptedDoor(self._context("h2"), lobby)
        except (OSError, ValueError) as error:  # of them are the errors of ssl
            raise SetupError(
                f"--tls-identity {identity} or --tls-authority {authority} is of no use ({error}). Give a file with a "
                "private key and its certificate, and one with the certificate of the authority behind callers, PEM."
            ) from error

    def refresh(self) -> None:
        """Show and believe what is in the files by now; what is of no use is not, and what was before stays."""
        stamp = self._look()
        if stamp == self._stamp:
            return
        self._stamp = stamp
        identity, authority = self._files
        try:
            # New ones: who is believed no more cannot be taken out of those in use, nor half of a pair be put in.
            contexts = self._context("http/1.1"), self._context("h2")
        except (OSError, ValueError) as error:
            _logger.warning("%s or %s is of no use (%s); what was before goes on", identity, authority, error)
        else:
            self.http.context, self.grpc.context = contexts
            _logger.info("%s or %s has changed, and counts from now on", identity, authority)

    async def watch(self) -> None:
        """Look at the files for ever."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            self.refresh()

    def _look(self) -> tuple[tuple[int, int], ...]:
        return tuple(_stamp(file) for file in self._files)

    def _context(self, protocol: str) -> ssl.SSLContext:
        identity, authority = self._files
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.verify_mode = ssl.CERT_REQUIRED if self._required else ssl.CERT_OPTIONAL
        context.load_verify_locations(authority)
        context.load_cert_chain(identity)
        context.set_alpn_protocols([protocol])
        context.num_tickets = 1
        return context


def _stamp(file: Path) -> tuple[int, int]:
    try:
        found = file.stat()
    except OSError:
        return 0, 0
    return found.st_mtime_ns, found.st_ino
