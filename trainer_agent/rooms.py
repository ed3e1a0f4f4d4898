"""What of an agent does the work, each in a room of its own: made here, and run by the agent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import aiohttp

from tiercel.trainer_agent.connection.calls import BrokerCalls
from tiercel.trainer_agent.connection.outbox import Reporter
from tiercel.trainer_agent.connection.pace import Pace
from tiercel.trainer_agent.connection.parcels import Parcels, TransferLimits
from tiercel.trainer_agent.data.run_data import RunData
from tiercel.trainer_agent.deliveries.copies import VersionCopies, copy_limits
from tiercel.trainer_agent.deliveries.deliveries import Deliveries
from tiercel.trainer_agent.deliveries.delivery_log import DeliveryLog
from tiercel.trainer_agent.disk.job_retention import EndedJobs
from tiercel.trainer_agent.disk.parts import Parts
from tiercel.trainer_agent.disk.room import RoomWatch
from tiercel.trainer_agent.disk.scratch import ScratchFolders
from tiercel.trainer_agent.disk.watch import DiskWatch
from tiercel.trainer_agent.environments.environments import Environments
from tiercel.trainer_agent.environments.image_layers import ImageLayers
from tiercel.trainer_agent.inference_server.access import AccessKeeper
from tiercel.trainer_agent.inference_server.client import ServingClient
from tiercel.trainer_agent.inference_server.process import ServingPlaces
from tiercel.trainer_agent.inference_server.routes import RouteKeeper
from tiercel.trainer_agent.inference_server.server import InferenceServer
from tiercel.trainer_agent.limits import cpu
from tiercel.trainer_agent.models.repository import ModelRepository
from tiercel.trainer_agent.models.served import ServedModels
from tiercel.trainer_agent.parts import AgentParts
from tiercel.trainer_agent.runs.checkpoint_copies import CheckpointCopies
from tiercel.trainer_agent.runs.checkpoint_transfer import CheckpointTransfer
from tiercel.trainer_agent.runs.file_transfer import FileTransfer
from tiercel.trainer_agent.runs.files import RunPlaces
from tiercel.trainer_agent.runs.hand_over import HandOver
from tiercel.trainer_agent.runs.preparation import Preparation
from tiercel.trainer_agent.runs.projects import ProjectFetcher
from tiercel.trainer_agent.runs.scripts import ScriptFetcher
from tiercel.trainer_agent.runs.secrets import SecretFetcher
from tiercel.trainer_agent.runs.table import RunTable
from tiercel.trainer_agent.runtimes.contract import CONTAINER_ENVIRONMENT
from tiercel.trainer_agent.supervision import Supervisor

# Of the machine's memory, for the inference server and what it starts to verify; by itself it stays within less.
_SERVING_MEMORY: Final = 0.9


@dataclass(frozen=True, slots=True)
class Rooms:
    """Who does what of an agent's work."""

    data: RunData
    environments: Environments
    ended_jobs: EndedJobs
    runs: RunTable
    access: AccessKeeper
    disk: DiskWatch
    room: RoomWatch
    serving: InferenceServer
    routes: RouteKeeper
    copies: VersionCopies
    served: ServedModels
    deliveries: Deliveries
    checkpoint_parts: Parts


def make_rooms(
    parts: AgentParts,
    tasks: Supervisor,
    session: aiohttp.ClientSession,
    calls: BrokerCalls,
    reporter: Reporter,
    serving_changed: Callable[[], None],
) -> Rooms:
    """Make them; nothing begins yet. ``serving_changed`` is called when what answers here is another; may not block."""
    arriving = Parts(parts.state_dir / "carried", TransferLimits().size_bytes)
    transfer = CheckpointTransfer(calls, arriving)
    sending, fetching = Pace(parts.checkpoint_copy_bytes), Pace(parts.checkpoint_copy_bytes)
    data = RunData(parts.state_dir, parts.data)
    environments = _environments(parts, tasks, lambda run_id: runs.live(run_id) is not None)
    places = RunPlaces(parts.state_dir)
    ended_jobs = EndedJobs(places.jobs, parts.state_dir / "ended-jobs", parts.retention)
    outgoing = FileTransfer(calls, parts.state_dir / "outgoing", parts.outputs)
    runs = RunTable(
        places,
        parts.runtimes,
        parts.limits,
        reporter,
        tasks,
        parts.patience,
        _preparation(parts, calls, transfer, environments, data),
        HandOver(transfer, outgoing, CheckpointCopies(transfer, sending)),
        ended_jobs,
    )

    def make_room() -> None:
        ended_jobs.make_room()
        data.make_room()

    disk = DiskWatch(parts.state_dir, parts.disk, runs.folders, runs.end_job, make_room)
    serving_places = ServingPlaces(parts.state_dir)
    repository = ModelRepository(serving_places.repository, parts.model_bytes)
    access = AccessKeeper(serving_places.access_file, serving_places.repository)
    routes = RouteKeeper(serving_places.routes_file, parts.node_id, parts.machine_token)
    client = ServingClient(
        session, lambda: serving.address(), token=serving_places.read_token, may_load=access.wait_written
    )
    serving = _inference_server(parts, serving_places, client, serving_changed)
    parcels = Parcels(calls, "the files of a version", copy_limits(parts.model_bytes))
    copies = VersionCopies(parcels, repository, tasks, serving_changed, parts.disk.reserve_bytes, sending, fetching)
    served = ServedModels(repository, client, tasks, serving_changed, routes.wait_elsewhere, copies.note_in_place)
    deliveries = Deliveries(
        delivery_log=DeliveryLog(parts.state_dir / "deliveries.json"),
        repository=repository,
        runs=runs,
        served=served,
        fetch=copies.fetch,
        report=reporter.delivery_changed,
        tasks=tasks,
        export_seconds=parts.export_seconds,
        serves_accelerated=bool(parts.serving_reserve.accelerator_id),
    )
    room = RoomWatch(parts.state_dir)
    return Rooms(
        data, environments, ended_jobs, runs, access, disk, room, serving, routes, copies, served, deliveries, arriving
    )


def _environments(parts: AgentParts, tasks: Supervisor, is_live: Callable[[str], bool]) -> Environments:
    folder = parts.state_dir / "environments"
    return Environments(folder, parts.package_index, parts.environments, parts.limits, tasks, is_live)


def _preparation(
    parts: AgentParts, calls: BrokerCalls, transfer: CheckpointTransfer, environments: Environments, data: RunData
) -> Preparation:
    return Preparation(
        ScriptFetcher(calls),
        SecretFetcher(calls),
        environments,
        ImageLayers(CONTAINER_ENVIRONMENT),
        ProjectFetcher(calls, parts.state_dir / "projects", parts.project_cache_bytes),
        transfer,
        data,
        ScratchFolders(parts.state_dir / "scratch"),
    )


def _inference_server(
    parts: AgentParts, places: ServingPlaces, client: ServingClient, changed: Callable[[], None]
) -> InferenceServer:
    return InferenceServer(
        places,
        parts.ports,
        client,
        confines=lambda: parts.limits.serving_entry(round(_SERVING_MEMORY * cpu.detect().memory_bytes)),
        changed=changed,
        environment={
            **parts.serving_reserve.environment(),
            **parts.serving_door,
            "TIERCEL_SERVING_LOG_FORMAT": parts.log_format,
            "TIERCEL_SERVING_MAX_MODEL_BYTES": str(parts.model_bytes),
        },
        is_joined=parts.is_joined,
    )
