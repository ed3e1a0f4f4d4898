"""The broker as a whole: opens the store, starts the actors, listens."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
from typing import TYPE_CHECKING, NoReturn, Self

from tiercel.broker.access.tokens import Tokens
from tiercel.broker.actors.clock import SystemClock
from tiercel.broker.actors.journal import Journal
from tiercel.broker.actors.life import BrokerLife
from tiercel.broker.actors.maintenance import Maintenance
from tiercel.broker.actors.policy_choice import PolicyKeeper
from tiercel.broker.actors.registry import ActorRegistry
from tiercel.broker.actors.service import BrokerService
from tiercel.broker.actors.supervisor import Supervisor
from tiercel.broker.api.authority import finish_in_time
from tiercel.broker.opening import bind_entrance, open_kept
from tiercel.broker.progress.door import Place
from tiercel.broker.progress.embedded import EmbeddedMqttBroker
from tiercel.broker.progress.job_spans import trace_jobs
from tiercel.broker.progress.publisher import MqttPublisher
from tiercel.broker.scheduling.loop import LoopSettings
from tiercel.broker.services import Running, answer_nodes, answer_tenants, keep_artefacts
from tiercel.broker.state_folder import prepare_state_dir
from tiercel.broker.state_lock import broker_lock
from tiercel.broker.store.drains import DrainStore
from tiercel.broker.store.policy import PolicyStore
from tiercel.broker.store.sql import Store, sqlite_url
from tiercel.broker.store.tokens import TokenStore
from tiercel.core.errors import wrong_field

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from tiercel.broker.dashboard.dashboard import Dashboard
    from tiercel.broker.opening import Entrance, Kept
    from tiercel.broker.scheduling.registry import AnyPolicy
    from tiercel.broker.settings import BrokerSettings
    from tiercel.broker.tenancy import Tenancy
    from tiercel.broker.trust.encryption import Encryption
    from tiercel.broker.trust.kept_authority import KeptAuthority
    from tiercel.core.events import Event
    from tiercel.core.nodes import Node
    from tiercel.core.traces import Tracing

SERVING_POLL_SECONDS = 0.1


class Broker:
    """A running broker; an async context manager that listens inside.

    Args:
        tracing: Gets the parts of jobs' lives; it is closed in the end. None for nobody.

    Raises:
        InvalidSpecError: On entering: a setting is wrong; ``field`` names it.
        UnavailableError: On entering: the port is taken, or the store cannot be opened.

    Attributes:
        broker_address: Where tenants of this machine call, ``host:port``.
        nodes_address: Where agents of this machine do.
        mqtt_address: Where MQTT answers.
        dashboard: What browsers see; None before it was entered.
        authority: Vouches for nodes; None where the broker listens on this machine alone.
    """

    def __init__(self, settings: BrokerSettings, tracing: Tracing | None = None) -> None:
        self._settings = settings
        self._tracing = tracing
        self._clock = SystemClock()
        self._stack = contextlib.AsyncExitStack()
        self._supervisor = Supervisor()
        self._service: BrokerService | None = None
        self.broker_address = ""
        self.nodes_address = ""
        self.mqtt_address = ""
        self.authority: KeptAuthority | None = None
        self.dashboard: Dashboard | None = None
        self._addresses: dict[str, str] = {}
        self._encryption: Encryption | None = None

    async def __aenter__(self) -> Self:
        async with contextlib.AsyncExitStack() as stack:
            await self._start(stack)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.__aexit__(kind, error, trace)

    @property
    def addresses(self) -> dict[str, str]:
        """All of them by the keys of ``addresses.json``, those of encrypted doors among them, with the pin of now."""
        return {**self._addresses, **({"pin": self._encryption.pin} if self._encryption is not None else {})}

    async def wait_serving(self, node_id: Callable[[], str]) -> dict[str, str]:
        """Wait for the inference server of a node here; returns where it answers, by the keys of ``addresses.json``.

        Args:
            node_id: The node; asked again as long as this waits.
        """
        while True:
            for node in self._nodes():
                if node.id == node_id() and node.online and node.serving_http:
                    return _addresses_of(node)
            await asyncio.sleep(SERVING_POLL_SECONDS)

    async def wait_failed(self) -> NoReturn:
        """Wait for ever, unless a part of the broker fails for good.

        Raises:
            Exception: The part's error.
        """
        raise await self._supervisor.wait_failed()

    def _nodes(self) -> list[Node]:
        return list(self._service.nodes()) if self._service is not None else []

    async def _start(self, stack: contextlib.AsyncExitStack) -> None:
        settings = self._settings
        if self._tracing is not None:
            stack.push_async_callback(asyncio.to_thread, self._tracing.close)
        _require_loopback(settings.host)
        store = Store(sqlite_url(settings.state_dir / "broker.sqlite"))
        policies = PolicyKeeper(
            settings.policy, settings.policy_options, PolicyStore(store), is_told=settings.is_policy_told
        )
        prepare_state_dir(settings.state_dir)
        stack.enter_context(broker_lock(settings.state_dir))
        entrance = bind_entrance(settings, store, self._clock, stack)
        self.dashboard, self._encryption = entrance.dashboard, entrance.encryption
        self.authority = entrance.encryption.authority if entrance.encryption is not None else None
        await stack.enter_async_context(store)
        if entrance.membership is not None:
            await entrance.membership.start()
        tokens = Tokens(TokenStore(store), entrance.tenancy, self._clock)
        await tokens.start()
        await entrance.audit.start()
        kept = await open_kept(settings, store, entrance.sealer, self._clock, stack)
        news = await self._open_mqtt(stack, entrance.tenancy, entrance.encryption)
        supervisor = await stack.enter_async_context(self._supervisor)
        running = await self._start_actors(entrance, kept, news, policies, tokens)
        keep_artefacts(kept, running)
        await answer_tenants(entrance, kept, running)
        answer_nodes(entrance, kept, running)
        await self._open_doors(entrance, kept, running, stack)
        self._start_housekeeping(entrance, supervisor)
        self._note_addresses(entrance, news)

    async def _start_actors(
        self,
        entrance: Entrance,
        kept: Kept,
        news: MqttPublisher | EmbeddedMqttBroker,
        policies: PolicyKeeper,
        tokens: Tokens,
    ) -> Running:
        store, supervisor, clock = kept.store, self._supervisor, self._clock
        told: list[Callable[[Event], None]] = [news.publish_nowait, entrance.dashboard.publisher.publish_nowait]
        if self._tracing is not None:
            told.append(trace_jobs(self._tracing, lambda job_id: job_id in registry.jobs))
        journal = Journal(store, clock, await store.last_sequence(), told)
        registry = self._make_registry(await policies.start(), journal, entrance, kept)
        service = self._service = BrokerService(store, journal, registry, supervisor, clock, entrance.tenancy.find)
        if isinstance(news, MqttPublisher):
            supervisor.start(news.run(), name="MQTT publisher")
        supervisor.start(journal.run(), name="journal")
        maintenance = Maintenance(DrainStore(store), registry)
        await maintenance.start()
        supervisor.start(entrance.audit.run(), name="audit log")
        life = BrokerLife(store, journal, registry, supervisor, clock, kept.checkpoints, kept.versions)
        await life.start()
        return Running(
            *(self._settings, clock, supervisor, journal, registry, service, maintenance, policies, tokens),
            tracing=self._tracing,
        )

    async def _open_doors(
        self, entrance: Entrance, kept: Kept, running: Running, stack: contextlib.AsyncExitStack
    ) -> None:
        # On the way out streams end first, before what they stand on, and what they were is written down.
        stack.push_async_callback(entrance.audit.flush)
        stack.push_async_callback(entrance.doors.stop)
        stack.push_async_callback(entrance.dashboard.stop)
        await entrance.doors.start()
        await entrance.dashboard.start(entrance.doors.calls, running.service, running.registry, kept.logs)

    def _start_housekeeping(self, entrance: Entrance, supervisor: Supervisor) -> None:
        supervisor.start(entrance.dashboard.run(), name="dashboard")
        supervisor.start(entrance.doors.keep_room(), name="room at the doors")
        if entrance.people is not None:
            supervisor.start(entrance.people.run(), name="keys of the provider")
        if entrance.rotation is not None:
            finishing = finish_in_time(entrance.rotation, entrance.audit, self._clock)
            supervisor.start(finishing, name="rotation of the authority")

    def _note_addresses(self, entrance: Entrance, news: MqttPublisher | EmbeddedMqttBroker) -> None:
        doors = entrance.doors.addresses
        self.broker_address, self.nodes_address = doors["broker"], doors["nodes"]
        self._addresses = {**doors, **entrance.dashboard.addresses, "mqtt": self.mqtt_address}
        if isinstance(news, EmbeddedMqttBroker) and news.wide_address:
            self._addresses["mqtt_tls"] = news.wide_address

    def _make_registry(self, policy: AnyPolicy, journal: Journal, entrance: Entrance, kept: Kept) -> ActorRegistry:
        settings, membership = self._settings, entrance.membership
        return ActorRegistry(
            journal,
            policy,
            LoopSettings(interval_seconds=settings.interval_seconds),
            self._supervisor,
            self._clock,
            settings.leases,
            entrance.tenancy.tenants,
            kept.checkpoints,
            kept.versions,
            membership.nodes if membership is not None else frozenset,
            has_store=kept.artefacts is not None,
        )

    async def _open_mqtt(
        self, stack: contextlib.AsyncExitStack, tenancy: Tenancy, encryption: Encryption | None
    ) -> MqttPublisher | EmbeddedMqttBroker:
        settings = self._settings
        news: MqttPublisher | EmbeddedMqttBroker
        if settings.mqtt_url:
            news = MqttPublisher(settings.mqtt_url, username=settings.mqtt_username, password=settings.mqtt_password)
        else:
            wide = None
            if encryption is not None:
                port, option = settings.listen_mqtt_port, "--listen-mqtt-port"
                wide = Place(settings.listen, port, option, encryption.shown, encryption.host)
            embedded = EmbeddedMqttBroker(tenancy, settings.host, settings.mqtt_port, wide=wide)
            news = await stack.enter_async_context(embedded)
        self.mqtt_address = news.address
        return news


def _require_loopback(host: str) -> None:
    try:
        loopback = ipaddress.IPv4Address(host).is_loopback
    except ValueError:
        loopback = False
    if not loopback:
        raise wrong_field(
            "host", f"{host!r} is not an address of this machine alone, and calls are not encrypted; use 127.0.0.1"
        )


def _addresses_of(node: Node) -> dict[str, str]:
    told = {"serving_https": (node.serving_http, "https://"), "serving_grpcs": (node.serving_grpc, "grpcs://")}
    encrypted = {name: found.removeprefix(scheme) for name, (found, scheme) in told.items() if found.startswith(scheme)}
    here = node.local_http or node.serving_http, node.local_grpc or node.serving_grpc
    return {"serving_http": here[0], "serving_grpc": here[1], **encrypted}
