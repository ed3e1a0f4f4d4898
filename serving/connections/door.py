"""A door for other machines: accepts connections and has a protocol talk with those that show who they are."""

from __future__ import annotations

import asyncio
import socket
import ssl
from typing import Final

from tiercel.serving.connections.handshake import Handshake, Lobby, MakeProtocol
from tiercel.serving.connections.listening import accept

LEAVE_SECONDS: Final = 1.0
"""How long those who are about to say who they are get when the server leaves."""


class EncryptedDoor:
    """What an encrypted listener needs."""

    def __init__(self, context: ssl.SSLContext, lobby: Lobby) -> None:
        self.context = context
        self._lobby = lobby

    async def accept(self, make: MakeProtocol, listening: socket.socket) -> asyncio.Server:
        """Accept connections, each with a protocol of its own once it is known who is at the other end."""
        return await accept(lambda: Handshake(make, self.context, self._lobby), listening)

    async def wait_known(self) -> None:
        """Wait, once nobody is accepted any more, until all who knocked are let in or have gone; not for long."""
        await self._lobby.wait_at_most(LEAVE_SECONDS)
