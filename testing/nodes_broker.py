"""A broker that does as it is told, over real gRPC."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
from grpc import aio

from testing.taken_files import TakesFiles
from tiercel.v1 import common_pb2, nodes_pb2, nodes_pb2_grpc, projects_pb2

NODE_TOKEN = "node-token"
DEADLINE = 60.0


@dataclass(slots=True)
class Heard:
    """All that an agent said over one or more streams, in order."""

    hellos: list[nodes_pb2.NodeHello] = field(default_factory=list)
    messages: list[nodes_pb2.ConnectRequest] = field(default_factory=list)

    def runs(self, run_id: str) -> list[nodes_pb2.RunStatus]:
        """What was said of a run outside of hellos."""
        return [m.run for m in self.messages if m.HasField("run") and m.run.run_id == run_id]

    def exit(self, run_id: str) -> nodes_pb2.RunStatus | None:
        """How a run ended, as far as it was said in a message or a hello."""
        said = [run for hello in self.hellos for run in hello.runs if run.run_id == run_id] + self.runs(run_id)
        return next((run for run in said if run.state == nodes_pb2.RUN_STATE_EXITED), None)

    def is_running(self, run_id: str) -> bool:
        """Whether the run was said to exist."""
        return any(run.state == nodes_pb2.RUN_STATE_RUNNING for run in self.runs(run_id))

    def progress(self, run_id: str) -> list[nodes_pb2.Progress]:
        """Reports of a run's script."""
        return [m.progress for m in self.messages if m.HasField("progress") and m.progress.run_id == run_id]

    def deliveries(self, delivery_id: str) -> list[nodes_pb2.DeliveryStatus]:
        """What was said of a delivery outside of hellos."""
        return [m.delivery for m in self.messages if m.HasField("delivery") and m.delivery.delivery_id == delivery_id]

    def outcome(self, delivery_id: str) -> nodes_pb2.DeliveryStatus | None:
        """What became of a delivery."""
        final = {nodes_pb2.DELIVERY_STAGE_DELIVERED, nodes_pb2.DELIVERY_STAGE_FAILED}
        return next((d for d in self.deliveries(delivery_id) if d.stage in final), None)

    def output(self, run_id: str) -> bytes:
        """A run's output, put together from its chunks."""
        data = bytearray()
        for message in self.messages:
            if message.HasField("log") and message.log.run_id == run_id:
                data[message.log.offset_bytes :] = message.log.data
        return bytes(data)

    def usage(self, endpoint: str) -> list[nodes_pb2.EndpointUsage]:
        """What was said of an endpoint's requests."""
        beats = [message.heartbeat for message in self.messages if message.HasField("heartbeat")]
        return [usage for beat in beats for usage in beat.endpoints if usage.endpoint == endpoint]

    def serving(self) -> nodes_pb2.ServingStatus | None:
        """What was last said of the inference server."""
        said = [hello.serving for hello in self.hellos] + [m.serving for m in self.messages if m.HasField("serving")]
        return next((serving for serving in reversed(said) if serving.http), None)


class ScriptedBroker(TakesFiles):
    """Declares what a test tells it to, and keeps what it hears."""

    def __init__(self) -> None:
        super().__init__()
        self.heard = Heard()
        self.tokens: list[str] = []
        self.objects: dict[str, bytes] = {}
        self.objects_asked: list[tuple[str, ...]] = []
        self.address = ""
        self.connections = 0
        self.secrets: dict[str, str] = {}
        self.checkpoints: dict[str, list[nodes_pb2.SendCheckpointRequest]] = {}
        self.refuses_checkpoints = False
        self.holds_scripts = False
        self.held_scripts = 0
        self.holds_checkpoints = False
        self.held_checkpoints = 0
        self._runs: dict[str, nodes_pb2.WantedRun] = {}
        self._deliveries: dict[str, nodes_pb2.WantedDelivery] = {}
        self._endpoints: tuple[nodes_pb2.WantedEndpoint, ...] | None = ()
        self._models: tuple[nodes_pb2.WantedModel, ...] = ()
        self.fence: nodes_pb2.Fence | None = None
        self._taken: dict[str, int] = {}
        self._heartbeat = 0
        self._generation = 0
        self._changed = asyncio.Condition()
        self._server: aio.Server | None = None

    async def start(self, port: int = 0) -> None:
        """Listen on loopback."""
        self._server = aio.server()
        nodes_pb2_grpc.add_NodesServiceServicer_to_server(self, self._server)
        bound = self._server.add_insecure_port(f"127.0.0.1:{port}")
        self.address = f"127.0.0.1:{bound}"
        await self._server.start()

    async def stop(self) -> None:
        """Break all streams and stop listening."""
        if self._server is not None:
            await self._server.stop(0)
            self._server = None

    async def want(
        self,
        *runs: nodes_pb2.WantedRun,
        deliveries: Sequence[nodes_pb2.WantedDelivery] = (),
        endpoints: Sequence[nodes_pb2.WantedEndpoint] | None = (),
        models: Sequence[nodes_pb2.WantedModel] = (),
    ) -> None:
        """From now on this, and nothing else, is wanted; ``endpoints`` is None while nothing is decided about them."""
        self._runs = {run.run_id: run for run in runs}
        self._deliveries = {delivery.delivery_id: delivery for delivery in deliveries}
        self._endpoints = None if endpoints is None else tuple(endpoints)
        self._models = tuple(models)
        async with self._changed:
            self._generation += 1
            self._changed.notify_all()

    async def SendCheckpoint(  # noqa: N802 - the contract's name
        self,
        request_iterator: AsyncIterator[nodes_pb2.SendCheckpointRequest],
        context: aio.ServicerContext[Any, Any],
    ) -> AsyncIterator[nodes_pb2.SendCheckpointResponse]:
        """Take in the checkpoint of a run, unless they are refused or held up."""
        requests = aiter(request_iterator)
        sent = [await anext(requests)]
        if self.holds_checkpoints:
            self.held_checkpoints += 1
            await asyncio.Event().wait()
        if self.refuses_checkpoints:
            await context.abort(grpc.StatusCode.NOT_FOUND, "no checkpoint is wanted")
        yield nodes_pb2.SendCheckpointResponse()
        sent += [request async for request in requests]
        self.checkpoints[sent[0].header.run_id] = sent
        yield nodes_pb2.SendCheckpointResponse()

    async def FetchCheckpoint(  # noqa: N802 - the contract's name
        self, request: nodes_pb2.FetchCheckpointRequest, context: aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[nodes_pb2.FetchCheckpointResponse]:
        """Give out what was taken in of the run that the asking one goes on from."""
        wanted = self._runs.get(request.run_id)
        sent = self.checkpoints.get(wanted.carried_run_id) if wanted is not None else None
        if sent is None:
            await context.abort(grpc.StatusCode.NOT_FOUND, "there is no such checkpoint")
        yield nodes_pb2.FetchCheckpointResponse(header=sent[0].header)
        for message in sent[1:]:
            yield nodes_pb2.FetchCheckpointResponse(data=message.data)

    async def FetchScript(  # noqa: N802 - the contract's name
        self, request: nodes_pb2.FetchScriptRequest, context: aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[nodes_pb2.FetchScriptResponse]:
        """Give out the script of a run."""
        content = self._runs[request.run_id].spec.script.content
        if self.holds_scripts:
            self.held_scripts += 1
            await asyncio.Event().wait()
        for offset in range(0, len(content), 256 * 1024):
            yield nodes_pb2.FetchScriptResponse(data=content[offset : offset + 256 * 1024])

    async def FetchSecrets(  # noqa: N802 - the contract's name
        self, request: nodes_pb2.FetchSecretsRequest, context: aio.ServicerContext[Any, Any]
    ) -> nodes_pb2.FetchSecretsResponse:
        """Give out the secrets of a run, if they are known."""
        names = self._runs[request.run_id].spec.secrets
        if unknown := [name for name in names if name not in self.secrets]:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"secrets: there is no secret {unknown[0]}")
        return nodes_pb2.FetchSecretsResponse(values={name: self.secrets[name] for name in names})

    async def FetchObjects(  # noqa: N802 - the contract's name
        self, request: nodes_pb2.FetchObjectsRequest, context: aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[nodes_pb2.FetchObjectsResponse]:
        """Give out objects of the project of a run, those that :attr:`objects` has."""
        self.objects_asked.append(tuple(request.sha256))
        for name in request.sha256:
            content = self.objects[name]
            for start in range(0, max(1, len(content)), 1024**2):
                piece = projects_pb2.ObjectPiece(
                    sha256=name, size_bytes=len(content), data=content[start : start + 1024**2]
                )
                yield nodes_pb2.FetchObjectsResponse(pieces=[piece])

    async def Connect(  # noqa: N802 - the contract's name
        self, request_iterator: AsyncIterator[nodes_pb2.ConnectRequest], context: aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[nodes_pb2.ConnectResponse]:
        """Serve an agent."""
        metadata = dict(context.invocation_metadata() or ())
        self.tokens.append(str(metadata.get("authorization", "")))
        if self.tokens[-1] != f"Bearer {NODE_TOKEN}":
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "nobody has this token")
        first = await anext(aiter(request_iterator))
        self.heard.hellos.append(first.hello)
        self.connections += 1
        epoch = self.connections
        reports = {run.run_id: self._last_report(run.run_id) for run in first.hello.runs if run.run_id in self._runs}
        yield nodes_pb2.ConnectResponse(
            welcome=nodes_pb2.Welcome(
                lease_epoch=epoch, lease_seconds=10, heartbeat_seconds=0.2, reports=reports, fence=self.fence
            )
        )
        reading = asyncio.ensure_future(self._read(request_iterator, epoch))
        told = -1
        try:
            while True:
                if told != self._generation:
                    wanted = self._wanted()
                    told = wanted.generation
                    yield nodes_pb2.ConnectResponse(wanted=wanted)
                reports, self._taken = self._taken, {}
                heartbeat, self._heartbeat = self._heartbeat, 0
                if reports or heartbeat:
                    taken = nodes_pb2.Taken(reports=reports, heartbeat=heartbeat, fence=self.fence)
                    yield nodes_pb2.ConnectResponse(taken=taken)
                async with self._changed:
                    while self._generation == told and not self._taken and not self._heartbeat:
                        await self._changed.wait()
        finally:
            reading.cancel()

    def _last_report(self, run_id: str) -> int:
        return max((report.sequence for report in self.heard.progress(run_id)), default=0)

    def _wanted(self) -> nodes_pb2.WantedState:
        runs = []
        for run in self._runs.values():
            copy = nodes_pb2.WantedRun()
            copy.CopyFrom(run)
            if run.spec.HasField("script"):
                copy.script_sha256 = hashlib.sha256(run.spec.script.content).hexdigest()
                copy.spec.script.content = b""
            copy.log_offset_bytes = len(self.heard.output(run.run_id))
            runs.append(copy)
        return nodes_pb2.WantedState(
            generation=self._generation,
            runs=runs,
            deliveries=self._deliveries.values(),
            endpoints=self._endpoints or (),
            endpoints_pending=self._endpoints is None,
            models=self._models,
        )

    async def _read(self, requests: AsyncIterator[nodes_pb2.ConnectRequest], epoch: int) -> None:
        async for request in requests:
            assert request.lease_epoch == epoch
            self.heard.messages.append(request)
            if request.HasField("progress"):
                self._taken[request.progress.run_id] = request.progress.sequence
            elif request.HasField("heartbeat"):
                self._heartbeat = request.heartbeat.number
            async with self._changed:
                self._changed.notify_all()


@asynccontextmanager
async def scripted_broker() -> AsyncIterator[ScriptedBroker]:
    """A broker that listens."""
    broker = ScriptedBroker()
    await broker.start()
    try:
        yield broker
    finally:
        await broker.stop()


def wanted_run(
    run_id: str,
    script: str = "",
    *,
    module: str = "",
    runtime: str = "process",
    weight: float = 1.0,
    cap_cores: float = 0.0,
    cpu_cores: float = 1.0,
    memory_bytes: int = 1 << 30,
    arguments: Sequence[str] = (),
    target: float = 0.5,
    stop: bool = False,
    retried: bool = False,
) -> nodes_pb2.WantedRun:
    """A run to want; the job is its id without the attempt. A trainer at its target waits to be asked for its model."""
    spec = common_pb2.JobSpec(
        name="test",
        endpoint="line",
        arguments=arguments,
        metric="score",
        direction=common_pb2.DIRECTION_MAX,
        tiers=[common_pb2.Tier(target=target)],
        resources=common_pb2.Resources(cpu_cores=cpu_cores, memory_bytes=memory_bytes),
        runtime=runtime,
        max_epochs=1000,
    )
    if script:
        spec.script.CopyFrom(common_pb2.Script(name="train.py", content=script.encode()))
    if module:
        spec.module = module
    return nodes_pb2.WantedRun(
        run_id=run_id,
        job_id=run_id.rpartition("-")[0],
        tenant="tests",
        spec=spec,
        share=common_pb2.Share(cpu_weight=weight, cpu_cap_cores=cap_cores),
        stop=stop,
        retried=retried,
    )


def wanted_delivery(
    run_id: str,
    tier: int = 1,
    *,
    version: int = 1,
    endpoint: str = "line",
    target: float = 0.5,
    verdict: nodes_pb2.DeliveryVerdict.ValueType = nodes_pb2.DELIVERY_VERDICT_LIVE,
) -> nodes_pb2.WantedDelivery:
    """A delivery of a run's model to an endpoint, which is to answer whatever it is."""
    return nodes_pb2.WantedDelivery(
        delivery_id=f"{run_id.rpartition('-')[0]}-tier-{tier}",
        run_id=run_id,
        tier=tier,
        target=target,
        endpoint=endpoint,
        version=version,
        metric="score",
        direction=common_pb2.DIRECTION_MAX,
        verdict=verdict,
    )
