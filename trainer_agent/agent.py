"""The node agent: makes the node what the broker wants, says what it is, and goes on when the broker is away."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Mapping, Sequence
from typing import Final

import aiohttp

import tiercel
from tiercel.core.endpoint_access import AccessTable
from tiercel.core.wire import from_proto
from tiercel.trainer_agent.accelerators.reports import accelerators_to_wire, readings_to_wire
from tiercel.trainer_agent.connection.calls import BrokerCalls
from tiercel.trainer_agent.connection.outbox import Reporter
from tiercel.trainer_agent.connection.parcels import Parcels
from tiercel.trainer_agent.connection.stream import BrokerConnection
from tiercel.trainer_agent.data.run_data import RunData
from tiercel.trainer_agent.deliveries.copies import COPY_LIMITS, VersionCopies
from tiercel.trainer_agent.deliveries.deliveries import Deliveries
from tiercel.trainer_agent.deliveries.delivery_log import DeliveryLog
from tiercel.trainer_agent.deliveries.reconciler import (
    AbandonDelivery,
    DeliveryAction,
    ForgetDelivery,
    ReportDelivery,
    StartDelivery,
    reconcile_deliveries,
)
from tiercel.trainer_agent.disk.job_retention import EndedJobs
from tiercel.trainer_agent.disk.names import is_plain
from tiercel.trainer_agent.disk.room import RoomWatch
from tiercel.trainer_agent.disk.scratch import ScratchFolders
from tiercel.trainer_agent.disk.watch import DiskWatch
from tiercel.trainer_agent.environments.environments import Environments
from tiercel.trainer_agent.environments.image_layers import ImageLayers
from tiercel.trainer_agent.fence import keeper as fence_keeper
from tiercel.trainer_agent.fence.fence import FENCE_FILE, Fence
from tiercel.trainer_agent.inference_server.access import AccessKeeper
from tiercel.trainer_agent.inference_server.client import ServingClient
from tiercel.trainer_agent.inference_server.process import ServingPlaces
from tiercel.trainer_agent.inference_server.routes import RouteKeeper
from tiercel.trainer_agent.inference_server.server import InferenceServer
from tiercel.trainer_agent.limits import cpu
from tiercel.trainer_agent.metrics.families import NodeMetrics
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
from tiercel.trainer_agent.runs.reconciler import (
    ApplyShare,
    DisownRun,
    FinishRun,
    ForgetRun,
    ReportRun,
    RunAction,
    StartRun,
    StopRun,
    reconcile_runs,
)
from tiercel.trainer_agent.runs.scripts import ScriptFetcher
from tiercel.trainer_agent.runs.secrets import SecretFetcher
from tiercel.trainer_agent.runs.table import RunTable
from tiercel.trainer_agent.runtimes.contract import CONTAINER_ENVIRONMENT
from tiercel.trainer_agent.supervision import Supervisor
from tiercel.trainer_agent.wanted import copied, endpoint_terms, run_order, wanted_files, wanted_run, wanted_versions
from tiercel.v1 import PROTOCOL, nodes_pb2

_log = logging.getLogger(__name__)

_IMAGES_SECONDS: Final = 10.0
_LAST_WORDS_SECONDS: Final = 1.0
_FENCE_SECONDS: Final = 0.1
# Of the machine's memory, for the inference server and what it starts to verify; by itself it stays within less.
_SERVING_MEMORY: Final = 0.9


class Agent:
    """One node's agent.

    Attributes:
        metrics: The node's numbers.
    """

    def __init__(self, parts: AgentParts, tasks: Supervisor, session: aiohttp.ClientSession) -> None:
        self._parts = parts
        self._tasks = tasks
        self._reporter = Reporter()
        self._images: tuple[str, ...] = ()
        self._has_heard_access = False
        self._leaving = False
        # What the last wanted state of this stream had in it: a run that leaves it had its end confirmed, whereas one
        # that a broker does not ask for from the start may be somewhere else by now.
        self._wanted_runs: frozenset[str] = frozenset()
        places = RunPlaces(parts.state_dir)
        self._instance = secrets.token_hex(16)
        self._heartbeats = 0
        self._fence = Fence(parts.state_dir / FENCE_FILE)
        self._fence_keeper = fence_keeper.Starter(parts.state_dir, parts.engine, parts.log_format)
        calls = BrokerCalls(parts.node_id, self._instance, parts.dialler)
        # The folder keeps its name, so that what an earlier version left in it is removed.
        transfer = CheckpointTransfer(calls, parts.state_dir / "carried")
        self._data = RunData(parts.state_dir, parts.data)
        self._environments = Environments(
            parts.state_dir / "environments",
            parts.package_index,
            parts.environments,
            parts.limits,
            tasks,
            lambda run_id: self._runs.live(run_id) is not None,
        )
        checkpoint_copies = CheckpointCopies(transfer, parts.checkpoint_copy_bytes)
        self._ended_jobs = EndedJobs(places.jobs, parts.state_dir / "ended-jobs", parts.retention)
        self._runs = RunTable(
            places,
            parts.runtimes,
            parts.limits,
            self._reporter,
            tasks,
            parts.patience,
            self._preparation(calls, transfer),
            HandOver(
                transfer,
                FileTransfer(calls, parts.state_dir / "outgoing", parts.outputs),
                checkpoint_copies,
            ),
            self._ended_jobs,
        )
        serving_places = ServingPlaces(parts.state_dir)
        self._access = AccessKeeper(serving_places.access_file, serving_places.repository)
        client = ServingClient(
            session, self._serving_address, token=serving_places.read_token, may_load=self._access.wait_written
        )
        self._disk = DiskWatch(parts.state_dir, parts.disk, self._runs.folders, self._runs.end_job, self._make_room)
        self._room = RoomWatch(parts.state_dir)
        self._serving = InferenceServer(
            serving_places,
            parts.ports,
            client,
            confines=lambda: parts.limits.serving_entry(round(_SERVING_MEMORY * cpu.detect().memory_bytes)),
            changed=self._serving_changed,
            environment={
                **parts.serving_reserve.environment(),
                **parts.serving_door,
                "TIERCEL_SERVING_LOG_FORMAT": parts.log_format,
            },
            is_joined=parts.is_joined,
        )
        repository = ModelRepository(serving_places.repository)
        self._routes = RouteKeeper(serving_places.routes_file, parts.node_id, parts.machine_token)
        parcels = Parcels(calls, "the files of a version", COPY_LIMITS)
        self._copies = VersionCopies(
            parcels, repository, tasks, self._serving_changed, parts.disk.reserve_bytes, checkpoint_copies
        )
        self._served = ServedModels(
            repository, client, tasks, self._serving_changed, self._routes.wait_elsewhere, self._copies.note_in_place
        )
        self._deliveries = Deliveries(
            delivery_log=DeliveryLog(parts.state_dir / "deliveries.json"),
            repository=repository,
            runs=self._runs,
            served=self._served,
            fetch=self._copies.fetch,
            report=self._reporter.delivery_changed,
            tasks=tasks,
            export_seconds=parts.export_seconds,
        )
        self._connection = BrokerConnection(dialler=parts.dialler, node=self, reporter=self._reporter, facts=self._runs)
        self.metrics = NodeMetrics(
            parts.capacity,
            self._runs,
            self._deliveries,
            self._connection,
            self._fence,
            self._serving,
            parts.accelerators,
            self._room,
        )

    def _preparation(self, calls: BrokerCalls, transfer: CheckpointTransfer) -> Preparation:
        state_dir = self._parts.state_dir
        return Preparation(
            ScriptFetcher(calls),
            SecretFetcher(calls),
            self._environments,
            ImageLayers(CONTAINER_ENVIRONMENT),
            ProjectFetcher(calls, state_dir / "projects", self._parts.project_cache_bytes),
            transfer,
            self._data,
            ScratchFolders(state_dir / "scratch"),
        )

    async def run(self, leave: asyncio.Event) -> None:
        """Work until ``leave`` is set; then stop all runs and the inference server.

        Raises:
            SetupError: What an earlier life left behind cannot be cleared away.
        """
        await asyncio.to_thread(self._environments.clear)
        await self._data.open()
        await self._runs.take_over()
        await self._copies.open()
        await self._list_images()
        await self._access.begin()
        serving = self._tasks.start("serving", self._serving.run())
        self._tasks.start("access", self._access.run())
        self._tasks.start("images", self._watch_images())
        self._tasks.start("routes", self._routes.run())
        self._tasks.start("data", self._data.offered.watch())
        self._tasks.start("job folders", self._ended_jobs.watch())
        self._tasks.start("disk", self._disk.run())
        self._tasks.start("room", self._room.run())
        self._tasks.start("accelerators", self._parts.accelerators.run(self._runs.on_accelerator_readings))
        fence = self._tasks.start("fence", self._keep_fence())
        self._tasks.start("broker", self._connection.run())
        self._tasks.start("certificate", self._parts.dialler.keep_fresh())
        await leave.wait()
        self._leaving = True
        _log.info("leaving: stopping runs and the inference server")
        all_ended = await self._stop_runs()
        fence.cancel()
        serving.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await serving
        await self._serving.stop()
        if all_ended:  # else it ends what is left in time, as it does where this process dies
            self._fence_keeper.stop()

    def hello(self) -> nodes_pb2.NodeHello:
        """Everything the broker has to know at first."""
        self._wanted_runs = frozenset()
        self._copies.begin_anew()
        self._fence.note_sent(0)
        return nodes_pb2.NodeHello(
            node_id=self._parts.node_id,
            cpu_cores=self._parts.capacity.cpu_cores,
            memory_bytes=self._parts.capacity.memory_bytes,
            runtimes=list(self._parts.runtimes),
            limits=self._parts.limits.name,
            images=self._images,
            runs=[_without_log(status) for status in self._runs.statuses()],
            deliveries=self._deliveries.statuses(),
            serving=self._serving_status(),
            accelerators=accelerators_to_wire(
                self._parts.accelerators.listed, self._parts.accelerators.readings, self._parts.serving_reserve
            ),
            protocol=PROTOCOL,
            version=tiercel.__version__,
            instance=self._instance,
            fenced=self._fence.is_kept,
            labels=self._parts.labels,
            data=self._data.offered.told(),
        )

    def heartbeat(self) -> nodes_pb2.Heartbeat:
        """What the broker has to know from time to time."""
        self._heartbeats += 1
        self._fence.note_sent(self._heartbeats)
        return nodes_pb2.Heartbeat(
            number=self._heartbeats,
            fenced=self._fence.is_kept,
            runs=self._runs.usages(),
            images=self._images,
            endpoints=self._serving.take_usage(),
            keys=self._serving.take_key_uses(),
            serving_lag_seconds=self._serving.lag_seconds,
            accelerators=readings_to_wire(self._parts.accelerators.readings),
            data=self._data.offered.told(),
            disk=self._room.measured,
        )

    def ended(self) -> Sequence[nodes_pb2.RunStatus]:
        """How the runs ended whose end the broker has not confirmed."""
        return self._runs.ended()

    def note_welcome(self, welcome: nodes_pb2.Welcome) -> None:
        """The broker answered the hello."""
        self._fence.note_answered(0, welcome.fence if welcome.HasField("fence") else None)

    def note_taken(self, taken: nodes_pb2.Taken) -> None:
        """The broker answered a heartbeat, or says what it has."""
        if taken.heartbeat:
            self._fence.note_answered(taken.heartbeat, taken.fence if taken.HasField("fence") else None)

    def ingest(self, wanted: nodes_pb2.WantedState) -> None:
        """Begin to make the node what is wanted.

        A node that is being left begins nothing, nor does one that was without its broker for so long that what it is
        told may be out of date.
        """
        self._routes.ingest(wanted)
        if wanted.HasField("access") or not self._has_heard_access:
            self._has_heard_access = True
            self._access.want(from_proto(AccessTable, wanted.access) if wanted.HasField("access") else None)
        if self._leaving or self._fence.has_fallen:
            return
        if not wanted.endpoints_pending:  # of a broker that began anew: what holds, holds
            self._serving.want_terms(endpoint_terms(wanted, self._parts.capacity.cpu_cores))
        runs = {run.run_id: run for run in wanted.runs if is_plain(run.run_id)}
        deliveries = {delivery.delivery_id: delivery for delivery in wanted.deliveries}
        of_runs = reconcile_runs({key: wanted_run(run) for key, run in runs.items()}, self._runs.actual())
        of_deliveries = reconcile_deliveries(deliveries, self._deliveries.under_way(), self._deliveries.ended())
        self._deliveries.want(deliveries)
        for run_action in of_runs:
            self._apply_to_run(run_action, runs)
        for delivery_action in of_deliveries:
            self._apply_to_delivery(delivery_action, deliveries)
        self._wanted_runs = frozenset(runs)
        self._served.want(wanted_versions(wanted), self._deliveries.arriving())
        self._copies.want(*wanted_files(wanted), self._served)

    def _start(self, wanted: nodes_pb2.WantedRun) -> None:
        try:
            order = run_order(wanted, self._deliveries.is_delivered)
        except ValueError as error:
            self._runs.refuse(wanted.run_id, wanted.job_id, f"Its agent does not understand what is to run: {error}.")
        else:
            self._runs.start(order)

    def _apply_to_run(self, action: RunAction, wanted: Mapping[str, nodes_pb2.WantedRun]) -> None:
        match action:
            case StartRun(run_id):
                self._start(wanted[run_id])
            case StopRun(run_id, reason, transfer, is_wanted):
                self._runs.stop(run_id, reason, moved=transfer, may_go_on=not is_wanted)
            case FinishRun(run_id):
                self._runs.finish(run_id)
            case ApplyShare(run_id, share):
                self._runs.set_share(run_id, share)
            case ReportRun(run_id):
                self._runs.report(run_id)
            case DisownRun(run_id):
                self._runs.disown(run_id)
            case ForgetRun(run_id):
                self._runs.forget(run_id, confirmed=run_id in self._wanted_runs)

    def _apply_to_delivery(self, action: DeliveryAction, wanted: Mapping[str, nodes_pb2.WantedDelivery]) -> None:
        match action:
            case StartDelivery(delivery_id):
                self._deliveries.start(copied(wanted[delivery_id]))
            case ReportDelivery(delivery_id):
                self._deliveries.report(delivery_id)
            case AbandonDelivery(delivery_id):
                self._deliveries.abandon(delivery_id)
            case ForgetDelivery(delivery_id):
                self._deliveries.forget(delivery_id)

    async def _keep_fence(self) -> None:
        """Stop all runs in time when the broker may start them elsewhere, also behind our death; serving goes on."""
        while True:
            # First of all for what was taken over: once the broker answers, the time without it is forgotten.
            if self._fence.has_fallen:
                self._runs.end_all_within(self._fence.seconds_left)
            if self._fence.is_kept:
                self._fence_keeper.ensure()
            await asyncio.sleep(_FENCE_SECONDS)

    def _serving_status(self) -> nodes_pb2.ServingStatus:
        status = self._serving.status()
        problems = {
            place: f"Version {version} does not answer: {reason}."
            for place, version in self._served.answering.items()
            if (reason := self._serving.why_not(place.model, version))
        }
        status.problems.extend(
            nodes_pb2.ModelProblem(endpoint=place.endpoint, variant=place.variant, reason=reason)
            for place, reason in {**problems, **self._served.problems}.items()
        )
        status.copies.extend(self._copies.statuses())
        return status

    def _serving_changed(self) -> None:
        self._reporter.serving_changed(self._serving_status())

    def _serving_address(self) -> str:
        return self._serving.address()

    async def _stop_runs(self) -> bool:
        """Stop all runs; whether they ended in time."""
        self._runs.stop_all("the agent of its node was stopped")
        limit = self._parts.patience.trainer + self._parts.patience.signal + 30.0
        try:
            async with asyncio.timeout(limit):
                await self._runs.wait_all_ended()
            all_ended = True
        except TimeoutError:
            _log.error("some runs did not end within %.0f s; the next start of the agent takes them over", limit)
            all_ended = False
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LAST_WORDS_SECONDS):
                await self._reporter.wait_said()
        return all_ended

    def _make_room(self) -> None:
        self._ended_jobs.make_room()
        self._data.make_room()

    async def _watch_images(self) -> None:
        while True:
            await asyncio.sleep(_IMAGES_SECONDS)
            await self._list_images()

    async def _list_images(self) -> None:
        self._images = tuple([image for one in self._parts.runtimes.values() for image in await one.images()])


def _without_log(status: nodes_pb2.RunStatus) -> nodes_pb2.RunStatus:
    """What a hello has room for, however many runs ended while the broker was away."""
    if status.log_tail:
        status.ClearField("log_tail")
    return status
