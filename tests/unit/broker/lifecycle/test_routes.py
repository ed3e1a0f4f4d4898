"""Who answers for which endpoint, from what nodes say."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tiercel.broker.lifecycle.routes import NodeServing, routes_of
from tiercel.core.routes import (
    MOST_BACKENDS,
    MOST_ENDPOINTS,
    MOST_IN_ALL,
    Backend,
    Route,
    RouteFile,
    Routes,
    bounded,
    seen_from_elsewhere,
)
from tiercel.core.storage import from_json, to_json
from tiercel.core.wire import from_proto, to_proto
from tiercel.v1 import routes_pb2

NEAR = NodeServing("n1", "127.0.0.1:8000", "127.0.0.1:8001", True, {"digits": 3}, frozenset())
FAR = NodeServing("n2", "https://10.0.0.2:8000", "grpcs://10.0.0.2:8001", False, {"digits": 4}, frozenset({"digits"}))


def test_several_nodes_may_answer_for_one_endpoint() -> None:
    assert routes_of([FAR, NEAR]) == Routes(
        (
            Route(
                "digits",
                (
                    Backend("n1", 3, http="127.0.0.1:8000", grpc="127.0.0.1:8001"),
                    Backend("n2", 4, https="10.0.0.2:8000", grpcs="10.0.0.2:8001", draining=True),
                ),
            ),
        ),
        ("n1", "n2"),
    )


def test_elsewhere_an_address_in_the_clear_is_of_no_use() -> None:
    seen = seen_from_elsewhere(routes_of([NEAR, FAR]))
    (route,) = seen.routes
    assert route.backends == (Backend("n2", 4, https="10.0.0.2:8000", grpcs="10.0.0.2:8001", draining=True),)
    assert seen.nodes == ("n1", "n2")
    assert seen_from_elsewhere(routes_of([NEAR])) == Routes((), ("n1",))


def test_the_brokers_own_node_answers_there_in_the_clear_and_elsewhere_by_tls() -> None:
    both = replace(
        NEAR,
        http="https://10.0.0.1:80",
        grpc="grpcs://10.0.0.1:81",
        local_http="127.0.0.1:8000",
        local_grpc="127.0.0.1:8001",
    )
    (route,) = routes_of([both]).routes
    assert route.backends == (Backend("n1", 3, "127.0.0.1:8000", "127.0.0.1:8001", "10.0.0.1:80", "10.0.0.1:81"),)
    (route,) = routes_of([replace(both, is_local=False)]).routes
    assert (route.backends[0].http, route.backends[0].grpc) == ("", "")


@pytest.mark.parametrize(
    "address",
    ["", "10.0.0.7:80", "127.0.0.1:80/x", "127.0.0.1", "user@127.0.0.1:80", "https://10.0.0.7:80@evil", "http://a:1"],
)
def test_what_is_no_address_of_the_kind_leads_nowhere(address: str) -> None:
    assert routes_of([replace(NEAR, http=address, grpc="")]).routes == ()


def test_a_joined_nodes_own_loopback_is_not_taken_for_the_brokers() -> None:
    assert routes_of([replace(NEAR, is_local=False)]).routes == ()


def test_a_table_has_bounds() -> None:
    backends = tuple(Backend(f"n{number:03}", 1, http="127.0.0.1:1") for number in range(MOST_BACKENDS + 5))
    table = bounded(Route(f"e{number:05}", backends) for number in range(MOST_ENDPOINTS + 5))
    assert sum(len(route.backends) for route in table.routes) == MOST_IN_ALL
    assert {len(route.backends) for route in table.routes} == {MOST_BACKENDS}
    one_each = bounded(Route(f"e{number:05}", backends[:1]) for number in range(MOST_ENDPOINTS + 5))
    assert len(one_each.routes) == MOST_ENDPOINTS
    assert one_each.routes[-1].endpoint == f"e{MOST_ENDPOINTS - 1:05}"


def test_a_table_is_the_same_on_the_wire_and_in_a_file() -> None:
    table = routes_of([NEAR, FAR])
    assert from_proto(Routes, to_proto(table, routes_pb2.Routes)) == table
    file = RouteFile("n1", "secret", table)
    assert from_json(RouteFile, to_json(file)) == file
