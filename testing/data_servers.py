"""Web servers for data: one that is honest, and raw ones that are not."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web

CONTENT = bytes(range(256)) * 4096
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@dataclass
class DataServer:
    """Serves files from memory."""

    port: int = 0  # where it listens, on 127.0.0.1
    # What it has: content and ETag by path; an ETag may be empty.
    files: dict[str, tuple[bytes, str]] = field(default_factory=lambda: {"/x.npz": (CONTENT, '"1"')})
    asked: Counter[str] = field(default_factory=Counter)  # how often each was asked for
    sent: Counter[str] = field(default_factory=Counter)  # how often each was sent to its end
    hold: asyncio.Event = field(default_factory=asyncio.Event)  # is waited for in the middle of a body
    answers: list[int] = field(default_factory=list)  # statuses to answer with first
    redirects: dict[str, str] = field(default_factory=dict)  # where it sends who asks for a path

    @property
    def url(self) -> str:
        """Of the file that it has at first."""
        return f"http://127.0.0.1:{self.port}/x.npz"

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer."""
        self.asked[request.path] += 1
        if self.answers:
            return web.Response(status=self.answers.pop(0))
        if request.path in self.redirects:
            return web.Response(status=302, headers={"Location": self.redirects[request.path]})
        if request.path not in self.files:
            return web.Response(status=404)
        content, etag = self.files[request.path]
        response = web.StreamResponse(headers={"ETag": etag} if etag else {})
        response.content_length = len(content)
        await response.prepare(request)
        await response.write(content[: len(content) // 2])
        await self.hold.wait()
        await response.write(content[len(content) // 2 :])
        self.sent[request.path] += 1
        return response


@asynccontextmanager
async def data_server() -> AsyncIterator[DataServer]:
    """An honest one, that holds nothing up."""
    server = DataServer()
    server.hold.set()
    application = web.Application()
    application.router.add_get("/{path:.*}", server.handle)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server.port = runner.addresses[0][1]
    try:
        yield server
    finally:
        server.hold.set()
        await runner.cleanup()


@asynccontextmanager
async def raw_server(
    answer: bytes, then: Callable[[asyncio.StreamWriter], Awaitable[None]] | None = None
) -> AsyncIterator[str]:
    """One that answers everything with these bytes; its URL."""

    handlers: list[asyncio.Task[None] | None] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError), contextlib.closing(writer):
            handlers.append(asyncio.current_task())
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answer)
            await writer.drain()
            if then is not None:
                await then(writer)

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/x.npz"
    finally:
        server.close()
        for task in filter(None, handlers):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
