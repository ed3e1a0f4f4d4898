from __future__ import annotations

from collections.abc import Mapping

import pytest

from tiercel.broker.actors.endpoint_states import EndpointObserved, EndpointsMeasured, EndpointStates, name_on
from tiercel.broker.scheduling.interface import EndpointView
from tiercel.core.endpoints import DelayWindow, EndpointLoad, EndpointUsage
from tiercel.core.shares import Share


class Declared:
    """What nodes were told, in order."""

    def __init__(self) -> None:
        self.told: list[tuple[str, dict[str, Share]]] = []
        self.objectives: dict[str, dict[str, float]] = {}

    def __call__(self, node_id: str, shares: Mapping[str, Share], objectives: Mapping[str, float]) -> None:
        self.told.append((node_id, dict(shares)))
        self.objectives[node_id] = dict(objectives)


@pytest.fixture
def declared() -> Declared:
    return Declared()


@pytest.fixture
def states(declared: Declared) -> EndpointStates:
    states = EndpointStates(declared)
    states.on_news(EndpointObserved("a", EndpointView("a", "alice", "n1", objective_seconds=0.05)))
    states.on_news(EndpointObserved("b", EndpointView("b", "bob", "n2")))
    return states


def names(views: tuple[EndpointView, ...]) -> list[str]:
    return [view.name for view in views]


def test_endpoints_of_nodes_that_are_online_are_shown(states: EndpointStates) -> None:
    assert names(states.views(["n1", "n2"])) == ["a", "b"]
    assert names(states.views(["n2"])) == ["b"]
    states.on_news(EndpointObserved("b", None))
    assert names(states.views(["n1", "n2"])) == ["a"]


def test_what_is_counted_adds_up_until_the_next_snapshot(states: EndpointStates) -> None:
    states.on_news(EndpointsMeasured("n1", (EndpointUsage("a", 2.0, 10, 8, 0.8, 1.0),)))
    states.on_news(EndpointsMeasured("n1", (EndpointUsage("a", 2.0, 10, 8, 1.6, 0.2),)))
    (view, _) = states.views(["n1", "n2"])
    assert (view.requests_per_second, view.delay_seconds, view.cpu_cores_used) == pytest.approx((5.0, 0.15, 0.3))
    assert view.objective_seconds == 0.05
    states.on_news(EndpointsMeasured("n1", (EndpointUsage("a", 2.0, 2, 2, 2.0, 0.2),)))
    (view, _) = states.views(["n1", "n2"])
    assert (view.requests_per_second, view.delay_seconds, view.cpu_cores_used) == pytest.approx((1.0, 1.0, 0.1))


def test_a_node_that_says_nothing_is_not_idle_and_one_that_counts_nothing_is(states: EndpointStates) -> None:
    states.on_news(EndpointsMeasured("n1", (EndpointUsage("a", 2.0, 10, 10, 1.0, 1.0),)))
    first = states.views(["n1"])
    assert states.views(["n1"]) == first
    states.on_news(EndpointsMeasured("n1", ()))
    (view,) = states.views(["n1"])
    assert (view.requests_per_second, view.delay_seconds, view.cpu_cores_used) == (0.0, None, 0.0)


def test_requests_without_an_answer_have_no_delay(states: EndpointStates) -> None:
    states.on_news(EndpointsMeasured("n1", (EndpointUsage("a", 2.0, 10),)))
    (view,) = states.views(["n1"])
    assert (view.requests_per_second, view.delay_seconds) == (5.0, None)


def test_counts_of_another_node_are_not_the_endpoints(states: EndpointStates) -> None:
    states.on_news(EndpointsMeasured("n2", (EndpointUsage("a", 2.0, 10, 10, 1.0, 1.0),)))
    assert states.load("a") is None
    states.views(["n1", "n2"])
    assert (states.load("a"), states.load("b"), states.load("c")) == (None, EndpointLoad(), None)


@pytest.fixture
def heard(states: EndpointStates) -> EndpointStates:
    """What is known once both nodes were heard of."""
    for node_id in ("n1", "n2"):
        states.on_news(EndpointsMeasured(node_id, ()))
    return states


def test_nothing_is_decided_about_a_node_that_was_not_heard_of(states: EndpointStates, declared: Declared) -> None:
    share = Share(0.5, 1.0, "why")
    states.on_news(EndpointsMeasured("n2", ()))
    moved = states.decide({"a": share, "b": share}, states.views(["n1", "n2"]))
    assert [(each.view.name, each.share) for each in moved] == [("b", share)]
    assert declared.told == [("n2", {"b": share})]
    states.on_news(EndpointsMeasured("n1", ()))
    states.decide({"b": share}, states.views(["n1", "n2"]))
    assert declared.told[1:] == [("n1", {})]
    assert declared.objectives == {"n1": {"a": 0.05}, "n2": {}}


def test_a_new_objective_is_told_though_no_share_moves(heard: EndpointStates, declared: Declared) -> None:
    heard.decide({}, heard.views(["n1", "n2"]))
    heard.on_news(EndpointObserved("b", EndpointView("b", "bob", "n2", objective_seconds=0.2)))
    assert heard.decide({}, heard.views(["n1", "n2"])) == []
    assert declared.objectives == {"n1": {"a": 0.05}, "n2": {"b": 0.2}}
    assert len(declared.told) == 3


def test_the_part_in_the_objective_is_of_the_interval_and_quantiles_are_of_the_last_seconds(
    states: EndpointStates,
) -> None:
    early = (DelayWindow(10.0, 9, 1, 0.9, 0.1, 0.2, 0.3),)
    late = (DelayWindow(10.0, 19, 1, 0.5, 0.1, 0.4, 0.5),)
    states.on_news(EndpointsMeasured("n1", (EndpointUsage("a", 1.0, 10, 9, 0.9, 0.1, 1, 9, early),)))
    states.on_news(EndpointsMeasured("n1", (EndpointUsage("a", 1.0, 10, 10, 0.9, 0.1, 0, 1, late),), 0.25))
    (view,) = states.views(["n1"])
    assert (view.in_objective, view.p95_seconds) == (0.5, 0.4)
    load = states.load("a")
    assert load is not None
    assert (load.windows, load.lag_seconds) == (late, 0.25)


def test_where_nobody_judges_nothing_is_in_or_out_of_an_objective(states: EndpointStates) -> None:
    states.on_news(
        EndpointsMeasured("n1", (EndpointUsage("a", 1.0, 10, 9, 0.9, 0.1, 1, 0, (DelayWindow(10.0, 9, 1),)),))
    )
    (view,) = states.views(["n1"])
    assert (view.in_objective, view.p95_seconds) == (None, None)


def test_nodes_are_told_of_changes_only_and_as_a_whole(heard: EndpointStates, declared: Declared) -> None:
    states = heard
    views = states.views(["n1", "n2"])
    share = Share(0.5, 1.0, "why")
    assert states.decide({"a": share}, views)
    assert not states.decide({"a": Share(0.5, 1.0 + 1e-12, "rounding")}, views)
    assert not states.decide({"a": Share(0.5, 1.0, "for another reason")}, views)
    assert states.share("a") == Share(0.5, 1.0, "for another reason")
    assert states.views(["n1"])[0].share == states.share("a")
    assert states.decide({"a": share, "b": share}, views)
    assert states.decide({}, views)
    assert declared.told == [("n1", {"a": share}), ("n2", {}), ("n2", {"b": share}), ("n1", {}), ("n2", {})]
    assert states.share("a") is None


def test_an_endpoint_that_moved_is_not_limited_where_it_was(heard: EndpointStates, declared: Declared) -> None:
    states = heard
    share = Share(0.5, 1.0, "why")
    states.decide({"a": share}, states.views(["n1", "n2"]))
    states.on_news(EndpointObserved("a", EndpointView("a", "alice", "n2")))
    assert states.share("a") is None
    states.decide({"a": share}, states.views(["n1", "n2"]))
    assert declared.told == [("n1", {"a": share}), ("n2", {}), ("n1", {}), ("n2", {"a": share})]


def test_an_endpoint_on_two_nodes_is_seen_and_limited_on_each_by_what_is_asked_there(
    states: EndpointStates, declared: Declared
) -> None:
    home, copy = EndpointView("a", "alice", "n1"), EndpointView(name_on("a", "n2"), "alice", "n2")
    states.on_news(EndpointObserved("a", home, (copy,)))
    states.on_news(EndpointsMeasured("n1", (EndpointUsage("a", 1.0, 10, 10, 1.0, 1.0),)))
    states.on_news(EndpointsMeasured("n2", (EndpointUsage("a", 1.0, 30, 30, 3.0, 3.0),)))
    seen = states.views(["n1", "n2"])
    assert {view.name: view.requests_per_second for view in seen} == {"a": 10.0, "a@n2": 30.0, "b": 0.0}
    states.decide({"a": Share(0.25), "a@n2": Share(0.75)}, seen)
    assert dict(declared.told) == {"n1": {"a": Share(0.25)}, "n2": {"a": Share(0.75)}}
    assert (states.share("a"), states.share("a@n2")) == (Share(0.25), Share(0.75))
    states.on_news(EndpointObserved("a", None))
    assert names(states.views(["n1", "n2"])) == ["b"]


def test_what_was_counted_in_all_grows_by_node_and_snapshots_take_nothing_of_it(states: EndpointStates) -> None:
    states.on_news(EndpointsMeasured("n1", (EndpointUsage("a", 2.0, 10, cpu_seconds=1.0),), heard_at=2.0))
    states.views(["n1"])
    other = EndpointUsage("c", 2.0, 1, cpu_seconds=0.5)
    states.on_news(EndpointsMeasured("n1", (EndpointUsage("a", 2.0, 5, cpu_seconds=1.0), other), 0.2, heard_at=4.0))
    states.on_news(EndpointsMeasured("n2", (), heard_at=5.0))
    found = states.counted("a")
    assert (found["n1"].usage.requests, found["n1"].usage.cpu_seconds, found["n1"].all_cpu_seconds) == (15, 2.0, 2.5)
    assert (found["n1"].heard_at, found["n1"].lag_seconds) == (4.0, 0.2)
    assert (found["n2"].usage.requests, found["n2"].heard_at) == (0, 5.0)
