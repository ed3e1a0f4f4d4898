"""The broker as a whole: opens the store, starts the actors, listens."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
from typing import TYPE_CHECKING, NoReturn, Self

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from tiercel.broker.actors.clock import SystemClock
from tiercel.broker.actors.directory import Directory
from tiercel.broker.actors.journal import Journal
from tiercel.broker.actors.supervisor import Supervisor
from tiercel.broker.actors.system import System
from tiercel.broker.api.jobs import JobsService
from tiercel.broker.api.nodes import NodesService
from tiercel.broker.domain.errors import InvalidSpecError, UnavailableError
from tiercel.broker.lifecycle.node import LeaseSettings
from tiercel.broker.progress.embedded import EmbeddedMqttBroker
from tiercel.broker.progress.publisher import MqttPublisher
from tiercel.broker.scheduling.loop import LoopSettings
from tiercel.broker.scheduling.registry import create_policy
from tiercel.broker.state_lock import state_lock
from tiercel.broker.store.checkpoints import CheckpointStore
from tiercel.broker.store.logs import RunLogs
from tiercel.broker.store.sql import SqlStore, sqlite_url
from tiercel.broker.tenancy import open_tenancy
from tiercel.v1 import jobs_pb2, jobs_pb2_grpc, nodes_pb2, nodes_pb2_grpc

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import TracebackType

    from tiercel.broker.domain.nodes import Node
    from tiercel.broker.scheduling.registry import AnyPolicy
    from tiercel.broker.settings import BrokerSettings
    from tiercel.broker.store.contract import Store
    from tiercel.broker.tenancy import Tenancy

logger = logging.getLogger(__name__)

SERVICES = (
    jobs_pb2.DESCRIPTOR.services_by_name["JobsService"].full_name,
    nodes_pb2.DESCRIPTOR.services_by_name["NodesService"].full_name,
)
STOP_GRACE_SECONDS = 1.0
SERVING_POLL_SECONDS = 0.1
# A script of 1 MiB travels in a message, and a node is told of all its runs at once.
MAX_MESSAGE_BYTES = 64 * 1024 * 1024
# At the same time, streams included; more are refused at once.
MAX_CALLS = 1_000


class Broker:
    """A running broker; an async context manager that listens inside.

    Args:
        settings: How it runs.

    Raises:
        InvalidSpecError: On entering: a setting is wrong; ``field`` names it.
        UnavailableError: On entering: the port is taken, or the store cannot be opened.
    """

    def __init__(self, settings: BrokerSettings) -> None:
        self._settings = settings
        self._clock = SystemClock()
        self._stack = contextlib.AsyncExitStack()
        self._supervisor = Supervisor()
        self._system: System | None = None
        self.broker_address = ""
        self.mqtt_address = ""

    async def __aenter__(self) -> Self:
        async with contextlib.AsyncExitStack() as stack:
            await self._start(stack)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.__aexit__(kind, error, trace)

    async def wait_serving(self, node_id: Callable[[], str]) -> tuple[str, str]:
        """Wait for the inference server of a node; returns where it answers by HTTP and by gRPC, ``host:port`` each.

        Args:
            node_id: The node; asked again as long as this waits.
        """
        while True:
            for node in self._nodes():
                if node.id == node_id() and node.online and node.serving_http:
                    return node.serving_http, node.serving_grpc
            await asyncio.sleep(SERVING_POLL_SECONDS)

    async def wait_failed(self) -> NoReturn:
        """Wait for ever, unless a part of the broker fails for good.

        Raises:
            Exception: The part's error.
        """
        raise await self._supervisor.wait_failed()

    def _nodes(self) -> list[Node]:
        return list(self._system.nodes()) if self._system is not None else []

    async def _start(self, stack: contextlib.AsyncExitStack) -> None:
        settings = self._settings
        _require_loopback(settings.host)
        policy = create_policy(settings.policy, settings.policy_options)
        _make_state_dir(settings.state_dir)
        stack.enter_context(state_lock(settings.state_dir))
        tenancy = open_tenancy(settings.state_dir, settings.tenants)
        server = _make_server()
        # Before anything changes: a port that is taken must leave the state as it is.
        port = _bind(server, settings.host, settings.broker_port)
        stack.push_async_callback(server.stop, STOP_GRACE_SECONDS)
        store = await stack.enter_async_context(SqlStore(sqlite_url(settings.state_dir / "broker.sqlite")))
        logs = RunLogs(settings.state_dir / "logs")
        carried = CheckpointStore(settings.state_dir / "checkpoints")
        publisher = await self._open_mqtt(stack)
        supervisor = await stack.enter_async_context(self._supervisor)
        journal = Journal(store, self._clock, await store.last_sequence(), [publisher.publish_nowait])
        system = self._system = self._make_system(policy, store, journal, tenancy, carried)
        supervisor.start(publisher.run(), name="MQTT publisher")
        supervisor.start(journal.run(), name="journal")
        await system.start()
        jobs = JobsService(system, journal, store, logs, tenancy)
        # On the way out streams end first, before what they stand on.
        stack.push_async_callback(server.stop, STOP_GRACE_SECONDS)
        await _serve(server, jobs, NodesService(system, logs, tenancy, settings, carried))
        self.broker_address = f"{settings.host}:{port}"

    def _make_system(
        self, policy: AnyPolicy, store: Store, journal: Journal, tenancy: Tenancy, carried: CheckpointStore
    ) -> System:
        settings = self._settings
        directory = Directory(
            journal,
            policy,
            LoopSettings(interval_seconds=settings.interval_seconds),
            self._supervisor,
            self._clock,
            LeaseSettings(settings.lease_seconds, settings.gone_after_seconds),
            {tenant.name: tenant.weight for tenant in tenancy.tenants.values()},
            carried,
        )
        return System(store, journal, directory, self._supervisor, self._clock, carried)

    async def _open_mqtt(self, stack: contextlib.AsyncExitStack) -> MqttPublisher:
        settings = self._settings
        url = settings.mqtt_url
        if not url:
            embedded = await stack.enter_async_context(EmbeddedMqttBroker(settings.host, settings.mqtt_port))
            url = embedded.url
        publisher = MqttPublisher(url, username=settings.mqtt_username, password=settings.mqtt_password)
        self.mqtt_address = publisher.address
        return publisher


def _make_state_dir(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise InvalidSpecError(
            f"state_dir: {path} cannot be made ({error.strerror}); choose a folder that you may write to",
            field="state_dir",
        ) from error


def _make_server() -> grpc.aio.Server:
    return grpc.aio.server(
        options=[
            ("grpc.so_reuseport", 0),
            ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
            ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
        ],
        maximum_concurrent_rpcs=MAX_CALLS,
    )


async def _serve(server: grpc.aio.Server, jobs: JobsService, nodes: NodesService) -> None:
    jobs_pb2_grpc.add_JobsServiceServicer_to_server(jobs, server)
    nodes_pb2_grpc.add_NodesServiceServicer_to_server(nodes, server)
    checks = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(checks, server)
    reflection.enable_server_reflection((*SERVICES, health.SERVICE_NAME, reflection.SERVICE_NAME), server)
    for service in ("", *SERVICES):
        await checks.set(service, health_pb2.HealthCheckResponse.SERVING)
    await server.start()


def _bind(server: grpc.aio.Server, host: str, port: int) -> int:
    try:
        return server.add_insecure_port(f"{host}:{port}")
    except RuntimeError as error:
        raise UnavailableError(
            f"port {port} of {host} is in use; choose another with --broker-port, or 0 for any that is free"
        ) from error


def _require_loopback(host: str) -> None:
    try:
        loopback = ipaddress.IPv4Address(host).is_loopback
    except ValueError:
        loopback = False
    if not loopback:
        raise InvalidSpecError(
            f"host: {host!r} is not an address of this machine alone, and calls are not encrypted; use 127.0.0.1",
            field="host",
        )
