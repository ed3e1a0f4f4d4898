"""Where the node's numbers are told: ``GET /metrics``, in the clear on loopback, for others by TLS and a token."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
import re
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from aiohttp import web

from tiercel.core.addresses import family_of, join_address
from tiercel.core.errors import SetupError
from tiercel.core.prometheus import CONTENT_TYPE, Family, to_text
from tiercel.trainer_agent.supervision import Supervisor

_log = logging.getLogger(__name__)

MOST_CONNECTIONS: Final = 16
"""Open at once, and as many again that are about to encrypt; others wait in the kernel, or are closed."""

_HANDSHAKE_SECONDS: Final = 5.0
_IDLE_SECONDS: Final = 75.0  # Prometheus keeps its connection from one scrape to the next
_STOP_SECONDS: Final = 1.0
_LEAST_TOKEN: Final = 16
_TOKEN_BYTES: Final = 4096
_LOOPBACK: Final = re.compile(r"(localhost|127\.0\.0\.1|\[::1\])(:[0-9]{1,5})?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class MetricsPlace:
    """Where the door is, and for whom."""

    host: str  # address to listen on
    port: int  # port there; 0 for any free one
    token_file: Path | None = None  # file whose first line who asks has to send; None for whoever is on this machine
    identity_file: Path | None = None  # file with the key and certificates to show, PEM; None for a door in the clear


@asynccontextmanager
async def metrics_door(
    place: MetricsPlace, families: Callable[[], Sequence[Family]], tasks: Supervisor
) -> AsyncIterator[str]:
    """A door that is open within the block; its address, ``host:port``.

    Args:
        place: Where.
        families: Reads the numbers.
        tasks: Owner of its tasks.

    Raises:
        SetupError: The port is taken, or a file is of no use.
    """
    if place.token_file is not None:
        _token(place.token_file)
    context = None if place.identity_file is None else _Context(place.identity_file)
    listening = _bind(place)
    runner = web.AppRunner(
        _application(place, families),
        handle_signals=False,
        access_log=None,
        keepalive_timeout=_IDLE_SECONDS,
        lingering_time=_STOP_SECONDS,
        shutdown_timeout=_STOP_SECONDS,
    )
    await runner.setup()
    assert runner.server is not None  # noqa: S101 - it was set up
    accepting = tasks.start("metrics", _accept(listening, runner.server, context, tasks))
    try:
        address = join_address(place.host, listening.getsockname()[1])
        _log.info("metrics are at http%s://%s/metrics", "s" * (context is not None), address)
        yield address
    finally:
        accepting.cancel()
        await runner.cleanup()
        listening.close()


def _bind(place: MetricsPlace) -> socket.socket:
    listening = socket.socket(family_of(place.host), socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((place.host, place.port))
        listening.listen(MOST_CONNECTIONS)
        listening.setblocking(False)
    except OSError as error:
        listening.close()
        where = join_address(place.host, place.port)
        raise SetupError(
            f"--metrics-listen: nothing can listen at {where} ({error.strerror}); give an address of this machine and "
            "a port that is free."
        ) from error
    return listening


async def _accept(listening: socket.socket, server: web.Server, context: _Context | None, tasks: Supervisor) -> None:
    """Let in who knocks, for ever."""
    loop = asyncio.get_running_loop()
    room = asyncio.Semaphore(MOST_CONNECTIONS)

    async def let_in(connection: socket.socket) -> None:
        try:
            if len(server.connections) >= MOST_CONNECTIONS:
                connection.close()
            elif context is None:
                await loop.connect_accepted_socket(server, connection)
            else:
                encryption = context.newest()
                await loop.connect_accepted_socket(
                    server, connection, ssl=encryption, ssl_handshake_timeout=_HANDSHAKE_SECONDS
                )
        except OSError as error:  # who does not go on to encrypt, too
            _log.debug("somebody knocked for metrics in vain: %s", error)
            connection.close()
        finally:
            room.release()

    while True:
        await room.acquire()
        try:
            connection, _ = await loop.sock_accept(listening)
        except OSError as error:  # such as too many open files, which passes
            room.release()
            _log.warning("nobody can ask for metrics now: %s", error)
            await asyncio.sleep(1.0)
            continue
        tasks.start("metrics connection", let_in(connection))


class _Context:
    """What TLS shows: the file's newest content, since certificates are renewed there."""

    def __init__(self, identity_file: Path) -> None:
        self._file = identity_file
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.minimum_version = ssl.TLSVersion.TLSv1_3
        self._written_ns = 0
        try:
            self._read()
        except OSError as error:
            raise SetupError(
                f"--metrics-listen: {identity_file} does not have a key and certificates ({error})."
            ) from error

    def newest(self) -> ssl.SSLContext:
        """With the file as it is; as it was where that cannot be read."""
        with contextlib.suppress(OSError):
            self._read()
        return self._context

    def _read(self) -> None:
        written_ns = self._file.stat().st_mtime_ns
        if written_ns != self._written_ns:
            self._context.load_cert_chain(self._file)
            self._written_ns = written_ns


def _application(place: MetricsPlace, families: Callable[[], Sequence[Family]]) -> web.Application:
    async def show(request: web.Request) -> web.Response:
        if place.token_file is None:
            if _LOOPBACK.fullmatch(request.headers.get("Host", "")) is None:  # a page elsewhere, by DNS rebinding
                return web.Response(status=421, text="This is not a name of this machine: ask at its address.\n")
        elif not _is_known(request, place.token_file):
            challenge = {"WWW-Authenticate": "Bearer"}
            return web.Response(status=401, text="Send the token of --metrics-token-file.\n", headers=challenge)
        headers = {"Content-Type": CONTENT_TYPE, "Cache-Control": "no-store"}
        return web.Response(body=to_text(families()).encode(), headers=headers)

    application = web.Application(client_max_size=1)
    application.router.add_get("/metrics", show)
    return application


def _is_known(request: web.Request, token_file: Path) -> bool:
    try:
        token = _token(token_file)
    except SetupError as error:  # it was there when the agent was started
        _log.warning("nobody is told metrics: %s", error.message)
        return False
    return hmac.compare_digest(request.headers.get("Authorization", "").encode(), f"Bearer {token}".encode())


def _token(file: Path) -> str:
    """What who asks has to send; read each time, so that it can be changed."""
    try:
        with file.open("rb") as opened:
            token = opened.read(_TOKEN_BYTES).decode("ascii").partition("\n")[0].strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SetupError(f"--metrics-token-file: {file} cannot be read ({error}).") from error
    if len(token) < _LEAST_TOKEN:
        raise SetupError(
            f"--metrics-token-file: the first line of {file} has fewer than {_LEAST_TOKEN} characters, which can be "
            "guessed; write one with 'openssl rand -hex 32'."
        )
    return token
