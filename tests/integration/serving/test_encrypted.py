"""The inference server's doors for other machines: both sides show a certificate, over TLS 1.3."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import grpc
import psutil
import pytest

from testing import onnx_models
from testing.serving_process import ServingProcess, serving, wait_for
from tiercel.broker.trust.authority import Authority
from tiercel.core.trust.certificates import BROKER_NAME, Identity, key_to_pem, make_key, to_pem
from tiercel.inference import open_inference_grpc_pb2 as pb
from tiercel.inference import open_inference_grpc_pb2_grpc as pb_grpc

WIDE = "127.0.0.2"
BODY = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [0, 0, 0, 0]}]})


@dataclass(frozen=True)
class Encrypted:
    """A server with doors for others, and what it takes to knock."""

    server: ServingProcess
    folder: Path
    authority: Authority

    @property
    def state(self) -> dict[str, str]:
        content: dict[str, str] = json.loads((self.folder / "serving.json").read_text())
        return content

    def context(self, shown: Identity | None, version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3) -> ssl.SSLContext:
        """What a caller goes by, who shows a certificate or none."""
        context = ssl.create_default_context(cadata=to_pem(self.authority.certificate).decode())
        context.check_hostname = False
        context.minimum_version = context.maximum_version = version
        if shown is not None:
            file = self.folder / "caller.pem"
            file.write_bytes(shown.to_file())
            context.load_cert_chain(file)
        return context

    def infer(self, context: ssl.SSLContext, name: str = "") -> int:
        host, _, port = self.state["https"].rpartition(":")
        connection = http.client.HTTPSConnection(host, int(port), context=context, timeout=90)
        with contextlib.closing(connection):
            connection.request("POST", "/v2/models/m/infer", BODY, {"Host": name} if name else {})
            return connection.getresponse().status


def node_by(authority: Authority) -> Identity:
    key = make_key()
    certificate = authority.issue_to_node("n1", key.public_key(), datetime.now(UTC))
    return Identity(key_to_pem(key), to_pem(certificate, authority.certificate))


@contextlib.contextmanager
def encrypted_server(tmp_path: Path) -> Iterator[Encrypted]:
    now = datetime.now(UTC)
    authority = Authority.create(now)
    (tmp_path / "identity.pem").write_bytes(authority.issue_to_broker([WIDE], now).to_file())
    (tmp_path / "authority.pem").write_bytes(to_pem(authority.certificate))
    (tmp_path / "token").write_text("t" * 43)
    (tmp_path / "token").chmod(0o600)
    onnx_models.put(tmp_path / "models", "m", 1, onnx_models.plus(1))
    settings = {
        "tls_host": WIDE,
        "tls_identity": tmp_path / "identity.pem",
        "tls_authority": tmp_path / "authority.pem",
        "operator_token_file": tmp_path / "token",
        "allowed_hosts": "lab.example",
        "drain_timeout": 3,
    }
    with serving(tmp_path / "models", tmp_path, settings) as server:
        yield Encrypted(server, tmp_path, authority)
        with contextlib.suppress(psutil.NoSuchProcess):
            os.kill(int(encrypted_pid(tmp_path)), signal.SIGTERM)


@pytest.fixture(scope="module")
def encrypted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Encrypted]:
    """One for all tests that leave it in peace."""
    with encrypted_server(tmp_path_factory.mktemp("encrypted")) as running:
        yield running


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Encrypted]:
    """One of a test's own."""
    with encrypted_server(tmp_path) as running:
        yield running


def encrypted_pid(folder: Path) -> str:
    return (folder / "serving.lock").read_text().split()[0]


def test_who_shows_a_certificate_is_answered_by_both_protocols(encrypted: Encrypted) -> None:
    caller = node_by(encrypted.authority)
    assert encrypted.infer(encrypted.context(caller)) == 200
    for name, status in (("lab.example", 200), ("n1.node.tiercel.internal:443", 200), ("evil.example", 421)):
        assert encrypted.infer(encrypted.context(caller), name) == status
    credentials = grpc.ssl_channel_credentials(to_pem(encrypted.authority.certificate), caller.key, caller.chain)
    options = [("grpc.ssl_target_name_override", BROKER_NAME)]
    with grpc.secure_channel(encrypted.state["grpcs"], credentials, options) as channel:
        stub = pb_grpc.GRPCInferenceServiceStub(channel)
        assert stub.ServerReady(pb.ServerReadyRequest(), timeout=90).ready
        for _ in range(3):
            answer = stub.ModelMetadata(pb.ModelMetadataRequest(name="m"), timeout=90)
            assert answer.name == "m"
    # On its own machine it answers as before.
    assert encrypted.server.request("POST", "/v2/models/m/infer", BODY.encode()).status == 200


@pytest.mark.parametrize("tried", ["no certificate", "by another authority", "an older TLS", "in the clear"])
def test_nobody_else_gets_in(encrypted: Encrypted, tried: str) -> None:
    caller: Identity | None = node_by(encrypted.authority)
    version = ssl.TLSVersion.TLSv1_3
    if tried == "no certificate":
        caller = None
    elif tried == "by another authority":
        caller = node_by(Authority.create(datetime.now(UTC)))
    elif tried == "an older TLS":
        version = ssl.TLSVersion.TLSv1_2
    context = encrypted.context(caller, version)
    for door in ("https", "grpcs"):
        host, _, port = encrypted.state[door].rpartition(":")
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            connection = stack.enter_context(socket.create_connection((host, int(port)), 30))
            if tried != "in the clear":
                connection = stack.enter_context(context.wrap_socket(connection))
            # With TLS 1.3 a client is told only after its own part that it is not wanted.
            connection.sendall(b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert b"HTTP" not in connection.recv(1000)
    assert encrypted.infer(encrypted.context(node_by(encrypted.authority))) == 200


def test_the_certificate_changes_without_a_restart_and_half_a_file_changes_nothing(own: Encrypted) -> None:
    context = own.context(node_by(own.authority))

    def shown() -> bytes:
        host, _, port = own.state["https"].rpartition(":")
        with socket.create_connection((host, int(port)), 30) as plain, context.wrap_socket(plain) as connection:
            return connection.getpeercert(binary_form=True) or b""

    file, before = own.folder / "identity.pem", shown()
    file.write_bytes(b"half")
    wait_for(lambda: "is of no use" in own.server.log.read_text(), "a word about the file")
    assert shown() == before
    file.write_bytes(own.authority.issue_to_broker([], datetime.now(UTC)).to_file())
    wait_for(lambda: shown() != before, "the other certificate")


def hello_of(context: ssl.SSLContext) -> bytes:
    """What a caller says first."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing).do_handshake()
    return outgoing.read()


def test_a_flood_of_hellos_keeps_nobody_of_another_address_out(encrypted: Encrypted) -> None:
    context = encrypted.context(node_by(encrypted.authority))
    host, _, port = encrypted.state["https"].rpartition(":")
    hello = hello_of(context)
    with contextlib.ExitStack() as stack:
        connection = http.client.HTTPSConnection(host, int(port), context=context, timeout=90)
        stack.enter_context(contextlib.closing(connection))
        for _ in range(300):
            stranger = stack.enter_context(socket.create_connection((host, int(port)), 30, ("127.0.0.7", 0)))
            stranger.sendall(hello)
            connection.request("POST", "/v2/models/m/infer", BODY)
            answer = connection.getresponse()
            assert (answer.status, bool(answer.read())) == (200, True)
        assert encrypted.infer(context) == 200


def test_a_process_that_follows_listens_where_the_one_before_did(own: Encrypted) -> None:
    context, before = own.context(node_by(own.authority)), own.state
    host, _, port = before["https"].rpartition(":")
    with socket.create_connection((host, int(port)), 30) as plain, context.wrap_socket(plain) as connection:
        connection.sendall(b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b"200 OK" in connection.recv(1000)
        ticket = connection.session
    own.server.process.send_signal(signal.SIGHUP)
    wait_for(lambda: own.state["pid"] != before["pid"], "the process that follows")
    assert {**own.state, "pid": before["pid"]} == before
    assert own.infer(context) == 200
    # The ticket was the other process's: it opens nothing, and is in nobody's way.
    with (
        socket.create_connection((host, int(port)), 30) as plain,
        context.wrap_socket(plain, session=ticket) as connection,
    ):
        connection.sendall(b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b"200 OK" in connection.recv(1000)
        assert not connection.session_reused
    os.kill(int(own.state["pid"]), signal.SIGTERM)
    wait_for(lambda: not (own.folder / "serving.json").exists(), "its end")
