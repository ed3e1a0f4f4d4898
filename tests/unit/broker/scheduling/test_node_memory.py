from __future__ import annotations

from testing.scheduling import node
from tiercel.broker.scheduling.interface import Assignment
from tiercel.broker.scheduling.node_memory import NodeMemory, recall
from tiercel.core.shares import Share

MEMORY = NodeMemory(node("a"), ("x", 1.0), (Assignment("x", "a", Share(1.0, reason="alone")),))


def test_a_decision_holds_while_all_that_it_rests_on_is_as_it_was() -> None:
    assert recall({"a": MEMORY}, node("a"), ("x", 1.0)) is MEMORY


def test_a_decision_does_not_outlive_what_it_rests_on() -> None:
    assert recall({"a": MEMORY}, node("a"), ("x", 2.0)) is None
    assert recall({"a": MEMORY}, node("a", cpu_cores=8.0), ("x", 1.0)) is None
    assert recall({"a": MEMORY}, node("b"), ("x", 1.0)) is None
    assert recall({}, node("a"), ("x", 1.0)) is None
