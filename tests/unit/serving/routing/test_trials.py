"""Nodes that are passed over are asked ever less often, until they are heard or told of no more."""

from __future__ import annotations

from typing import cast

from tiercel.serving.routing.pool import Peer
from tiercel.serving.routing.silence import Hearing
from tiercel.serving.routing.trials import FIRST_SECONDS, MOST_SECONDS, Trials

PLACE = ("n2", "10.0.0.2:1")


class StandIn:
    """A peer that answers a trial, or does not."""

    def __init__(self) -> None:
        self.hearing = Hearing()
        self.answers = False
        self.tried_at: list[float] = []
        self.let_go_of = 0

    def is_passed_over(self) -> bool:
        return self.hearing.is_silent

    def let_go(self) -> None:
        self.let_go_of += 1

    async def try_out(self) -> None:
        self.tried_at.append(now[0])
        if self.answers:
            self.hearing.heard(now[0])


now = [0.0]


def trials(known: set[tuple[str, str]]) -> Trials:
    now[0] = 0.0
    return Trials(known.__contains__, lambda: now[0])


async def pass_time(found: Trials, seconds: float) -> None:
    for _ in range(round(seconds * 20)):
        now[0] += 0.05
        await found.ask_those_due()


async def test_it_is_asked_ever_less_often_until_it_answers() -> None:
    found, peer = trials({PLACE}), StandIn()
    found.pass_over(cast("Peer", peer), PLACE)
    found.pass_over(cast("Peer", peer), PLACE)
    assert peer.is_passed_over()
    assert peer.let_go_of == 1, "kept connections are of no use"
    await pass_time(found, 30.0)
    pauses = [later - before for before, later in zip([0.0, *peer.tried_at], peer.tried_at, strict=False)]
    assert FIRST_SECONDS <= pauses[0] < 2 * FIRST_SECONDS
    assert pauses[1] < pauses[2] < pauses[3]
    assert max(pauses) < MOST_SECONDS + 0.1
    peer.answers = True
    await pass_time(found, MOST_SECONDS + 0.1)
    assert not peer.is_passed_over()
    count = len(peer.tried_at)
    await pass_time(found, 10.0)
    assert len(peer.tried_at) == count
    peer.answers = False
    found.pass_over(cast("Peer", peer), PLACE)
    began = now[0]
    await pass_time(found, 1.0)
    assert peer.tried_at[count] - began < 2 * FIRST_SECONDS, "from the beginning"


async def test_a_place_that_nobody_tells_of_any_more_is_not_asked_and_is_no_longer_passed_over() -> None:
    known = {PLACE}
    found, peer = trials(known), StandIn()
    found.pass_over(cast("Peer", peer), PLACE)
    known.clear()
    await pass_time(found, 5.0)
    assert peer.tried_at == []
    assert not peer.is_passed_over()
