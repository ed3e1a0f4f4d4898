"""The stream to the broker: dialled for ever, and everything reported again each time it comes about."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Final, Protocol

import grpc
from grpc import aio

from tiercel.core.backoff import Attempts, Backoff
from tiercel.core.complaints import Complaint
from tiercel.core.tasks import run_until_one_ends
from tiercel.core.trust.disbelief import clock_words, is_unvouched
from tiercel.trainer_agent.connection.address import DialError
from tiercel.trainer_agent.connection.dialling import Dialler
from tiercel.trainer_agent.connection.outbox import Outbox, Reporter, RunFacts
from tiercel.trainer_agent.errors import AgentError
from tiercel.v1 import nodes_pb2, nodes_pb2_grpc

_log = logging.getLogger(__name__)

BACKOFF: Final = Backoff(0.1, 3.0)
_WELCOME_SECONDS: Final = 10.0
_DEFAULT_HEARTBEAT_SECONDS: Final = 1.0
# What is wanted of a node comes in one message, scripts left out.
_MESSAGE_BYTES: Final = 16 * 1024**2
_OPTIONS: Final = (
    ("grpc.enable_http_proxy", 0),
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.max_receive_message_length", _MESSAGE_BYTES),
    ("grpc.use_local_subchannel_pool", 1),  # gRPC would share its own, slower, back-off among all attempts
)

_Call = aio.StreamStreamCall[nodes_pb2.ConnectRequest, nodes_pb2.ConnectResponse]


class Node(Protocol):
    """What the connection asks of the node, and tells it. None of it may block."""

    def hello(self) -> nodes_pb2.NodeHello:
        """Everything the broker has to know at first."""

    def heartbeat(self) -> nodes_pb2.Heartbeat:
        """What it has to know from time to time."""

    def ended(self) -> Sequence[nodes_pb2.RunStatus]:
        """How the runs ended whose end the broker has not confirmed."""

    def note_welcome(self, welcome: nodes_pb2.Welcome) -> None:
        """The broker answered the hello."""

    def note_taken(self, taken: nodes_pb2.Taken) -> None:
        """The broker answered a heartbeat, or says what it has."""

    def ingest(self, wanted: nodes_pb2.WantedState) -> None:
        """Begin to make the node what is wanted."""


class BrokerConnection:
    """Keeps a stream to the broker.

    Attributes:
        is_connected: Whether the broker has welcomed the node over a stream that lasts.
        count: How many streams came about.
    """

    def __init__(
        self,
        *,
        dialler: Dialler,
        node: Node,
        reporter: Reporter,
        facts: RunFacts,
    ) -> None:
        self._dialler = dialler
        self._node = node
        self._reporter = reporter
        self._facts = facts
        self._attempts = Attempts(BACKOFF)
        self._complaint = Complaint(_log, "%s Training and serving go on; trying again.")
        self.is_connected = False
        self.count = 0

    async def run(self) -> None:
        """Connect, and connect again whenever that breaks, until cancelled."""
        while True:
            try:
                await self._stream()
            except (AgentError, aio.AioRpcError, asyncio.InvalidStateError, OSError) as error:
                self._complaint.note(_message_of(error))
            await asyncio.sleep(self._attempts.next_seconds())

    async def _stream(self) -> None:
        address = self._dialler.address()
        outdated = self._dialler.outdated
        async with self._dialler.open(_OPTIONS) as channel:
            call = nodes_pb2_grpc.NodesServiceStub(channel).Connect(metadata=self._dialler.metadata())
            outbox = Outbox(self._facts, self._node.heartbeat)
            self._reporter.attach(outbox)
            try:
                await run_until_one_ends(exchange=self._exchange(call, outbox, address), outdated=_until(outdated))
            finally:
                self.is_connected = False
                self._reporter.detach()
                call.cancel()

    async def _exchange(self, call: _Call, outbox: Outbox, address: str) -> None:
        await call.write(nodes_pb2.ConnectRequest(hello=self._node.hello()))
        welcome = await _read_welcome(call)
        _log.info("connected to the broker at %s, lease epoch %d", address, welcome.lease_epoch)
        self._attempts.reset()
        self._complaint.note("")
        self.is_connected = True
        self.count += 1
        self._node.note_welcome(welcome)
        outbox.begin(welcome.reports, self._node.ended())
        await run_until_one_ends(
            send=_send(call, outbox, welcome.lease_epoch),
            receive=self._receive(call, outbox),
            heartbeat=_beat(outbox, welcome.heartbeat_seconds or _DEFAULT_HEARTBEAT_SECONDS),
            output=outbox.gather_output(),
        )

    async def _receive(self, call: _Call, outbox: Outbox) -> None:
        while isinstance(response := await call.read(), nodes_pb2.ConnectResponse):
            match response.WhichOneof("message"):
                case "wanted":
                    self._node.ingest(response.wanted)
                    for run in response.wanted.runs:
                        outbox.know_output(run.run_id, run.log_offset_bytes)
                    outbox.forget_others(run.run_id for run in response.wanted.runs)
                case "taken":
                    self._node.note_taken(response.taken)
                    self._dialler.heed(response.taken.authorities, response.taken.clock_ahead_seconds)
                    outbox.confirm(response.taken.reports)
        raise DialError(f"The broker ended the stream ({await _ending(call)}).")


async def _read_welcome(call: _Call) -> nodes_pb2.Welcome:
    async with asyncio.timeout(_WELCOME_SECONDS):
        first = await call.read()
    if not isinstance(first, nodes_pb2.ConnectResponse):
        raise DialError(f"The broker does not welcome this node ({await _ending(call)}).")
    if first.WhichOneof("message") != "welcome":
        raise DialError("The broker's first message is not a welcome; are broker and agent of the same version?")
    return first.welcome


async def _until(event: asyncio.Event) -> None:
    await event.wait()


async def _beat(outbox: Outbox, seconds: float) -> None:
    while True:
        outbox.want_heartbeat()
        await asyncio.sleep(seconds)


async def _send(call: _Call, outbox: Outbox, lease_epoch: int) -> None:
    while True:
        message = await outbox.get()
        message.lease_epoch = lease_epoch
        await call.write(message)


async def _ending(call: _Call) -> str:
    return f"{(await call.code()).name}: {await call.details()}"


def _message_of(error: Exception) -> str:
    if isinstance(error, AgentError):
        return error.message
    if isinstance(error, TimeoutError):
        return f"The broker did not answer within {_WELCOME_SECONDS:g} s."
    if isinstance(error, aio.AioRpcError):
        if error.code() == grpc.StatusCode.UNAUTHENTICATED:
            return f"The broker does not take this for the node ({error.details()})."
        if wrong := clock_words(error.details() or ""):
            return f"The broker's certificate {wrong}."
        if is_unvouched(error.details() or ""):
            return (
                "Whoever answers at the broker's address is not vouched for by the authority that this node joined. If "
                "that was rotated while the node was away, join again with a new line of 'tiercel node token'."
            )
        return f"No stream to the broker ({error.code().name}: {error.details()})."
    return f"The stream to the broker broke: {error}"
