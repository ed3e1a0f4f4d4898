"""Real brokers for tests, and stubs to call them with."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

import grpc

from testing.jobs import make_spec
from testing.scripted_agent import ScriptedAgent
from testing.warm_python import WarmProcess, lasting_python
from tiercel.broker.server import Broker
from tiercel.broker.settings import BrokerSettings
from tiercel.broker.tenancy import open_tenancy
from tiercel.core.wire import to_proto
from tiercel.v1 import common_pb2, jobs_pb2, jobs_pb2_grpc

TENANTS = ("alice", "bob")
FINAL = {
    jobs_pb2.JOB_STATE_COMPLETED,
    jobs_pb2.JOB_STATE_MISSED,
    jobs_pb2.JOB_STATE_FAILED,
    jobs_pb2.JOB_STATE_CANCELLED,
}


def make_settings(state_dir: Path, **changes: Any) -> BrokerSettings:
    return BrokerSettings(**{"state_dir": state_dir, "tenants": TENANTS, "interval_seconds": 0.2, **changes})


def tenant_token(state_dir: Path, tenant: str = "alice") -> str:
    return open_tenancy(state_dir, TENANTS).tenants[tenant].token


def node_token(state_dir: Path) -> str:
    return open_tenancy(state_dir, TENANTS).node_token


@contextlib.asynccontextmanager
async def running_broker(state_dir: Path, **changes: Any) -> AsyncIterator[Broker]:
    async with Broker(make_settings(state_dir, **changes)) as broker:
        yield broker


class BrokerProcess(NamedTuple):
    """A broker in a process of its own, and where it listens."""

    process: WarmProcess
    tenants: str
    nodes: str
    mqtt: str


@contextlib.asynccontextmanager
async def broker_process(state_dir: Path, port: int = 0, /, **settings: float) -> AsyncIterator[BrokerProcess]:
    """A broker in a process of its own, which is killed at the end. What it always imports is there when it begins."""
    arguments = ("-m", "testing.broker_process", str(state_dir), str(port))
    environment = os.environ | {f"TIERCEL_{name.upper()}": str(value) for name, value in settings.items()}
    reading, writing = os.pipe()
    with os.fdopen(reading) as said:
        template = lasting_python(("tiercel.broker.server", "testing.brokers"))
        with (
            os.fdopen(os.open(os.devnull, os.O_RDONLY), "rb") as nothing,
            os.fdopen(writing, "wb") as output,
            os.fdopen(os.dup(2), "wb") as errors,
        ):
            process = template.start_with(arguments, environment, (nothing, output, errors), None)
        try:
            async with asyncio.timeout(60):
                addresses = (await asyncio.to_thread(said.readline)).split()
            yield BrokerProcess(process, *addresses)
        finally:
            process.kill()
            process.wait(60)


class Tenant:
    """A tenant's calls."""

    def __init__(self, channel: grpc.aio.Channel, token: str) -> None:
        self.stub = jobs_pb2_grpc.JobsServiceStub(channel)
        self.metadata = (("authorization", f"Bearer {token}"),) if token else ()

    async def submit(self, endpoint: str = "digits", key: str = "", **spec: Any) -> jobs_pb2.Job:
        request = jobs_pb2.SubmitJobRequest(
            spec=to_proto(make_spec(endpoint=endpoint, **spec), common_pb2.JobSpec), idempotency_key=key
        )
        return (await self.stub.SubmitJob(request, metadata=self.metadata, timeout=90)).job

    async def get(self, job_id: str) -> jobs_pb2.Job:
        return (await self.stub.GetJob(jobs_pb2.GetJobRequest(job_id=job_id), metadata=self.metadata, timeout=90)).job

    async def cancel(self, job_id: str) -> jobs_pb2.Job:
        request = jobs_pb2.CancelJobRequest(job_id=job_id)
        return (await self.stub.CancelJob(request, metadata=self.metadata, timeout=90)).job

    async def resume(self, job_id: str, max_epochs: int = 0) -> jobs_pb2.Job:
        request = jobs_pb2.ResumeJobRequest(job_id=job_id, max_epochs=max_epochs)
        return (await self.stub.ResumeJob(request, metadata=self.metadata, timeout=90)).job

    async def events(self, job_id: str = "", after: int = 0) -> AsyncIterator[jobs_pb2.JobEvent]:
        """Events as they come; ends when the job has finished."""
        request = jobs_pb2.WatchJobsRequest(job_id=job_id, after_sequence=after)
        async for response in self.stub.WatchJobs(request, metadata=self.metadata, timeout=60):
            yield response.event

    async def output(self, job_id: str, *, offset: int = 0, follow: bool = False) -> list[tuple[int, bytes]]:
        """The job's output in the pieces it came in."""
        request = jobs_pb2.StreamLogsRequest(job_id=job_id, offset_bytes=offset, follow=follow)
        call = self.stub.StreamLogs(request, metadata=self.metadata, timeout=60)
        return [(piece.offset_bytes, piece.data) async for piece in call]

    async def nodes(self) -> list[jobs_pb2.Node]:
        return list((await self.stub.ListNodes(jobs_pb2.ListNodesRequest(), metadata=self.metadata, timeout=90)).nodes)

    async def endpoints(self) -> list[jobs_pb2.Endpoint]:
        request = jobs_pb2.ListEndpointsRequest()
        return list((await self.stub.ListEndpoints(request, metadata=self.metadata, timeout=90)).endpoints)

    async def delete_endpoint(self, name: str) -> None:
        request = jobs_pb2.DeleteEndpointRequest(endpoint=name)
        await self.stub.DeleteEndpoint(request, metadata=self.metadata, timeout=90)

    async def wait(self, job_id: str, condition: Callable[[jobs_pb2.Job], object]) -> jobs_pb2.Job:
        """Wait until something holds of a job."""
        async with asyncio.timeout(90):
            while not condition(job := await self.get(job_id)):  # noqa: ASYNC110 - any condition, also without an event
                await asyncio.sleep(0.03)  # a call each time
        return job

    async def wait_finished(self, job_id: str) -> jobs_pb2.Job:
        return await self.wait(job_id, lambda job: job.state in FINAL)


@contextlib.asynccontextmanager
async def tenant_of(address: str, token: str) -> AsyncIterator[Tenant]:
    async with grpc.aio.insecure_channel(address, [("grpc.use_local_subchannel_pool", 1)]) as channel:
        yield Tenant(channel, token)


@contextlib.asynccontextmanager
async def at_work(state_dir: Path, **changes: Any) -> AsyncIterator[tuple[Broker, ScriptedAgent, Tenant]]:
    """A broker, a node that is connected to it, and alice."""
    agent = ScriptedAgent(node_token(state_dir))
    async with (
        running_broker(state_dir, **changes) as broker,
        agent.connected(broker.nodes_address),
        tenant_of(broker.broker_address, tenant_token(state_dir)) as alice,
    ):
        yield broker, agent, alice


async def status_of(call: Awaitable[object]) -> str:
    """How a call ends: the name of its status."""
    try:
        await call
    except grpc.aio.AioRpcError as error:
        return error.code().name
    return "OK"
