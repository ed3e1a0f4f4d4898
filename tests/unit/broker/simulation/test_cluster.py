from __future__ import annotations

import pytest

from tiercel.broker.simulation.cluster import Colocation, PenaltyModel, cores_for_runs, water_fill


def test_equal_weights_get_equal_parts() -> None:
    assert water_fill([1, 1, 1, 1], [1, 1, 1, 1], 2.0) == [0.5, 0.5, 0.5, 0.5]


def test_a_job_with_one_thread_gets_one_core_however_large_its_weight() -> None:
    # live §5.4: 80 % of the weight of two cores is one core; the others share the second one by weight.
    assert water_fill([0.8, 0.1, 0.1], [1, 1, 1], 2.0) == pytest.approx([1.0, 0.5, 0.5])


def test_what_a_cap_leaves_flows_on_by_weight_and_may_hit_the_next_ceiling() -> None:
    # The first is capped at 0.3; of 3.7 by 2:1 the second would get 2.47 but can use 2; the third gets the rest.
    assert water_fill([5, 2, 1], [0.3, 2.0, 4.0], 4.0) == pytest.approx([0.3, 2.0, 1.7])


def test_when_everybody_has_its_ceiling_the_rest_is_idle() -> None:
    assert water_fill([1, 9], [0.5, 0.25], 4.0) == [0.5, 0.25]


def test_nobody_is_there() -> None:
    assert water_fill([], [], 2.0) == []


def test_who_wants_nothing_takes_nothing() -> None:
    assert water_fill([1, 1], [0.0, 3.0], 2.0) == pytest.approx([0.0, 2.0])


@pytest.mark.parametrize(("jobs", "efficiency"), [(3, 0.907), (4, 0.86), (6, 0.813)])
def test_the_linear_penalty_is_what_was_measured(jobs: int, efficiency: float) -> None:
    # live §5.3: 0.91, 0.86, 0.81 for 3, 4 and 6 processes on two cores.
    assert Colocation().efficiency(2 / jobs, jobs, 2.0) == pytest.approx(efficiency, abs=1e-3)


@pytest.mark.parametrize("model", PenaltyModel)
def test_a_core_of_ones_own_costs_nothing(model: PenaltyModel) -> None:
    assert Colocation(0.28, model).efficiency(1.0, 2, 2.0) == 1.0


def test_the_harmonic_penalty_counts_threads_per_core() -> None:
    # Three threads a core.
    assert Colocation(0.2, PenaltyModel.HARMONIC).efficiency(0.1, 6, 2.0) == pytest.approx(1 / 1.4)


@pytest.mark.parametrize("penalty", [-0.1, 1.0])
def test_a_penalty_that_leaves_nothing_is_refused(penalty: float) -> None:
    with pytest.raises(ValueError, match="makes no sense"):
        Colocation(penalty)


def test_serving_comes_first_but_leaves_runs_the_weight_of_their_group() -> None:
    assert cores_for_runs(2.0, 0.5) == 1.5
    # Runs weigh 0.1 a core against 4: 2 cores * 0.2 / 4.2.
    assert cores_for_runs(2.0, 2.0) == pytest.approx(2 * 0.2 / 4.2)
