from __future__ import annotations

import pytest

from tiercel.core.filling import fill


def test_equal_weights_get_equal_parts() -> None:
    assert fill([1, 1, 1, 1], [1, 1, 1, 1], 2.0) == [0.5, 0.5, 0.5, 0.5]


def test_a_job_with_one_thread_gets_one_core_however_large_its_weight() -> None:
    # 80 % of the weight of two cores is one core; the others share the second one by weight.
    assert fill([0.8, 0.1, 0.1], [1, 1, 1], 2.0) == pytest.approx([1.0, 0.5, 0.5])


def test_what_a_cap_leaves_flows_on_by_weight_and_may_hit_the_next_ceiling() -> None:
    # The first is capped at 0.3; of 3.7 by 2:1 the second would get 2.47 but can use 2; the third gets the rest.
    assert fill([5, 2, 1], [0.3, 2.0, 4.0], 4.0) == pytest.approx([0.3, 2.0, 1.7])


def test_when_everybody_has_its_ceiling_the_rest_is_idle() -> None:
    assert fill([1, 9], [0.5, 0.25], 4.0) == [0.5, 0.25]


def test_nobody_is_there() -> None:
    assert fill([], [], 2.0) == []


def test_who_wants_nothing_takes_nothing() -> None:
    assert fill([1, 1], [0.0, 3.0], 2.0) == pytest.approx([0.0, 2.0])
