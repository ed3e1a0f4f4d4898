"""The broker as a whole: opens the store, starts the actors, listens."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import secrets
from typing import TYPE_CHECKING, NoReturn, Self

from tiercel.broker.access.audit import Audit
from tiercel.broker.access.quotas import Quotas
from tiercel.broker.access.tokens import Tokens
from tiercel.broker.actors.agents import AgentService
from tiercel.broker.actors.artefacts.checkpoints import CheckpointKeeper
from tiercel.broker.actors.artefacts.database import DatabaseKeeper
from tiercel.broker.actors.artefacts.keeper import ArtefactKeeper, Kind
from tiercel.broker.actors.artefacts.own import OwnArtefacts
from tiercel.broker.actors.artefacts.versions import VersionKeeper
from tiercel.broker.actors.clock import SystemClock
from tiercel.broker.actors.endpoint_keys import KeyService
from tiercel.broker.actors.journal import Journal
from tiercel.broker.actors.life import BrokerLife
from tiercel.broker.actors.maintenance import Maintenance
from tiercel.broker.actors.model_files import ModelFiles
from tiercel.broker.actors.policy_choice import PolicyKeeper
from tiercel.broker.actors.registry import ActorRegistry
from tiercel.broker.actors.retention import Retention
from tiercel.broker.actors.secrets import SecretService
from tiercel.broker.actors.service import BrokerService
from tiercel.broker.actors.supervisor import Supervisor
from tiercel.broker.api import listeners
from tiercel.broker.api.access import AccessService
from tiercel.broker.api.addresses import AddressesService
from tiercel.broker.api.audit import AuditService
from tiercel.broker.api.authority import AuthorityService, finish_in_time
from tiercel.broker.api.dashboard import DashboardService
from tiercel.broker.api.disk import DiskService
from tiercel.broker.api.doors import Doors
from tiercel.broker.api.files import FilesService
from tiercel.broker.api.jobs import JobsService
from tiercel.broker.api.keys import KeysService
from tiercel.broker.api.lineage import LineageService
from tiercel.broker.api.membership import CertificatesService, MembershipService
from tiercel.broker.api.models import ModelsService
from tiercel.broker.api.node_doors import LocalDoor, MembersDoor, NodeDoor
from tiercel.broker.api.nodes import NodesService
from tiercel.broker.api.policy import PolicyService
from tiercel.broker.api.projects import ProjectsService
from tiercel.broker.api.quotas import QuotasService
from tiercel.broker.api.secrets import SecretsService
from tiercel.broker.api.status import StatusService
from tiercel.broker.api.tokens import TokensService
from tiercel.broker.api.what_if import WhatIfService
from tiercel.broker.dashboard.dashboard import Dashboard
from tiercel.broker.progress.door import Place
from tiercel.broker.progress.embedded import EmbeddedMqttBroker
from tiercel.broker.progress.publisher import MqttPublisher
from tiercel.broker.scheduling.loop import LoopSettings
from tiercel.broker.state_folder import prepare_state_dir
from tiercel.broker.state_lock import broker_lock
from tiercel.broker.store.artefact_owner import owner_name
from tiercel.broker.store.artefacts.opening import open_artefacts
from tiercel.broker.store.artefacts.ownership import Ownership
from tiercel.broker.store.audit import AuditStore
from tiercel.broker.store.checkpoints import CheckpointStore
from tiercel.broker.store.drains import DrainStore
from tiercel.broker.store.endpoint_keys import KeyStore
from tiercel.broker.store.inventory import Inventory
from tiercel.broker.store.kept_files import KeptFiles
from tiercel.broker.store.logs import RunLogs
from tiercel.broker.store.members import MemberStore
from tiercel.broker.store.policy import PolicyStore
from tiercel.broker.store.projects import ProjectStore
from tiercel.broker.store.quotas import QuotaStore
from tiercel.broker.store.sealing import Sealer
from tiercel.broker.store.sql import SqlStore, sqlite_url
from tiercel.broker.store.tokens import TokenStore
from tiercel.broker.store.version_files import VersionStore
from tiercel.broker.tenancy import open_tenancy
from tiercel.broker.trust.encryption import open_encryption
from tiercel.broker.trust.membership import Membership
from tiercel.broker.trust.rotation import Rotation
from tiercel.core.blobs import BlobFolder
from tiercel.core.errors import ConflictError, TiercelError, wrong_field
from tiercel.v1 import membership_pb2_grpc, nodes_pb2_grpc

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from types import TracebackType

    from tiercel.broker.access.people.people import People
    from tiercel.broker.scheduling.registry import AnyPolicy
    from tiercel.broker.settings import BrokerSettings
    from tiercel.broker.store.artefacts.contract import Artefacts
    from tiercel.broker.tenancy import Tenancy
    from tiercel.broker.trust.encryption import Encryption
    from tiercel.broker.trust.kept_authority import KeptAuthority
    from tiercel.core.nodes import Node

logger = logging.getLogger(__name__)

SERVING_POLL_SECONDS = 0.1
ARTEFACTS_SECONDS = 5.0


class Broker:
    """A running broker; an async context manager that listens inside.

    Args:
        settings: How it runs.

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

    def __init__(self, settings: BrokerSettings) -> None:
        self._settings = settings
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
        _require_loopback(settings.host)
        store = SqlStore(sqlite_url(settings.state_dir / "broker.sqlite"))
        policies = PolicyKeeper(
            settings.policy, settings.policy_options, PolicyStore(store), is_told=settings.is_policy_told
        )
        prepare_state_dir(settings.state_dir)
        stack.enter_context(broker_lock(settings.state_dir))
        tenancy = open_tenancy(settings.state_dir, settings.tenants, self._clock.now)
        people = _open_people(settings, tenancy, self._clock)
        sealer = Sealer.open(settings.state_dir)
        encryption = self._encryption = open_encryption(settings, self._clock.now)
        membership = rotation = None
        if encryption is not None:
            self.authority = kept = encryption.authority
            membership = Membership(MemberStore(store), kept, self._clock, lambda: encryption.pin)
            rotation = Rotation(kept, membership, self._clock)
        audit = Audit(AuditStore(store), self._clock)
        doors = Doors(settings, tenancy, encryption, membership, audit, people)
        # Before anything changes: a port that is taken must leave the state as it is.
        stack.push_async_callback(doors.stop)
        doors.bind()
        dashboard = self.dashboard = Dashboard(settings, encryption, tenancy, self._clock, store, sealer)
        stack.push_async_callback(dashboard.stop)
        dashboard.bind()
        await stack.enter_async_context(store)
        if membership is not None:
            await membership.start()
        tokens = Tokens(TokenStore(store), tenancy, self._clock)
        await tokens.start()
        await audit.start()
        logs = RunLogs(settings.state_dir / "logs")
        carried = CheckpointStore(settings.state_dir / "checkpoints", total_bytes=settings.checkpoints_bytes)
        artefacts = await self._open_artefacts(stack, store)
        versions = VersionStore(settings.state_dir / "versions")
        projects = ProjectStore(settings.state_dir / "projects", settings.project_bytes, settings.tenant_projects_bytes)
        news = await self._open_mqtt(stack, tenancy, encryption)
        supervisor = await stack.enter_async_context(self._supervisor)
        told = [news.publish_nowait, dashboard.publisher.publish_nowait]
        journal = Journal(store, self._clock, await store.last_sequence(), told)
        members = membership.nodes if membership is not None else frozenset
        registry = self._make_registry(
            await policies.start(), journal, tenancy, carried, versions, members, has_store=artefacts is not None
        )
        service = self._service = BrokerService(store, journal, registry, supervisor, self._clock)
        if isinstance(news, MqttPublisher):
            supervisor.start(news.run(), name="MQTT publisher")
        supervisor.start(journal.run(), name="journal")
        maintenance = Maintenance(DrainStore(store), registry)
        await maintenance.start()
        supervisor.start(audit.run(), name="audit log")
        life = BrokerLife(store, journal, registry, supervisor, self._clock, carried, versions)
        await life.start()
        if artefacts is not None:  # once all is known: what nobody needs is removed
            own = OwnArtefacts(*artefacts, self._clock, settings.artefacts_bytes, settings.artefacts_patience)
            kinds: list[Kind] = [
                CheckpointKeeper(own, carried, registry, self._clock),
                VersionKeeper(own, versions, registry),
            ]
            database = settings.state_dir / "broker.sqlite"
            kinds.append(DatabaseKeeper(own, kinds[:], database, self._clock, settings.artefacts_database_seconds))
            supervisor.start(ArtefactKeeper(own, kinds, self._clock).run(), name="artefact keeper")
        keys = KeyService(KeyStore(store), service, registry, self._clock)
        await keys.start()
        secret_service = SecretService(store, sealer, self._clock)
        jobs_service = JobsService(service, journal, store, logs, tenancy, projects)
        files = KeptFiles(store, BlobFolder(settings.state_dir / "files"), settings.file_limits)
        await files.start()
        inventory = Inventory(settings.state_dir, store, logs, files, projects)
        limits = settings.tenant_projects_bytes, settings.tenant_files_bytes
        quotas = Quotas(QuotaStore(store), tenancy, inventory, *limits)
        await quotas.start()
        retention = Retention(service, inventory, self._clock, settings.retention)
        supervisor.start(retention.run(), name="retention")
        await listeners.add_tenants_services(
            doors.methods,
            jobs_service,
            DiskService(service, inventory, retention, tenancy),
            FilesService(service, files, tenancy),
            LineageService(service, store, tenancy),
            ModelsService(service, ModelFiles(service, registry, versions), tenancy),
            ProjectsService(projects, tenancy),
            SecretsService(secret_service, tenancy),
            MembershipService(
                membership, maintenance, doors.addresses.get("broker_tls", ""), doors.nodes_port, self._is_online
            ),
            AccessService(membership, tenancy),
            TokensService(tokens),
            AddressesService(service, tenancy),
            StatusService(registry, tenancy, rotation),
            KeysService(keys, service, tenancy),
            AuditService(audit),
            PolicyService(policies, registry.scheduler, supervisor),
            QuotasService(quotas, registry, tenancy),
            AuthorityService(rotation),
            DashboardService(dashboard.sign_in, *dashboard.urls),
            WhatIfService(registry, tenancy, policies, settings.interval_seconds),
        )
        agents = AgentService(journal, registry, self._clock)

        def nodes_service(door: NodeDoor) -> NodesService:
            return NodesService(agents, logs, door, settings, carried, files, secret_service, projects, versions)

        local = nodes_service(LocalDoor(tenancy, membership))
        nodes_pb2_grpc.add_NodesServiceServicer_to_server(local, doors.nodes)
        if doors.members is not None and membership is not None:
            joined = nodes_service(MembersDoor(membership, doors.strangers))
            nodes_pb2_grpc.add_NodesServiceServicer_to_server(joined, doors.members)
            certificates = CertificatesService(membership)
            membership_pb2_grpc.add_CertificatesServiceServicer_to_server(certificates, doors.members)
        # On the way out streams end first, before what they stand on, and what they were is written down.
        stack.push_async_callback(audit.flush)
        stack.push_async_callback(doors.stop)
        stack.push_async_callback(dashboard.stop)
        await doors.start()
        await dashboard.start(doors.calls, service, registry, logs)
        supervisor.start(dashboard.run(), name="dashboard")
        supervisor.start(doors.keep_room(), name="room at the doors")
        if people is not None:
            supervisor.start(people.run(), name="keys of the provider")
        if rotation is not None:
            supervisor.start(finish_in_time(rotation, audit, self._clock), name="rotation of the authority")
        self.broker_address, self.nodes_address = doors.addresses["broker"], doors.addresses["nodes"]
        self._addresses = {**doors.addresses, **dashboard.addresses, "mqtt": self.mqtt_address}
        if isinstance(news, EmbeddedMqttBroker) and news.wide_address:
            self._addresses["mqtt_tls"] = news.wide_address

    def _is_online(self, node_id: str) -> bool:
        return any(node.id == node_id and node.online for node in self._nodes())

    def _make_registry(
        self,
        policy: AnyPolicy,
        journal: Journal,
        tenancy: Tenancy,
        carried: CheckpointStore,
        versions: VersionStore,
        joined: Callable[[], Collection[str]],
        *,
        has_store: bool,
    ) -> ActorRegistry:
        settings = self._settings
        return ActorRegistry(
            journal,
            policy,
            LoopSettings(interval_seconds=settings.interval_seconds),
            self._supervisor,
            self._clock,
            settings.leases,
            {tenant.name: tenant.weight for tenant in tenancy.tenants.values()},
            carried,
            versions,
            joined,
            has_store=has_store,
        )

    async def _open_artefacts(
        self, stack: contextlib.AsyncExitStack, store: SqlStore
    ) -> tuple[Artefacts, Ownership] | None:
        if not self._settings.artefacts:
            return None
        artefacts = open_artefacts(self._settings.artefacts)
        stack.push_async_callback(artefacts.close)
        ownership = Ownership(artefacts, await owner_name(store), secrets.token_hex(8))
        try:
            await ownership.ensure(ARTEFACTS_SECONDS)
        except ConflictError:
            raise
        except TiercelError as error:  # jobs go on without it
            logger.warning("%s", error.message)
        return artefacts, ownership

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


def _open_people(settings: BrokerSettings, tenancy: Tenancy, clock: SystemClock) -> People | None:
    if not settings.oidc_issuer and not settings.oidc_audience:
        return None
    # What verifies tokens of a provider takes a moment to import, and most brokers have none.
    from tiercel.broker.access.people.people import open_people

    return open_people(settings, tenancy, clock)


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
