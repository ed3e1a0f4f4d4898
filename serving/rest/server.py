"""Listens for REST, and stops without cutting anybody off."""

from __future__ import annotations

import asyncio
import socket
from functools import partial

from tiercel.serving.connections.door import EncryptedDoor
from tiercel.serving.connections.listening import Connections, accept, read_what_is_there
from tiercel.serving.rest.connection import HttpConnection
from tiercel.serving.rest.messages import ByteBudget
from tiercel.serving.rest.receiver import HttpLimits
from tiercel.serving.rest.routes import Routes


class HttpServer:
    """The REST side of the server."""

    def __init__(self, routes: Routes, limits: HttpLimits, budget: ByteBudget) -> None:
        self._connections: Connections[HttpConnection] = Connections()
        self._make = partial(HttpConnection, routes.handle, limits, budget, self._connections)
        self._listeners: list[asyncio.Server] = []
        self._doors: list[EncryptedDoor] = []

    @property
    def connections(self) -> int:
        """How many connections are open."""
        return len(self._connections)

    async def start(self, listening: socket.socket, door: EncryptedDoor | None = None) -> None:
        """Accept connections on a socket that listens, encrypted where there is a door; may be called again."""
        if door is None:
            self._listeners.append(await accept(self._make, listening))
        else:
            self._listeners.append(await door.accept(self._make, listening))
            self._doors.append(door)

    async def hand_over(self, grace: float) -> None:
        """Take no new connections; each that is open is closed with its next answer, or after ``grace`` seconds."""
        await self._close()
        for connection in tuple(self._connections):
            connection.close_with_next_answer()
        await self._connections.wait_at_most(grace)

    async def stop(self, grace: float) -> None:
        """Take no new connections; requests in flight get ``grace`` seconds.

        In flight is also what lies in the kernel by now: connections that wait to be accepted, and requests that wait
        to be read. To close on them would cut callers off who did nothing wrong.
        """
        if not self._listeners:
            return
        await read_what_is_there(self._connections)
        await self._close()
        for connection in tuple(self._connections):
            connection.drain()
        await self._connections.wait_at_most(grace)
        for connection in tuple(self._connections):
            connection.abort()

    async def _close(self) -> None:
        for listener in self._listeners:
            listener.close()
        for door in self._doors:
            await door.wait_known()
