"""The life of a node."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tiercel.broker.lifecycle import node as machine
from tiercel.broker.lifecycle.node import LeaseSettings, NodeLife, NodeNews
from tiercel.core.nodes import Node

LEASES = LeaseSettings(lease_seconds=10.0, gone_after_seconds=60.0)
HELLO = Node("n1", 4.0, 2**30, ("process",))
UNKNOWN = NodeLife(Node("n1", 0.0, 0, online=False), 0.0)


def online(now: float = 100.0) -> NodeLife:
    return machine.connected(UNKNOWN, HELLO, now)[0]


def test_a_hello_brings_a_node_online_under_a_new_epoch() -> None:
    life, news = machine.connected(UNKNOWN, HELLO, 100.0)
    assert news is NodeNews.ONLINE
    assert life == NodeLife(replace(HELLO, online=True, lease_epoch=1), 100.0, has_stream=True)
    again, _ = machine.connected(life, replace(HELLO, cpu_cores=2.0), 105.0)
    assert (again.node.lease_epoch, again.node.cpu_cores) == (2, 2.0)


def test_messages_of_the_present_epoch_renew_the_lease() -> None:
    life = machine.heard(online(), 1, 105.0)
    assert life.last_heard_at == 105.0
    assert machine.ticked(life, LEASES, 115.0) == (life, None)


def test_messages_of_an_older_epoch_do_not() -> None:
    life = machine.connected(online(), HELLO, 101.0)[0]
    assert machine.heard(life, 1, 105.0) is life


def test_silence_takes_a_node_offline_and_later_for_gone_once_each() -> None:
    life, news = machine.ticked(online(), LEASES, 110.1)
    assert (life.node.online, news) == (False, NodeNews.OFFLINE)
    assert machine.ticked(life, LEASES, 160.0) == (life, None)
    life, news = machine.ticked(life, LEASES, 160.1)
    assert (life.gone, news) == (True, NodeNews.GONE)
    assert machine.ticked(life, LEASES, 1e9) == (life, None)


def test_a_lease_that_ran_out_is_not_renewed_by_a_late_message() -> None:
    life, _ = machine.ticked(online(), LEASES, 110.1)
    assert machine.heard(life, 1, 111.0) is life


def test_a_node_that_was_gone_may_come_back() -> None:
    life = NodeLife(replace(HELLO, online=False, lease_epoch=3), 0.0, gone=True)
    back, news = machine.connected(life, HELLO, 500.0)
    assert (back.gone, back.node.lease_epoch, news) == (False, 4, NodeNews.ONLINE)


def test_another_agent_may_connect_once_the_streams_end_or_the_lease_is_over() -> None:
    life, _ = machine.connected(UNKNOWN, HELLO, 100.0, instance="a")
    assert machine.may_connect(life, "a"), "its older stream may be half open"
    assert not machine.may_connect(life, "b")
    assert machine.may_connect(machine.stream_ended(life, 1), "b")
    newer, _ = machine.connected(life, HELLO, 101.0, instance="a")
    assert not machine.may_connect(machine.stream_ended(newer, 1), "b"), "that was the older stream"
    offline, _ = machine.ticked(life, LEASES, 110.1)
    assert machine.may_connect(offline, "b")


def test_what_an_agent_says_of_its_fence_holds_until_it_says_otherwise() -> None:
    life, _ = machine.connected(UNKNOWN, HELLO, 100.0, instance="a", fenced=True)
    assert machine.heard(life, 1, 101.0).fenced
    assert not machine.heard(life, 1, 101.0, fenced=False).fenced
    assert not machine.connected(life, HELLO, 102.0, instance="b")[0].fenced


@pytest.mark.parametrize("gone_after", [0.5, 15.0, 60.0, 120.0, 3600.0])
def test_a_fence_ends_runs_well_before_they_are_started_elsewhere(gone_after: float) -> None:
    leases = LeaseSettings(lease_seconds=0.1, gone_after_seconds=gone_after)
    fence = machine.fence_of(leases, 1)
    assert fence is not None
    assert 0 < gone_after / 2 < fence.stop_after_seconds < fence.end_after_seconds < gone_after
    assert gone_after - fence.end_after_seconds >= min(10.0, gone_after / 10)
    alone = replace(leases, fences_alone=False)
    assert machine.fence_of(alone, 1) is None
    assert machine.fence_of(alone, 2) == fence


def test_a_node_that_nobody_has_heard_of_since_the_start_is_gone_in_the_end() -> None:
    assert machine.ticked(UNKNOWN, LEASES, 60.1)[1] is NodeNews.GONE
