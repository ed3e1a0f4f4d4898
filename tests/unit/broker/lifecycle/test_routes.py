"""Who answers for which endpoint, from what nodes say."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tiercel.broker.lifecycle.routes import NodeServing, ToldRoutes, known_elsewhere, renewed, routes_of
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


def told_by(nodes: list[NodeServing], told: ToldRoutes | None = None) -> ToldRoutes:
    return renewed(told, routes_of(nodes), first=100)


def test_a_table_that_says_the_same_keeps_its_number_and_an_endpoint_that_stays_the_number_since_when() -> None:
    first = told_by([NEAR, replace(FAR, versions={"other": 1})])
    assert (first.table.number, first.since) == (100, {"digits": 100, "other": 100})
    assert told_by([NEAR, replace(FAR, versions={"other": 1})], first) is first
    second = told_by([NEAR, replace(FAR, versions={"other": 2})], first)
    assert (second.table.number, second.since) == (101, {"digits": 100, "other": 101})
    third = told_by([NEAR], second)
    assert (third.table.number, third.since, third.first) == (102, {"digits": 100}, 100)
    assert seen_from_elsewhere(third.table).number == 102


def test_an_endpoint_leaves_a_node_once_all_servers_go_by_a_table_that_says_who_answers_in_its_place() -> None:
    both = {"digits": 3}
    before = told_by([NEAR])
    arrived = told_by([NEAR, replace(FAR, versions=both, leaving=frozenset())], before)
    leaving = replace(NEAR, leaving=frozenset({"digits"}))
    moving = told_by([leaving, replace(FAR, versions=both, leaving=frozenset())], arrived)
    assert moving.table.number == 102
    for confirmed in ([102, 101], [0, 102], [102, 7], [103, 102], []):
        assert known_elsewhere(moving, "n1", ["digits"], confirmed) == frozenset(), confirmed
    assert known_elsewhere(moving, "n1", ["digits"], [102, 102]) == {"digits"}
    assert known_elsewhere(moving, "n2", ["digits"], [102, 102]) == frozenset(), "nobody answers in its place"
    # What changes of others is not waited for.
    later = told_by([leaving, replace(FAR, versions={**both, "new": 1}, leaving=frozenset())], moving)
    assert known_elsewhere(later, "n1", ["digits", "new", "unknown"], [102, 103]) == {"digits"}
    both_leave = told_by([leaving, FAR], later)
    number = both_leave.table.number
    assert known_elsewhere(both_leave, "n1", ["digits"], [number]) == frozenset()


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
