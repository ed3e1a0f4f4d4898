"""Readings computed by hand; one report a second where nothing else is said."""

from __future__ import annotations

import dataclasses
import math

import pytest

from testing.scheduling import job, reports
from tiercel.broker.scheduling.interface import JobView
from tiercel.broker.scheduling.specon.readings import (
    Category,
    MonitorSettings,
    Reading,
    SpeconGrowth,
    SpeconUnit,
    read,
)
from tiercel.core.jobs import Observation

EACH_REPORT = MonitorSettings(0.1, 1, SpeconUnit.REPORTS, SpeconGrowth.RELATIVE)


def reading_of(*values: float, settings: MonitorSettings = EACH_REPORT) -> Reading:
    return read(job("a", observations=reports(*values)), Reading(), settings)


def test_a_job_begins_as_one_that_progresses() -> None:
    assert reading_of() == Reading()
    one = reading_of(0.5)
    assert (one.category, one.growth, one.largest_growth) == (Category.PROGRESSING, None, 0.0)


@pytest.mark.parametrize(
    ("values", "category"),
    [
        ((0.0, 0.4), Category.PROGRESSING),
        # 0.03 / 0.4 = 0.075 of its best growth is slow, 0.05 / 0.4 = 0.125 is not.
        ((0.0, 0.4, 0.43), Category.WATCHING),
        ((0.0, 0.4, 0.45), Category.PROGRESSING),
        ((0.0, 0.4, 0.43, 0.46), Category.CONVERGED),
        ((0.0, 0.4, 0.43, 0.46, 0.47), Category.CONVERGED),
        ((0.0, 0.4, 0.43, 0.48, 0.51), Category.WATCHING),
        ((0.0, 0.4, 0.43, 0.46, 0.56), Category.PROGRESSING),
        # Losses fall; the change counts without its sign.
        ((2.0, 1.0, 0.95, 0.92), Category.CONVERGED),
    ],
)
def test_two_slow_readings_in_a_row_make_a_job_converged_and_one_fast_one_brings_it_back(
    values: tuple[float, ...], category: Category
) -> None:
    assert reading_of(*values).category is category


def test_a_job_that_never_moved_is_slow() -> None:
    assert reading_of(0.1, 0.1, 0.1).category is Category.CONVERGED


def test_readings_are_an_interval_of_seconds_apart() -> None:
    settings = MonitorSettings(0.1, 10, SpeconUnit.SECONDS, SpeconGrowth.RELATIVE)
    values = tuple(index / 10 for index in range(1, 12))  # reports at 1 … 11 s
    before = read(job("a", observations=reports(*values[:-1])), Reading(), settings)
    assert before.growth is None
    after = read(job("a", observations=reports(*values)), before, settings)
    assert after.growth == pytest.approx(0.1)
    assert after.since is not None
    assert after.since.at == 11.0


def test_readings_may_be_a_number_of_reports_apart() -> None:
    settings = MonitorSettings(0.1, 3, SpeconUnit.REPORTS, SpeconGrowth.RELATIVE)
    assert reading_of(0.0, 0.1, 0.2, settings=settings).growth is None
    assert reading_of(0.0, 0.1, 0.2, 0.6, settings=settings).growth == pytest.approx(0.2)


def test_the_alternative_compares_with_the_largest_value_not_with_the_largest_growth() -> None:
    settings = dataclasses.replace(EACH_REPORT, growth=SpeconGrowth.FLOWCON)
    # 0.2 / 4 = 0.05 a second is slow although it is the best growth so far.
    assert reading_of(4.0, 3.8, settings=settings).category is Category.WATCHING
    assert reading_of(4.0, 3.5, settings=settings).category is Category.PROGRESSING


def test_reports_are_taken_in_once_however_often_they_are_shown() -> None:
    first = job("a", observations=reports(0.0, 0.4))
    more = job("a", observations=reports(0.0, 0.4, 0.43, 0.46))
    reading = read(first, Reading(), EACH_REPORT)
    assert read(first, reading, EACH_REPORT) is reading
    assert read(more, reading, EACH_REPORT) == read(more, Reading(), EACH_REPORT)


def test_a_move_is_no_slow_reading() -> None:
    seen = reports(0.0, 0.4, 0.43)
    late = Observation(at=60.0, epoch=4, value=0.45, cpu_seconds=4.0)
    stayed: JobView = job("a", observations=(*seen, late))
    migrated = dataclasses.replace(stayed, migrations=1, migrated_at=10.0)
    assert read(stayed, Reading(), EACH_REPORT).category is Category.CONVERGED
    assert read(migrated, Reading(), EACH_REPORT).category is Category.WATCHING
    assert read(migrated, Reading(), EACH_REPORT).since == late


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_says_nothing(value: float) -> None:
    assert reading_of(0.0, 0.4, value) == reading_of(0.0, 0.4)
