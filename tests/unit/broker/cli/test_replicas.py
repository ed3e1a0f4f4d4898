"""How an endpoint on several nodes is printed, and that it crosses the wire."""

from __future__ import annotations

from dataclasses import replace

from tiercel.broker.cli.details import endpoint_lines
from tiercel.broker.cli.output import ENDPOINT_COLUMNS, endpoint_notes, endpoint_rows
from tiercel.core.endpoint_views import EndpointInfo, ReplicaInfo, VariantInfo
from tiercel.core.wire import from_proto, to_proto
from tiercel.v1 import jobs_pb2

HOME = ReplicaInfo("n1", 2, "127.0.0.1:8000", "127.0.0.1:8001")
LATE = ReplicaInfo("n2", None, "127.0.0.1:8010", "127.0.0.1:8011", "its disk is full")
ENDPOINT = EndpointInfo("digits", "alice", 2, (), "n1", "127.0.0.1:8000", "", replicas=3, places=(HOME, LATE))


def test_each_further_node_has_a_row_with_what_answers_there() -> None:
    home, late = endpoint_rows(ENDPOINT)
    assert (home[0], *home[-3:]) == ("digits", "tenant", "n1,n2", "127.0.0.1:8000")
    assert (len(late), late[0], late[1], late[-1]) == (len(ENDPOINT_COLUMNS), "  on n2", "-", "127.0.0.1:8010")


def test_it_is_said_why_a_node_does_not_answer_and_why_there_are_fewer() -> None:
    lines = "\n".join(endpoint_lines(ENDPOINT))
    assert "node      n2, nothing answers yet (its disk is full)" in lines
    assert "replicas  2 of 3 nodes: no other node is up, serves and has room" in lines


def test_a_table_is_followed_by_what_is_wrong_with_whom() -> None:
    broken = VariantInfo("small", 1, 0.9, None, None, "its model was refused")
    away = replace(HOME, answering_version=None, problem="the node is offline")
    assert endpoint_notes([replace(ENDPOINT, replicas=2, places=(HOME, HOME))]) == []
    coming = ("version 3 waits for its copy on node n2",)
    found = replace(ENDPOINT, problem="its server refused it", variants=(broken,), places=(away, LATE), awaited=coming)
    assert endpoint_notes([found]) == [
        "digits: its server refused it",
        "digits, variant small: its model was refused",
        "digits on n1: the node is offline",
        "digits on n2: its disk is full",
        "digits on 2 of 3 nodes: no other node is up, serves and has room; more follow when there are",
        f"digits: {coming[0]}",
    ]
    assert endpoint_lines(found)[-1] == f"awaited   {coming[0]}"


def test_the_nodes_are_told_to_tenants() -> None:
    assert from_proto(EndpointInfo, to_proto(ENDPOINT, jobs_pb2.Endpoint)) == ENDPOINT


def test_where_the_broker_says_how_many_it_is_said_why() -> None:
    reason = "41 requests/s, 12 % of them late, 80 % of its CPU busy; 2 after 1 since 80 % of its CPU was busy"
    auto = replace(ENDPOINT, replicas=2, auto_replicas=True, replicas_reason=reason + "\x1b[2J")
    assert endpoint_notes([replace(auto, places=(HOME, HOME))]) == [f"digits on 2 nodes: {reason}\ufffd[2J"]
    lines = endpoint_lines(auto)
    assert f"replicas  auto, 2 by now: {reason}\ufffd[2J" in lines
    assert from_proto(EndpointInfo, to_proto(auto, jobs_pb2.Endpoint)) == auto
