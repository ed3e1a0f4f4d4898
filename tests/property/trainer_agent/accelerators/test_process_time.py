"""Accelerator time of processes, whatever a driver tells."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiercel.trainer_agent.accelerators.process_time import ProcessTime, Sample

SAMPLES = st.lists(st.builds(Sample, st.integers(1, 3), st.integers(0, 10_000_000), st.integers(0, 1 << 32)))


@given(looks=st.lists(st.tuples(SAMPLES, st.floats(0.0, 5.0)), max_size=5))
def test_no_process_gets_more_than_the_time_that_passed(looks: list[tuple[list[Sample], float]]) -> None:
    time = ProcessTime()
    for samples, elapsed_seconds in looks:
        before = time.last_seen
        taken = time.take(samples, elapsed_seconds)
        assert time.last_seen >= before
        assert all(0.0 <= seconds <= elapsed_seconds + 1e-9 for seconds in taken.values())


@given(samples=SAMPLES, order=st.randoms())
def test_the_order_of_samples_makes_no_difference(samples: list[Sample], order: object) -> None:
    shuffled = list(samples)
    order.shuffle(shuffled)  # type: ignore[attr-defined]  # hypothesis' own kind of Random
    taken = []
    for told in (samples, shuffled):
        time = ProcessTime()
        time.take([Sample(1, 1, 0)], 1.0)
        taken.append(time.take(told, 5.0))
    assert taken[0] == pytest.approx(taken[1])


@given(percents=st.lists(st.integers(0, 100), min_size=1, max_size=20))
def test_samples_without_gaps_add_up_exactly(percents: list[int]) -> None:
    time = ProcessTime()
    time.take([Sample(1, 1_000_000, 0)], 1.0)
    samples = [Sample(1, 1_000_000 * (2 + index), percent) for index, percent in enumerate(percents)]
    taken = time.take(samples, float(len(percents)))
    assert taken[1] == pytest.approx(sum(percents) / 100)
