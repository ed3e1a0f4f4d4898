"""On how many nodes an endpoint answers, by what is asked of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tiercel.broker.lifecycle.replica_count import (
    COPY_SECONDS,
    GROW_SECONDS,
    LOOK_SECONDS,
    SHRINK_SECONDS,
    Reading,
    Trend,
    decide,
)

QUIET = Reading(1, 4, ended=50, requests_per_second=10, answers_per_second=10, under_way=0.05, busy=0.1)
BUSY = replace(QUIET, busy=0.9)
LATE = replace(QUIET, late=0.5, under_way=5.0)


class Looks:
    """Looks at one endpoint, one after the other."""

    def __init__(self, count: int = 1) -> None:
        self.count, self.trend, self.now, self.reason = count, Trend(), 1000.0, ""

    def see(self, reading: Reading | None, seconds: float) -> int:
        """The same is read for so long; ``answering`` is for one node and follows the count."""
        end = self.now + seconds
        while self.now < end:
            self.now += LOOK_SECONDS
            whole = reading
            if reading is not None and reading.whole:
                whole = replace(reading, answering=reading.answering * self.count)
            decision = decide(self.count, whole, self.trend, self.now)
            self.count, self.trend, self.reason = decision.count, decision.trend, decision.reason
        return self.count


@pytest.mark.parametrize("reading", [BUSY, LATE, replace(LATE, late=1.0, ended=3), replace(LATE, late=0, lagging=True)])
def test_what_is_late_or_busy_for_ten_seconds_gets_more_at_once(reading: Reading) -> None:
    looks = Looks()
    assert looks.see(reading, GROW_SECONDS) == 1
    assert "more if that lasts" in looks.reason
    assert looks.see(reading, LOOK_SECONDS) == 2
    assert "2 after 1 since" in looks.reason


def test_a_moment_is_no_reason() -> None:
    looks = Looks()
    for _ in range(20):
        looks.see(LATE, GROW_SECONDS)
        assert looks.see(QUIET, LOOK_SECONDS) == 1


def test_as_many_are_added_as_the_cpu_takes_and_no_more_than_there_are_nodes() -> None:
    assert Looks(3).see(replace(BUSY, busy=1.0, able=8), 15) == 6
    looks = Looks(3)
    assert looks.see(replace(BUSY, busy=1.0), 15) == 4
    assert looks.see(replace(BUSY, busy=1.0), 60) == 4
    assert "no other node is up" in looks.reason
    most = Looks(8)
    assert most.see(replace(BUSY, able=20), 60) == 8
    assert "as many as may be" in most.reason


def test_nothing_is_decided_while_copies_are_on_their_way() -> None:
    looks = Looks()
    looks.see(BUSY, 15)
    on_the_way = replace(BUSY, whole=False)
    assert looks.see(on_the_way, COPY_SECONDS - LOOK_SECONDS) == 2
    assert "not all of these nodes answer yet" in looks.reason
    assert looks.see(on_the_way, 20) == 3, "one that never answers is not waited for"


def test_what_is_not_asked_any_more_loses_one_after_five_minutes_each() -> None:
    looks = Looks(3)
    idle = Reading(1, 4)
    assert looks.see(idle, SHRINK_SECONDS) == 3
    assert looks.see(idle, LOOK_SECONDS) == 2
    assert "2 after 3 since one fewer would do" in looks.reason
    assert looks.see(idle, SHRINK_SECONDS) == 1
    assert looks.see(idle, 3 * SHRINK_SECONDS) == 1


def test_nothing_is_taken_away_while_a_node_is_silent_or_nothing_is_known() -> None:
    assert Looks(2).see(Reading(1, 4, whole=False), 3 * SHRINK_SECONDS) == 2
    looks = Looks(2)
    assert looks.see(None, 3 * SHRINK_SECONDS) == 2
    assert looks.see(Reading(1, 4), SHRINK_SECONDS) == 2, "silence was no calm"


def test_what_was_too_much_for_fewer_is_remembered() -> None:
    looks = Looks()
    looks.see(replace(LATE, requests_per_second=100, answers_per_second=100), 15)
    spread = replace(QUIET, requests_per_second=100, answers_per_second=100, late=0.0, under_way=0.2, busy=0.0)
    assert looks.see(spread, 10 * SHRINK_SECONDS) == 2
    assert looks.see(replace(spread, requests_per_second=59), 2 * SHRINK_SECONDS) == 1


def test_a_model_that_is_late_by_itself_gets_one_more_and_that_is_taken_back() -> None:
    looks = Looks()
    slow = replace(LATE, late=1.0, requests_per_second=30, answers_per_second=30)
    assert looks.see(slow, 15) == 2
    assert looks.see(slow, SHRINK_SECONDS) == 2
    assert looks.see(slow, 4 * SHRINK_SECONDS) == 1
    assert "another node did not make that better" in looks.reason
    idle = replace(slow, ended=0, late=0.0, requests_per_second=0, answers_per_second=0, under_way=0)
    for _ in range(5):  # asked in turns
        looks.see(idle, 120)
        assert looks.see(slow, 60) == 1
    assert looks.see(replace(slow, requests_per_second=40, answers_per_second=40), 15) == 2, "more is asked"


def test_servers_that_lag_for_another_reason_get_one_more_and_that_is_taken_back() -> None:
    looks = Looks()
    lagging = replace(QUIET, lagging=True, under_way=1.0)
    assert looks.see(lagging, 15) == 2
    assert looks.see(lagging, 4 * SHRINK_SECONDS) == 1
    assert looks.see(QUIET, 60) == 1
    assert looks.see(lagging, 15) == 2, "it had been well meanwhile"


def test_an_addition_that_answers_more_is_followed_by_the_next() -> None:
    looks = Looks()
    flooded = replace(LATE, late=1.0, requests_per_second=500, answers_per_second=100)
    looks.see(flooded, 15)
    assert looks.see(replace(flooded, answers_per_second=200), 15) == 3


def test_where_all_nodes_are_flooded_none_is_taken_away() -> None:
    looks = Looks(6)
    flooded = replace(LATE, able=7, late=1.0, busy=0.0, requests_per_second=500)
    looks.see(replace(flooded, answers_per_second=120), 15)
    assert looks.see(replace(flooded, answers_per_second=140), 4 * SHRINK_SECONDS) == 7
    assert "no other node is up" in looks.reason


def test_an_addition_that_helped_is_not_held_against_the_next() -> None:
    looks = Looks()
    looks.see(LATE, 15)
    looks.see(QUIET, 60)
    assert looks.see(LATE, 15) == 3


@pytest.mark.parametrize(
    "reading",
    [
        replace(LATE, ended=10, late=0.2),  # two of ten
        replace(LATE, under_way=0.1),  # none waits for another
        replace(QUIET, lagging=True),  # a server that lags for another reason than these
        replace(LATE, late=0.05),
    ],
)
def test_few_late_ones_or_such_as_wait_for_nobody_are_no_reason(reading: Reading) -> None:
    assert Looks().see(reading, 10 * SHRINK_SECONDS) == 1
