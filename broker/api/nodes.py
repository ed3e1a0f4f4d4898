"""The service for node agents: one stream, wanted state one way and reports the other."""

from __future__ import annotations

import asyncio
import math
import re
from typing import TYPE_CHECKING

import grpc

from tiercel.broker.actors.endpoint import DeliveryHeard
from tiercel.broker.actors.node import NodeHeard
from tiercel.broker.actors.supervisor import run_until_one_ends
from tiercel.broker.api import accelerators, checkpoints
from tiercel.broker.api.auth import require_node
from tiercel.broker.api.endpoints import lag_of, serving_of, signature_of, usages_of, wanted_endpoints, wanted_models
from tiercel.broker.api.errors import translated_errors
from tiercel.broker.api.translation import direction_to_wire, seconds_of, share_to_wire, spec_to_wire
from tiercel.broker.domain.endpoints import DeliveryState, Verdict
from tiercel.broker.domain.errors import InvalidSpecError, LeaseLostError
from tiercel.broker.domain.jobs import TierState
from tiercel.broker.domain.nodes import Node
from tiercel.broker.lifecycle.endpoint import DeliveryReport
from tiercel.broker.lifecycle.job_events import Reported, RunExited, RunIsAlive, UsageMeasured
from tiercel.v1 import nodes_pb2, nodes_pb2_grpc

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from typing import Any

    from tiercel.broker.actors.node import NodeActor, Wanted
    from tiercel.broker.actors.peers import WantedDelivery, WantedRun
    from tiercel.broker.actors.system import System
    from tiercel.broker.settings import BrokerSettings
    from tiercel.broker.store.checkpoints import CheckpointStore
    from tiercel.broker.store.logs import RunLogs
    from tiercel.broker.tenancy import Tenancy

    Context = grpc.aio.ServicerContext[Any, Any]

HELLO_SECONDS = 10.0
_NODE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_STAGES = {
    nodes_pb2.DELIVERY_STAGE_EXPORTING: DeliveryState.EXPORTING,
    nodes_pb2.DELIVERY_STAGE_LOADING: DeliveryState.LOADING,
    nodes_pb2.DELIVERY_STAGE_DELIVERED: DeliveryState.DELIVERED,
    nodes_pb2.DELIVERY_STAGE_FAILED: DeliveryState.FAILED,
}

_VERDICTS = {
    Verdict.OPEN: nodes_pb2.DELIVERY_VERDICT_UNSPECIFIED,
    Verdict.LIVE: nodes_pb2.DELIVERY_VERDICT_LIVE,
    Verdict.HELD: nodes_pb2.DELIVERY_VERDICT_HELD,
}


class NodesService(nodes_pb2_grpc.NodesServiceServicer):
    """Translates agents' streams; see ``protos/tiercel/v1/nodes.proto``.

    Args:
        system: The actors.
        logs: Output of runs.
        tenancy: Who may call.
        settings: Leases and heartbeats.
        carried: Checkpoints of jobs that are moved.
    """

    def __init__(
        self, system: System, logs: RunLogs, tenancy: Tenancy, settings: BrokerSettings, carried: CheckpointStore
    ) -> None:
        self._system = system
        self._logs = logs
        self._tenancy = tenancy
        self._settings = settings
        self._carried = carried

    # A coroutine that writes, not a generator that yields: when the client vanishes the call's task is cancelled where
    # it waits, whereas a generator would be closed later and elsewhere, with its two directions still running.
    async def Connect(  # type: ignore[override]  # noqa: N802 - see above; the contract's name
        self, request_iterator: AsyncIterator[nodes_pb2.ConnectRequest], context: Context
    ) -> None:
        """Serve one agent for as long as its stream lasts and its lease holds."""
        async with translated_errors(context):
            # First, as a refusal that meets the hello on its way can end it on the agent's side with another status.
            hello = await _read_hello(request_iterator)
            require_node(context, self._tenancy)
            known_runs = frozenset(run.run_id for run in hello.runs)
            actor, epoch = await self._system.connect_node(_node_from(hello), known_runs)
            welcome = nodes_pb2.Welcome(
                lease_epoch=epoch,
                lease_seconds=self._settings.lease_seconds,
                heartbeat_seconds=self._settings.heartbeat_seconds,
            )
            await context.write(nodes_pb2.ConnectResponse(welcome=welcome))
            await run_until_one_ends(
                self._read(hello, request_iterator, actor, epoch), self._write(context, actor, epoch)
            )
            if actor.node.lease_epoch != epoch:
                raise LeaseLostError(f"a newer stream of node {actor.node.id} took over")
            if not actor.node.online:
                raise LeaseLostError(f"the lease of node {actor.node.id} ran out; connect again")

    async def SendCheckpoint(  # type: ignore[override]  # noqa: N802 - see Connect; the contract's name
        self, request_iterator: AsyncIterator[nodes_pb2.SendCheckpointRequest], context: Context
    ) -> None:
        """Take in the checkpoint of a run that is moved to another node."""
        del request_iterator  # it would be left open, and complain, when the agent dies in the middle
        async with translated_errors(context):
            header = await checkpoints.read_header(context.read)
            require_node(context, self._tenancy)

            async def accept() -> None:
                await context.write(nodes_pb2.SendCheckpointResponse())

            await checkpoints.take_in(header, context.read, accept, self._system, self._carried)
            await context.write(nodes_pb2.SendCheckpointResponse())

    async def FetchCheckpoint(  # type: ignore[override]  # noqa: N802 - see Connect; the contract's name
        self, request: nodes_pb2.FetchCheckpointRequest, context: Context
    ) -> None:
        """Give an agent the checkpoint that its run goes on from."""
        async with translated_errors(context):
            require_node(context, self._tenancy)
            checkpoint = await checkpoints.find_for(request, self._system, self._carried)
            async for response in checkpoints.give_out(checkpoint, request.node_id, self._carried):
                await context.write(response)

    async def _write(self, context: Context, actor: NodeActor, epoch: int) -> None:
        generation = 0
        while (wanted := await actor.wait_wanted(generation, epoch)) is not None:
            generation = wanted.generation
            await context.write(self._wanted_to_wire(wanted))

    async def _read(
        self,
        hello: nodes_pb2.NodeHello,
        requests: AsyncIterator[nodes_pb2.ConnectRequest],
        actor: NodeActor,
        epoch: int,
    ) -> None:
        await actor.tell(NodeHeard(epoch, serving=serving_of(hello.serving)))
        for run in hello.runs:
            if run.state != nodes_pb2.RUN_STATE_EXITED:
                await self._hear_run(run)
        for delivery in hello.deliveries:
            await self._hear_delivery(actor.node.id, delivery)
        # Before its first heartbeat an agent sends the reports that may have been missed. They come before the end of
        # their run, or what was reached in the last moments would be lost.
        exits = [run for run in hello.runs if run.state == nodes_pb2.RUN_STATE_EXITED]
        async for request in requests:
            if not actor.holds_lease(epoch):
                return
            if request.lease_epoch != epoch:
                continue
            await self._hear(actor, request)
            if exits and request.HasField("heartbeat"):
                for run in exits:
                    await self._hear_run(run)
                exits.clear()

    async def _hear(self, actor: NodeActor, request: nodes_pb2.ConnectRequest) -> None:
        heard = NodeHeard(request.lease_epoch)
        match request.WhichOneof("message"):
            case "heartbeat":
                beat = request.heartbeat
                heard = NodeHeard(
                    request.lease_epoch, images=frozenset(beat.images), accelerators=accelerators.heard_of(beat)
                )
            case "serving":
                heard = NodeHeard(request.lease_epoch, serving=serving_of(request.serving))
        # First of all the lease: what follows may have to wait for room.
        await actor.tell(heard)
        match request.WhichOneof("message"):
            case "heartbeat":
                beat = request.heartbeat
                self._system.measure_endpoints(actor.node.id, usages_of(beat), lag_of(beat))
                for usage in request.heartbeat.runs:
                    measured = UsageMeasured(usage.run_id, usage.cpu_seconds, usage.accelerator_seconds)
                    await self._system.deliver_to_job(usage.run_id, measured)
            case "run":
                await self._hear_run(request.run)
            case "progress":
                await self._hear_progress(request.progress)
            case "delivery":
                await self._hear_delivery(actor.node.id, request.delivery)
            case "log":
                await self._logs.append(request.log.run_id, request.log.offset_bytes, request.log.data)

    async def _hear_run(self, run: nodes_pb2.RunStatus) -> None:
        if run.state == nodes_pb2.RUN_STATE_RUNNING:
            await self._system.deliver_to_job(run.run_id, RunIsAlive(run.run_id))
        elif run.state == nodes_pb2.RUN_STATE_EXITED:
            message = RunExited(
                run_id=run.run_id,
                exit_code=run.exit_code if run.HasField("exit_code") else None,
                reason=run.reason,
                log_tail=run.log_tail,
                cpu_seconds=run.cpu_seconds,
                lost=run.lost,
                # The node's word is not enough: a job goes on elsewhere only from what is here.
                carried=run.carried and self._carried.find(run.run_id) is not None,
                carry_error=run.carry_error,
                accelerator_seconds=run.accelerator_seconds,
            )
            await self._system.deliver_to_job(run.run_id, message)

    async def _hear_progress(self, progress: nodes_pb2.Progress) -> None:
        message = Reported(
            run_id=progress.run_id,
            sequence=progress.sequence,
            epoch=progress.epoch,
            metrics=dict(progress.metrics),
            at=seconds_of(progress.at) if progress.HasField("at") else math.inf,
            cpu_seconds=progress.cpu_seconds,
            accelerator_seconds=progress.accelerator_seconds,
            ended=progress.ended,
        )
        await self._system.deliver_to_job(progress.run_id, message)

    async def _hear_delivery(self, node_id: str, delivery: nodes_pb2.DeliveryStatus) -> None:
        state = _STAGES.get(delivery.stage)
        if state is None:
            return
        is_there = state is DeliveryState.DELIVERED or (state is DeliveryState.LOADING and bool(delivery.sha256))
        report = DeliveryReport(
            state=state,
            value=delivery.value if is_there else None,
            sha256=delivery.sha256,
            delivered_at=seconds_of(delivery.delivered_at) if delivery.HasField("delivered_at") else None,
            reason=delivery.reason,
            signature=signature_of(delivery),
        )
        await self._system.deliver_to_endpoint(DeliveryHeard(node_id, delivery.delivery_id, report))

    def _wanted_to_wire(self, wanted: Wanted) -> nodes_pb2.ConnectResponse:
        return nodes_pb2.ConnectResponse(
            wanted=nodes_pb2.WantedState(
                generation=wanted.generation,
                runs=[self._run_to_wire(run) for run in wanted.runs],
                deliveries=[_delivery_to_wire(delivery) for delivery in wanted.deliveries],
                endpoints=wanted_endpoints(wanted.endpoints) if wanted.endpoints is not None else (),
                endpoints_pending=wanted.endpoints is None,
                models=wanted_models(wanted.models),
            )
        )

    def _run_to_wire(self, run: WantedRun) -> nodes_pb2.WantedRun:
        job = run.job
        return nodes_pb2.WantedRun(
            run_id=run.run_id,
            job_id=job.id,
            tenant=job.tenant,
            spec=spec_to_wire(job.spec),
            share=share_to_wire(job.share) if job.share is not None else None,
            log_offset_bytes=self._logs.size(run.run_id),
            stop=run.stop,
            carry=job.is_moving,
            carried_run_id=job.carried_run,
            delivered_tiers=[tier.number for tier in job.tiers if tier.state is TierState.DELIVERED],
        )


async def _read_hello(requests: AsyncIterator[nodes_pb2.ConnectRequest]) -> nodes_pb2.NodeHello:
    try:
        async with asyncio.timeout(HELLO_SECONDS):
            first = await anext(aiter(requests), None)
    except TimeoutError:
        raise _refuse("hello", f"did not come within {HELLO_SECONDS:g} s of opening the stream") from None
    if first is None or not first.HasField("hello"):
        raise _refuse("hello", "the first message of a stream must be a hello")
    return first.hello


def _node_from(hello: nodes_pb2.NodeHello) -> Node:
    if not _NODE_ID.fullmatch(hello.node_id):
        raise _refuse(
            "hello.node_id",
            f"{hello.node_id!r} is not a node's name; use 1 to 63 of A-Z, a-z, 0-9, '.', '_' and '-', "
            "beginning with a letter or digit",
        )
    if not (math.isfinite(hello.cpu_cores) and hello.cpu_cores > 0):
        raise _refuse("hello.cpu_cores", f"{hello.cpu_cores} is not a positive number of cores")
    if hello.memory_bytes <= 0:
        raise _refuse("hello.memory_bytes", "is missing; say how much memory jobs may use")
    return Node(
        id=hello.node_id,
        cpu_cores=hello.cpu_cores,
        memory_bytes=hello.memory_bytes,
        runtimes=tuple(hello.runtimes),
        limits=hello.limits,
        images=frozenset(hello.images),
        serving_http=hello.serving.http,
        serving_grpc=hello.serving.grpc,
        accelerators=accelerators.accelerators_of(hello),
    )


def _refuse(field: str, message: str) -> InvalidSpecError:
    return InvalidSpecError(f"{field}: {message}", field=field)


def _delivery_to_wire(wanted: WantedDelivery) -> nodes_pb2.WantedDelivery:
    delivery = wanted.delivery
    return nodes_pb2.WantedDelivery(
        delivery_id=delivery.id,
        run_id=wanted.run_id,
        tier=delivery.tier,
        target=delivery.target,
        endpoint=delivery.endpoint,
        version=delivery.version,
        metric=wanted.metric,
        direction=direction_to_wire(wanted.direction),
        variant=delivery.variant,
        verdict=_VERDICTS[delivery.verdict],
    )
