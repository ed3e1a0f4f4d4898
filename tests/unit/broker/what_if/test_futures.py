"""What a job still needs, drawn from a forecast in view of what it has outlived."""

from __future__ import annotations

import pytest

from tiercel.broker.scheduling.forecast.work import Forecast
from tiercel.broker.what_if.futures import drawn_work

CHANCES = [(number + 0.5) / 10 for number in range(10)]
LIKELY_TEN = Forecast((10.0, 30.0), (0.9, 0.1), 0.0)


def test_a_run_that_outlived_what_was_likely_may_end_anywhere_up_to_what_is_left() -> None:
    drawn = [drawn_work(LIKELY_TEN, 12.0, chance) for chance in CHANCES]
    assert drawn == pytest.approx([12.9 + 1.8 * number for number in range(10)])


def test_before_that_most_futures_end_where_it_is_likely() -> None:
    drawn = [drawn_work(LIKELY_TEN, 0.0, chance) or 0.0 for chance in CHANCES]
    assert sum(9.7 <= each <= 10.0 for each in drawn) == 9
    assert max(drawn) == pytest.approx(20.0)


def test_the_chance_of_never_grows_with_what_was_outlived() -> None:
    doubtful = Forecast((10.0, 30.0), (0.4, 0.4), 0.2)
    never = [sum(drawn_work(doubtful, spent, chance) is None for chance in CHANCES) for spent in (0.0, 12.0, 28.0)]
    assert never == sorted(never)
    assert (never[0], never[-1]) == (2, 8)


def test_a_run_that_outlived_everything_may_last_as_long_again_unless_it_never_could() -> None:
    drawn = [drawn_work(LIKELY_TEN, 40.0, chance) or 0.0 for chance in CHANCES]
    assert drawn == sorted(drawn)
    assert drawn[0] > 40.0
    assert drawn[-1] < 120.0
    assert drawn_work(Forecast((), (), 1.0), 40.0, 0.0) is None
