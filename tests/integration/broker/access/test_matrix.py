"""Every method of the contract, called in every role on a real broker, against ``tests/data/access_matrix.txt``."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import message_factory
from google.protobuf.descriptor import MethodDescriptor

from testing.brokers import node_token, running_broker, tenant_of, tenant_token
from testing.jobs import make_spec
from testing.membership import WIDE, joined, open_as, operator_of
from tiercel import Client
from tiercel.broker.api.matrix import Matrix, methods, name_of
from tiercel.broker.client.tokens import create_token
from tiercel.broker.server import Broker
from tiercel.broker.tenancy import open_tenancy
from tiercel.core.roles import Role
from tiercel.core.trust.certificates import make_key, make_request
from tiercel.core.wire import to_proto
from tiercel.v1 import common_pb2, rights_pb2

TABLE = Path(__file__).parents[3] / "data" / "access_matrix.txt"
# A run's own socket is its agent's to guard.
ELSEWHERE = {"TrainerService.Attach"}


def rows() -> tuple[list[str], dict[str, list[str]]]:
    """Who calls, and what each of them is answered, by method."""
    heading, *lines = (line.split() for line in TABLE.read_text().splitlines() if line and not line.startswith("#"))
    return heading[1:], {method: outcomes for method, *outcomes in lines}


def short_name(method: MethodDescriptor) -> str:
    return f"{method.containing_service.name}.{method.name}"


async def outcome_of(
    channel: grpc.aio.Channel,
    method: MethodDescriptor,
    metadata: tuple[tuple[str, str], ...],
    values: Mapping[str, Any],
) -> str:
    """The status of a call whose request names what ``values`` has by the names of fields."""
    request = message_factory.GetMessageClass(method.input_type)()
    for field in method.input_type.fields:
        if (value := values.get(field.name)) is None or field.is_repeated:
            continue
        if field.message_type is not None:
            getattr(request, field.name).CopyFrom(value)
        elif isinstance(value, bytes) is (field.type == field.TYPE_BYTES):
            setattr(request, field.name, value)
    for _ in range(10):
        # gRPC's client calls it internal when its write meets a refusal; no rule answers so.
        if (status := await status_of(channel, method, metadata, request.SerializeToString())) != "INTERNAL":
            break
    return status


async def status_of(
    channel: grpc.aio.Channel, method: MethodDescriptor, metadata: tuple[tuple[str, str], ...], request: bytes
) -> str:
    """The status of a call with one message, made as a stream whatever it is: the gate takes all of them so."""
    call: Any = channel.stream_stream(name_of(method))(metadata=metadata, timeout=90)
    try:
        with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            await call.write(request)
            await call.done_writing()
        if await call.read() is not grpc.aio.EOF:
            return "OK"
    except grpc.aio.AioRpcError as error:
        return error.code().name
    else:
        return str((await call.code()).name)
    finally:
        call.cancel()


@contextlib.asynccontextmanager
async def callers(broker: Broker, state_dir: Path) -> AsyncIterator[dict[str, tuple[grpc.aio.Channel, Any]]]:
    """Each caller's channel and metadata, by the heading of its column."""
    identity = await joined(broker, state_dir, "n9")
    async with operator_of(broker, state_dir) as operator:
        viewer, _ = await create_token(operator, "eyes", tenant="alice", role=Role.VIEWER, seconds=0)
    tokens = {
        "nobody": "",
        "wrong": "0123456789abcdef",
        "agent": node_token(state_dir),
        "operator": open_tenancy(state_dir, ()).operator_token,
        "other": tenant_token(state_dir, "bob"),
        "viewer": viewer,
        "submitter": tenant_token(state_dir),
    }
    metadata = {name: (("authorization", f"Bearer {token}"),) if token else () for name, token in tokens.items()}
    async with (
        grpc.aio.insecure_channel(broker.broker_address) as tenants,
        grpc.aio.insecure_channel(broker.nodes_address) as nodes,
        open_as(broker.addresses["nodes_tls"], identity) as members,
    ):
        found: dict[str, tuple[grpc.aio.Channel, Any]] = {name: (tenants, each) for name, each in metadata.items()}
        found |= {f"{name}@nodes": (nodes, metadata[name]) for name in ("nobody", "submitter", "operator", "agent")}
        found["member@members"] = (members, ())
        yield found


def test_every_method_says_who_may_call_it_and_is_in_the_table() -> None:
    silent = [short_name(method) for method in methods() if not method.GetOptions().HasExtension(rights_pb2.access)]
    assert not silent
    assert {short_name(method) for method in methods()} - ELSEWHERE == rows()[1].keys()


def test_nobody_who_only_reads_may_call_what_changes_anything() -> None:
    matrix = Matrix.read()
    rules = {short_name(method): matrix.rule(name_of(method)) for method in methods()}
    assert not [name for name, rule in rules.items() if rule.changes and Role.VIEWER in rule.roles]
    assert not [name for name, rule in rules.items() if not rule.roles]


def test_what_changes_something_says_what_it_is_about_for_the_audit_log() -> None:
    matrix = Matrix.read()
    nameless = {"IssueCertificate", "CollectGarbage", "RenewCertificate", "SendObjects"}
    found = {method.name for method in methods() if not matrix.rule(name_of(method)).objects}
    assert {method.name for method in methods() if matrix.rule(name_of(method)).changes} & found == nameless
    for method in methods():
        named = {path.partition(".")[0] for path in matrix.rule(name_of(method)).objects}
        assert named <= {*method.input_type.fields_by_name, *method.output_type.fields_by_name}, method.name


async def test_a_method_that_does_not_say_who_may_call_it_is_refused_to_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Matrix, "read", lambda: Matrix({}))
    async with running_broker(tmp_path, listen=WIDE) as broker:
        async with tenant_of(broker.broker_address, tenant_token(tmp_path)) as alice:
            with pytest.raises(grpc.aio.AioRpcError, match="does not say who may call it") as refused:
                await alice.nodes()
            assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
        async with grpc.aio.insecure_channel(broker.nodes_address) as nodes:
            metadata = (("authorization", f"Bearer {node_token(tmp_path)}"),)
            connect = next(method for method in methods() if method.name == "Connect")
            assert await outcome_of(nodes, connect, metadata, {}) == "PERMISSION_DENIED"


async def test_every_method_answers_every_role_as_the_table_says(tmp_path: Path) -> None:
    async with (
        running_broker(tmp_path, listen=WIDE) as broker,
        tenant_of(broker.broker_address, tenant_token(tmp_path)) as alice,
        Client(broker.broker_address, token=tenant_token(tmp_path)) as client,
        callers(broker, tmp_path) as channels,
    ):
        job = await alice.submit(key="k")
        await client.secrets.set("A_KEY", "v")
        values = {
            "job_id": job.id,
            "endpoint": "digits",
            "name": "A_KEY",
            "value": "v",
            "path": "report.html",
            "spec": to_proto(make_spec(endpoint="digits"), common_pb2.JobSpec),
            "idempotency_key": "k",
            "node_id": "n7",
            "access": common_pb2.ENDPOINT_ACCESS_TENANT,
            "certificate_request": make_request(make_key()),
        }
        heading, expected = rows()
        known = {short_name(method): method for method in methods()}
        found = {
            name: [await outcome_of(*_with(channels[caller], known[name]), values) for caller in heading]
            for name in expected
        }
    widths = [max(len(word) for word in column) for column in zip(heading, *found.values(), strict=True)]
    lines = [
        " ".join((name.ljust(40), *(word.ljust(width) for word, width in zip(words, widths, strict=True)))).rstrip()
        for name, words in (("method", heading), *found.items())
        if words != expected.get(name)
    ]
    assert found == expected, "what was answered otherwise, as the table has it:\n" + "\n".join(lines)


def _with(caller: tuple[grpc.aio.Channel, Any], method: MethodDescriptor) -> tuple[grpc.aio.Channel, Any, Any]:
    channel, metadata = caller
    return channel, method, metadata
