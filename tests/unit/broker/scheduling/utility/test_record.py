"""What is held of a job: the work to its end."""

from __future__ import annotations

from dataclasses import replace

import pytest

from testing.scheduling import job, reports, tiers
from tiercel.broker.scheduling.forecast.work import PastCurve, forecast_from_samples
from tiercel.broker.scheduling.interface import JobView
from tiercel.broker.scheduling.utility.record import JobRecord, record_after


def new_job(epochs: int) -> JobView:
    return replace(job("new", ladder=tiers(0.9)), continues=True, max_epochs=epochs)


def far_from_its_tier(epochs: int) -> JobView:
    """A job that climbs slowly towards a tier, one CPU second an epoch, of which so many may be run."""
    climbing = reports(*(0.1 + 0.01 * epoch for epoch in range(10)))
    return replace(new_job(epochs), observations=climbing, cpu_seconds=10.0)


def record_of(view: JobView, *ended: float) -> JobRecord:
    """The record of a job whose earlier runs, which met its tier, ended after so many CPU seconds."""
    past = tuple(PastCurve((1.0, 2.0, end), (0.1, 0.95, 0.95)) for end in ended)
    return record_after(view, None, past, forecast_from_samples((5.0,), 1.0))


def test_the_last_epoch_is_the_end_however_far_the_tier_is() -> None:
    assert record_of(far_from_its_tier(epochs=16)).to_end == pytest.approx(6.0)


def test_it_ends_where_earlier_runs_ended_at_the_latest_while_it_does_not_go_on_for_longer() -> None:
    # Its last epoch would be over after 40 CPU seconds; it has had ten.
    assert record_of(far_from_its_tier(epochs=40), 15.0, 20.0).to_end == pytest.approx(10.0)
    assert record_of(far_from_its_tier(epochs=40), 50.0).to_end == pytest.approx(30.0)
    assert record_of(far_from_its_tier(epochs=40), 9.0).to_end == pytest.approx(30.0)


def test_without_a_pace_as_much_is_left_as_to_the_tier() -> None:
    record = record_of(new_job(16))
    assert record.to_end == pytest.approx(record.remaining.expected)


def test_there_is_always_a_little_left() -> None:
    assert record_of(far_from_its_tier(epochs=10)).to_end > 0
