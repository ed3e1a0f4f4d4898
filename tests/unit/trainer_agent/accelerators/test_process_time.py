from __future__ import annotations

import pytest

from tiercel.trainer_agent.accelerators.process_time import ProcessTime, Sample

SECOND = 1_000_000


def begun() -> ProcessTime:
    """One that has looked once, at second 100 of the driver's clock."""
    time = ProcessTime()
    assert time.take([Sample(1, 100 * SECOND, 90)], 1.0) == {}
    return time


def test_the_past_counts_as_nothing() -> None:
    assert begun().last_seen == 100 * SECOND


def test_a_sample_stands_for_the_time_since_the_one_before() -> None:
    taken = begun().take([Sample(1, 101 * SECOND, 50), Sample(2, 101 * SECOND, 25)], 1.0)
    assert taken == {1: pytest.approx(0.5), 2: pytest.approx(0.25)}


def test_several_samples_of_a_process() -> None:
    samples = [Sample(1, 102 * SECOND, 100), Sample(1, 101 * SECOND, 20)]
    assert begun().take(samples, 2.0) == {1: pytest.approx(1.2)}


def test_what_was_taken_in_before_is_not_counted_twice() -> None:
    time = begun()
    assert time.take([Sample(1, 101 * SECOND, 50)], 1.0)
    assert time.take([Sample(1, 101 * SECOND, 50)], 1.0) == {}


def test_a_pause_in_which_nobody_computed_is_not_charged_to_the_next_one() -> None:
    assert begun().take([Sample(1, 160 * SECOND, 100)], 1.0) == {1: pytest.approx(1.0)}


def test_numbers_that_cannot_be_count_as_nothing() -> None:
    assert begun().take([Sample(1, 101 * SECOND, 4_294_967_295)], 1.0) == {1: 0.0}
