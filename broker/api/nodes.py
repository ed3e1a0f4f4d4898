"""The service for node agents: one stream, wanted state one way and reports the other."""

from __future__ import annotations

import asyncio
import contextlib
import math
import re
from typing import TYPE_CHECKING

from tiercel.broker.api import accelerators, checkpoints, incoming_files, node_data, version_files
from tiercel.broker.api.errors import translated_errors
from tiercel.broker.api.incoming import Incoming
from tiercel.broker.api.node_stream import NodeStream
from tiercel.broker.api.projects import give_out
from tiercel.broker.api.wanted import fence_to_proto
from tiercel.core.errors import LeaseLostError, ProtocolError, wrong_field
from tiercel.core.nodes import Node
from tiercel.core.tasks import run_until_one_ends
from tiercel.core.trust.names import NODE_ID, wrong_node_id
from tiercel.core.validation import validate_labels
from tiercel.v1 import nodes_pb2, nodes_pb2_grpc, protocol_mismatch

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from typing import Protocol

    from tiercel.broker.actors.agents import AgentService
    from tiercel.broker.actors.node import NodeActor
    from tiercel.broker.actors.secrets import SecretService
    from tiercel.broker.api.auth import Context
    from tiercel.broker.api.node_doors import NodeDoor
    from tiercel.broker.settings import BrokerSettings
    from tiercel.broker.store.checkpoints import CheckpointStore
    from tiercel.broker.store.kept_files import KeptFiles
    from tiercel.broker.store.logs import RunLogs
    from tiercel.broker.store.projects import ProjectStore
    from tiercel.broker.store.version_files import VersionStore

    class _FromAgent(Protocol):
        node_id: str
        instance: str


HELLO_SECONDS = 10.0
SCRIPT_PIECE_BYTES = 256 * 1024
_VERSION = re.compile(r"[0-9A-Za-z.+-]{1,32}")
_INSTANCE = re.compile(r"[A-Za-z0-9_-]{16,64}")


class NodesService(nodes_pb2_grpc.NodesServiceServicer):
    """Translates agents' streams; see ``protos/tiercel/v1/nodes.proto``.

    Args:
        door: Who may call.
    """

    def __init__(
        self,
        agents: AgentService,
        logs: RunLogs,
        door: NodeDoor,
        settings: BrokerSettings,
        carried: CheckpointStore,
        files: KeptFiles,
        secrets: SecretService,
        projects: ProjectStore,
        versions: VersionStore,
    ) -> None:
        self._agents = agents
        self._logs = logs
        self._door = door
        self._settings = settings
        self._carried = carried
        self._files = files
        self._secrets = secrets
        self._projects = projects
        self._versions = versions

    def _check(self, context: Context, request: _FromAgent) -> None:
        """Let only the agent through that speaks for the node which the request names."""
        self._door.require(context, request.node_id)
        self._agents.check_agent(request.node_id, request.instance)

    # A coroutine that writes, not a generator that yields: when the client vanishes the call's task is cancelled where
    # it waits, whereas a generator would be closed later and elsewhere, with its two directions still running.
    async def Connect(  # type: ignore[override]  # see above
        self, request_iterator: AsyncIterator[nodes_pb2.ConnectRequest], context: Context
    ) -> None:
        """Serve one agent for as long as its stream lasts and its lease holds."""
        async with translated_errors(context):
            # First, as a refusal that meets the hello on its way can end it on the agent's side with another status.
            hello = await _read_hello(request_iterator)
            self._door.require(context, hello.node_id)
            _require_protocol(hello)
            known_runs = frozenset(run.run_id for run in hello.runs)
            node, instance = _node_from(hello), _instance_of(hello)
            # What it is told next holds: where that is no fence, it keeps none from now on.
            fenced = hello.fenced and self._agents.fence() is not None
            actor, epoch = await self._agents.connect_node(
                node, known_runs, instance, fenced=fenced, is_local=self._door.is_local
            )
            try:
                await run_until_one_ends(
                    serve=self._serve(hello, request_iterator, context, actor, epoch),
                    membership=self._door.until_refused(context),
                )
            finally:
                self._agents.end_stream(actor, epoch)

    async def _serve(
        self,
        hello: nodes_pb2.NodeHello,
        requests: AsyncIterator[nodes_pb2.ConnectRequest],
        context: Context,
        actor: NodeActor,
        epoch: int,
    ) -> None:
        welcome = nodes_pb2.Welcome(
            lease_epoch=epoch,
            lease_seconds=self._settings.lease_seconds,
            heartbeat_seconds=self._settings.heartbeat_seconds,
            reports=self._agents.reports_of(actor.node.id, (run.run_id for run in hello.runs)),
            fence=fence_to_proto(self._agents.fence()),
        )
        await context.write(nodes_pb2.ConnectResponse(welcome=welcome))
        authorities = self._door.authorities
        stream = NodeStream(
            actor, epoch, agents=self._agents, logs=self._logs, carried=self._carried, authorities=authorities
        )
        await stream.serve(hello, requests, context.write)
        if actor.node.lease_epoch != epoch:
            raise LeaseLostError(f"a newer stream of node {actor.node.id} took over")
        if not actor.node.online:
            self._door.require(context, actor.node.id)  # one that was removed is told that
            raise LeaseLostError(f"the lease of node {actor.node.id} ran out; connect again")

    async def SendCheckpoint(  # type: ignore[override]  # see Connect
        self, request_iterator: AsyncIterator[nodes_pb2.SendCheckpointRequest], context: Context
    ) -> None:
        """Take in the checkpoint of a run that is moved to another node, or the files of a version."""
        del request_iterator  # it would be left open, and complain, when the agent dies in the middle
        async with translated_errors(context):
            messages = Incoming(context.read, nodes_pb2.SendCheckpointRequest, "send the checkpoint")
            header = await messages.header()
            self._check(context, header)

            async def accept(offset_bytes: int = 0) -> None:
                await context.write(nodes_pb2.SendCheckpointResponse(offset_bytes=offset_bytes))

            if header.endpoint:
                await version_files.ingest(header, messages, accept, self._agents, self._versions)
            else:
                await checkpoints.ingest(header, messages, accept, self._agents, self._carried)
            await context.write(nodes_pb2.SendCheckpointResponse())

    async def FetchCheckpoint(  # type: ignore[override]  # see Connect
        self, request: nodes_pb2.FetchCheckpointRequest, context: Context
    ) -> None:
        """Give an agent the checkpoint that its run goes on from, or the files of a version that it shall have."""
        async with translated_errors(context):
            self._check(context, request)
            if request.endpoint:
                given = version_files.give_out(request, self._agents, self._versions)
            else:
                checkpoint = await checkpoints.find_for(request, self._agents, self._carried)
                given = checkpoints.give_out(request, checkpoint, self._carried)
            async with contextlib.aclosing(given):
                async for response in given:
                    await context.write(response)

    async def FetchScript(  # type: ignore[override]  # see Connect
        self, request: nodes_pb2.FetchScriptRequest, context: Context
    ) -> None:
        """Give an agent the script of a run that it is about to start."""
        async with translated_errors(context):
            self._check(context, request)
            content = self._agents.script_of(request.node_id, request.run_id)
            for offset in range(0, len(content), SCRIPT_PIECE_BYTES):
                await context.write(nodes_pb2.FetchScriptResponse(data=content[offset : offset + SCRIPT_PIECE_BYTES]))

    async def FetchSecrets(
        self, request: nodes_pb2.FetchSecretsRequest, context: Context
    ) -> nodes_pb2.FetchSecretsResponse:
        """Give an agent the secrets of a run that it is about to start."""
        async with translated_errors(context):
            self._check(context, request)
            tenant, names = self._agents.secrets_of(request.node_id, request.run_id)
            return nodes_pb2.FetchSecretsResponse(values=await self._secrets.values(tenant, names))

    async def FetchObjects(  # type: ignore[override]  # see Connect
        self, request: nodes_pb2.FetchObjectsRequest, context: Context
    ) -> None:
        """Give an agent objects of the project of a run that it is about to start."""
        async with translated_errors(context):
            self._check(context, request)
            tenant = self._agents.project_owner(request.node_id, request.run_id)
            async for response in give_out(self._projects, tenant, request.sha256):
                await context.write(response)

    async def SendFiles(  # type: ignore[override]  # see Connect
        self, request_iterator: AsyncIterator[nodes_pb2.SendFilesRequest], context: Context
    ) -> None:
        """Take in what a run that is over has left behind."""
        del request_iterator  # as of SendCheckpoint
        async with translated_errors(context):
            messages = Incoming(context.read, nodes_pb2.SendFilesRequest, "send the files")
            header = await messages.header()
            self._check(context, header)
            await incoming_files.ingest(header, messages, context.write, self._agents, self._files)
            await context.write(nodes_pb2.SendFilesResponse())


async def _read_hello(requests: AsyncIterator[nodes_pb2.ConnectRequest]) -> nodes_pb2.NodeHello:
    try:
        async with asyncio.timeout(HELLO_SECONDS):
            first = await anext(aiter(requests), None)
    except TimeoutError:
        raise wrong_field("hello", f"did not come within {HELLO_SECONDS:g} s of opening the stream") from None
    if first is None or not first.HasField("hello"):
        raise wrong_field("hello", "the first message of a stream must be a hello")
    return first.hello


def _node_from(hello: nodes_pb2.NodeHello) -> Node:
    if not NODE_ID.fullmatch(hello.node_id):
        raise wrong_field("hello.node_id", wrong_node_id(hello.node_id))
    if not (math.isfinite(hello.cpu_cores) and hello.cpu_cores > 0):
        raise wrong_field("hello.cpu_cores", f"{hello.cpu_cores} is not a positive number of cores")
    if hello.memory_bytes <= 0:
        raise wrong_field("hello.memory_bytes", "is missing; say how much memory jobs may use")
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
        data=node_data.data_of(hello),
        labels=_labels_of(hello),
        local_http=hello.serving.local_http,
        local_grpc=hello.serving.local_grpc,
        version=hello.version if _VERSION.fullmatch(hello.version) else "",
    )


def _labels_of(hello: nodes_pb2.NodeHello) -> dict[str, str]:
    labels = dict(hello.labels)
    validate_labels(labels, "hello.labels")
    return labels


def _require_protocol(hello: nodes_pb2.NodeHello) -> None:
    mismatch = protocol_mismatch(hello.protocol, f"the agent of node {hello.node_id!r}", "this broker")
    if mismatch:
        raise ProtocolError(mismatch, field="hello.protocol")


def _instance_of(hello: nodes_pb2.NodeHello) -> str:
    if not _INSTANCE.fullmatch(hello.instance):
        raise wrong_field("hello.instance", "is not 16 to 64 of A-Z, a-z, 0-9, '-' and '_', drawn at random")
    return hello.instance
