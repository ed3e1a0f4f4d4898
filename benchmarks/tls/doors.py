"""The inference server with one more door, encrypted by the event loop: ``python -m benchmarks.tls.doors``.

All three doors are of one process, so that only they differ. Nobody has to show a certificate, which load tools cannot;
that matters to handshakes alone.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import sys

from tiercel.serving import main
from tiercel.serving.connections import encryption
from tiercel.serving.connections.door import EncryptedDoor
from tiercel.serving.connections.handshake import Lobby, MakeProtocol
from tiercel.serving.connections.listening import BACKLOG, open_listener

LOOPS_PORT = "TIERCEL_BENCHMARK_LOOPS_PORT"
"""Variable with the port of the door that the event loop encrypts."""


class BothDoors(EncryptedDoor):
    """The server's own door, and for REST that of the event loop beside it."""

    def __init__(self, context: ssl.SSLContext, lobby: Lobby) -> None:
        context.verify_mode = ssl.CERT_NONE
        super().__init__(context, lobby)
        self._loops: asyncio.Server | None = None
        self._port = int(os.environ.pop(LOOPS_PORT, "0"))  # of the first door alone, which is that of REST

    async def accept(self, make: MakeProtocol, listening: socket.socket) -> asyncio.Server:
        """See :class:`EncryptedDoor`."""
        if self._port:
            beside = open_listener("127.0.0.1", self._port)
            loop = asyncio.get_running_loop()
            self._loops = await loop.create_server(make, sock=beside, backlog=BACKLOG, ssl=self.context)
        return await super().accept(make, listening)


if __name__ == "__main__":
    vars(encryption)["EncryptedDoor"] = BothDoors
    sys.exit(main.main())
