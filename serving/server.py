"""Puts the server together, and owns every task in it."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
import time
from functools import partial

import onnxruntime as ort

from tiercel.core.addresses import join_address
from tiercel.core.errors import SetupError
from tiercel.core.locks import Lock
from tiercel.core.tracing import open_tracing
from tiercel.serving import memory
from tiercel.serving.connections.encryption import Encryption
from tiercel.serving.connections.listening import open_listener, port_of
from tiercel.serving.dispatch.dispatcher import Dispatcher
from tiercel.serving.generation.generation import Generation
from tiercel.serving.grpc.adapter import GrpcServer
from tiercel.serving.loading import suspects
from tiercel.serving.loading.lifecycle import Lifecycle
from tiercel.serving.parts import Doors, Models, make_doors, make_models
from tiercel.serving.process.handover import Inheritance, Predecessor
from tiercel.serving.process.renewal import Renewal, take_over
from tiercel.serving.process.state import write_state
from tiercel.serving.rest.extensions import add_handover
from tiercel.serving.rest.server import HttpServer
from tiercel.serving.runtime.providers import Provider
from tiercel.serving.runtime.running import left_behind
from tiercel.serving.runtime.workers import Workers
from tiercel.serving.settings import Settings
from tiercel.serving.tasks import TaskOwner
from tiercel.serving.verification.verifier import Verifier, VerifierLimits

_logger = logging.getLogger(__name__)
_SWITCH_SECONDS = 0.0005
# What is generated is told that the server leaves so many seconds before its connection is closed.
_LAST_WORDS = 0.5


class Server:
    """One inference server, from its first port to its last answer.

    Args:
        lock: That of the server, held.
        predecessor: The process that hands over to this one, or None.

    Attributes:
        owns_state_file: Whether the state file is about this process.
    """

    def __init__(self, settings: Settings, lock: Lock, predecessor: Predecessor | None = None) -> None:
        self._settings = settings
        self._lock = lock
        self._predecessor = predecessor
        self._leave = asyncio.Event()
        self._handed_over = False
        self._addresses: dict[str, str] = {}
        self._encryption: Encryption | None = None
        self.owns_state_file = False

    async def run(self) -> None:
        """Serve until SIGTERM or SIGINT.

        Raises:
            SetupError: A port or a file is not to be had.
        """
        settings = self._settings
        # A worker that comes back from a model waits this long for Python's lock while the event loop is busy: in
        # overload 5 ms, the default, would let the workers idle.
        sys.setswitchinterval(_SWITCH_SECONDS)
        if Provider.CUDA.ort_name not in ort.get_available_providers():
            memory.stay_within(settings.memory_bytes)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._leave.set)
        verifier = Verifier(
            VerifierLimits(
                settings.verify_timeout,
                settings.verifier_memory_bytes,
                settings.max_reference_bytes,
                settings.run_bytes,
            )
        )
        workers = Workers(settings.workers)
        dispatcher = Dispatcher(workers, settings.max_pending, settings.max_pending_bytes, settings.max_queue_delay)
        try:
            async with asyncio.TaskGroup() as group:
                await self._serve(TaskOwner(group), verifier, dispatcher)
        except BaseExceptionGroup as group:
            startup = group.subgroup(SetupError)
            if startup is not None:
                raise startup.exceptions[0] from None
            raise
        finally:
            dispatcher.close()
            workers.close()
            await verifier.stop()

    async def _serve(self, tasks: TaskOwner, verifier: Verifier, dispatcher: Dispatcher) -> None:
        settings = self._settings
        if self._predecessor is None:
            suspects.accuse(settings.repository, left_behind(settings.state_file), time.time())
        models = make_models(settings, verifier, dispatcher, tasks.start)
        tracing = open_tracing("tiercel-serving", os.environ)
        doors = make_doors(settings, models, tasks.start, tracing)
        if settings.tls_identity is not None and settings.tls_authority is not None:
            # With rules for each model there are some for who shows none.
            required = settings.access_file is None
            self._encryption = Encryption(settings.tls_identity, settings.tls_authority, required=required)
        sockets = self._sockets()
        self._addresses = _addresses(settings, sockets)
        renewal = Renewal(sockets, models.lifecycle, models.registry, self._announce, self._on_handed_over)
        add_handover(doors.routes, renewal)
        serving = asyncio.Event()
        try:
            await verifier.start()  # first, so that it warms up meanwhile
            self._watch(tasks, models, doors)
            _hand_over_on_signal(tasks, renewal, serving)
            begin = partial(self._begin, sockets, doors.http, doors.grpc)
            if self._predecessor is None:
                await begin()
                tasks.start(self._load_all(models.lifecycle, doors.grpc), "load all")
            else:
                await take_over(self._predecessor, models.lifecycle, models.registry, models.plane, begin)
                await self._say_ready(doors.grpc)
            serving.set()
            await self._leave.wait()
            _logger.info("Leaving: requests in flight get %g s", settings.drain_timeout)
        finally:
            models.lifecycle.leave()
            await self._drain(doors.http, doors.grpc, renewal, models.generation)
            models.generation.close()
            models.endpoints.close()
            doors.relay.close()
            dispatcher.close()
            tasks.cancel_all()
            models.loader.close()
            models.marks.close()
            if tracing is not None:
                await asyncio.to_thread(tracing.close)

    def _watch(self, tasks: TaskOwner, models: Models, doors: Doors) -> None:
        tasks.start(models.plane.loop_lag.watch(), "loop lag")
        tasks.start(doors.gate.watch(), "access")
        tasks.start(doors.directory.watch(), "routes")
        tasks.start(doors.relay.watch(), "silent nodes")
        if self._encryption is not None:
            tasks.start(self._encryption.watch(), "certificates")

    async def _drain(self, http: HttpServer, grpc: GrpcServer, renewal: Renewal, generation: Generation) -> None:
        """Let requests in flight finish, within bounds; callers of a process that was followed go to that one."""
        patience = self._settings.drain_timeout
        # Before their connections are closed, so that streams end with a sentence.
        last_words = asyncio.get_running_loop().call_later(patience - min(_LAST_WORDS, patience / 2), generation.close)
        if self._handed_over:
            await asyncio.gather(http.hand_over(patience), grpc.stop(patience))
        else:
            renewal.break_off()
            grpc.set_ready(ready=False)
        await asyncio.gather(http.stop(patience), grpc.stop(patience))
        last_words.cancel()

    def _sockets(self) -> Inheritance:
        """What to listen on: the predecessor's sockets, else new ones."""
        if self._predecessor is not None:
            return self._predecessor.inheritance
        settings = self._settings
        wanted = [("http", settings.host, settings.http_port), ("grpc", settings.host, settings.grpc_port)]
        if settings.tls_host:
            wanted += [("https", settings.tls_host, settings.tls_http_port)]
            wanted += [("grpcs", settings.tls_host, settings.tls_grpc_port)]
        listeners: dict[str, socket.socket] = {}
        for name, host, port in wanted:
            try:
                listeners[name] = open_listener(host, port)
            except OSError as error:
                for listener in listeners.values():
                    listener.close()
                raise _cannot_listen(name, host, port, error) from error
        return Inheritance(lock=self._lock.descriptor, **listeners)

    async def _begin(self, sockets: Inheritance, http: HttpServer, grpc: GrpcServer) -> None:
        """Accept connections, and say where."""
        await http.start(sockets.http)
        await grpc.start(sockets.grpc)
        if self._encryption is not None and sockets.https is not None and sockets.grpcs is not None:
            await http.start(sockets.https, self._encryption.http)
            await grpc.start(sockets.grpcs, self._encryption.grpc)
        self._lock.sign()
        self._announce()
        _logger.info("Listening: %s", ", ".join(f"{name} on {where}" for name, where in self._addresses.items()))

    def _announce(self) -> None:
        write_state(self._settings.state_file, self._addresses)
        self.owns_state_file = True

    def _on_handed_over(self) -> None:
        self._handed_over = True
        self.owns_state_file = False
        self._leave.set()

    async def _load_all(self, lifecycle: Lifecycle, grpc: GrpcServer) -> None:
        await lifecycle.load_all()
        await self._say_ready(grpc)

    @staticmethod
    async def _say_ready(grpc: GrpcServer) -> None:
        memory.spare_what_stays()
        grpc.set_ready(ready=True)
        _logger.info("Ready")


def _addresses(settings: Settings, sockets: Inheritance) -> dict[str, str]:
    """Where what answers, by its name in the state file."""
    clear = {"http": sockets.http, "grpc": sockets.grpc}
    found = {name: join_address(settings.host, port_of(one)) for name, one in clear.items()}
    encrypted = {name: one for name, one in (("https", sockets.https), ("grpcs", sockets.grpcs)) if one is not None}
    return found | {name: join_address(settings.tls_host, port_of(one)) for name, one in encrypted.items()}


def _cannot_listen(name: str, host: str, port: int, error: OSError) -> SetupError:
    what = "gRPC" if name.startswith("grpc") else "HTTP"
    flag = f"--{'tls-' if name.endswith('s') else ''}{what.lower()}-port"
    return SetupError(
        f"{what} cannot listen on {join_address(host, port)}: {error.strerror or error}. "
        f"End what listens there, or give another {flag} (0 is any free one)."
    )


def _hand_over_on_signal(tasks: TaskOwner, renewal: Renewal, serving: asyncio.Event) -> None:
    """Take SIGHUP from before the process id is announced, or it would end the process; obey once it serves."""

    async def hand_over() -> None:
        await serving.wait()
        await renewal.on_signal()

    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, lambda: tasks.start(hand_over(), "hand over"))
