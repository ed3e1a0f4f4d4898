"""Waiting until a drained node is empty, without a broker and without time."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tiercel.broker.client import draining
from tiercel.broker.client.draining import left_on, only_on, wait_until_empty
from tiercel.broker.client.membership import LeftThere
from tiercel.core.errors import InvalidSpecError, OverloadedError, UnavailableError
from tiercel.core.nodes import Drain
from tiercel.core.status import ClusterStatus, EndpointStatus, NodeStatus

AWAY = UnavailableError("The broker does not answer.")


@pytest.fixture(autouse=True)
def _without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draining, "LOOK_SECONDS", 0.0)


def status(jobs: int, *endpoints: str, drain: Drain = Drain.MOVE) -> ClusterStatus:
    nodes = (NodeStatus("far", online=True, drain=drain, jobs=jobs), NodeStatus("near", online=True, jobs=7))
    elsewhere = EndpointStatus("other", "alice", nodes=("near",))
    return ClusterStatus("1", nodes=nodes, endpoints=(elsewhere, *(_on_both(name) for name in endpoints)))


def alone(jobs: int, *endpoints: str, drain: Drain = Drain.MOVE, other: Drain | None = None) -> ClusterStatus:
    """The node is the only one, or there is another one, which is drained or offline."""
    nodes = [NodeStatus("far", online=True, drain=drain, jobs=jobs)]
    nodes += [NodeStatus("near", online=False, drain=other)] if other is not None else []
    return ClusterStatus("1", nodes=tuple(nodes), endpoints=tuple(_on_both(name) for name in endpoints))


def _on_both(name: str) -> EndpointStatus:
    return EndpointStatus(name, "bob", nodes=("far", "near"))


async def waited(
    answers: list[ClusterStatus | UnavailableError | OverloadedError],
    seconds: float = 100.0,
    clock: Callable[[], float] | None = None,
) -> tuple[LeftThere, list[tuple[float, LeftThere | None]]]:
    """What is left in the end, and what was told; the last answer is given for ever."""
    told: list[tuple[float, LeftThere | None]] = []
    left = list(answers)

    async def look() -> ClusterStatus:
        answer = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(answer, ClusterStatus):
            return answer
        raise answer

    ticks: Iterator[int] = iter(range(10_000))
    found = await wait_until_empty(
        "far", look, seconds, lambda passed, what: told.append((passed, what)), clock or (lambda: float(next(ticks)))
    )
    return found, told


async def test_what_changes_is_told_until_nothing_is_left() -> None:
    found, told = await waited([status(2, "digits"), status(2, "digits"), status(1, "digits"), status(0)])
    assert found == LeftThere(0, ())
    assert told == [(1, LeftThere(2, ("digits",))), (3, LeftThere(1, ("digits",))), (4, LeftThere(0, ()))]


async def test_an_endpoint_keeps_a_node_from_being_empty_without_any_job() -> None:
    found, _ = await waited([status(0, "digits")], seconds=5)
    assert (found.jobs, found.endpoints, found.is_empty) == (0, ("digits",), False)


async def test_a_job_that_was_just_being_started_there_is_seen() -> None:
    found, told = await waited([status(0), status(1), status(1)], seconds=5)
    assert found == LeftThere(1, ())
    assert [what for _, what in told] == [LeftThere(0, ()), LeftThere(1, ())]


async def test_a_broker_that_is_away_for_a_while_is_waited_for_and_no_longer() -> None:
    found, told = await waited([status(1), AWAY, OverloadedError("Too much at once."), status(0)])
    assert found.is_empty
    assert [what for _, what in told] == [LeftThere(1, ()), None, LeftThere(0, ())]
    with pytest.raises(UnavailableError, match="does not answer"):
        await waited([status(1), AWAY], seconds=5)


async def test_without_time_it_is_looked_at_once() -> None:
    found, told = await waited([status(3)], seconds=0)
    assert (found, len(told)) == (LeftThere(3, ()), 1)


async def test_a_node_that_somebody_undrains_is_waited_for_no_more() -> None:
    with pytest.raises(InvalidSpecError, match="undrained meanwhile"):
        await waited([status(1), status(1, drain=Drain.NO)])


async def test_a_node_that_was_removed_has_nothing_left() -> None:
    found, _ = await waited([status(1), ClusterStatus("1")])
    assert found.is_empty


@pytest.mark.parametrize("other", [None, Drain.WAIT])
async def test_what_has_no_place_to_go_to_is_waited_for_no_longer_than_a_broker_takes_to_hear_its_nodes(
    other: Drain | None,
) -> None:
    found, told = await waited([alone(1, "digits", other=other)])
    assert (found, told[-1][0]) == (LeftThere(1, ("digits",), is_stuck=True), 1)
    found, _ = await waited([alone(0, "digits", drain=Drain.WAIT, other=other)])
    assert found == LeftThere(0, ("digits",), is_stuck=True)


async def test_a_place_that_may_come_and_jobs_that_end_by_themselves_are_waited_for() -> None:
    began_anew = [alone(1)] * 8
    found, _ = await waited([*began_anew, *[status(1)] * 5, *began_anew, status(0)])
    assert found.is_empty
    found, _ = await waited([*[alone(1, other=Drain.NO)] * 20, status(0)])  # it is offline, and may come back
    assert found.is_empty
    found, _ = await waited([*[alone(2, drain=Drain.WAIT)] * 20, alone(0)])
    assert found.is_empty


def test_what_is_on_other_nodes_does_not_count() -> None:
    assert left_on(status(0), "far") == LeftThere(0, ())


def test_who_removes_a_node_is_told_for_what_nobody_else_answers() -> None:
    answering = {"alone": ("far",), "silent": (), "both": ("far", "near"), "taken over": ("near",)}
    endpoints = [EndpointStatus(name, "bob", 1, ("far", "near"), there) for name, there in answering.items()]
    found = ClusterStatus("1", endpoints=(*endpoints, EndpointStatus("other", "bob", 1, ("near",), ())))
    assert only_on(found, "far") == ("alone", "silent")
