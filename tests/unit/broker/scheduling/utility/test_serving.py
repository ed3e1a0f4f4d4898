"""Endpoints under the utility policy: who is limited, and that limits do not swing; all by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from tiercel.broker.scheduling.interface import EndpointView, NodeView
from tiercel.broker.scheduling.utility.serving import LEAST, EndpointRecord, cores_left, limits, observe
from tiercel.core.shares import Share

NODE = NodeView("node", 2.0, 1 << 30)
WORK = 0.02


def endpoint(name: str = "a", rate: float = 30.0, **changes: Any) -> EndpointView:
    """Requests of 20 ms, answered well within the 100 ms that are wanted."""
    view = EndpointView(
        name,
        "tenant",
        "node",
        objective_seconds=0.1,
        requests_per_second=rate,
        delay_seconds=0.03,
        cpu_cores_used=rate * WORK,
    )
    return replace(view, **changes)


class Node:
    """Passes in a row, two seconds apart."""

    def __init__(self, price: float = 1.0) -> None:
        self.now = 0.0
        self.price = price
        self.records: dict[str, EndpointRecord] = {}
        self.shares: dict[str, Share] = {}

    def renew(self, views: Sequence[EndpointView]) -> dict[str, Share]:
        self.now += 2.0
        views = [replace(view, share=self.shares.get(view.name)) for view in views]
        self.records = observe(views, NODE, self.records)
        self.shares = limits(views, NODE, self.price, self.records)
        return self.shares


def measured(views: Sequence[EndpointView], step: int) -> list[EndpointView]:
    """The same with what is measured a little different each time."""
    return [
        view if view.delay_seconds is None else replace(view, delay_seconds=view.delay_seconds + 1e-6 * step)
        for view in views
    ]


def test_endpoints_that_can_all_be_answered_are_not_limited() -> None:
    node = Node()
    for step in range(10):
        shares = node.renew(measured([endpoint("a", 30.0), endpoint("b", 45.0)], step))
        assert shares == {}
    # A quarter of the node is 12 and a half of the steps in which that is told apart.
    assert cores_left(NODE, [endpoint("a", 30.0), endpoint("b", 45.0)]) == pytest.approx(12 * LEAST * 2.0)


def test_an_endpoint_alone_is_never_limited_however_dear_training_is() -> None:
    node = Node(price=1e9)
    for step in range(10):
        slow = endpoint(rate=200.0, cpu_cores_used=1.9, delay_seconds=1.0 + step)
        assert node.renew([slow]) == {}


def late(step: int, quality_of_b: float) -> list[EndpointView]:
    """Two endpoints that want 1.4 cores of two each, and get one."""
    changes = {"cpu_cores_used": 0.95, "delay_seconds": 1.0 + step}
    return [
        endpoint("a", 70.0, quality=0.8, **changes),
        endpoint("b", 70.0, quality=quality_of_b, **changes),
    ]


def known(node: Node) -> None:
    """Both came with few requests at first, so that it is known what a request takes."""
    for step in range(4):
        node.renew(measured([endpoint("a", 20.0), endpoint("b", 20.0)], step))
    assert all(record.is_open for record in node.records.values())
    assert node.records["a"].request_seconds == pytest.approx(WORK)


def test_of_endpoints_that_do_not_fit_the_better_one_is_served_in_full() -> None:
    node = Node(price=0.0)
    known(node)
    shares = node.renew(late(0, 0.9))
    assert set(shares) == {"a"}
    # 1.4 cores with a tenth to spare are 1.56, of two.
    assert shares["a"].cpu_weight == pytest.approx((2.0 - 1.4 / 0.9) / 2.0)
    assert "others are worth more per core" in shares["a"].reason


def test_late_answers_leave_the_node_to_training_that_is_worth_more() -> None:
    node = Node(price=1e4)
    known(node)
    shares = node.renew(late(0, 0.9))
    assert shares["a"].cpu_weight == pytest.approx(LEAST / 2)
    assert "training is worth more than late answers" in shares["a"].reason


def test_who_is_served_in_full_stays_so_unless_another_is_clearly_worth_more() -> None:
    node = Node()
    known(node)
    assert set(node.renew(late(0, 0.9))) == {"a"}
    for step, quality in enumerate((0.7, 0.9, 0.6, 0.95), start=1):  # 0.8 is never worth half as much again
        assert set(node.renew(late(step, quality))) == {"a"}
    assert set(node.renew(late(9, 0.5))) == {"b"}


def test_a_contest_is_over_once_all_fit_easily() -> None:
    node = Node()
    known(node)
    node.renew(late(0, 0.9))
    nearly = [endpoint("a", 46.0, delay_seconds=0.04), endpoint("b", 46.0, delay_seconds=0.041)]  # 1.84 cores of two
    assert set(node.renew(nearly)) == {"a"}
    assert node.renew([endpoint("a", 35.0, delay_seconds=0.042), endpoint("b", 40.0, delay_seconds=0.043)]) == {}


def answered(view: EndpointView, share: Share | None, step: int) -> EndpointView:
    """A closed loop of open traffic: a queue on the cores that a share leaves, two without one."""
    cores = 2.0 if share is None else max(share.cpu_weight * 2.0, 1e-3)
    wanted = view.requests_per_second * WORK
    used = min(wanted, cores)
    delay = WORK / min(cores, 1.0) / (1 - wanted / cores) if wanted < 0.99 * cores else 20.0
    return replace(view, cpu_cores_used=used, delay_seconds=delay + 1e-6 * step, share=share)


def test_a_served_endpoint_keeps_what_it_uses_and_its_share_does_not_swing() -> None:
    node = Node(price=1e6)
    shares: Mapping[str, Share] = {}
    seen: list[tuple[str, ...]] = []
    for step in range(60):
        rate = 30.0 + 8.0 * (step % 5)  # bursts
        shares = node.renew([answered(endpoint("a", rate), shares.get("a"), step), endpoint("b", 10.0)])
        seen.append(tuple(shares))
        for name in shares:
            assert shares[name].cpu_weight * NODE.cpu_cores >= rate * WORK / 0.7
    assert set(seen) == {()}


def test_clients_that_never_wait_to_ask_again_are_led_to_their_objectives_and_stay_there() -> None:
    # Four batches at a time of 2 CPU seconds each: 8 s and 16 s take 1 and 0.5 of the two cores.
    node = Node(price=0.0)
    given = {"a": 1.0, "b": 1.0}
    history: list[dict[str, float]] = []
    shares: Mapping[str, Share] = {}
    for step in range(30):
        views = [
            EndpointView(
                name,
                "tenant",
                "node",
                objective_seconds=objective,
                requests_per_second=given[name] / 2.0,
                delay_seconds=4 * 2.0 / given[name] * (1 + 1e-6 * step),
                cpu_cores_used=given[name],
                share=shares.get(name),
            )
            for name, objective in (("a", 8.0), ("b", 16.0))
        ]
        shares = node.renew(views)
        given = {name: shares[name].cpu_weight * 2.0 if name in shares else 1.0 for name in given}
        history.append(dict(given))
    # Answers in time are not made slower for less than a tenth of a share: a fifth of the delay.
    assert given == pytest.approx({"a": 1.0, "b": 0.5}, rel=0.2)
    for earlier in history[-10:]:
        assert earlier == pytest.approx(given, rel=1e-3)
