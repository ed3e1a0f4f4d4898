"""Calls of those who have no token, and of tenants who call without end: what they cost, and whom they keep out."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from testing.brokers import broker_process, node_token, running_broker, tenant_of, tenant_token
from testing.scripted_agent import ScriptedAgent
from testing.until import until
from tiercel import InvalidSpecError
from tiercel.broker.client.errors import from_rpc_error
from tiercel.v1 import jobs_pb2, jobs_pb2_grpc, nodes_pb2, nodes_pb2_grpc

MIB = 1024 * 1024


@contextlib.asynccontextmanager
async def channels(address: str, count: int) -> AsyncIterator[list[grpc.aio.Channel]]:
    """Channels with a connection of their own each."""
    async with contextlib.AsyncExitStack() as stack:
        options = [("grpc.use_local_subchannel_pool", 1)]
        made = [grpc.aio.insecure_channel(address, options) for _ in range(count)]
        yield [await stack.enter_async_context(channel) for channel in made]


async def _watch(channel: grpc.aio.Channel, outcomes: Counter[str]) -> None:
    call = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
    try:
        await call.read()
        outcomes["answered"] += 1
        await call.read()
    except grpc.aio.AioRpcError as error:
        outcomes[error.code().name] += 1
    finally:
        call.cancel()


async def test_a_thousand_health_watches_without_a_token_lock_nobody_out(tmp_path: Path) -> None:
    outcomes: Counter[str] = Counter()
    async with running_broker(tmp_path) as broker, channels(broker.broker_address, 10) as opened:
        watches = [asyncio.create_task(_watch(channel, outcomes)) for channel in opened for _ in range(101)]
        await until(lambda: outcomes.total() == 1_010)
        agent = ScriptedAgent(node_token(tmp_path))
        async with (
            agent.connected(broker.nodes_address),
            tenant_of(broker.broker_address, tenant_token(tmp_path)) as alice,
        ):
            job = await alice.submit()
            await agent.wait_run(f"{job.id}-1")
            check = health_pb2_grpc.HealthStub(opened[0]).Check
            answer = await check(health_pb2.HealthCheckRequest(), timeout=90)
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
        for watch in watches:
            watch.cancel()
        await asyncio.gather(*watches, return_exceptions=True)
    # One that is refused while its stream is still being set up may hear that it was cancelled.
    assert (outcomes["answered"], outcomes["UNAVAILABLE"] + outcomes["CANCELLED"]) == (16, 994)
    assert outcomes["CANCELLED"] < 50


async def test_large_messages_without_a_token_are_refused_before_they_are_read(tmp_path: Path) -> None:
    script = jobs_pb2.SubmitJobRequest()
    script.spec.script.content = bytes(60 * MIB)
    checkpoint = nodes_pb2.SendCheckpointRequest(data=bytes(60 * MIB))

    async def code_of(call: grpc.aio.UnaryUnaryCall | grpc.aio.StreamStreamCall) -> grpc.StatusCode:  # type: ignore[type-arg]
        with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            if isinstance(call, grpc.aio.StreamStreamCall):
                await call.write(checkpoint)
        return await call.code()

    async with broker_process(tmp_path) as (process, tenants, nodes, _), channels(tenants, 2) as opened:
        before = _peak_mib(process.pid)
        calls: list[grpc.aio.UnaryUnaryCall | grpc.aio.StreamStreamCall] = []  # type: ignore[type-arg]
        for channel in opened:
            calls += [jobs_pb2_grpc.JobsServiceStub(channel).SubmitJob(script, timeout=60) for _ in range(2)]
        async with channels(nodes, 2) as of_nodes:
            calls += [nodes_pb2_grpc.NodesServiceStub(channel).SendCheckpoint(timeout=60) for channel in of_nodes]
            codes = await asyncio.gather(*map(code_of, calls))
        assert set(codes[:4]) == {grpc.StatusCode.UNAUTHENTICATED}
        # gRPC's client calls it internal when its write is cut off in the middle.
        assert set(codes[4:]) <= {grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.INTERNAL}
        assert _peak_mib(process.pid) - before < 60


def _peak_mib(pid: int) -> float:
    """The most memory that a process has ever had, in MiB."""
    (line,) = (line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


async def test_a_message_larger_than_any_request_is_refused_to_tenants_too(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, tenant_of(broker.broker_address, tenant_token(tmp_path)) as alice:
        request = jobs_pb2.SubmitJobRequest(idempotency_key="k" * (5 * MIB))
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await alice.stub.SubmitJob(request, metadata=alice.metadata, timeout=90)
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        error = from_rpc_error(caught.value, broker.broker_address)
        assert isinstance(error, InvalidSpecError)
        assert error.message.startswith("The request is larger than the broker takes (")
        assert not (await alice.stub.ListJobs(jobs_pb2.ListJobsRequest(), metadata=alice.metadata, timeout=90)).jobs


async def test_a_tenant_who_watches_without_end_keeps_neither_agents_nor_others_out(tmp_path: Path) -> None:
    async with (
        running_broker(tmp_path) as broker,
        channels(broker.broker_address, 3) as opened,
        tenant_of(broker.broker_address, tenant_token(tmp_path, "bob")) as bob,
    ):
        metadata = (("authorization", f"Bearer {tenant_token(tmp_path)}"),)
        stubs = [health_pb2_grpc.HealthStub(channel) for channel in opened]
        request = health_pb2.HealthCheckRequest()
        calls = [stub.Watch(request, metadata=metadata) for stub in stubs for _ in range(100)]
        await until(lambda: sum(call.done() for call in calls) >= 100)
        refused = [call for call in calls if call.done()]
        assert {(await call.code()) for call in refused} == {grpc.StatusCode.UNAVAILABLE}
        assert "200 calls at the same time" in await refused[0].details()
        agent = ScriptedAgent(node_token(tmp_path))
        async with agent.connected(broker.nodes_address):
            job = await bob.submit()
            await agent.wait_run(f"{job.id}-1")
        for call in calls:
            call.cancel()


async def test_a_call_that_announces_a_request_and_sends_none_gives_its_place_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tiercel.broker.api.handlers.REQUEST_SECONDS", 0.2)
    async with running_broker(tmp_path) as broker, channels(broker.broker_address, 1) as (channel,):
        # The same method, called as if requests came in a stream: this one never comes.
        check = channel.stream_unary(
            "/grpc.health.v1.Health/Check",
            request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
            response_deserializer=health_pb2.HealthCheckResponse.FromString,
        )
        mute = [check() for _ in range(4)]
        codes = await asyncio.gather(*(call.code() for call in mute))
        assert set(codes) == {grpc.StatusCode.UNAVAILABLE}
        answer = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=90)
        assert answer.status == health_pb2.HealthCheckResponse.SERVING


async def test_tenants_and_agents_have_a_listener_each(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, channels(broker.broker_address, 1) as (tenants,):
        metadata = (("authorization", f"Bearer {node_token(tmp_path)}"),)
        call = nodes_pb2_grpc.NodesServiceStub(tenants).Connect(metadata=metadata)
        assert await call.code() is grpc.StatusCode.UNIMPLEMENTED
        async with channels(broker.nodes_address, 1) as (nodes,):
            listing = jobs_pb2_grpc.JobsServiceStub(nodes).ListJobs(jobs_pb2.ListJobsRequest(), metadata=metadata)
            assert await listing.code() is grpc.StatusCode.UNIMPLEMENTED
