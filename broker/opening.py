"""What the broker stands on: the doors, bound before anything changes, and what it keeps."""

from __future__ import annotations

import logging
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tiercel.broker.access.audit import Audit
from tiercel.broker.actors.secrets import SecretService
from tiercel.broker.api.doors import Doors
from tiercel.broker.dashboard.dashboard import Dashboard
from tiercel.broker.store.artefact_owner import owner_name
from tiercel.broker.store.artefacts.opening import open_artefacts
from tiercel.broker.store.artefacts.ownership import Ownership
from tiercel.broker.store.audit import AuditStore
from tiercel.broker.store.checkpoints import CheckpointStore
from tiercel.broker.store.disk_room import DiskRoom
from tiercel.broker.store.kept_files import KeptFiles
from tiercel.broker.store.logs import RunLogs
from tiercel.broker.store.members import MemberStore
from tiercel.broker.store.projects import ProjectStore
from tiercel.broker.store.sealing import Sealer
from tiercel.broker.store.version_files import VersionStore
from tiercel.broker.tenancy import open_tenancy
from tiercel.broker.trust.encryption import open_encryption
from tiercel.broker.trust.membership import Membership
from tiercel.broker.trust.rotation import Rotation
from tiercel.core.errors import ConflictError, TiercelError

if TYPE_CHECKING:
    import contextlib

    from tiercel.broker.access.people.people import People
    from tiercel.broker.actors.clock import Clock
    from tiercel.broker.settings import BrokerSettings
    from tiercel.broker.store.artefacts.contract import Artefacts
    from tiercel.broker.store.sql import Store
    from tiercel.broker.tenancy import Tenancy
    from tiercel.broker.trust.encryption import Encryption

logger = logging.getLogger(__name__)

ARTEFACTS_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Entrance:
    """Where callers come in, and who they may be."""

    tenancy: Tenancy  # tenants and their tokens
    people: People | None  # those who sign in elsewhere; None where nobody does
    sealer: Sealer  # seals what is secret
    encryption: Encryption | None  # none where the broker listens on this machine alone
    membership: Membership | None  # the nodes that have joined; None likewise
    rotation: Rotation | None  # of the authority; None likewise
    audit: Audit  # who did what
    doors: Doors  # where gRPC answers
    dashboard: Dashboard  # what browsers see


def bind_entrance(settings: BrokerSettings, store: Store, clock: Clock, stack: contextlib.AsyncExitStack) -> Entrance:
    """Bind all ports, before anything changes: one that is taken must leave the state as it is.

    Args:
        settings: How the broker runs.
        store: The database, which need not be open yet.
        clock: The time.
        stack: Gives the ports back.

    Raises:
        InvalidSpecError: A setting is wrong; ``field`` names it.
        UnavailableError: A port is taken.
    """
    tenancy = open_tenancy(settings.state_dir, settings.tenants, clock.now)
    people = _open_people(settings, tenancy, clock)
    sealer = Sealer.open(settings.state_dir)
    encryption = open_encryption(settings, clock.now)
    membership = rotation = None
    if encryption is not None:
        membership = Membership(
            MemberStore(store), encryption.authority, clock, lambda: encryption.pin, encryption.names
        )
        rotation = Rotation(encryption.authority, membership, clock)
    audit = Audit(AuditStore(store), clock)
    doors = Doors(settings, tenancy, encryption, membership, audit, people)
    stack.push_async_callback(doors.stop)
    doors.bind()
    dashboard = Dashboard(settings, encryption, tenancy, clock, store, sealer)
    stack.push_async_callback(dashboard.stop)
    dashboard.bind()
    return Entrance(tenancy, people, sealer, encryption, membership, rotation, audit, doors, dashboard)


def _open_people(settings: BrokerSettings, tenancy: Tenancy, clock: Clock) -> People | None:
    if not settings.oidc_issuer and not settings.oidc_audience:
        return None
    # What verifies tokens of a provider takes a moment to import, and most brokers have none.
    from tiercel.broker.access.people.people import open_people

    return open_people(settings, tenancy, clock)


@dataclass(frozen=True, slots=True)
class Kept:
    """What the broker keeps."""

    store: Store  # the database
    logs: RunLogs  # output of runs
    checkpoints: CheckpointStore  # copies of checkpoints
    versions: VersionStore  # files of versions, for a while
    projects: ProjectStore  # folders that jobs run from
    files: KeptFiles  # what jobs left behind
    secrets: SecretService  # of tenants
    artefacts: tuple[Artefacts, Ownership] | None  # the artefact store, and whose it is; None where there is none


async def open_kept(
    settings: BrokerSettings, store: Store, sealer: Sealer, clock: Clock, stack: contextlib.AsyncExitStack
) -> Kept:
    """Open all that is kept.

    Raises:
        ConflictError: The artefact store is another broker's.
    """
    folder = settings.state_dir
    room = DiskRoom(folder)
    files = KeptFiles(store, folder / "files", settings.file_limits, room)
    await files.start()
    return Kept(
        store,
        RunLogs(folder / "logs"),
        CheckpointStore(folder / "checkpoints", total_bytes=settings.checkpoints_bytes, room=room),
        VersionStore(folder / "versions", settings.model_bytes, room),
        ProjectStore(folder / "projects", settings.project_bytes, settings.tenant_projects_bytes, room),
        files,
        SecretService(store, sealer, clock),
        await _open_artefacts(settings, store, stack),
    )


async def _open_artefacts(
    settings: BrokerSettings, store: Store, stack: contextlib.AsyncExitStack
) -> tuple[Artefacts, Ownership] | None:
    if not settings.artefacts:
        return None
    artefacts = open_artefacts(settings.artefacts)
    stack.push_async_callback(artefacts.close)
    ownership = Ownership(artefacts, await owner_name(store), secrets.token_hex(8))
    try:
        await ownership.ensure(ARTEFACTS_SECONDS)
    except ConflictError:
        raise
    except TiercelError as error:  # jobs go on without it
        logger.warning("%s", error.message)
    return artefacts, ownership
