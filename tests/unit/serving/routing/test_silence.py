"""When a node is taken for silent, and for how long answers are waited for."""

from __future__ import annotations

import pytest

from tiercel.serving.routing.silence import LEAST_PATIENCE_SECONDS, MOST_MODELS, Hearing, Patience


def test_nothing_is_missed_from_a_node_that_nobody_waits_for() -> None:
    hearing = Hearing()
    assert hearing.quiet_seconds(1000.0) == 0.0
    hearing.sent(1000.0)
    hearing.heard(1000.1)
    hearing.ended(1000.1)
    assert hearing.quiet_seconds(5000.0) == 0.0


def test_whatever_comes_back_counts_for_all_who_wait() -> None:
    hearing = Hearing()
    hearing.sent(0.0)
    hearing.sent(0.3)
    assert hearing.quiet_seconds(0.35) == pytest.approx(0.35)
    hearing.heard(0.35)
    hearing.ended(0.35)
    assert hearing.quiet_seconds(0.6) == pytest.approx(0.25), "the second waits since the first was answered"


def test_callers_that_give_up_early_find_out_together() -> None:
    hearing = Hearing()
    for number in range(4):
        hearing.sent(10.0 * number)
        hearing.ended(10.0 * number + 0.1)
    assert hearing.quiet_seconds(100.0) == pytest.approx(0.4), "the time in which nobody waited does not count"
    hearing.sent(100.0)
    assert hearing.quiet_seconds(100.05) == pytest.approx(0.45)
    hearing.heard(100.1)
    hearing.ended(100.1)
    assert hearing.quiet_seconds(200.0) == 0.0


def test_a_slow_model_is_waited_for_as_long_as_it_takes() -> None:
    patience = Patience()
    assert patience.seconds("slow") == LEAST_PATIENCE_SECONDS
    patience.answered("slow", 1.0)
    for _ in range(10):
        patience.answered("slow", 0.01)
    assert patience.seconds("slow") > 2.0, "one that is slow now and then counts by its slow answers"
    assert patience.seconds("fast") == LEAST_PATIENCE_SECONDS
    for _ in range(1000):
        patience.answered("slow", 0.01)
    assert patience.seconds("slow") == LEAST_PATIENCE_SECONDS


@pytest.mark.parametrize("delay", [0.5, 2.0, 10.0])
def test_a_model_that_is_slow_from_the_beginning_is_asked_for_twice_a_few_times_at_most(delay: float) -> None:
    patience, twice = Patience(), 0
    for _ in range(100):
        if patience.seconds("m") < delay:
            twice += 1
            patience.waited("m", patience.seconds("m"))
        else:
            patience.answered("m", delay)
    assert twice <= 3


def test_what_is_remembered_is_bounded() -> None:
    patience = Patience()
    for number in range(MOST_MODELS + 1):
        patience.answered(f"m{number}", 1.0)
    assert patience.seconds("m0") == LEAST_PATIENCE_SECONDS, "forgotten"
    assert {patience.seconds(f"m{number}") for number in (1, MOST_MODELS)} == {3.0}
