"""The text that HAProxy gets for a table: who is asked, in the clear or by TLS, and what never gets into it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tiercel.broker.cli.proxy.configuration import Configuration, Front, configuration, shape_of
from tiercel.core.routes import Backend, Route, Routes

FRONT = Front(Path("/p"), "127.0.0.1:8080", "127.0.0.1:8081")
WIDE = replace(FRONT, http="10.0.0.5:443", certificate=Path("/p/own.pem"))
NEAR = Backend("n1", 1, "127.0.0.1:1", "127.0.0.1:2", "10.0.0.5:3", "10.0.0.5:4")
FAR = Backend("n2", 1, https="10.0.0.6:3", grpcs="10.0.0.6:4")


def of_alice(routes: Routes, front: Front) -> Configuration:
    return configuration({"alice": routes}, front)


def servers(text: str, backend: str) -> list[str]:
    """The lines of a backend's servers."""
    section = text.partition(f"\nbackend {backend}\n")[2].partition("\nbackend ")[0]
    return [line.strip() for line in section.splitlines() if line.strip().startswith("server ")]


def test_a_node_of_this_machine_is_asked_in_the_clear_and_others_by_tls() -> None:
    text = of_alice(Routes((Route("digits", (NEAR, FAR)),)), FRONT).text
    near, far = servers(text, "rest_digits")
    assert near == "server n1 127.0.0.1:1 track nodes/n1 weight 100"
    assert far.startswith(
        "server n2 10.0.0.6:3 ssl crt /p/identity-alice.pem ca-file /p/authority.pem verify required "
    )
    assert " verifyhost n2.node.tiercel.internal " in far
    assert [line.split()[2] for line in servers(text, "grpc_digits")] == ["127.0.0.1:2", "10.0.0.6:4"]
    assert "bind 127.0.0.1:8081 proto h2" in text


def test_a_proxy_that_others_reach_asks_nobody_in_the_clear() -> None:
    """A node takes who asks in the clear for somebody on its machine."""
    only_near = Backend("n3", 1, "127.0.0.1:5", "127.0.0.1:6")
    found = of_alice(Routes((Route("digits", (NEAR, FAR, only_near)), Route("x", (only_near,)))), WIDE)
    assert "127.0.0.1:1" not in found.text
    assert {node for _, node in found.weights} == {"n1", "n2"}
    assert found.identities == {"alice"}
    assert "bind 10.0.0.5:443 ssl crt /p/own.pem" in found.text
    assert "server n1 10.0.0.5:3 ssl" in found.text
    wide_grpc = replace(FRONT, grpc="0.0.0.0:8081", certificate=Path("/p/own.pem"))
    assert "127.0.0.1:1" not in of_alice(Routes((Route("digits", (NEAR,)),)), wide_grpc).text


def test_only_weights_differ_where_a_node_is_to_stop() -> None:
    before = of_alice(Routes((Route("digits", (NEAR, FAR)),)), FRONT)
    after = of_alice(Routes((Route("digits", (replace(NEAR, draining=True), FAR)),)), FRONT)
    assert before.text != after.text
    assert shape_of(before.text) == shape_of(after.text)
    changed = {key: (before.weights[key], after.weights[key]) for key in before.weights}
    assert changed["rest_digits", "n1"] == changed["grpc_digits", "n1"] == (100, 0)
    assert changed["rest_digits", "n2"] == (100, 100)


def test_grpc_that_does_not_say_for_which_endpoint_goes_to_those_that_answer_for_all() -> None:
    routes = Routes((Route("a", (NEAR, FAR)), Route("b", (FAR,))))
    assert [line.split()[1] for line in servers(of_alice(routes, FRONT).text, "grpc")] == ["n2"]
    apart = Routes((Route("a", (NEAR,)), Route("b", (FAR,))))
    assert [line.split()[1] for line in servers(of_alice(apart, FRONT).text, "grpc")] == ["n1", "n2"]
    assert "default_backend nobody\n\nbackend nobody" in of_alice(Routes(), FRONT).text


def test_each_tenants_endpoints_are_asked_in_its_own_name() -> None:
    tables = {
        "alice": Routes((Route("digits", (NEAR, FAR)),)),
        "bob": Routes((Route("faces", (FAR,)),)),
        "carol": Routes((Route("near", (NEAR,)),)),
        "dave": Routes(),
    }
    found = configuration(tables, FRONT)
    assert found.identities == {"alice", "bob"}
    assert " ssl crt /p/identity-alice.pem " in servers(found.text, "rest_digits")[1]
    for backend in ("rest_faces", "grpc_faces"):
        (line,) = servers(found.text, backend)
        assert " ssl crt /p/identity-bob.pem " in line
    assert [line.split()[1] for line in servers(found.text, "nodes")] == ["n1", "n2"]
    # What does not say for which endpoint it is would be asked in anybody's name.
    assert ("grpc", "n2") not in found.weights
    assert "default_backend nobody\n\nbackend nobody" in found.text


@pytest.mark.parametrize(
    "bad",
    [
        Route("a\nfrontend evil", (NEAR,)),
        Route("a", (replace(NEAR, node_id="n1 backup"),)),
        Route("a", (replace(NEAR, node_id="n1\nbackend evil"),)),
        Route("a", (replace(NEAR, http="127.0.0.1:1 check evil"),)),
        Route("a", (replace(FAR, https="evil.example"),)),
    ],
)
def test_what_is_no_name_and_no_address_gets_no_line(bad: Route) -> None:
    found = of_alice(Routes((bad,)), FRONT)
    assert "evil" not in found.text
    assert not [node for backend, node in found.weights if backend.startswith("rest")]
