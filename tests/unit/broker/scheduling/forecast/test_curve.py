from __future__ import annotations

import math

import pytest

from testing.scheduling import reports
from tiercel.broker.scheduling.forecast.curve import curve_of, fit_line, fit_plateau, growth
from tiercel.core.jobs import Direction, Observation


def test_a_curve_is_scaled_by_its_largest_value_and_turned_so_that_larger_is_better() -> None:
    up = curve_of(reports(0.2, 0.4), Direction.MAX, 0.8)
    assert up.quality == pytest.approx((0.25, 0.5))
    assert (up.target, up.scale) == (1.0, 0.8)
    assert up.gap * up.scale == pytest.approx(0.4)
    down = curve_of(reports(200.0, 150.0), Direction.MIN, 100.0)
    assert down.quality == pytest.approx((-1.0, -0.75))
    assert (down.target, down.scale) == (-0.5, 200.0)
    assert down.gap * down.scale == pytest.approx(50.0)
    assert down.metric(-0.75) == pytest.approx(150.0)


def test_reports_that_are_not_finite_are_left_out() -> None:
    curve = curve_of(reports(0.1, math.nan, math.inf, 0.2), Direction.MAX, 0.5)
    assert len(curve.quality) == len(curve.spent) == 2


def test_cpu_seconds_go_on_after_a_restart_began_to_count_at_zero_again() -> None:
    seen = [Observation(at, int(at), 0.1, cpu) for at, cpu in ((1, 5.0), (2, 7.0), (3, 1.5), (4, 2.0))]
    assert curve_of(seen, Direction.MAX, 0.5).spent == (0.0, 2.0, 3.5, 4.0)


def test_of_a_job_that_keeps_an_accelerator_busier_than_the_cpu_its_seconds_count() -> None:
    def curve(device: float) -> tuple[float, ...]:
        seen = [Observation(at, int(at), 0.1, 2.0 * at, device * at) for at in (1.0, 2.0, 3.0)]
        return curve_of(seen, Direction.MAX, 0.5).spent

    assert curve(5.0) == (0.0, 5.0, 10.0)
    assert curve(1.0) == curve(0.0) == (0.0, 2.0, 4.0)


def test_wall_seconds_stand_in_while_no_cpu_time_was_measured() -> None:
    seen = [Observation(at, 1, 0.1, 0.0) for at in (100.0, 103.0, 102.0, 107.0)]
    assert curve_of(seen, Direction.MAX, 0.5).spent == (0.0, 3.0, 3.0, 7.0)


def test_growth_is_the_difference_of_window_means_over_the_cpu_seconds_between_them() -> None:
    # means 0.2 and 0.5 of reports 2 to 4 and 5 to 7; their middles are 3 reports of 2 CPU seconds apart
    seen = reports(0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, cpu_per_report=2.0)
    curve = curve_of(seen, Direction.MAX, 1.0)
    assert growth(curve, 3) == pytest.approx(0.3 / 6)


def test_growth_does_not_depend_on_how_long_it_took_on_the_wall() -> None:
    fast = curve_of([Observation(t, t, t / 10, t) for t in range(6)], Direction.MAX, 1.0)
    starved = curve_of([Observation(t * 100, t, t / 10, t) for t in range(6)], Direction.MAX, 1.0)
    assert growth(fast, 3) == growth(starved, 3) == pytest.approx(0.1)


@pytest.mark.parametrize("seen", [(), reports(0.5), [Observation(1, 1, 0.1, 0.0), Observation(1, 2, 0.2, 0.0)]])
def test_growth_is_unknown_without_two_reports_and_resource_between_them(seen: tuple[Observation, ...]) -> None:
    assert growth(curve_of(seen, Direction.MAX, 1.0), 3) is None


def test_a_line_is_fitted_by_least_squares() -> None:
    line = fit_line(curve_of(reports(9.0, 0.0, 1.0, 2.0, 1.0), Direction.MAX, 9.0), last=4)
    assert line is not None
    # x = 1..4, y = 0, 1, 2, 1 (ninths): slope 0.4, squared errors 1.2 over 2 degrees of freedom
    assert line.slope * 9 == pytest.approx(0.4)
    assert line.noise * 9 == pytest.approx(math.sqrt(0.6))
    assert line.slope_error * 9 == pytest.approx(math.sqrt(0.6 / 5))


@pytest.mark.parametrize("level", [0.7, 0.9])
def test_the_plateau_of_a_saturating_curve_is_found(level: float) -> None:
    seen = reports(*(level - 0.5 * math.exp(-index / 5) for index in range(30)))
    plateau = fit_plateau(curve_of(seen, Direction.MAX, 1.0))
    assert plateau is not None
    assert plateau.level == pytest.approx(level, abs=0.01)


def test_the_plateau_of_a_falling_loss_is_found() -> None:
    seen = reports(*(100 + 100 * math.exp(-index / 5) for index in range(30)))
    curve = curve_of(seen, Direction.MIN, 50.0)
    plateau = fit_plateau(curve)
    assert plateau is not None
    assert curve.metric(plateau.level) == pytest.approx(100, abs=2)


def test_a_straight_line_is_not_held_for_the_beginning_of_a_plateau() -> None:
    plateau = fit_plateau(curve_of(reports(*(index / 100 for index in range(15))), Direction.MAX, 1.0))
    assert plateau is not None
    assert plateau.level > 1.0


@pytest.mark.parametrize("seen", [reports(0.1, 0.2, 0.3, 0.4), [Observation(5, 1, 0.1, 3.0)] * 9])
def test_there_is_no_plateau_without_enough_to_fit(seen: tuple[Observation, ...]) -> None:
    assert fit_plateau(curve_of(seen, Direction.MAX, 1.0)) is None
