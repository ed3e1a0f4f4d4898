"""Which topics a tenant may read, and which filters belong to them."""

from __future__ import annotations

import pytest

from tiercel.broker.progress.reading import matches, may_read, may_subscribe


@pytest.mark.parametrize(
    ("topic", "allowed"),
    [
        ("tiercel/v1/alice/jobs/j1/state", True),
        ("tiercel/v1/nodes/n1/presence", True),
        ("tiercel/v1/broker/presence", True),
        ("tiercel/v1/alice2/jobs/j1/state", False),
        ("tiercel/v1/bob/jobs/alice/state", False),
        ("tiercel/v1", False),
    ],
)
def test_a_topic_is_its_own_or_of_nodes_and_broker(topic: str, allowed: bool) -> None:
    assert may_read("alice", topic) is allowed


@pytest.mark.parametrize(
    ("topic_filter", "granted"),
    [
        ("#", True),
        ("+/+/alice/#", True),
        ("tiercel/#", True),
        ("tiercel/v1/+/jobs/+/state", True),
        ("tiercel/v1/alice/jobs/j1/state", True),
        ("tiercel/v1/nodes/+/presence", True),
        ("tiercel/v1/bob/#", False),
        ("tiercel/v1/bob/+/+/state", False),
        ("tiercel/v1", False),
        ("other/+/alice/#", False),
        ("$SYS/#", False),
        ("tiercel/#/state", False),
        ("tiercel/v1/al+/#", False),
        ("tiercel/v1/alice#", False),
        ("", False),
        ("tiercel/v1/alice/" + "x" * 512, False),
    ],
)
def test_a_filter_is_granted_if_it_is_one_and_takes_in_what_the_tenant_may_read(
    topic_filter: str, granted: bool
) -> None:
    assert may_subscribe("alice", topic_filter) is granted


@pytest.mark.parametrize(
    ("topic_filter", "topic", "expected"),
    [
        ("a/b", "a/b", True),
        ("a/+", "a/b", True),
        ("a/#", "a", True),
        ("a/#", "a/b/c", True),
        ("a/+", "a", False),
        ("a/+", "a/b/c", False),
        ("+/b", "a/c", False),
        ("a", "a/b", False),
    ],
)
def test_a_topic_belongs_to_a_filter_as_the_standard_says(topic_filter: str, topic: str, expected: bool) -> None:
    assert matches(topic_filter, topic) is expected
