"""The node agent: makes the node what the broker wants, says what it is, and goes on when the broker is away."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import Mapping, Sequence
from typing import Final

import aiohttp

import tiercel
from tiercel.core.endpoint_access import AccessTable
from tiercel.core.errors import InvalidSpecError
from tiercel.core.wire import from_proto, timestamp
from tiercel.trainer_agent.accelerators.reports import accelerators_to_wire, readings_to_wire
from tiercel.trainer_agent.connection.calls import BrokerCalls
from tiercel.trainer_agent.connection.outbox import Reporter
from tiercel.trainer_agent.connection.stream import BrokerConnection
from tiercel.trainer_agent.deliveries.reconciler import (
    AbandonDelivery,
    DeliveryAction,
    ForgetDelivery,
    ReportDelivery,
    StartDelivery,
    reconcile_deliveries,
)
from tiercel.trainer_agent.disk.names import is_plain
from tiercel.trainer_agent.fence import keeper as fence_keeper
from tiercel.trainer_agent.fence.fence import FENCE_FILE, Fence
from tiercel.trainer_agent.metrics.families import NodeMetrics
from tiercel.trainer_agent.parts import AgentParts
from tiercel.trainer_agent.rooms import make_rooms
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
from tiercel.trainer_agent.supervision import Supervisor
from tiercel.trainer_agent.wanted import copied, endpoint_terms, run_order, wanted_files, wanted_run, wanted_versions
from tiercel.v1 import PROTOCOL, nodes_pb2

_log = logging.getLogger(__name__)

_IMAGES_SECONDS: Final = 10.0
_LAST_WORDS_SECONDS: Final = 1.0
_FENCE_SECONDS: Final = 0.1


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
        self._instance = secrets.token_hex(16)
        self._heartbeats = 0
        self._fence = Fence(parts.state_dir / FENCE_FILE)
        self._fence_keeper = fence_keeper.Starter(parts.state_dir, parts.engine, parts.log_format)
        calls = BrokerCalls(parts.node_id, self._instance, parts.dialler)
        self._rooms = make_rooms(parts, tasks, session, calls, self._reporter, self._serving_changed)
        self._connection = BrokerConnection(
            dialler=parts.dialler, node=self, reporter=self._reporter, facts=self._rooms.runs
        )
        self.metrics = NodeMetrics(
            parts.capacity,
            self._rooms.runs,
            self._rooms.deliveries,
            self._connection,
            self._fence,
            self._rooms.serving,
            parts.accelerators,
            self._rooms.room,
        )

    async def run(self, leave: asyncio.Event) -> None:
        """Work until ``leave`` is set; then stop all runs and the inference server.

        Raises:
            SetupError: What an earlier life left behind cannot be cleared away.
        """
        await asyncio.to_thread(self._rooms.environments.clear)
        await self._rooms.data.open()
        await self._rooms.runs.take_over()
        await self._rooms.copies.open()
        await self._list_images()
        await self._rooms.access.begin()
        serving = self._tasks.start("serving", self._rooms.serving.run())
        self._tasks.start("access", self._rooms.access.run())
        self._tasks.start("images", self._watch_images())
        self._tasks.start("routes", self._rooms.routes.run())
        self._tasks.start("models", self._rooms.served.watch())
        self._tasks.start("data", self._rooms.data.offered.watch())
        for parts in (self._rooms.copies.parts, self._rooms.checkpoint_parts):
            self._tasks.start("what has come in part", parts.watch())
        self._tasks.start("job folders", self._rooms.ended_jobs.watch())
        self._tasks.start("disk", self._rooms.disk.run())
        self._tasks.start("room", self._rooms.room.run())
        self._tasks.start("accelerators", self._parts.accelerators.run(self._rooms.runs.on_accelerator_readings))
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
        await self._rooms.serving.stop()
        if all_ended:  # else it ends what is left in time, as it does where this process dies
            self._fence_keeper.stop()

    def hello(self) -> nodes_pb2.NodeHello:
        """Everything the broker has to know at first."""
        self._wanted_runs = frozenset()
        self._rooms.copies.begin_anew()
        self._fence.note_sent(0)
        return nodes_pb2.NodeHello(
            node_id=self._parts.node_id,
            cpu_cores=self._parts.capacity.cpu_cores,
            memory_bytes=self._parts.capacity.memory_bytes,
            runtimes=list(self._parts.runtimes),
            limits=self._parts.limits.name,
            images=self._images,
            runs=[_without_log(status) for status in self._rooms.runs.statuses()],
            deliveries=self._rooms.deliveries.statuses(),
            serving=self._serving_status(),
            accelerators=accelerators_to_wire(
                self._parts.accelerators.listed, self._parts.accelerators.readings, self._parts.serving_reserve
            ),
            protocol=PROTOCOL,
            version=tiercel.__version__,
            instance=self._instance,
            fenced=self._fence.is_kept,
            labels=self._parts.labels,
            data=self._rooms.data.offered.told(),
        )

    def heartbeat(self) -> nodes_pb2.Heartbeat:
        """What the broker has to know from time to time."""
        self._heartbeats += 1
        self._fence.note_sent(self._heartbeats)
        return nodes_pb2.Heartbeat(
            number=self._heartbeats,
            fenced=self._fence.is_kept,
            runs=self._rooms.runs.usages(),
            images=self._images,
            endpoints=self._rooms.serving.take_usage(),
            keys=self._rooms.serving.take_key_uses(),
            serving_lag_seconds=self._rooms.serving.lag_seconds,
            accelerators=readings_to_wire(self._parts.accelerators.readings),
            data=self._rooms.data.offered.told(),
            disk=self._rooms.room.told(),
            at=timestamp(time.time()),
        )

    def ended(self) -> Sequence[nodes_pb2.RunStatus]:
        """How the runs ended whose end the broker has not confirmed."""
        return self._rooms.runs.ended()

    def note_welcome(self, welcome: nodes_pb2.Welcome) -> None:
        """The broker answered the hello."""
        self._fence.note_answered(0, welcome.fence if welcome.HasField("fence") else None)
        self._rooms.serving.tell_anew()

    def note_taken(self, taken: nodes_pb2.Taken) -> None:
        """The broker answered a heartbeat, or says what it has."""
        if taken.heartbeat:
            self._fence.note_answered(taken.heartbeat, taken.fence if taken.HasField("fence") else None)

    def ingest(self, wanted: nodes_pb2.WantedState) -> None:
        """Begin to make the node what is wanted.

        A node that is being left begins nothing, nor does one that was without its broker for so long that what it is
        told may be out of date.
        """
        self._rooms.routes.ingest(wanted)
        if wanted.HasField("access") or not self._has_heard_access:
            self._has_heard_access = True
            self._rooms.access.want(from_proto(AccessTable, wanted.access) if wanted.HasField("access") else None)
        if self._leaving or self._fence.has_fallen:
            return
        if not wanted.endpoints_pending:  # of a broker that began anew: what holds, holds
            self._rooms.serving.want_terms(endpoint_terms(wanted, self._parts.capacity.cpu_cores))
        runs = {run.run_id: run for run in wanted.runs if is_plain(run.run_id)}
        deliveries = {delivery.delivery_id: delivery for delivery in wanted.deliveries}
        of_runs = reconcile_runs({key: wanted_run(run) for key, run in runs.items()}, self._rooms.runs.actual())
        of_deliveries = reconcile_deliveries(
            deliveries, self._rooms.deliveries.under_way(), self._rooms.deliveries.ended()
        )
        self._rooms.deliveries.want(deliveries)
        for run_action in of_runs:
            self._apply_to_run(run_action, runs)
        for delivery_action in of_deliveries:
            self._apply_to_delivery(delivery_action, deliveries)
        self._wanted_runs = frozenset(runs)
        self._rooms.served.want(wanted_versions(wanted), self._rooms.deliveries.arriving())
        copies, sends, paced = wanted_files(wanted)
        self._rooms.copies.want(copies, sends, self._rooms.served, paced)

    def _start(self, wanted: nodes_pb2.WantedRun) -> None:
        try:
            order = run_order(wanted, self._rooms.deliveries.is_delivered)
        except InvalidSpecError as error:
            self._rooms.runs.refuse(
                wanted.run_id, wanted.job_id, f"Its agent does not understand what is to run: {error}."
            )
        else:
            self._rooms.runs.start(order)

    def _apply_to_run(self, action: RunAction, wanted: Mapping[str, nodes_pb2.WantedRun]) -> None:
        match action:
            case StartRun(run_id):
                self._start(wanted[run_id])
            case StopRun(run_id, reason, transfer, is_wanted):
                self._rooms.runs.stop(run_id, reason, moved=transfer, may_go_on=not is_wanted)
            case FinishRun(run_id):
                self._rooms.runs.finish(run_id)
            case ApplyShare(run_id, share):
                self._rooms.runs.set_share(run_id, share)
            case ReportRun(run_id):
                self._rooms.runs.report(run_id)
            case DisownRun(run_id):
                self._rooms.runs.disown(run_id)
            case ForgetRun(run_id):
                self._rooms.runs.forget(run_id, confirmed=run_id in self._wanted_runs)

    def _apply_to_delivery(self, action: DeliveryAction, wanted: Mapping[str, nodes_pb2.WantedDelivery]) -> None:
        match action:
            case StartDelivery(delivery_id):
                self._rooms.deliveries.start(copied(wanted[delivery_id]))
            case ReportDelivery(delivery_id):
                self._rooms.deliveries.report(delivery_id)
            case AbandonDelivery(delivery_id):
                self._rooms.deliveries.abandon(delivery_id)
            case ForgetDelivery(delivery_id):
                self._rooms.deliveries.forget(delivery_id)

    async def _keep_fence(self) -> None:
        """Stop all runs in time when the broker may start them elsewhere, also behind our death; serving goes on."""
        while True:
            # First of all for what was taken over: once the broker answers, the time without it is forgotten.
            if self._fence.has_fallen:
                self._rooms.runs.end_all_within(self._fence.seconds_left)
            if self._fence.is_kept:
                self._fence_keeper.ensure()
            await asyncio.sleep(_FENCE_SECONDS)

    def _serving_status(self) -> nodes_pb2.ServingStatus:
        status = self._rooms.serving.status()
        problems = {
            place: f"Version {version} does not answer: {reason}."
            for place, version in self._rooms.served.answering.items()
            if (reason := self._rooms.serving.why_not(place.model, version))
        }
        status.problems.extend(
            nodes_pb2.ModelProblem(endpoint=place.endpoint, variant=place.variant, reason=reason)
            for place, reason in {**problems, **self._rooms.served.problems}.items()
        )
        status.copies.extend(self._rooms.copies.statuses())
        return status

    def _serving_changed(self) -> None:
        self._reporter.serving_changed(self._serving_status())

    async def _stop_runs(self) -> bool:
        """Stop all runs; whether they ended in time."""
        self._rooms.runs.stop_all("the agent of its node was stopped")
        limit = self._parts.patience.trainer + self._parts.patience.signal + 30.0
        try:
            async with asyncio.timeout(limit):
                await self._rooms.runs.wait_all_ended()
            all_ended = True
        except TimeoutError:
            _log.error("some runs did not end within %.0f s; the next start of the agent takes them over", limit)
            all_ended = False
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LAST_WORDS_SECONDS):
                await self._reporter.wait_said()
        return all_ended

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
