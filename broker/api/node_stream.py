"""One agent's stream: what it says goes to the actors, what is wanted of its node and what was taken in goes to it."""

from __future__ import annotations

import asyncio
import logging
import math
from typing import TYPE_CHECKING

from tiercel.broker.actors.endpoint_messages import DeliveryReported
from tiercel.broker.actors.node_messages import NodeReported
from tiercel.broker.api import accelerators, node_data
from tiercel.broker.api.disk import disk_of
from tiercel.broker.api.endpoints import lag_of, serving_of, signature_of, usages_of
from tiercel.broker.api.wanted import fence_to_proto, wanted_to_proto
from tiercel.broker.lifecycle.endpoint import DeliveryReport
from tiercel.broker.lifecycle.job_events import Reported, RunExited, RunIsAlive, UsageMeasured
from tiercel.broker.lifecycle.report_bounds import believed_seconds, believed_time, believed_variant
from tiercel.core.endpoint_access import KeyUse
from tiercel.core.endpoints import DeliveryState
from tiercel.core.heard_variants import heard_variants
from tiercel.core.tasks import run_until_one_ends
from tiercel.core.wire import seconds_of, to_proto
from tiercel.v1 import nodes_pb2, routes_pb2

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from typing import Any

    from google.protobuf.timestamp_pb2 import Timestamp

    from tiercel.broker.actors.agents import AgentService
    from tiercel.broker.actors.node import NodeActor
    from tiercel.broker.lifecycle.job_events import JobInput
    from tiercel.broker.store.checkpoints import CheckpointStore
    from tiercel.broker.store.logs import RunLogs

    Write = Callable[[nodes_pb2.ConnectResponse], Awaitable[Any]]

logger = logging.getLogger(__name__)

# Runs of other nodes that a stream may speak of before the log stops to name them.
NAMED_STRANGERS = 16
# A clock that differs from the broker's by less is taken for the same.
SAME_CLOCK_SECONDS = 5.0
# Keys of which a node may tell at once.
MOST_KEYS = 100_000
# Time between two messages about what was taken in.
GATHER_SECONDS = 0.05
_STAGES = {
    nodes_pb2.DELIVERY_STAGE_EXPORTING: DeliveryState.EXPORTING,
    nodes_pb2.DELIVERY_STAGE_LOADING: DeliveryState.LOADING,
    nodes_pb2.DELIVERY_STAGE_DELIVERED: DeliveryState.DELIVERED,
    nodes_pb2.DELIVERY_STAGE_FAILED: DeliveryState.FAILED,
}


class NodeStream:
    """Serves one agent between its welcome and the end of its lease.

    What is said of a run counts only from the node that the run is on, as what a node takes up is its own.

    Args:
        epoch: The stream's lease epoch.
        carried: Checkpoints of jobs that are moved.
        authorities: Says which authorities the agent is to believe, by their pins.
    """

    def __init__(
        self,
        actor: NodeActor,
        epoch: int,
        *,
        agents: AgentService,
        logs: RunLogs,
        carried: CheckpointStore,
        authorities: Callable[[], tuple[str, ...]],
    ) -> None:
        self._actor = actor
        self._node_id = actor.node.id
        self._epoch = epoch
        self._agents = agents
        self._logs = logs
        self._carried = carried
        self._authorities = authorities
        self._taken: dict[str, int] = {}
        self._heartbeat = 0
        self._clock_ahead = 0.0
        self._took = asyncio.Event()
        self._strangers: set[str] = set()
        # A stream takes one message at a time, and two tasks write to it.
        self._writing = asyncio.Lock()

    async def serve(
        self, hello: nodes_pb2.NodeHello, requests: AsyncIterator[nodes_pb2.ConnectRequest], write: Write
    ) -> None:
        """Read and write until the agent ends the stream or its lease is lost."""
        await run_until_one_ends(
            read=self._read(hello, requests), wanted=self._send_wanted(write), taken=self._send_taken(write)
        )

    async def _send_wanted(self, write: Write) -> None:
        generation, told, told_access = 0, None, None
        while (wanted := await self._actor.wait_wanted(generation, self._epoch)) is not None:
            generation = wanted.generation
            message = wanted_to_proto(wanted, self._logs)
            if wanted.routes is not None and wanted.routes is not told:
                told = wanted.routes
                message.routes.CopyFrom(to_proto(told, routes_pb2.Routes))
            if wanted.access is not None and wanted.access is not told_access:
                told_access = wanted.access
                message.access.CopyFrom(to_proto(told_access, nodes_pb2.AccessTable))
            async with self._writing:
                await write(nodes_pb2.ConnectResponse(wanted=message))

    async def _send_taken(self, write: Write) -> None:
        while True:
            await self._took.wait()
            self._took.clear()
            reports, self._taken = self._taken, {}
            heartbeat, self._heartbeat = self._heartbeat, 0
            fence = fence_to_proto(self._agents.fence())
            taken = nodes_pb2.Taken(
                reports=reports,
                heartbeat=heartbeat,
                fence=fence,
                authorities=self._authorities(),
                clock_ahead_seconds=self._clock_ahead,
            )
            async with self._writing:
                await write(nodes_pb2.ConnectResponse(taken=taken))
            await asyncio.sleep(GATHER_SECONDS)

    def _take(self, run_id: str, sequence: int) -> None:
        self._taken[run_id] = max(sequence, self._taken.get(run_id, 0))
        self._took.set()

    async def _read(self, hello: nodes_pb2.NodeHello, requests: AsyncIterator[nodes_pb2.ConnectRequest]) -> None:
        await self._actor.send(NodeReported(self._epoch, serving=serving_of(hello.serving), is_hello=True))
        for run in hello.runs:
            if run.state == nodes_pb2.RUN_STATE_RUNNING:  # an exit is told again, after the reports before it
                await self._on_run(run)
        for delivery in hello.deliveries:
            await self._on_delivery(delivery)
        async for request in requests:
            if not self._actor.holds_lease(self._epoch):
                return
            if request.lease_epoch == self._epoch:
                await self._on_message(request)

    async def _on_message(self, request: nodes_pb2.ConnectRequest) -> None:
        heard = NodeReported(self._epoch)
        match request.WhichOneof("message"):
            case "heartbeat":
                beat = request.heartbeat
                self._clock_ahead = self._ahead(beat)
                devices = accelerators.accelerator_statuses(beat)
                heard = NodeReported(
                    self._epoch,
                    frozenset(beat.images),
                    accelerators=devices,
                    fenced=beat.fenced,
                    data=node_data.data_now(beat),
                    disk=disk_of(self._node_id, beat),
                    clock_ahead_seconds=self._clock_ahead,
                )
            case "serving":
                heard = NodeReported(self._epoch, serving=serving_of(request.serving))
        # First of all the lease: what follows may have to wait for room.
        await self._actor.send(heard)
        match request.WhichOneof("message"):
            case "heartbeat":
                self._on_heartbeat(request.heartbeat)
            case "run":
                await self._on_run(request.run)
            case "progress":
                await self._on_progress(request.progress)
            case "delivery":
                await self._on_delivery(request.delivery)
            case "log":
                await self._on_output(request.log)

    def _ahead(self, beat: nodes_pb2.Heartbeat) -> float:
        """By how much a node's clock is ahead; what a slow network may be the reason of is nothing."""
        said = believed_time(seconds_of(beat.at)) if beat.HasField("at") else None
        ahead = said - self._agents.now() if said is not None else 0.0
        return ahead if abs(ahead) >= SAME_CLOCK_SECONDS else 0.0

    def _moment(self, said: Timestamp) -> float | None:
        """A moment that a node tells, by the broker's clock; None where no calendar has it."""
        found = believed_time(seconds_of(said))
        return found - self._clock_ahead if found is not None else None

    def _on_heartbeat(self, beat: nodes_pb2.Heartbeat) -> None:
        self._heartbeat = beat.number
        self._took.set()
        self._agents.measure_endpoints(self._node_id, usages_of(beat), lag_of(beat))
        self._agents.measure_keys(self._node_id, [KeyUse(use.id, use.requests) for use in beat.keys[:MOST_KEYS]])
        for usage in beat.runs:
            measured = UsageMeasured(
                usage.run_id, believed_seconds(usage.cpu_seconds), believed_seconds(usage.accelerator_seconds)
            )
            if not self._agents.measure_run(self._node_id, measured):
                self._refuse(usage.run_id)

    async def _on_run(self, run: nodes_pb2.RunStatus) -> None:
        if run.state == nodes_pb2.RUN_STATE_RUNNING:
            alive = RunIsAlive(
                run.run_id,
                run.from_beginning,
                dict(run.data_sha256),
                environment=run.environment,
                image_id=run.image_id,
                warm=run.warm,
                begun_cpu_seconds=believed_seconds(run.begun_cpu_seconds)
                if run.HasField("begun_cpu_seconds")
                else None,
            )
            await self._send_to_job(run.run_id, alive)
        elif run.state == nodes_pb2.RUN_STATE_EXITED:
            message = RunExited(
                run_id=run.run_id,
                exit_code=run.exit_code if run.HasField("exit_code") else None,
                reason=run.reason,
                log_tail=run.log_tail,
                cpu_seconds=believed_seconds(run.cpu_seconds),
                lost=run.lost,
                # The node's word is not enough: a job goes on elsewhere only from what is here.
                carried=run.carried and self._carried.find(run.run_id) is not None,
                carry_error=run.carry_error,
                accelerator_seconds=believed_seconds(run.accelerator_seconds),
            )
            await self._send_to_job(run.run_id, message)

    async def _on_progress(self, progress: nodes_pb2.Progress) -> None:
        run_id, sequence = progress.run_id, progress.sequence
        said_at = self._moment(progress.at) if progress.HasField("at") else None
        message = Reported(
            run_id=run_id,
            sequence=sequence,
            epoch=progress.epoch,
            metrics=dict(progress.metrics),
            at=said_at if said_at is not None else math.inf,
            cpu_seconds=believed_seconds(progress.cpu_seconds),
            accelerator_seconds=believed_seconds(progress.accelerator_seconds),
            ended=progress.ended,
        )
        await self._send_to_job(run_id, message, lambda: self._take(run_id, sequence))

    async def _on_delivery(self, delivery: nodes_pb2.DeliveryStatus) -> None:
        state = _STAGES.get(delivery.stage)
        if state is None:
            return
        is_there = state is DeliveryState.DELIVERED or (state is DeliveryState.LOADING and bool(delivery.sha256))
        report = DeliveryReport(
            state=state,
            value=delivery.value if is_there else None,
            sha256=delivery.sha256,
            delivered_at=self._moment(delivery.delivered_at) if delivery.HasField("delivered_at") else None,
            reason=delivery.reason,
            signature=signature_of(delivery),
            size_bytes=delivery.size_bytes,
            cheap_variants=tuple(map(believed_variant, heard_variants(delivery.cheap_variants))),
        )
        await self._agents.deliver_to_endpoint(DeliveryReported(self._node_id, delivery.delivery_id, report))

    async def _on_output(self, log: nodes_pb2.LogChunk) -> None:
        if self._agents.has_run(self._node_id, log.run_id):
            await self._logs.append(log.run_id, log.offset_bytes, log.data)
        else:
            self._refuse(log.run_id)

    async def _send_to_job(self, run_id: str, message: JobInput, handled: Callable[[], None] | None = None) -> None:
        if not await self._agents.deliver_to_job(self._node_id, run_id, message, handled):
            self._refuse(run_id)

    def _refuse(self, run_id: str) -> None:
        """Take nothing in of a run that is elsewhere; of one that is over, or was here once, a node may still speak."""
        if run_id in self._strangers or not self._agents.is_elsewhere(self._node_id, run_id):
            return
        if len(self._strangers) < NAMED_STRANGERS:
            self._strangers.add(run_id)
            logger.warning("node %s speaks of run %s, which is not there: nothing of it counts", self._node_id, run_id)
