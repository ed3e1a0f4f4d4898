"""Who may ask which model, of a real server: both protocols, both doors, and a table that changes under way."""

from __future__ import annotations

import base64
import contextlib
import gzip
import http.client
import json
import os
import queue
import signal
import socket
import ssl
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import grpc
import psutil
import pytest

from testing import onnx_models
from testing.serving_process import Reply, ServingProcess, serving, wait_for
from tiercel.broker.trust.authority import Authority
from tiercel.core import storage
from tiercel.core.endpoint_access import AccessTable, EndpointAccess, EndpointKey, EndpointRule
from tiercel.core.tokens import Token, hash_token
from tiercel.core.trust.certificates import BROKER_NAME, Identity, key_to_pem, make_key, to_pem
from tiercel.inference import open_inference_grpc_pb2 as pb
from tiercel.inference import open_inference_grpc_pb2_grpc as pb_grpc

WIDE = "127.0.0.2"
BODY = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [0, 0, 0, 0]}]}).encode()
OPERATOR = {"Authorization": "Bearer " + "t" * 43}
GOOD, SLOW, TWICE, OTHERS, PASSING = (Token.draw("key").to_text() for _ in range(5))
STATUS = grpc.StatusCode


def key_of(text: str, per_second: float = 0.0) -> EndpointKey:
    return EndpointKey(text.split("_")[2], hash_token(text), per_second)


RULES = (
    EndpointRule("open", "one", EndpointAccess.PUBLIC),
    EndpointRule("own", "one", EndpointAccess.TENANT),
    EndpointRule(
        "locked", "one", EndpointAccess.KEY, (key_of(GOOD), key_of(SLOW, 0.5), key_of(TWICE, 2.0), key_of(PASSING))
    ),
    EndpointRule("others", "two", EndpointAccess.KEY, (key_of(OTHERS),)),
)


def bearer(text: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {text}"}


def infer_request(model: str = "locked") -> pb.ModelInferRequest:
    request = pb.ModelInferRequest(model_name=model)
    tensor = request.inputs.add(name="x", datatype="FP32", shape=[1, 4])
    tensor.contents.fp32_contents.extend([0.0] * 4)
    return request


@dataclass(frozen=True)
class Site:
    """A server that goes by a table."""

    server: ServingProcess
    folder: Path
    authority: Authority

    def write(self, rules: tuple[EndpointRule, ...]) -> None:
        new = self.folder / "access.new"
        new.write_text(storage.to_json(AccessTable(rules)))
        new.replace(self.folder / "access.json")

    def state(self) -> dict[str, Any]:
        content: dict[str, Any] = json.loads((self.folder / "serving.json").read_text())
        return content

    def infer(self, model: str, headers: dict[str, str] | None = None, body: bytes = BODY) -> Reply:
        return self.server.request("POST", f"/v2/models/{model}/infer", body, headers)

    def tenant(self, name: str) -> Identity:
        key = make_key()
        certificate = self.authority.issue_to_tenant(name, key.public_key(), datetime.now(UTC))
        return Identity(key_to_pem(key), to_pem(certificate, self.authority.certificate))

    def node(self) -> Identity:
        key = make_key()
        certificate = self.authority.issue_to_node("n1", key.public_key(), datetime.now(UTC))
        return Identity(key_to_pem(key), to_pem(certificate, self.authority.certificate))

    def far(
        self, path: str, shown: Identity | None, headers: dict[str, str] | None = None, method: str = "POST"
    ) -> int:
        """The status of a request at the encrypted door."""
        context = ssl.create_default_context(cadata=to_pem(self.authority.certificate).decode())
        context.check_hostname = False
        if shown is not None:
            file = self.folder / "caller.pem"
            file.write_bytes(shown.to_file())
            context.load_cert_chain(file)
        host, _, port = self.state()["https"].rpartition(":")
        connection = http.client.HTTPSConnection(host, int(port), context=context, timeout=90)
        with contextlib.closing(connection):
            connection.request(method, path, BODY if method == "POST" else None, headers or {})
            return connection.getresponse().status

    def stub(self) -> tuple[grpc.Channel, Any]:
        channel = grpc.insecure_channel(self.state()["grpc"])
        return channel, pb_grpc.GRPCInferenceServiceStub(channel)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("access")
    now = datetime.now(UTC)
    authority = Authority.create(now)
    (folder / "identity.pem").write_bytes(authority.issue_to_broker([WIDE], now).to_file())
    (folder / "authority.pem").write_bytes(to_pem(authority.certificate))
    (folder / "token").write_text("t" * 43)
    (folder / "token").chmod(0o600)
    for model in ("open", "own", "locked", "others", "by-hand"):
        onnx_models.put(folder / "models", model, 1, onnx_models.plus(1))
    (folder / "access.json").write_text(storage.to_json(AccessTable(RULES)))
    settings = {
        "tls_host": WIDE,
        "tls_identity": folder / "identity.pem",
        "tls_authority": folder / "authority.pem",
        "operator_token_file": folder / "token",
        "access_file": folder / "access.json",
        "drain_timeout": 3,
    }
    with serving(folder / "models", folder, settings) as server:
        yield Site(server, folder, authority)
        with contextlib.suppress(psutil.NoSuchProcess, OSError):
            os.kill(int((folder / "serving.lock").read_text().split()[0]), signal.SIGTERM)


@pytest.fixture(autouse=True)
def _as_it_was(site: Site) -> Iterator[None]:
    yield
    site.write(RULES)
    wait_for(lambda: site.infer("locked", bearer(PASSING)).status == 200, "the table of before")


def test_on_its_own_machine_a_key_is_asked_for_where_one_is_needed(site: Site) -> None:
    assert [site.infer(model).status for model in ("open", "own", "by-hand", "locked")] == [200, 200, 200, 401]
    refused = site.infer("locked", bearer(OTHERS))
    assert (refused.status, refused.headers["www-authenticate"]) == (401, "Bearer")
    assert "tiercel key create" in refused.error
    assert OTHERS not in refused.error
    assert site.infer("locked", bearer(GOOD)).status == 200
    assert site.infer("others", bearer(GOOD)).status == 401
    for path in ("/generate", "/generate_stream", "/versions/1/generate", "/versions/1/generate_stream"):
        body = {"input_ids": [1]}
        assert site.server.request("POST", f"/v2/models/locked{path}", body).status == 401, path
        assert site.server.request("POST", f"/v2/models/locked{path}", body, bearer(GOOD)).status == 400, path
    for path in ("", "/ready", "/stats", "/config", "/canary", "/versions/1", "/versions/1/ready"):
        assert site.server.request("GET", f"/v2/models/locked{path}").status == 401, path
        assert site.server.request("GET", f"/v2/models/locked{path}", headers=bearer(GOOD)).status in {200, 404}, path
    assert site.infer("locked", {"Content-Encoding": "gzip"}, gzip.compress(BODY)).status == 401
    assert site.infer("locked", bearer(GOOD) | {"Content-Encoding": "gzip"}, gzip.compress(BODY)).status == 200
    assert site.server.request("GET", f"/v2/models/locked?key={GOOD}").status == 401, "keys do not belong in addresses"


def test_lists_name_to_nobody_what_he_may_not_ask(site: Site) -> None:
    def listed(headers: dict[str, str] | None) -> set[str]:
        lines = site.server.request("POST", "/v2/repository/index", {}, headers).content
        counted = site.server.request("GET", "/v2/models/stats", headers=headers).content["model_stats"]
        assert {line["name"] for line in lines} == {line["name"] for line in counted}
        return {line["name"] for line in lines}

    assert listed(None) == {"open", "own", "by-hand"}
    assert listed(bearer(GOOD)) == {"open", "own", "by-hand", "locked"}
    assert listed(OPERATOR) == {"open", "own", "by-hand", "locked", "others"}


@pytest.mark.parametrize(
    ("who", "statuses"),
    [("one", [200, 200, 401, 404, 404]), ("two", [200, 404, 404, 401, 404]), ("", [200, 404, 404, 404, 404]),
     ("a node", [200, 404, 404, 404, 404])],
)  # fmt: skip
def test_at_the_encrypted_door_a_certificate_says_whose_endpoints_one_may_ask(
    site: Site, who: str, statuses: list[int]
) -> None:
    shown = site.node() if who == "a node" else site.tenant(who) if who else None
    models = ("open", "own", "locked", "others", "by-hand")
    assert [site.far(f"/v2/models/{model}/infer", shown) for model in models] == statuses
    assert site.far("/v2/models/locked/infer", shown, bearer(GOOD)) == 200
    for path in ("/metrics", "/v2/usage"):
        assert site.far(path, shown, method="GET") == 401
        assert site.far(path, shown, OPERATOR, method="GET") == 200
    assert site.far("/v2/repository/models/own/load", shown) == (401 if who == "one" else 404)


def test_grpc_says_the_same(site: Site) -> None:
    channel, stub = site.stub()
    with channel:
        calls = {
            stub.ModelInfer: infer_request(),
            stub.ModelMetadata: pb.ModelMetadataRequest(name="locked"),
            stub.ModelReady: pb.ModelReadyRequest(name="locked"),
            stub.ModelConfig: pb.ModelConfigRequest(name="locked"),
            stub.ModelStatistics: pb.ModelStatisticsRequest(name="locked"),
        }
        for call, request in calls.items():
            for metadata in ((), (("authorization", f"Bearer {OTHERS}"),), (("authorization", GOOD),)):
                with pytest.raises(grpc.RpcError) as refused:
                    call(request, metadata=metadata, timeout=90)
                assert refused.value.code() is STATUS.UNAUTHENTICATED
            call(request, metadata=(("authorization", f"Bearer {GOOD}"),), timeout=90)
        index = stub.RepositoryIndex(pb.RepositoryIndexRequest(), timeout=90)
        assert {each.name for each in index.models} == {"open", "own", "by-hand"}
    credentials = grpc.ssl_channel_credentials(to_pem(site.authority.certificate))
    options = [("grpc.ssl_target_name_override", BROKER_NAME)]
    with grpc.secure_channel(site.state()["grpcs"], credentials, options) as channel:
        stub = pb_grpc.GRPCInferenceServiceStub(channel)
        with pytest.raises(grpc.RpcError) as refused:
            stub.ModelInfer(infer_request("own"), timeout=90)
        assert refused.value.code() is STATUS.NOT_FOUND
        stub.ModelInfer(infer_request(), metadata=(("authorization", f"Bearer {GOOD}"),), timeout=90)


def test_too_many_are_told_when_to_come_again_by_both_protocols(site: Site) -> None:
    assert site.infer("locked", bearer(SLOW)).status == 200
    refused = site.infer("locked", bearer(SLOW))
    assert (refused.status, refused.headers["retry-after"]) == (429, "2")
    refused = site.server.request("POST", "/v2/models/locked/generate", {"input_ids": [1]}, bearer(SLOW))
    assert refused.status == 429, "to generate counts as to ask"
    channel, stub = site.stub()
    with channel, pytest.raises(grpc.RpcError) as error:
        stub.ModelInfer(infer_request(), metadata=(("authorization", f"Bearer {SLOW}"),), timeout=90)
    assert error.value.code() is STATUS.RESOURCE_EXHAUSTED
    trailers: Any = error.value.trailing_metadata()
    details = dict(trailers)["grpc-status-details-bin"]
    assert b"type.googleapis.com/google.rpc.RetryInfo" in details
    assert details.startswith(b"\x08\x08"), "the code"
    assert details.endswith((b"\x12\x04\x0a\x02\x08\x01", b"\x12\x04\x0a\x02\x08\x02")), "a delay of whole seconds"
    assert base64.b64encode(GOOD.encode()) not in details
    assert site.infer("locked", bearer(GOOD)).status == 200
    text = site.server.request("GET", "/metrics").body.decode()
    assert 'tiercel_access_refusals_total{reason="rate"}' in text


def test_each_inputs_of_feedback_are_a_request_of_the_key(site: Site) -> None:
    item = {"inputs": json.loads(BODY)["inputs"], "label": 0}

    def say(key: str, items: int) -> Reply:
        body = {"feedback": [item] * items}
        return site.server.request("POST", "/v2/models/locked/feedback", body, bearer(key) if key else None)

    assert [say(key, 1).status for key in ("", OTHERS)] == [401, 401]
    assert say(GOOD, 3).content["taken"] == 3
    limited = say(TWICE, 1000).content
    assert limited["taken"] + len(limited["refused"]) == 1000
    assert limited["refused"][-1]["item"] == 999
    assert "the key asks 'locked' more often than it is good for" in limited["refused"][-1]["error"]


def test_requests_in_one_pipe_are_looked_at_one_by_one(site: Site) -> None:
    host, _, port = site.server.http.rpartition(":")
    head = "POST /v2/models/locked/infer HTTP/1.1\r\nHost: localhost\r\n{}Content-Length: {}\r\n\r\n"
    shown = ["", GOOD, OTHERS, GOOD, "", GOOD[:-1], GOOD]
    lines = [f"Authorization: Bearer {text}\r\n" if text else "" for text in shown]
    lines[-1] += "Connection: close\r\n"
    with socket.create_connection((host, int(port)), 30) as connection:
        connection.sendall(b"".join(head.format(line, len(BODY)).encode() + BODY for line in lines))
        received = b""
        while data := connection.recv(65536):
            received += data
    statuses = [int(part[:3]) for part in received.split(b"HTTP/1.1 ")[1:]]
    assert statuses == [200 if text == GOOD else 401 for text in shown]


def test_calls_on_one_connection_are_looked_at_one_by_one(site: Site) -> None:
    channel, stub = site.stub()

    def ask(text: str) -> grpc.StatusCode:
        try:
            stub.ModelInfer(infer_request(), metadata=(("authorization", f"Bearer {text}"),), timeout=90)
        except grpc.RpcError as error:
            code: grpc.StatusCode = error.code()
            return code
        return STATUS.OK

    shown = [GOOD, OTHERS, GOOD[:-1], GOOD] * 2
    with channel, ThreadPoolExecutor(8) as pool:
        assert list(pool.map(ask, shown)) == [STATUS.OK if text == GOOD else STATUS.UNAUTHENTICATED for text in shown]


def test_a_key_that_is_revoked_under_way_asks_nothing_more_on_an_open_stream(site: Site) -> None:
    channel, stub = site.stub()
    asked: queue.SimpleQueue[pb.ModelInferRequest | None] = queue.SimpleQueue()
    with channel:
        answers = stub.ModelStreamInfer(
            iter(asked.get, None), metadata=(("authorization", f"Bearer {GOOD}"),), timeout=60
        )
        asked.put(infer_request())
        assert next(answers).infer_response.outputs
        site.write(tuple(replace(rule, keys=rule.keys[1:]) for rule in RULES))
        wait_for(lambda: site.infer("locked", bearer(GOOD)).status == 401, "the end of the key")
        asked.put(infer_request())
        assert "key" in next(answers).error_message
        asked.put(None)
        assert not list(answers)


def test_without_its_table_nobody_is_answered_and_with_it_all_are(site: Site) -> None:
    file = site.folder / "access.json"
    for damage in (Path.unlink, lambda path: path.write_text("{")):
        damage(file)
        wait_for(lambda: site.infer("open").status == 401, "a gate that is shut")
        assert site.infer("by-hand").status == 401
        assert site.infer("locked", bearer(GOOD)).status == 401
        assert site.far("/v2/models/open/infer", site.tenant("one")) == 404
        assert site.infer("open", OPERATOR).status == 200
        assert site.server.request("GET", "/v2/health/ready").status == 200
        site.write(RULES)
        wait_for(lambda: site.infer("open").status == 200, "an open gate")


def test_a_process_that_follows_goes_by_the_table_from_its_first_request(site: Site) -> None:
    before = site.state()["pid"]
    os.kill(before, signal.SIGHUP)
    statuses: set[tuple[int, int]] = set()

    def has_followed() -> bool:
        with contextlib.suppress(ConnectionError, http.client.HTTPException):
            statuses.add((site.infer("locked").status, site.infer("locked", bearer(GOOD)).status))
        return bool(site.state()["pid"] != before)

    wait_for(has_followed, "the process that follows")
    for _ in range(5):
        has_followed()
    assert statuses == {(401, 200)}
    assert site.far("/v2/models/own/infer", site.tenant("two")) == 404
