"""Nodes on different machines: requests are handed on by TLS, and who may ask what holds wherever it is asked."""

from __future__ import annotations

import contextlib
import http.client
import json
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest

from testing import onnx_models
from testing.routes import MACHINE_TOKEN, lead
from testing.serving_process import ServingProcess, serving
from tiercel.broker.trust.authority import Authority
from tiercel.core import storage
from tiercel.core.endpoint_access import AccessTable, EndpointAccess, EndpointKey, EndpointRule
from tiercel.core.routes import Backend
from tiercel.core.tokens import Token, hash_token
from tiercel.core.trust.certificates import Identity, key_to_pem, make_key, to_pem

PLACES = {"n1": "127.0.0.2", "n2": "127.0.0.3"}
BODY = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [0, 0, 0, 0]}]})
KEY = Token.draw("key").to_text()
RULES = (
    EndpointRule("own", "alice", EndpointAccess.TENANT),
    EndpointRule("locked", "alice", EndpointAccess.KEY, (EndpointKey(KEY.split("_")[2], hash_token(KEY), 1.0),)),
)


@dataclass(frozen=True)
class Lab:
    """Two nodes by one authority; the models are on the second."""

    folder: Path
    authority: Authority
    servers: dict[str, ServingProcess]

    def certificate(self, node: str = "", tenant: str = "", by: Authority | None = None) -> Identity:
        key, authority = make_key(), by or self.authority
        issue = authority.issue_to_node if node else authority.issue_to_tenant
        certificate = issue(node or tenant, key.public_key(), datetime.now(UTC))
        return Identity(key_to_pem(key), to_pem(certificate, authority.certificate))

    def https(self, node: str) -> str:
        content: dict[str, str] = json.loads((self.folder / node / "serving.json").read_text())
        return content["https"]

    def ask(self, node: str, model: str, shown: Identity, headers: dict[str, str] | None = None) -> int:
        """The status of a request at a node's encrypted door."""
        context = ssl.create_default_context(cadata=to_pem(self.authority.certificate).decode())
        context.check_hostname = False
        file = self.folder / "caller.pem"
        file.write_bytes(shown.to_file())
        context.load_cert_chain(file)
        host, _, port = self.https(node).rpartition(":")
        connection = http.client.HTTPSConnection(host, int(port), context=context, timeout=90)
        with contextlib.closing(connection):
            connection.request("POST", f"/v2/models/{model}/infer", BODY, headers or {})
            return connection.getresponse().status


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    folder = tmp_path_factory.mktemp("lab")
    found = Lab(folder, Authority.create(datetime.now(UTC)), {})
    with contextlib.ExitStack() as stack:
        for node, place in PLACES.items():
            own = folder / node
            (own / "models").mkdir(parents=True)
            (own / "identity.pem").write_bytes(found.certificate(node=node).to_file())
            (own / "authority.pem").write_bytes(to_pem(found.authority.certificate))
            (own / "token").write_text("t" * 43)
            (own / "token").chmod(0o600)
            (own / "access.json").write_text(storage.to_json(AccessTable(RULES)))
            if node == "n2":
                for model in ("own", "locked"):
                    onnx_models.put(own / "models", model, 1, onnx_models.plus(1))
            settings = {
                "tls_host": place,
                "tls_identity": own / "identity.pem",
                "tls_authority": own / "authority.pem",
                "operator_token_file": own / "token",
                "access_file": own / "access.json",
                "routes_file": own / "routes.json",
            }
            found.servers[node] = stack.enter_context(serving(own / "models", own, settings))
        tell(found, "n2")
        # The second has nobody to ask, and believes the first.
        others = {"other": (Backend("n1", 1, https=found.https("n1")),)}
        lead(found.servers["n2"], folder / "n2" / "routes.json", "n2", others)
        yield found


def tell(lab: Lab, node: str) -> None:
    """Tell the first node that the models are on this one, at the second one's address."""
    backends = (Backend(node, 1, https=lab.https("n2")),)
    routes = {"own": backends, "locked": backends}
    lead(lab.servers["n1"], lab.folder / "n1" / "routes.json", "n1", routes)


def test_a_tenant_asks_at_any_node_and_nobody_else_does(lab: Lab) -> None:
    alice, bob = lab.certificate(tenant="alice"), lab.certificate(tenant="bob")
    for node in PLACES:
        assert lab.ask(node, "own", alice) == 200
        assert lab.ask(node, "own", bob) == 404
    # Who is on a node's own machine is let in there, and so by the others.
    assert lab.servers["n1"].request("POST", "/v2/models/own/infer", BODY.encode()).status == 200


@pytest.mark.parametrize("token", ["", MACHINE_TOKEN])
def test_only_another_node_is_believed_in_who_asked_it(lab: Lab, token: str) -> None:
    claim = {"tiercel-hops": "1", "tiercel-for": "tenant:alice", "tiercel-peer": token}
    assert lab.ask("n2", "own", lab.certificate(tenant="bob"), claim) == 404
    assert lab.ask("n2", "own", lab.certificate(tenant="bob"), claim | {"tiercel-for": "local"}) == 404
    node = lab.certificate(node="n1")
    assert lab.ask("n2", "own", node, claim) == 200
    assert lab.ask("n2", "own", node, claim | {"tiercel-for": "tenant:bob"}) == 404
    assert lab.ask("n2", "own", node) == 404
    # One that was removed has its certificate still.
    assert lab.ask("n2", "own", lab.certificate(node="removed"), claim) == 404


def test_a_key_is_good_at_any_node_and_is_counted_once(lab: Lab) -> None:
    bob = lab.certificate(tenant="bob")
    assert lab.ask("n1", "locked", bob) == 404
    assert lab.ask("n1", "locked", bob, {"Authorization": f"Bearer {KEY}"}) == 200
    assert lab.ask("n1", "locked", bob, {"Authorization": f"Bearer {KEY}"}) == 429
    assert lab.ask("n2", "locked", bob, {"Authorization": f"Bearer {KEY}"}) == 200


def test_another_machine_at_the_address_of_a_node_is_told_nothing(lab: Lab) -> None:
    """The table says a name, which the certificate there has to have."""
    tell(lab, "n3")
    try:
        answer = lab.servers["n1"].request("POST", "/v2/models/own/infer", BODY.encode())
        assert answer.status == 503
        assert "node n3, which cannot be asked now" in answer.error
    finally:
        tell(lab, "n2")
