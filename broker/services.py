"""What the broker answers at its doors, and what it does of its own accord."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tiercel.broker.access.quotas import Quotas
from tiercel.broker.actors.agents import AgentService
from tiercel.broker.actors.artefacts.checkpoints import CheckpointKeeper
from tiercel.broker.actors.artefacts.database import DatabaseKeeper
from tiercel.broker.actors.artefacts.keeper import ArtefactKeeper, Kind
from tiercel.broker.actors.artefacts.own import OwnArtefacts
from tiercel.broker.actors.artefacts.projects import ProjectKeeper
from tiercel.broker.actors.artefacts.versions import VersionKeeper
from tiercel.broker.actors.endpoint_keys import KeyService
from tiercel.broker.actors.hard_deadlines import HardDeadlines
from tiercel.broker.actors.model_files import ModelFiles
from tiercel.broker.actors.predictions import Predictions
from tiercel.broker.actors.retention import Retention
from tiercel.broker.api import listeners
from tiercel.broker.api.access import AccessService
from tiercel.broker.api.addresses import AddressesService
from tiercel.broker.api.audit import AuditService
from tiercel.broker.api.authority import AuthorityService
from tiercel.broker.api.dashboard import DashboardService
from tiercel.broker.api.disk import DiskService
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
from tiercel.broker.store.endpoint_keys import KeyStore
from tiercel.broker.store.inventory import Inventory
from tiercel.broker.store.predictions import PredictionStore
from tiercel.broker.store.quotas import QuotaStore
from tiercel.broker.store.stored_projects import StoredProjects
from tiercel.v1 import membership_pb2_grpc, nodes_pb2_grpc

if TYPE_CHECKING:
    from tiercel.broker.access.tokens import Tokens
    from tiercel.broker.actors.clock import Clock
    from tiercel.broker.actors.journal import Journal
    from tiercel.broker.actors.maintenance import Maintenance
    from tiercel.broker.actors.policy_choice import PolicyKeeper
    from tiercel.broker.actors.registry import ActorRegistry
    from tiercel.broker.actors.service import BrokerService
    from tiercel.broker.actors.supervisor import Supervisor
    from tiercel.broker.opening import Entrance, Kept
    from tiercel.broker.settings import BrokerSettings
    from tiercel.core.traces import Tracing


@dataclass(frozen=True, slots=True)
class Running:
    """The broker's actors, and what acts on them."""

    settings: BrokerSettings  # how the broker runs
    clock: Clock  # the time
    supervisor: Supervisor  # starts tasks
    journal: Journal  # makes steps durable
    registry: ActorRegistry  # the actors
    service: BrokerService  # what tenants ask for
    maintenance: Maintenance  # nodes that are drained
    policies: PolicyKeeper  # which policy decides
    tokens: Tokens  # who may come in
    tracing: Tracing | None = None  # makes spans of calls that are part of a trace; None for none


def keep_artefacts(kept: Kept, running: Running) -> None:
    """Look after the artefact store, if there is one; once all is known: what nobody needs is removed."""
    if kept.artefacts is None:
        return
    settings, clock, registry = running.settings, running.clock, running.registry
    own = OwnArtefacts(*kept.artefacts, clock, settings.artefacts_bytes, settings.artefacts_patience)
    kinds: list[Kind] = [
        CheckpointKeeper(own, kept.checkpoints, registry, clock),
        VersionKeeper(own, kept.versions, registry),
        ProjectKeeper(own, kept.projects, StoredProjects(kept.store), registry, clock, settings.state_dir),
    ]
    database = DatabaseKeeper(
        own, kinds, settings.state_dir / "broker.sqlite", clock, settings.artefacts_database_seconds
    )
    running.supervisor.start(ArtefactKeeper(own, [*kinds, database], clock).run(), name="artefact keeper")


async def answer_tenants(entrance: Entrance, kept: Kept, running: Running) -> None:
    """Add what tenants and operators ask for to their doors."""
    service, registry, tenancy = running.service, running.registry, entrance.tenancy
    settings, clock, doors = running.settings, running.clock, entrance.doors
    keys = KeyService(KeyStore(kept.store), service, registry, clock)
    await keys.start()
    inventory = Inventory(settings.state_dir, kept.store, kept.logs, kept.files, kept.projects)
    quotas = Quotas(
        QuotaStore(kept.store),
        tenancy,
        inventory,
        registry.uses,
        projects_bytes=settings.tenant_projects_bytes,
        files_bytes=settings.tenant_files_bytes,
    )
    await quotas.start()
    retention = Retention(service, inventory, clock, settings.retention)
    running.supervisor.start(retention.run(), name="retention")
    running.supervisor.start(service.retrainings.run(), name="retraining")
    predictions = Predictions(
        PredictionStore(kept.store), kept.store, registry, running.policies, clock, settings.interval_seconds
    )
    await predictions.start()
    promises = HardDeadlines(predictions, clock)
    running.supervisor.start(predictions.run(), name="predictions")
    encrypted = doors.addresses.get("broker_tls", "")
    services = (
        JobsService(service, running.journal, kept.store, kept.logs, tenancy, kept.projects, promises, running.tracing),
        DiskService(service, inventory, retention, tenancy),
        FilesService(service, kept.files, tenancy),
        LineageService(service, kept.store, tenancy),
        ModelsService(service, ModelFiles(service, registry, kept.versions), kept.versions, tenancy),
        ProjectsService(kept.projects, tenancy),
        SecretsService(kept.secrets, tenancy),
        MembershipService(entrance.membership, running.maintenance, encrypted, doors.nodes_port, service.is_own),
        AccessService(entrance.membership, tenancy),
        TokensService(running.tokens),
        AddressesService(service, tenancy),
        StatusService(registry, tenancy, entrance.rotation),
        KeysService(keys, service, tenancy),
        AuditService(entrance.audit),
        PolicyService(running.policies, registry.scheduler, running.supervisor),
        QuotasService(quotas, registry, tenancy),
        AuthorityService(entrance.rotation),
        DashboardService(entrance.dashboard.sign_in, *entrance.dashboard.urls),
        WhatIfService(predictions, tenancy),
    )
    await listeners.add_tenants_services(doors.methods, services)


def answer_nodes(entrance: Entrance, kept: Kept, running: Running) -> None:
    """Add what agents ask for to their doors: on this machine, and those that have joined."""
    agents = AgentService(running.journal, running.registry, running.clock)
    doors, membership = entrance.doors, entrance.membership

    def service_at(door: NodeDoor) -> NodesService:
        return NodesService(
            agents,
            kept.logs,
            door,
            running.settings,
            kept.checkpoints,
            kept.files,
            kept.secrets,
            kept.projects,
            kept.versions,
        )

    local = service_at(LocalDoor(entrance.tenancy, membership))
    nodes_pb2_grpc.add_NodesServiceServicer_to_server(local, doors.nodes)
    if doors.members is not None and membership is not None:
        joined = service_at(MembersDoor(membership, doors.strangers))
        nodes_pb2_grpc.add_NodesServiceServicer_to_server(joined, doors.members)
        certificates = CertificatesService(membership)
        membership_pb2_grpc.add_CertificatesServiceServicer_to_server(certificates, doors.members)
