"""How a key's rate is divided, and which keys count."""

from __future__ import annotations

import pytest

from tiercel.broker.lifecycle.access import KeptKey, counts, divided, rule_of
from tiercel.core.endpoint_access import EndpointAccess, Key
from tiercel.core.endpoints import Endpoint

KEPT = KeptKey(Key("k", "digits", "", 10.0, 100.0), "alice", "ab")


@pytest.mark.parametrize("asked", [{}, {"a": 5.0}, {"a": 5.0, "b": 15.0}, {"gone": 100.0}, {"a": 1.0, "gone": 1e9}])
@pytest.mark.parametrize("nodes", [["a"], ["a", "b"], ["a", "b", "c"]])
def test_all_parts_together_are_the_rate_and_every_node_has_one(asked: dict[str, float], nodes: list[str]) -> None:
    parts = divided(90.0, asked, nodes)
    assert parts.keys() == set(nodes)
    assert sum(parts.values()) == pytest.approx(90.0)
    assert min(parts.values()) >= 90.0 * 0.1 / len(nodes)


def test_parts_follow_use() -> None:
    assert divided(90.0, {}, ["a", "b"]) == {"a": 45.0, "b": 45.0}
    parts = divided(100.0, {"a": 10.0, "b": 30.0}, ["a", "b"])
    assert parts["a"] == pytest.approx(5.0 + 22.5)
    assert parts["b"] == pytest.approx(5.0 + 67.5)
    assert divided(100.0, {"a": 1.0}, []) == {}


def test_a_key_counts_for_the_endpoint_that_it_was_made_for() -> None:
    assert counts(KEPT, Endpoint("digits", "alice"))
    assert counts(KEPT, Endpoint("digits", "alice", keys_from=99.0))
    assert not counts(KEPT, Endpoint("digits", "bob"))
    assert not counts(KEPT, Endpoint("other", "alice"))
    assert not counts(KEPT, Endpoint("digits", "alice", keys_from=100.0))


def test_a_node_is_told_its_part_of_the_rate() -> None:
    endpoint = Endpoint("digits", "alice", access=EndpointAccess.KEY)
    assert rule_of(endpoint, [KEPT], {}).keys[0].per_second == 10.0
    assert rule_of(endpoint, [KEPT], {"k": 2.5}).keys[0].per_second == 2.5
