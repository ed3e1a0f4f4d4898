"""What other programs of a machine take, its runs do not get: what they use from look to look tells how much."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from tests.unit.broker.what_if.test_answer import NODE, NOW, job
from tiercel.broker.scheduling.forecast.given import Given
from tiercel.broker.scheduling.interface import EndpointView, NodeView, Snapshot, Trigger

TWO = replace(NODE, cpu_cores=2.0)


def seen(at: float, cpu: dict[str, float], *endpoints: EndpointView, node: NodeView = TWO) -> Snapshot:
    """A look at a node that runs jobs of one core, which have used so much by then."""
    jobs = tuple(replace(job(name, spent=1.0), cpu_seconds=used) for name, used in cpu.items())
    return Snapshot(NOW + at, Trigger.INTERVAL, jobs, (node,), endpoints)


def looked(rate: float, names: str, *endpoints: EndpointView, looks: int = 60) -> Given:
    """A node after two minutes in which each of the jobs used so many CPU seconds a second."""
    given = Given()
    for at in range(looks + 1):
        given = given.after(seen(2.0 * at, dict.fromkeys(names, 2.0 * at * rate), *endpoints))
    return given


def test_runs_that_get_half_of_what_they_could_use_are_given_half() -> None:
    assert looked(0.5, "ab").part_of("n1") == pytest.approx(0.5, abs=0.02)


def test_runs_that_share_a_node_by_themselves_are_given_all_of_it_and_so_is_one_that_can_use_no_more() -> None:
    assert looked(0.5, "abcd").part_of("n1") == pytest.approx(1.0)
    assert looked(1.0, "a").part_of("n1") == pytest.approx(1.0)


def test_what_answers_take_is_nothing_that_others_take() -> None:
    serving = EndpointView("e", "alice", "n1", requests_per_second=1.0, cpu_cores_used=1.0)
    assert looked(0.5, "ab", serving).part_of("n1") == pytest.approx(1.0)


def test_what_was_long_ago_is_forgotten_and_a_standstill_is_not_taken_for_good() -> None:
    given = looked(0.0, "ab")
    assert 0.05 <= given.part_of("n1") < 0.1
    for at in range(121, 271):
        given = given.after(seen(2.0 * at, {"a": 2.0 * at}))
    assert given.part_of("n1") > 0.95


@pytest.mark.parametrize(
    ("before", "now"),
    [
        (seen(0.0, {}), seen(2.0, {})),
        (seen(0.0, {"a": 0.0}), seen(2.0, {"a": 0.0, "b": 0.0})),
        (seen(0.0, {"a": 0.0, "b": 0.0}), seen(2.0, {"a": 0.0})),
        (seen(0.0, {"a": 5.0}), seen(2.0, {"a": 1.0})),
        (seen(0.0, {"a": 0.0}), seen(2.0, {"a": math.nan})),
        (seen(2.0, {"a": 0.0}), seen(0.0, {"a": 0.1})),
        (seen(0.0, {"a": 0.0}), seen(86400.0, {"a": 0.1})),
    ],
    ids=["nothing runs", "one came", "one went", "counted anew", "no number", "clock set back", "clock set forward"],
)
def test_what_tells_nothing_changes_nothing(before: Snapshot, now: Snapshot) -> None:
    assert Given().after(before).after(now).parts() == {}


def test_looks_that_follow_at_once_are_one_look() -> None:
    given = looked(0.5, "ab")
    soon = given.after(seen(120.5, {"a": 60.0, "b": 60.0}))  # nothing was counted meanwhile
    assert soon is given
    assert soon.after(seen(122.0, {"a": 61.0, "b": 61.0})).part_of("n1") == pytest.approx(0.5, abs=0.02)
