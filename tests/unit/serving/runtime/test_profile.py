from __future__ import annotations

import pytest

from tiercel.serving.runtime.profile import HAND_OVER_SECONDS, DrainRate, LatencyProfile, pays_to_go_on


def test_times_between_measured_sizes_lie_on_a_line_and_beyond_them_in_proportion() -> None:
    profile = LatencyProfile((1, 2, 4), (1.0, 1.5, 2.5))
    assert [profile.estimate(rows) for rows in (0, 1, 2, 3, 4, 8)] == [1.0, 1.0, 1.5, 2.0, 2.5, 5.0]


def test_a_model_that_gains_nothing_runs_rows_one_by_one() -> None:
    profile = LatencyProfile((1, 2, 4), (0.01, 0.02, 0.04))
    assert (profile.best_rows(), profile.queue_rows(), profile.most_rows()) == (1, (), 1)


def test_a_model_that_takes_the_same_for_all_sizes_gets_the_largest_batch() -> None:
    assert LatencyProfile((1, 2, 4, 8), (0.01,) * 4).best_rows() == 8


def test_a_small_gain_is_not_worth_a_larger_batch() -> None:
    assert LatencyProfile((1, 2, 4), (0.010, 0.014, 0.0275)).best_rows() == 2


def test_a_queue_is_worth_larger_batches_that_are_as_good() -> None:
    profile = LatencyProfile((1, 2, 4, 8, 16), (0.100, 0.160, 0.314, 0.627, 1.230))
    assert (profile.best_rows(), profile.queue_rows(), profile.most_rows()) == (2, (4, 8, 16), 16)


def test_a_batch_that_empties_a_queue_more_slowly_than_a_smaller_one_is_left_out() -> None:
    profile = LatencyProfile((1, 2, 4, 8, 16), (0.100, 0.160, 0.340, 0.630, 1.400))
    assert (profile.best_rows(), profile.queue_rows()) == (2, (8,))


def test_handing_over_counts_so_that_tiny_models_get_batches() -> None:
    tiny = HAND_OVER_SECONDS / 10
    assert LatencyProfile((1, 2, 4, 8), tuple(tiny * rows for rows in (1, 2, 4, 8))).best_rows() == 8


def test_rows_within_a_budget() -> None:
    profile = LatencyProfile((1, 2, 4), (1.0, 1.5, 2.5))
    assert [profile.rows_within(budget) for budget in (0.5, 1.0, 2.0, 9.0)] == [0, 1, 2, 4]


def test_one_measurement_that_was_disturbed_does_not_end_the_search() -> None:
    assert pays_to_go_on((1,), (0.01,))
    assert pays_to_go_on((1, 2), (0.01, 0.03))
    assert pays_to_go_on((1, 2, 4), (0.01, 0.03, 0.02))
    assert not pays_to_go_on((1, 2, 4, 8), (0.01, 0.02, 0.04, 0.08))


def test_the_search_goes_on_where_gains_come_slowly() -> None:
    assert pays_to_go_on((1, 2, 4, 8), (8.21e-3, 16.9e-3, 32.8e-3, 62.3e-3))


@pytest.mark.parametrize(("rows", "seconds"), [((), ()), ((1, 2), (1.0,)), ((2, 1), (1.0, 1.0)), ((1, 1), (1.0, 1.0))])
def test_a_profile_needs_a_time_for_each_of_rising_sizes(rows: tuple[int, ...], seconds: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="rising sizes"):
        LatencyProfile(rows, seconds)


def test_how_fast_a_queue_empties_is_learned_while_it_is_not_empty() -> None:
    drain = DrainRate()
    drain.drained(4, now=1.0, backlog=True)
    assert drain.wait(10) == 0.0
    drain.drained(4, now=3.0, backlog=True)
    assert drain.wait(10) == pytest.approx(5.0)
    drain.drained(4, now=5.0, backlog=False)
    drain.drained(1, now=1000.0, backlog=True)  # nobody asked for a long time: that says nothing
    assert drain.wait(10) == pytest.approx(5.0)
    drain.drained(1, now=1001.0, backlog=True)
    assert drain.wait(10) == pytest.approx(6.0)


def test_a_queue_that_was_slow_is_not_held_to_be_slow_while_nobody_waits() -> None:
    drain = DrainRate()
    for moment in (0.0, 8.0):
        drain.drained(8, now=moment, backlog=moment == 0.0)
    assert drain.wait(1) == pytest.approx(1.0)
    for moment in range(40):
        drain.drained(2, now=100.0 + moment, backlog=False, seconds=0.2)
    assert drain.wait(1) == pytest.approx(0.1, rel=0.01)
    drain.drained(1, now=200.0, backlog=False, seconds=60.0)  # slower says nothing: others may run beside it
    assert drain.wait(1) == pytest.approx(0.1, rel=0.01)
