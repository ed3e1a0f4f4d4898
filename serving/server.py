"""Puts the server together, and owns every task in it."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import sys
import time
from functools import partial

import onnxruntime as ort

from tiercel.core.addresses import join_address
from tiercel.core.errors import SetupError
from tiercel.core.locks import Lock
from tiercel.serving import memory
from tiercel.serving.access.gate import Gate
from tiercel.serving.canary_plan import CanaryPlan
from tiercel.serving.connections.encryption import Encryption
from tiercel.serving.connections.listening import open_listener, port_of
from tiercel.serving.dataplane import DataPlane
from tiercel.serving.descriptions import Descriptions
from tiercel.serving.dispatch.dispatcher import Dispatcher
from tiercel.serving.dispatch.variants.endpoints import Endpoints
from tiercel.serving.explaining.feedback import Feedback
from tiercel.serving.explaining.recent_requests import RecentRequests
from tiercel.serving.grpc.adapter import GrpcServer, InferenceServicer, grpc_limits
from tiercel.serving.grpc.handing import GrpcHanding
from tiercel.serving.loading import suspects
from tiercel.serving.loading.lifecycle import Lifecycle
from tiercel.serving.loading.loader import BuildOptions, Loader
from tiercel.serving.loading.uploads import Uploads, clean_up
from tiercel.serving.models.registry import Registry
from tiercel.serving.operators import read_operators
from tiercel.serving.process.handover import Inheritance, Predecessor
from tiercel.serving.process.renewal import Renewal, take_over
from tiercel.serving.process.state import write_state
from tiercel.serving.rest.compression import Inflater
from tiercel.serving.rest.extensions import add_descriptions, add_explaining, add_handover, add_metrics
from tiercel.serving.rest.feedback import add_feedback
from tiercel.serving.rest.handed_calls import add_handed_calls
from tiercel.serving.rest.handing import RestHanding
from tiercel.serving.rest.hosts import Hosts
from tiercel.serving.rest.messages import ByteBudget
from tiercel.serving.rest.metrics import Metrics
from tiercel.serving.rest.receiver import HttpLimits
from tiercel.serving.rest.routes import Routes
from tiercel.serving.rest.server import HttpServer
from tiercel.serving.routing.directory import Directory
from tiercel.serving.routing.pool import Credentials, PeerLimits
from tiercel.serving.routing.relay import Relay
from tiercel.serving.runtime.placement import MemoryOptions, Placement, placement
from tiercel.serving.runtime.providers import CudaOptions, Provider, read_order
from tiercel.serving.runtime.running import RunningMarks, left_behind
from tiercel.serving.runtime.workers import Workers
from tiercel.serving.settings import Settings
from tiercel.serving.tasks import TaskOwner
from tiercel.serving.verification.verifier import Verifier, VerifierLimits

_logger = logging.getLogger(__name__)
_SWITCH_SECONDS = 0.0005


class Server:
    """One inference server, from its first port to its last answer.

    Args:
        settings: How it is set.
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
                await self._serve(TaskOwner(group), verifier, dispatcher, workers)
        except BaseExceptionGroup as group:
            startup = group.subgroup(SetupError)
            if startup is not None:
                raise startup.exceptions[0] from None
            raise
        finally:
            dispatcher.close()
            workers.close()
            await verifier.stop()

    async def _serve(self, tasks: TaskOwner, verifier: Verifier, dispatcher: Dispatcher, workers: Workers) -> None:
        settings = self._settings
        registry = Registry()
        if self._predecessor is None:
            suspects.accuse(settings.repository, left_behind(settings.state_file), time.time())
        marks = RunningMarks(settings.state_file)
        loader = Loader(verifier, _build_options(settings), _placement(settings), marks)
        endpoints = Endpoints(settings.repository, registry, dispatcher, settings.request_timeout)
        canary = CanaryPlan(settings.canary_fraction, settings.canary_seconds)
        lifecycle = Lifecycle(settings.repository, registry, loader, tasks.start, endpoints=endpoints, canary=canary)
        recent = RecentRequests(settings.remembered_requests)
        plane = DataPlane(registry, dispatcher, settings.request_timeout, endpoints, recent)
        budget = ByteBudget(settings.max_buffered_bytes)
        inflater = Inflater(settings.max_body_bytes, budget)
        operators = read_operators(settings.operator_token_file)
        gate = Gate(operators, settings.access_file)
        uploads = Uploads(
            settings.repository, lifecycle, loader, operators, settings.max_model_bytes, settings.max_reference_bytes
        )
        clean_up(settings.repository)
        hosts = Hosts((settings.host, settings.tls_host, *settings.host_names))
        directory = Directory(settings.routes_file)
        relay = _relay(settings, directory)
        handing = RestHanding(relay, plane, settings.request_timeout)
        routes = Routes(
            plane, lifecycle, tasks.start, settings.max_json_bytes, uploads, operators, inflater, hosts, gate, handing
        )
        http = HttpServer(routes, _http_limits(settings), budget)
        metrics = Metrics(registry)
        _add_gauges(metrics, http, plane)
        metrics.add_refusals(gate.refusals)
        metrics.add_handed_on(relay.outcomes)
        add_metrics(routes, metrics)
        descriptions = Descriptions(registry, settings.max_batch_rows, settings.workers, endpoints)
        add_descriptions(routes, descriptions)
        add_explaining(routes, recent, handing)
        add_feedback(routes, Feedback(recent), handing)
        grpc_handing = GrpcHanding(relay, plane, tasks.start, settings.request_timeout)
        servicer = InferenceServicer(
            plane, lifecycle, tasks.start, descriptions, uploads, operators, gate, grpc_handing
        )
        grpc = GrpcServer(servicer, grpc_limits(settings), budget)
        add_handed_calls(routes, handing, grpc.handed_calls.answer)
        if settings.tls_identity is not None and settings.tls_authority is not None:
            # With rules for each model there are some for who shows none.
            required = settings.access_file is None
            self._encryption = Encryption(settings.tls_identity, settings.tls_authority, required=required)
        sockets = self._sockets()
        self._addresses = _addresses(settings, sockets)
        renewal = Renewal(sockets, lifecycle, registry, self._announce, self._on_handed_over)
        add_handover(routes, renewal)
        begin = partial(self._begin, sockets, http, grpc)
        serving = asyncio.Event()
        try:
            await verifier.start()  # first, so that it warms up meanwhile
            tasks.start(plane.loop_lag.watch(), "loop lag")
            tasks.start(gate.watch(), "access")
            tasks.start(directory.watch(), "routes")
            tasks.start(relay.watch(), "silent nodes")
            if self._encryption is not None:
                tasks.start(self._encryption.watch(), "certificates")
            _hand_over_on_signal(tasks, renewal, serving)
            if self._predecessor is None:
                await begin()
                tasks.start(self._load_all(lifecycle, grpc), "load all")
            else:
                await take_over(self._predecessor, lifecycle, registry, plane, begin)
                await self._say_ready(grpc)
            serving.set()
            await self._leave.wait()
            _logger.info("Leaving: requests in flight get %g s", settings.drain_timeout)
        finally:
            lifecycle.leave()
            await self._drain(http, grpc, renewal)
            endpoints.close()
            relay.close()
            dispatcher.close()
            tasks.cancel_all()
            loader.close()
            marks.close()

    async def _drain(self, http: HttpServer, grpc: GrpcServer, renewal: Renewal) -> None:
        """Let requests in flight finish, within bounds; callers of a process that was followed go to that one."""
        patience = self._settings.drain_timeout
        if self._handed_over:
            await asyncio.gather(http.hand_over(patience), grpc.stop(patience))
        else:
            renewal.break_off()
            grpc.set_ready(ready=False)
        await asyncio.gather(http.stop(patience), grpc.stop(patience))

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


def _build_options(settings: Settings) -> BuildOptions:
    return BuildOptions(
        settings.model_threads,
        settings.inline_budget,
        settings.max_model_bytes,
        settings.max_batch_rows,
        run_bytes=settings.run_bytes,
        answer_bytes=settings.max_answer_bytes,
    )


def _relay(settings: Settings, directory: Directory) -> Relay:
    """What asks other nodes."""
    credentials = Credentials(settings.tls_identity, settings.tls_authority)
    limits = PeerLimits(settings.max_peer_requests, settings.max_peer_bytes)
    return Relay(directory, credentials, limits, settings.max_buffered_bytes)


def _http_limits(settings: Settings) -> HttpLimits:
    return HttpLimits(
        settings.max_header_bytes,
        settings.max_body_bytes,
        settings.max_connections,
        settings.idle_timeout,
        settings.read_timeout,
    )


def _placement(settings: Settings) -> Placement:
    """Where models run, as it is set."""
    options = CudaOptions(
        settings.accelerator_device,
        settings.cudnn_conv_algo_search,
        tf32=settings.accelerator_tf32,
        has_priority=settings.accelerator_priority,
    )
    room = MemoryOptions(
        settings.accelerator_memory,
        settings.accelerator_model_memory,
        settings.accelerator_size_factor,
        may_move=settings.swap_over_cpu,
    )
    return placement(read_order(settings.providers), options, room)


def _add_gauges(metrics: Metrics, http: HttpServer, plane: DataPlane) -> None:
    metrics.add_gauge("tiercel_http_connections", "HTTP connections that are open", lambda: http.connections)
    metrics.add_gauge(
        "tiercel_event_loop_lag_seconds",
        "How late the event loop came in the last seconds, 99th percentile",
        lambda: plane.loop_lag.as_json(time.perf_counter())[0]["p99"] or 0.0,
    )
