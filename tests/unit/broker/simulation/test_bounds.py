from __future__ import annotations

import math

import pytest

from testing.simulation import scenario, steps
from tiercel.broker.simulation import simulate
from tiercel.broker.simulation.bounds import against_srpt, pooled_mean, srpt_mean, tier_tasks


def test_the_shortest_goes_first_on_one_machine() -> None:
    # 1, 1+2, 1+2+3
    assert srpt_mean([(0, 3), (0, 1), (0, 2)], 1) == pytest.approx((1 + 3 + 6) / 3)


def test_a_short_one_that_arrives_interrupts_a_long_one() -> None:
    # The long one has 9 left at 1; the short one is done at 3, the long one at 12.
    assert srpt_mean([(0, 10), (1, 2)], 1) == pytest.approx((12 + 2) / 2)


def test_what_has_less_left_is_not_interrupted() -> None:
    # At 8 the first has 2 left, less than 3: done at 10, then the second at 13.
    assert srpt_mean([(0, 10), (8, 3)], 1) == pytest.approx((10 + 5) / 2)


def test_on_two_machines_the_one_with_the_most_left_gives_way() -> None:
    # At 1: 3 and 7 left; 2 comes and takes the place of 7. At 3 it is done, 7 goes on until 10; 4 is done at 4.
    assert srpt_mean([(0, 4), (0, 8), (1, 2)], 2) == pytest.approx((4 + 10 + 2) / 3)


def test_who_waits_gets_the_machine_that_is_free_first() -> None:
    # 1 and 2 run; 5 waits until 1, done at 6.
    assert srpt_mean([(0, 1), (0, 2), (0, 5)], 2) == pytest.approx((1 + 2 + 6) / 3)


def test_pooled_cores_work_on_one_together() -> None:
    # Two cores: 2/2 = 1, then 4/2 more = 3.
    assert pooled_mean([(0, 2), (0, 4)], 2.0) == pytest.approx((1 + 3) / 2)


def test_nothing_has_no_mean() -> None:
    assert math.isnan(srpt_mean([], 2))


def test_a_result_is_compared_with_what_its_jobs_really_needed() -> None:
    result = simulate(scenario((0, steps(0.5, 0.9)), (0, steps(0.1, 0.1, 0.5))), "fair")
    assert tier_tasks(result, 1) == [(0.0, 2.0), (0.0, 4.0)]
    # Only the first job's curve reaches tier 2.
    assert tier_tasks(result, 2) == [(0.0, 3.0)]
    # Sharing: 4 s and 6 s + 1 s alone for what is left of the second (the first holds its core until 6 s, done with 3).
    srpt, pooled = against_srpt(result, 1, 1.0)
    assert srpt == pooled == pytest.approx(((4 + 7) / 2) / ((2 + 6) / 2))
