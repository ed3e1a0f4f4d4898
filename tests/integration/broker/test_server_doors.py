"""Calls that nobody may make, messages that make no sense, ports and folders that are taken, at a real broker."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from testing.brokers import make_settings, node_token, running_broker, tenant_of, tenant_token
from testing.scripted_agent import ScriptedAgent
from tiercel.broker.api.matrix import methods
from tiercel.broker.server import Broker
from tiercel.core.errors import InvalidSpecError, UnavailableError
from tiercel.v1 import PROTOCOL, jobs_pb2, nodes_pb2


def _hello(
    *,
    node_id: str = "n1",
    cpu_cores: float = 1.0,
    memory_bytes: int = 1,
    instance: str = "0123456789abcdef",
    labels: Mapping[str, str] | None = None,
) -> nodes_pb2.ConnectRequest:
    return nodes_pb2.ConnectRequest(
        hello=nodes_pb2.NodeHello(
            node_id=node_id,
            cpu_cores=cpu_cores,
            memory_bytes=memory_bytes,
            protocol=PROTOCOL,
            instance=instance,
            labels=labels or {},
        )
    )


@pytest.mark.parametrize(
    ("first", "field"),
    [
        (nodes_pb2.ConnectRequest(heartbeat=nodes_pb2.Heartbeat()), "hello"),
        (_hello(node_id=""), "hello.node_id"),
        (_hello(node_id="../n1"), "hello.node_id"),
        (_hello(cpu_cores=float("nan")), "hello.cpu_cores"),
        (_hello(cpu_cores=0), "hello.cpu_cores"),
        (_hello(memory_bytes=0), "hello.memory_bytes"),
        (_hello(labels={"disk": "\x1b[2J"}), "hello.labels.disk"),
        (_hello(labels={f"l{number}": "x" for number in range(33)}), "hello.labels"),
        (_hello(instance=""), "hello.instance"),
        (_hello(instance="../../../etc/passwd"), "hello.instance"),
    ],
)
async def test_a_bad_hello_is_refused_by_field(tmp_path: Path, first: nodes_pb2.ConnectRequest, field: str) -> None:
    async with running_broker(tmp_path) as broker:
        agent = ScriptedAgent(node_token(tmp_path))
        agent.first_message = first
        await agent.run(broker.nodes_address)
        assert agent.ending is not None
        code, details, trailing = agent.ending
        assert code is grpc.StatusCode.INVALID_ARGUMENT
        assert trailing["tiercel-error-field"] == field
        assert details.startswith(f"{field}: ")


@pytest.mark.parametrize("token", ["", "wrong", "node"])
async def test_a_call_without_a_tenants_token_is_refused(tmp_path: Path, token: str) -> None:
    async with running_broker(tmp_path) as broker:
        given = node_token(tmp_path) if token == "node" else token
        async with tenant_of(broker.broker_address, given) as nobody:
            for call in (nobody.submit(), nobody.get("x"), nobody.nodes(), nobody.output("x"), anext(nobody.events())):
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await call
                wanted = "PERMISSION_DENIED" if token == "node" else "UNAUTHENTICATED"
                assert caught.value.code().name == wanted
                trailing = dict(caught.value.trailing_metadata() or ())
                assert trailing["tiercel-error-code"] == ("not_allowed" if token == "node" else "not_authenticated")


@pytest.mark.parametrize("token", ["", "wrong", "tenant"])
async def test_a_stream_without_the_nodes_token_is_refused(tmp_path: Path, token: str) -> None:
    async with running_broker(tmp_path) as broker:
        agent = ScriptedAgent(tenant_token(tmp_path) if token == "tenant" else token)
        for _ in range(5):  # gRPC loses the reason where the refusal meets a message under way; agents dial again, too
            await agent.run(broker.nodes_address)
            if agent.ending is not None and agent.ending[0] is not grpc.StatusCode.INTERNAL:
                break
        assert agent.ending is not None
        assert agent.ending[0] is grpc.StatusCode.UNAUTHENTICATED
        assert agent.ending[2]["tiercel-error-code"] == "not_authenticated"


async def test_a_wrong_request_names_the_field_and_creates_nothing(tmp_path: Path) -> None:
    async with (
        running_broker(tmp_path) as broker,
        tenant_of(broker.broker_address, tenant_token(tmp_path)) as alice,
    ):
        cases = [
            (jobs_pb2.SubmitJobRequest(), "direction"),
            (jobs_pb2.SubmitJobRequest(idempotency_key="k" * 129), "idempotency_key"),
        ]
        for request, field in cases:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await alice.stub.SubmitJob(request, metadata=alice.metadata, timeout=90)
            assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            trailing = dict(caught.value.trailing_metadata() or ())
            assert (trailing["tiercel-error-code"], trailing["tiercel-error-field"]) == ("invalid_spec", field)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await alice.submit(endpoint="x" * 100_000)
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT, "however much is wrong with it"
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await alice.get("nonsense")
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND
        jobs = await alice.stub.ListJobs(jobs_pb2.ListJobsRequest(), metadata=alice.metadata, timeout=90)
        assert list(jobs.jobs) == []
        assert await alice.endpoints() == []


async def test_health_and_reflection_answer_anybody(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, grpc.aio.insecure_channel(broker.broker_address) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        for service in ("", "tiercel.v1.JobsService", "tiercel.v1.NodesService"):
            answer = await health.Check(health_pb2.HealthCheckRequest(service=service), timeout=90)
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
        listing = reflection_pb2.ServerReflectionRequest(list_services="")
        call = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo(iter([listing]), timeout=90)
        response = await anext(aiter(call))
        names = {service.name for service in response.list_services_response.service}
        assert "grpc.health.v1.Health" in names
        contract = {method.containing_service.full_name for method in methods()}
        # Agents have listeners of their own, and at a node's socket there are its runs.
        elsewhere = {f"tiercel.v1.{name}Service" for name in ("Nodes", "Certificates", "Trainer")}
        assert {name for name in names if name.startswith("tiercel.")} == contract - elsewhere


async def test_a_port_in_use_is_a_sentence_and_changes_nothing(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(UnavailableError, match=f"port {port} of 127.0.0.1 is in use; .* with --broker-port"):
            await Broker(make_settings(tmp_path, broker_port=port)).__aenter__()
        assert not (tmp_path / "broker.sqlite").exists()
        with pytest.raises(UnavailableError, match=f"Port {port} is in use"):
            await Broker(make_settings(tmp_path, mqtt_port=port)).__aenter__()
    async with running_broker(tmp_path):
        pass


async def test_two_brokers_do_not_share_a_state_directory(tmp_path: Path) -> None:
    async with running_broker(tmp_path):
        with pytest.raises(UnavailableError, match=rf"another broker \(pid {os.getpid()}\) runs on"):
            await Broker(make_settings(tmp_path)).__aenter__()
    async with running_broker(tmp_path):
        pass


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "::", "example.com", ""])
async def test_only_loopback_is_listened_on(tmp_path: Path, host: str) -> None:
    with pytest.raises(InvalidSpecError, match=r"use 127\.0\.0\.1") as caught:
        await Broker(make_settings(tmp_path, host=host)).__aenter__()
    assert caught.value.field == "host"


async def test_an_unknown_policy_and_a_bad_state_directory_are_sentences(tmp_path: Path) -> None:
    with pytest.raises(InvalidSpecError, match="no policy 'luck'"):
        await Broker(make_settings(tmp_path, policy="luck")).__aenter__()
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidSpecError, match="state_dir: "):
        await Broker(make_settings(tmp_path / "file" / "inside")).__aenter__()
