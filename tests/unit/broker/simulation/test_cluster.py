from __future__ import annotations

import pytest

from tiercel.broker.simulation.cluster import Colocation, PenaltyModel, cores_for_runs


@pytest.mark.parametrize(("jobs", "efficiency"), [(3, 0.907), (4, 0.86), (6, 0.813)])
def test_the_linear_penalty_is_what_was_measured(jobs: int, efficiency: float) -> None:
    # Measured live: 0.91, 0.86, 0.81 for 3, 4 and 6 processes on two cores.
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
