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
from functools import partial
from pathlib import Path
from typing import Final

from aiohttp import web

from tiercel.core.addresses import family_of, join_address
from tiercel.core.errors import SetupError
from tiercel.core.prometheus import CONTENT_TYPE, Family, to_text
from tiercel.trainer_agent.supervision import Supervisor

_log = logging.getLogger(__name__)

MOST_CONNECTIONS: Final = 16
"""Open at once, and as many again that are about to encrypt; for one more, one that says nothing goes."""

_HANDSHAKE_SECONDS: Final = 5.0
_IDLE_SECONDS: Final = 15.0  # without a request that is whole; Prometheus opens another connection then
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
    door = _Door(place, families, tasks)
    listening = _bind(place)
    await door.runner.setup()
    accepting = tasks.start("metrics", door.accept(listening))
    try:
        address = join_address(place.host, listening.getsockname()[1])
        _log.info("metrics are at http%s://%s/metrics", "s" * (place.identity_file is not None), address)
        yield address
    finally:
        accepting.cancel()
        await door.runner.cleanup()
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


class _Door:
    """Lets in who knocks. Nobody keeps others out by saying nothing: the one that is silent for longest gives way."""

    def __init__(self, place: MetricsPlace, families: Callable[[], Sequence[Family]], tasks: Supervisor) -> None:
        self._tasks = tasks
        self._context = None if place.identity_file is None else _Context(place.identity_file)
        self._knocking: dict[asyncio.Task[None], None] = {}
        self._told: dict[object, None] = {}  # who was told numbers, the latest last
        self.runner = web.AppRunner(
            _application(place, families, self._was_told),
            handle_signals=False,
            access_log=None,
            keepalive_timeout=_IDLE_SECONDS,
            lingering_time=_STOP_SECONDS,
            shutdown_timeout=_STOP_SECONDS,
        )

    async def accept(self, listening: socket.socket) -> None:
        """Let in who knocks, for ever."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(listening)
            except OSError as error:  # such as too many open files, which passes
                _log.warning("nobody can ask for metrics now: %s", error)
                await asyncio.sleep(1.0)  # else it would try without end
                continue
            if len(self._knocking) >= MOST_CONNECTIONS:
                oldest = next(iter(self._knocking))
                del self._knocking[oldest]
                oldest.cancel()
            task = self._tasks.start("metrics connection", self._let_in(connection))
            self._knocking[task] = None
            task.add_done_callback(partial(self._has_knocked, connection))
            await asyncio.sleep(0)  # a crowd that knocks does not keep the agent from its work

    async def _let_in(self, connection: socket.socket) -> None:
        server = self.runner.server
        assert server is not None  # noqa: S101 - it was set up
        encryption = None if self._context is None else self._context.newest()
        seconds = None if encryption is None else _HANDSHAKE_SECONDS
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                server, connection, ssl=encryption, ssl_handshake_timeout=seconds
            )
        except OSError as error:  # who does not go on to encrypt, too
            _log.debug("somebody knocked for metrics in vain: %s", error)
            connection.close()
            return
        there: dict[object, asyncio.Transport] = {
            each: way for each in server.connections if (way := each.transport) and not way.is_closing()
        }
        self._told = {each: None for each in self._told if each in there}
        if len(there) > MOST_CONNECTIONS:
            # Whoever reaches the door can be one that was told nothing: such go before the others.
            silent = [each for each in list(there)[:-1] if each not in self._told] or list(self._told)
            there[silent[0]].abort()

    def _has_knocked(self, connection: socket.socket, task: asyncio.Task[None]) -> None:
        self._knocking.pop(task, None)
        if task.cancelled():  # perhaps before it began
            connection.close()

    def _was_told(self, protocol: object) -> None:
        self._told.pop(protocol, None)
        self._told[protocol] = None


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


def _application(
    place: MetricsPlace, families: Callable[[], Sequence[Family]], was_told: Callable[[object], None]
) -> web.Application:
    async def show(request: web.Request) -> web.Response:
        if place.token_file is None:
            if _LOOPBACK.fullmatch(request.headers.get("Host", "")) is None:  # a page elsewhere, by DNS rebinding
                return web.Response(status=421, text="This is not a name of this machine: ask at its address.\n")
        elif not _is_known(request, place.token_file):
            challenge = {"WWW-Authenticate": "Bearer"}
            return web.Response(status=401, text="Send the token of --metrics-token-file.\n", headers=challenge)
        was_told(request.protocol)
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
