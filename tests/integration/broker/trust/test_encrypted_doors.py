"""The broker's doors for others: real TLS on an address of this machine, and everybody who must not get through."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiomqtt
import grpc
import pytest

from testing.brokers import node_token, running_broker, tenant_token
from testing.jobs import make_spec
from testing.membership import WIDE, joined, open_as, operator_of, removed
from testing.scripted_agent import ScriptedAgent
from tiercel import Client, SyncClient
from tiercel.broker.client.membership import create_join_token, join
from tiercel.broker.server import Broker
from tiercel.broker.store.drains import DrainStore
from tiercel.broker.store.sql import Store, sqlite_url
from tiercel.broker.trust.authority import Authority
from tiercel.core.errors import InvalidSpecError, NodeTakenError, NotAuthenticatedError, NotFoundError, UnavailableError
from tiercel.core.nodes import Drain
from tiercel.core.trust.certificates import Identity, key_to_pem, make_key, make_request, pin_of, read_chain, to_pem
from tiercel.core.trust.join_token import JoinToken
from tiercel.core.trust.pinning import shown_by
from tiercel.core.trust.trust import Trust
from tiercel.v1 import access_pb2, access_pb2_grpc, membership_pb2, nodes_pb2

UNAUTHENTICATED = grpc.StatusCode.UNAUTHENTICATED
PERMISSION_DENIED = grpc.StatusCode.PERMISSION_DENIED


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with running_broker(tmp_path, listen=WIDE) as broker:
        yield broker


def agent_of(identity: Identity, node_id: str) -> ScriptedAgent:
    return ScriptedAgent("", node_id, open_channel=lambda address: open_as(address, identity))


def handshake(address: str, version: ssl.TLSVersion) -> str:
    """The version that is agreed on, or what went wrong."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.minimum_version = context.maximum_version = version
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), 10) as plain, context.wrap_socket(plain) as encrypted:
            return encrypted.version() or ""
    except OSError:
        return "refused"


async def test_nothing_older_than_tls_1_3_gets_in(broker: Broker) -> None:
    for door in ("broker_tls", "nodes_tls"):
        address = broker.addresses[door]
        assert await asyncio.to_thread(handshake, address, ssl.TLSVersion.TLSv1_2) == "refused"
        assert await asyncio.to_thread(handshake, address, ssl.TLSVersion.TLSv1_3) == "TLSv1.3"


async def test_a_tenant_elsewhere_knows_the_broker_by_its_pin_or_by_its_authority(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address, token = broker.addresses["broker_tls"], tenant_token(tmp_path)
    authority = tmp_path / "authority.pem"
    for trust in (Trust(pin=broker.addresses["pin"]), Trust(authority=authority)):
        async with Client(address, token=token, trust=trust) as client:
            assert await client.list_jobs() == ()
    monkeypatch.setenv("TIERCEL_BROKER_PIN", broker.addresses["pin"])

    def blocking() -> int:
        with SyncClient(address, token=token) as client:
            return len(client.list_jobs())

    assert await asyncio.to_thread(blocking) == 0


async def test_a_tenant_says_nothing_to_whom_it_does_not_know(broker: Broker, tmp_path: Path) -> None:
    address, token = broker.addresses["broker_tls"], tenant_token(tmp_path)
    stranger = tmp_path / "stranger.pem"
    stranger.write_bytes(to_pem(Authority.create(datetime.now(UTC)).certificate))
    tried: tuple[tuple[str, Trust, type[Exception], str], ...] = (
        (address, Trust(pin="p" * 43), NotAuthenticatedError, "belong to the broker that the pin stands for"),
        (address, Trust(pin="short"), InvalidSpecError, "a pin has 43 characters"),
        (address, Trust(authority=stranger), UnavailableError, "not vouched for by the authority that this client"),
        (address, Trust(authority=tmp_path / "none.pem"), InvalidSpecError, "has no certificates"),
        (broker.broker_address, Trust(pin=broker.addresses["pin"]), UnavailableError, "TLS 1.3"),
        ("192.0.2.1:7000", Trust(), InvalidSpecError, "no token is sent unencrypted"),
        ("127.0.0.1", Trust(), InvalidSpecError, "'127.0.0.1' is not HOST:PORT, as 'tiercel up' prints it"),
    )
    for where, trust, error, words in tried:
        with pytest.raises(error, match=words):
            async with Client(where, token=token, trust=trust) as client:
                await client.list_jobs()


async def test_a_token_alone_opens_no_door_without_encryption(broker: Broker, tmp_path: Path) -> None:
    """Neither the tenants' encrypted door nor the agents' takes a word in the clear."""
    for door in ("broker_tls", "nodes_tls"):
        agent = ScriptedAgent(node_token(tmp_path))
        await agent.run(broker.addresses[door])
        assert agent.ending is not None
        assert agent.ending[0] is grpc.StatusCode.UNAVAILABLE


async def test_mqtt_has_a_door_for_others_with_the_certificate_that_tenants_are_shown(
    broker: Broker, tmp_path: Path
) -> None:
    context = ssl.create_default_context(cafile=str(tmp_path / "authority.pem"))
    host, _, port = broker.addresses["mqtt_tls"].rpartition(":")
    assert host == WIDE
    token = tenant_token(tmp_path)
    async with aiomqtt.Client(host, int(port), username="alice", password=token, tls_context=context) as client:
        await client.subscribe("tiercel/v1/broker/presence")
        async with asyncio.timeout(90):
            assert b"online" in (await anext(client.messages)).payload
    chain = await asyncio.to_thread(shown_by, broker.addresses["mqtt_tls"])
    assert pin_of(chain[-1]) == broker.addresses["pin"]


async def test_a_machine_joins_and_is_who_its_certificate_says(broker: Broker, tmp_path: Path) -> None:
    identity = await joined(broker, tmp_path, "n2")
    address = broker.addresses["nodes_tls"]
    agent = agent_of(identity, "n2")
    async with agent.connected(address):
        assert agent.ending is None
        for other in ("n3", "local"):
            impostor = agent_of(identity, other)
            await impostor.run(address)
            assert impostor.ending is not None
            assert impostor.ending[:2] == (
                UNAUTHENTICATED,
                f"the certificate is that of node n2, which cannot speak for '{other}'",
            )
        # Whoever has the agents' token on the broker's machine is not this node either.
        local = ScriptedAgent(node_token(tmp_path), "n2")
        await local.run(broker.nodes_address)
        assert local.ending is not None
        assert "joined from another machine" in local.ending[1]


async def test_a_removed_node_is_cut_off_and_refused_by_every_method(broker: Broker, tmp_path: Path) -> None:
    identity = await joined(broker, tmp_path, "n2")
    address = broker.addresses["nodes_tls"]
    agent = agent_of(identity, "n2")
    async with agent.connected(address):
        await removed(broker, tmp_path, "n2")
        await agent.until(lambda: agent.ending is not None)
    assert agent.ending is not None
    assert agent.ending[0] is UNAUTHENTICATED
    async with open_as(address, identity) as channel:
        for method, request in every_method():
            # Where the refusal comes before the request has gone out, a write of our own would end the call by itself.
            call: Any = channel.stream_stream(method, request_serializer=lambda sent: sent)(iter([request]))
            assert (await call.code(), method) == (UNAUTHENTICATED, method)


def every_method() -> list[tuple[str, bytes]]:
    """What agents may call, and a request that is fit for it."""
    hello = nodes_pb2.NodeHello(node_id="n2", cpu_cores=1.0, memory_bytes=1, protocol=1, instance="i" * 32)
    header: dict[str, Any] = {"node_id": "n2", "instance": "i" * 32, "run_id": "j-1"}
    requests: dict[str, Any] = {
        "Connect": nodes_pb2.ConnectRequest(hello=hello),
        "SendCheckpoint": nodes_pb2.SendCheckpointRequest(header=nodes_pb2.CheckpointHeader(**header)),
        "SendFiles": nodes_pb2.SendFilesRequest(header=nodes_pb2.FilesHeader(**header)),
    }
    services = (
        nodes_pb2.DESCRIPTOR.services_by_name["NodesService"],
        membership_pb2.DESCRIPTOR.services_by_name["CertificatesService"],
    )
    return [
        (f"/{service.full_name}/{method.name}", requests[method.name].SerializeToString())
        if method.name in requests
        else (f"/{service.full_name}/{method.name}", b"")
        for service in services
        for method in service.methods
    ]


async def test_a_certificate_by_anybody_else_does_not_get_through_the_handshake(broker: Broker, tmp_path: Path) -> None:
    roots = (tmp_path / "authority.pem").read_bytes()
    now, key = datetime.now(UTC), make_key()
    strangers = Authority.create(now)
    chain = to_pem(strangers.issue_to_node("n2", key.public_key(), now), strangers.certificate)
    forged = ScriptedAgent(
        "", "n2", open_channel=lambda address: open_as(address, Identity(key_to_pem(key), chain), roots)
    )
    await forged.run(broker.addresses["nodes_tls"])
    assert forged.ending is not None
    assert forged.ending[0] is grpc.StatusCode.UNAVAILABLE


async def test_one_that_the_authority_signed_and_the_broker_does_not_know_is_refused(
    broker: Broker, tmp_path: Path
) -> None:
    kept = Identity.from_file((tmp_path / "authority.key").read_bytes())
    authority, key = Authority.from_pem(kept.key, kept.chain), make_key()
    chain = to_pem(authority.issue_to_node("n2", key.public_key(), datetime.now(UTC)), authority.certificate)
    unknown = agent_of(Identity(key_to_pem(key), chain), "n2")
    await unknown.run(broker.addresses["nodes_tls"])
    assert unknown.ending is not None
    assert unknown.ending[0] is UNAUTHENTICATED
    assert "join again" in unknown.ending[1]


async def test_who_joins_by_a_name_that_a_killed_broker_left_drained_is_not_drained(tmp_path: Path) -> None:
    async with Store(sqlite_url(tmp_path / "broker.sqlite")) as store:
        # Its node was off the list already, and could not be removed once more.
        await DrainStore(store).put("n2", Drain.MOVE)
        async with running_broker(tmp_path, listen=WIDE) as broker:
            await joined(broker, tmp_path, "n2")
        assert await DrainStore(store).load() == {}


async def test_a_join_line_is_good_for_the_broker_that_it_names_alone(broker: Broker, tmp_path: Path) -> None:
    async with operator_of(broker, tmp_path) as operator:
        line = await create_join_token(operator, "", 60.0)
    token = JoinToken.parse(line.token)
    with pytest.raises(NotAuthenticatedError, match="nothing was sent"):
        await join(line.address, JoinToken("p" * 43, token.id, token.secret), "n2")
    await join(line.address, token, "n2")
    with pytest.raises(NotAuthenticatedError, match="was used already"):
        await join(line.address, token, "n3")


async def test_a_machine_cannot_take_the_name_of_an_agent_beside_the_broker(broker: Broker, tmp_path: Path) -> None:
    local = ScriptedAgent(node_token(tmp_path), "n1")
    async with local.connected(broker.nodes_address):
        with pytest.raises(NodeTakenError, match="choose another"):
            await joined(broker, tmp_path, "n1")
    for name in ("n1", "N1"):  # hosts' names do not tell the two apart; and it is that agent's while that is away
        with pytest.raises(NodeTakenError, match=f"'{name}' is the name of a node on the broker's machine"):
            await joined(broker, tmp_path, name)
    with pytest.raises(NotFoundError, match="'n1' is a node on the broker's machine and did not join; end its agent"):
        await removed(broker, tmp_path, "n1")


async def test_only_the_operator_says_who_may_join(broker: Broker, tmp_path: Path) -> None:
    stub_path = "/tiercel.v1.MembershipService/"
    address = broker.broker_address
    async with grpc.aio.insecure_channel(address) as channel:
        for token in ("", tenant_token(tmp_path), node_token(tmp_path)):
            metadata = (("authorization", f"Bearer {token}"),) if token else ()
            for method in ("CreateJoinToken", "RemoveNode"):
                call: Any = channel.unary_unary(stub_path + method, request_serializer=lambda sent: sent)
                with pytest.raises(grpc.aio.AioRpcError) as refused:
                    await call(b"", metadata=metadata, timeout=90)
                assert refused.value.code() is (PERMISSION_DENIED if token else UNAUTHENTICATED)


async def test_a_broker_that_others_cannot_reach_lets_nobody_join(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, operator_of(broker, tmp_path) as operator:
        assert "broker_tls" not in broker.addresses
        with pytest.raises(InvalidSpecError, match="tiercel up --listen ADDRESS"):
            await create_join_token(operator, "", 60.0)
    assert not (tmp_path / "authority.key").exists()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"host": "0.0.0.0"}, "calls are not encrypted"),
        ({"listen": "lab.example"}, "not an address at which others reach this machine"),
        ({"listen": "[::1]"}, "without brackets"),
        ({"listen": "fe80::1"}, "not an address at which others reach this machine"),
        ({"listen_names": ("lab",)}, "give --listen ADDRESS"),
        ({"listen": WIDE, "listen_names": ("lab.example:443",)}, "without brackets and port"),
        ({"listen": WIDE, "listen_names": ("*.lab.example",)}, r"no '\*'"),
        ({"listen": WIDE, "listen_names": ("l\u00e4b.example",)}, "not an address at which others reach"),
        ({"listen": WIDE, "listen_names": ("Far.node.tiercel.internal",)}, "stands for a node"),
        ({"listen": WIDE, "tls_key": Path("/nowhere")}, "go together"),
        ({"listen": WIDE, **{f"tls_{name}": Path("/nowhere") for name in ("certificate", "key", "ca")}}, "of no use"),
        ({"listen": "192.0.2.1"}, "^192.0.2.1 is no address of this machine; give one that"),
    ],
)
async def test_what_is_half_a_door_is_refused(tmp_path: Path, settings: dict[str, Any], words: str) -> None:
    with pytest.raises((InvalidSpecError, UnavailableError), match=words):
        async with running_broker(tmp_path, **settings):
            pass


async def test_the_authority_outlives_the_broker(tmp_path: Path) -> None:
    async with running_broker(tmp_path, listen=WIDE) as broker:
        identity, pin = await joined(broker, tmp_path, "n2"), broker.addresses["pin"]
    assert (tmp_path / "authority.key").stat().st_mode & 0o777 == 0o600
    async with running_broker(tmp_path, listen=WIDE) as broker:
        assert broker.addresses["pin"] == pin
        agent = agent_of(identity, "n2")
        async with agent.connected(broker.addresses["nodes_tls"]):
            assert agent.ending is None
    (tmp_path / "authority.key").write_bytes(b"damaged")
    with pytest.raises(InvalidSpecError, match="cannot be used"):
        async with running_broker(tmp_path, listen=WIDE):
            pass


async def test_the_operators_own_certificate_is_for_tenants_and_nodes_join_all_the_same(tmp_path: Path) -> None:
    now = datetime.now(UTC)
    company = Authority.create(now)
    own = company.issue_to_broker([WIDE], now)
    files = {name: tmp_path / f"{name}.pem" for name in ("certificate", "key", "ca")}
    files["certificate"].write_bytes(to_pem(own.certificate))
    files["key"].write_bytes(own.key)
    files["ca"].write_bytes(to_pem(company.certificate))
    state = tmp_path / "state"
    async with running_broker(state, listen=WIDE, **{f"tls_{name}": file for name, file in files.items()}) as broker:
        assert broker.addresses["pin"] == company.pin
        assert (await asyncio.to_thread(shown_by, broker.addresses["mqtt_tls"]))[0] == own.certificate
        identity = await joined(broker, state, "n2")
        assert read_chain(identity.chain)[1] != company.certificate
        agent = agent_of(identity, "n2")
        async with agent.connected(broker.addresses["nodes_tls"]):
            assert agent.ending is None
        trust = Trust(authority=files["ca"])
        async with Client(broker.addresses["broker_tls"], token=tenant_token(state), trust=trust) as client:
            assert await client.list_jobs() == ()


async def test_what_another_program_renews_is_shown_at_every_door_for_tenants_without_a_restart(tmp_path: Path) -> None:
    """As step, certbot and cert-manager do: an intermediate signs, and a link leads to the newest files."""
    now, company, state = datetime.now(UTC), Authority.create(datetime.now(UTC)), tmp_path / "state"
    intermediate = company.successor(now)
    signer, live = intermediate.link, tmp_path / "live"
    assert signer is not None

    def put(folder: Path) -> int:
        folder.mkdir()
        own = intermediate.issue_to_broker([WIDE], now)
        (folder / "broker.crt").write_bytes(to_pem(own.certificate, signer))
        (folder / "broker.key").write_bytes(own.key)
        fresh = tmp_path / "fresh"
        fresh.symlink_to(folder)
        fresh.replace(live)
        return own.certificate.serial_number

    first = put(tmp_path / "1")
    (tmp_path / "root.crt").write_bytes(to_pem(company.certificate))
    given = {"tls_certificate": live / "broker.crt", "tls_key": live / "broker.key", "tls_ca": tmp_path / "root.crt"}
    async with running_broker(state, listen=WIDE, dashboard_port=0, **given) as broker:
        doors = [broker.addresses[name] for name in ("broker_tls", "mqtt_tls", "dashboard_tls")]

        async def shown() -> list[int]:
            return [(await asyncio.to_thread(shown_by, door))[0].serial_number for door in doors]

        assert await shown() == [first] * 3
        second = put(tmp_path / "2")
        assert await shown() == [second] * 3
        for trust in (Trust(pin=company.pin), Trust(authority=tmp_path / "root.crt")):
            async with Client(doors[0], token=tenant_token(state), trust=trust) as client:
                assert await client.list_jobs() == ()


async def test_a_tenants_certificate_is_the_tenants_and_opens_no_door_for_agents(
    broker: Broker, tmp_path: Path
) -> None:
    key = make_key()
    request = access_pb2.IssueCertificateRequest(certificate_request=make_request(key))
    async with grpc.aio.insecure_channel(broker.broker_address) as channel:
        stub = access_pb2_grpc.AccessServiceStub(channel)
        for token, code in (("", UNAUTHENTICATED), (node_token(tmp_path), PERMISSION_DENIED)):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await stub.IssueCertificate(request, metadata=(("authorization", f"Bearer {token}"),), timeout=90)
            assert refused.value.code() is code
        alice = (("authorization", f"Bearer {tenant_token(tmp_path)}"),)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stub.IssueCertificate(access_pb2.IssueCertificateRequest(), metadata=alice, timeout=90)
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        answer = await stub.IssueCertificate(request, metadata=alice, timeout=90)
    agent = agent_of(Identity(key_to_pem(key), answer.certificates), "n2")
    await agent.run(broker.addresses["nodes_tls"])
    assert agent.ending is not None
    assert agent.ending[0] is UNAUTHENTICATED


async def test_a_client_elsewhere_asks_nothing_of_its_own_machine_in_the_brokers_place(
    broker: Broker, tmp_path: Path
) -> None:
    """An endpoint on the broker's machine has an address that is the client's own, where anybody may listen."""
    agent = ScriptedAgent(node_token(tmp_path), "n1", serving=("127.0.0.1:9", "127.0.0.1:9"))
    token = tenant_token(tmp_path)
    async with agent.connected(broker.nodes_address), Client(broker.broker_address, token=token) as here:
        job = await here.submit(make_spec())
        await agent.until(lambda: bool(agent.runs))
        agent.report(f"{job.id}-1", 0.99)
        await job.wait_for_tier(1, timeout=60)
        trust = Trust(pin=broker.addresses["pin"])
        async with Client(broker.addresses["broker_tls"], token=token, trust=trust) as elsewhere:
            with pytest.raises(UnavailableError, match="answers on the broker's own machine alone"):
                await elsewhere.infer("digits", {"input": [[0.0]]})
