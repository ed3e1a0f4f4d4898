"""What an operator reads of a rotation of the authority."""

from __future__ import annotations

from tiercel.broker.cli.authority import words_of
from tiercel.core.authority import AuthorityState
from tiercel.core.nodes import Drain
from tiercel.core.status import ClusterStatus, NodeStatus

STATE = AuthorityState("new" * 14 + "p", "old" * 14 + "p", 1_800_000_000.0, 1_800_604_800.0, ("n2", "n3"))
NODE = NodeStatus("n1", online=True, drain=Drain.NO, version="1")


def test_who_is_waited_for_and_until_when_the_earlier_pin_is_good() -> None:
    first, second = words_of(STATE)
    assert STATE.earlier_pin in first
    assert "since 2027-01-15T08:00+00:00; it waits for n2, n3." in first
    assert "until 2027-01-22T08:00+00:00 at least" in second
    assert "all nodes have turned to it" in words_of(AuthorityState("p", "q"))[0]
    assert words_of(AuthorityState("p")) == []


def test_a_rotation_that_waits_is_something_to_see_to_and_one_that_does_not_is_none() -> None:
    (problem,) = ClusterStatus("1", nodes=(NODE,), rotation=STATE).problems()
    assert (problem.about, problem.what) == ("authority", "its rotation waits for n2, n3")
    assert "tiercel node remove NAME" in problem.action
    assert not ClusterStatus("1", nodes=(NODE,), rotation=AuthorityState("p", "q")).problems()
    assert not ClusterStatus("1", nodes=(NODE,)).problems()
