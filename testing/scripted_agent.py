"""An agent that does what a test says: a real gRPC stream, real messages, no processes.

It keeps what a real agent keeps (runs, their reports, outcomes of deliveries) over streams and restarts of the broker,
and what nobody wants any more it forgets.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import secrets
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

import grpc
from google.protobuf.timestamp_pb2 import Timestamp

from testing.until import until
from tiercel.core.wire import timestamp
from tiercel.v1 import PROTOCOL, nodes_pb2, nodes_pb2_grpc

GIB = 1024**3


@dataclass
class ScriptedRun:
    """A run as the agent knows it; ``values`` are what its script has reported, in order."""

    run_id: str
    wanted: nodes_pb2.WantedRun
    values: list[float] = field(default_factory=list)
    exit_code: int | None = None
    lost: bool = False
    output: bytes = b""
    environment: str = ""

    @property
    def ended(self) -> bool:
        return self.exit_code is not None or self.lost

    def status(self) -> nodes_pb2.RunStatus:
        if not self.ended:
            state = nodes_pb2.RUN_STATE_RUNNING
            return nodes_pb2.RunStatus(run_id=self.run_id, state=state, environment=self.environment)
        status = nodes_pb2.RunStatus(run_id=self.run_id, state=nodes_pb2.RUN_STATE_EXITED, lost=self.lost)
        if self.exit_code is not None:
            status.exit_code = self.exit_code
        status.log_tail = self.output.decode()[-200:]
        return status


class ScriptedAgent:
    """One node's agent.

    Args:
        token: The nodes' token.
        node_id: The node.
        serving: Where it says that its inference server answers, over HTTP and gRPC.
        starts_runs: Whether it starts what is wanted; else runs stay wanted.
        delivers: Whether it carries deliveries out; else they stay wanted.
        environment: Key of the environment that its runs have.
        open_channel: Dials the broker; in the clear when left out.

    Attributes:
        first_message: What it says first instead of a proper hello, or None.
    """

    def __init__(
        self,
        token: str,
        node_id: str = "n1",
        serving: tuple[str, str] = ("127.0.0.1:8080", "127.0.0.1:8081"),
        *,
        starts_runs: bool = True,
        delivers: bool = True,
        cpu_cores: float = 4.0,
        environment: str = "",
        open_channel: Callable[[str], grpc.aio.Channel] | None = None,
    ) -> None:
        self.environment = environment
        self._open_channel = open_channel or _open_plain
        self.token = token
        self.node_id = node_id
        self.instance = secrets.token_hex(16)
        self.serving = serving
        self.starts_runs = starts_runs
        self.delivers = delivers
        self.runs: dict[str, ScriptedRun] = {}
        self.outcomes: dict[str, nodes_pb2.DeliveryStatus] = {}
        self.delivered: list[tuple[str, int]] = []
        self.wanted: nodes_pb2.WantedState | None = None
        self.routes: list[list[str]] = []  # nodes of the tables of who answers, in the order in which they came
        self.access: nodes_pb2.AccessTable | None = None
        self.welcome: nodes_pb2.Welcome | None = None
        self.first_message: nodes_pb2.ConnectRequest | None = None
        self.beats = 0
        self.clock_ahead_seconds = 0.0
        self.taken: dict[str, int] = {}
        self.answered: nodes_pb2.Taken | None = None
        self.ending: tuple[grpc.StatusCode, str, dict[str, str]] | None = None
        self._outbox: asyncio.Queue[nodes_pb2.ConnectRequest] = asyncio.Queue(10_000)

    @contextlib.asynccontextmanager
    async def connected(self, address: str) -> AsyncIterator[None]:
        """Have a stream inside; leaving breaks it without a word."""
        async with asyncio.TaskGroup() as group:
            task = group.create_task(self.run(address))
            await self.until(lambda: self.welcome is not None or self.ending is not None)
            try:
                yield
            finally:
                task.cancel()

    @contextlib.asynccontextmanager
    async def beating(self) -> AsyncIterator[None]:
        """Have its lease kept up inside, however short that is."""

        async def beat() -> None:
            while True:
                self.heartbeat()
                await asyncio.sleep(0.05)

        async with asyncio.TaskGroup() as group:
            task = group.create_task(beat())
            try:
                yield
            finally:
                task.cancel()

    async def run(self, address: str) -> None:
        """One stream, to its end; ``ending`` then says how it ended."""
        self.welcome = self.wanted = self.ending = None
        self._outbox = asyncio.Queue(10_000)
        async with self._open_channel(address) as channel:
            metadata = (("authorization", f"Bearer {self.token}"),) if self.token else ()
            call = nodes_pb2_grpc.NodesServiceStub(channel).Connect(metadata=metadata)
            try:
                async with asyncio.TaskGroup() as group:
                    sending = group.create_task(self._send(call))
                    await self._receive(call)
                    # Before a write under way is cancelled, which would end the call in a way of its own.
                    await call.code()
                    sending.cancel()
            except* (grpc.aio.AioRpcError, asyncio.InvalidStateError):
                pass  # the status says it
            trailing = {str(key): str(value) for key, value in await call.trailing_metadata() or ()}
            self.ending = (await call.code(), await call.details() or "", trailing)

    # --- What a test makes happen -------------------------------------------------------------------------------------

    def report(self, run_id: str, *values: float) -> None:
        """The script reports its metric."""
        run = self.runs[run_id]
        for value in values:
            run.values.append(value)
            self._tell(progress=_progress(run, len(run.values), self._now()))

    def exit(self, run_id: str, code: int | None = 0, *, lost: bool = False) -> None:
        """The run ends."""
        run = self.runs[run_id]
        run.exit_code, run.lost = code, lost
        self._tell(run=run.status())

    def write(self, run_id: str, data: bytes) -> None:
        """The run writes output."""
        run = self.runs[run_id]
        self._tell(log=nodes_pb2.LogChunk(run_id=run_id, offset_bytes=len(run.output), data=data))
        run.output += data

    def heartbeat(self) -> None:
        self.beats += 1
        self._tell(heartbeat=nodes_pb2.Heartbeat(number=self.beats, fenced=True, at=self._now()))

    def fail_delivery(self, delivery_id: str, reason: str) -> None:
        """The model cannot be delivered."""
        self._end(
            nodes_pb2.DeliveryStatus(delivery_id=delivery_id, stage=nodes_pb2.DELIVERY_STAGE_FAILED, reason=reason)
        )

    def tell_raw(self, message: nodes_pb2.ConnectRequest) -> None:
        """Say anything, under whatever epoch it carries."""
        self._outbox.put_nowait(message)

    async def send_checkpoint(self, nodes: str, run_id: str, content: bytes) -> grpc.StatusCode:
        """Give the broker a run's checkpoint, of one file, at its door for agents."""
        digest = hashlib.sha256(content).hexdigest()
        file = nodes_pb2.CheckpointFile(name="latest.pt", size_bytes=len(content), sha256=digest)
        header = nodes_pb2.CheckpointHeader(node_id=self.node_id, run_id=run_id, files=[file], instance=self.instance)
        async with self._open_channel(nodes) as channel:
            metadata = (("authorization", f"Bearer {self.token}"),)
            call = nodes_pb2_grpc.NodesServiceStub(channel).SendCheckpoint(metadata=metadata, timeout=90)
            with contextlib.suppress(grpc.aio.AioRpcError):
                await call.write(nodes_pb2.SendCheckpointRequest(header=header))
                if await call.read() is not grpc.aio.EOF:
                    await call.write(nodes_pb2.SendCheckpointRequest(data=content))
                    await call.done_writing()
                    await call.read()
            code: grpc.StatusCode = await call.code()
            return code

    async def wait_run(self, run_id: str) -> ScriptedRun:
        """Wait until a run was started here."""
        await self.until(lambda: run_id in self.runs)
        return self.runs[run_id]

    async def until(self, condition: Callable[[], object]) -> None:
        await until(condition)

    # --- What an agent does by itself ---------------------------------------------------------------------------------

    async def _send(self, call: grpc.aio.StreamStreamCall[nodes_pb2.ConnectRequest, nodes_pb2.ConnectResponse]) -> None:
        await call.write(self.first_message or nodes_pb2.ConnectRequest(hello=self._hello()))
        while True:
            message = await self._outbox.get()
            if self.welcome is not None and not message.lease_epoch:
                message.lease_epoch = self.welcome.lease_epoch
            await call.write(message)

    async def _receive(
        self, call: grpc.aio.StreamStreamCall[nodes_pb2.ConnectRequest, nodes_pb2.ConnectResponse]
    ) -> None:
        while isinstance(response := await call.read(), nodes_pb2.ConnectResponse):
            if response.HasField("welcome"):
                self.welcome = response.welcome
                for run_id, known in response.welcome.reports.items():
                    run = self.runs[run_id]
                    for sequence in range(known + 1, len(run.values) + 1):
                        self._tell(progress=_progress(run, sequence, self._now()))
                    if run.ended:
                        self._tell(run=run.status())
                self.heartbeat()
            elif response.HasField("taken"):
                self.taken.update(response.taken.reports)
                if response.taken.heartbeat:
                    self.answered = response.taken
            else:
                self._ingest(response.wanted)

    def _hello(self) -> nodes_pb2.NodeHello:
        return nodes_pb2.NodeHello(
            node_id=self.node_id,
            cpu_cores=4.0,
            memory_bytes=16 * GIB,
            runtimes=["process"],
            limits="cooperative",
            runs=[run.status() for run in self.runs.values()],
            deliveries=list(self.outcomes.values()),
            serving=nodes_pb2.ServingStatus(http=self.serving[0], grpc=self.serving[1]),
            protocol=PROTOCOL,
            instance=self.instance,
            fenced=True,
        )

    def _ingest(self, wanted: nodes_pb2.WantedState) -> None:
        self.wanted = wanted
        if self.wanted.HasField("routes"):
            self.routes.append(list(self.wanted.routes.nodes))
        if wanted.HasField("access"):
            self.access = wanted.access
        for run in wanted.runs:
            self._make(run)
        for run_id in self.runs.keys() - {run.run_id for run in wanted.runs}:
            del self.runs[run_id]
        for delivery in wanted.deliveries:
            self._deliver(delivery)
        for delivery_id in self.outcomes.keys() - {delivery.delivery_id for delivery in wanted.deliveries}:
            del self.outcomes[delivery_id]

    def _make(self, wanted: nodes_pb2.WantedRun) -> None:
        known = self.runs.get(wanted.run_id)
        if known is None and self.starts_runs and not wanted.stop:
            known = self.runs[wanted.run_id] = ScriptedRun(wanted.run_id, wanted, environment=self.environment)
            self._tell(run=known.status())
        if known is not None:
            known.wanted = wanted
            if wanted.stop and not known.ended:
                self.exit(wanted.run_id, -15)

    def _deliver(self, wanted: nodes_pb2.WantedDelivery) -> None:
        known = self.outcomes.get(wanted.delivery_id)
        if known is not None:
            self._tell(delivery=known)
        elif self.delivers:
            self.delivered.append((wanted.delivery_id, wanted.version))
            self._end(
                nodes_pb2.DeliveryStatus(
                    delivery_id=wanted.delivery_id,
                    stage=nodes_pb2.DELIVERY_STAGE_DELIVERED,
                    value=wanted.target + 0.01,
                    sha256="ab" * 32,
                    delivered_at=self._now(),
                )
            )

    def _now(self) -> Timestamp:
        """By the node's clock."""
        return timestamp(time.time() + self.clock_ahead_seconds)

    def _end(self, outcome: nodes_pb2.DeliveryStatus) -> None:
        self.outcomes[outcome.delivery_id] = outcome
        self._tell(delivery=outcome)

    def _tell(
        self,
        *,
        run: nodes_pb2.RunStatus | None = None,
        progress: nodes_pb2.Progress | None = None,
        delivery: nodes_pb2.DeliveryStatus | None = None,
        log: nodes_pb2.LogChunk | None = None,
        heartbeat: nodes_pb2.Heartbeat | None = None,
    ) -> None:
        self._outbox.put_nowait(
            nodes_pb2.ConnectRequest(run=run, progress=progress, delivery=delivery, log=log, heartbeat=heartbeat)
        )


def _open_plain(address: str) -> grpc.aio.Channel:
    return grpc.aio.insecure_channel(address, [("grpc.use_local_subchannel_pool", 1)])


def _progress(run: ScriptedRun, sequence: int, now: Timestamp) -> nodes_pb2.Progress:
    return nodes_pb2.Progress(
        run_id=run.run_id,
        sequence=sequence,
        epoch=sequence,
        metrics={run.wanted.spec.metric: run.values[sequence - 1]},
        at=now,
        cpu_seconds=float(sequence),
    )
