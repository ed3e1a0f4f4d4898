"""What a line gives, whatever the jobs."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiercel.broker.scheduling.allocate import by_turns
from tiercel.broker.scheduling.flowcon.policy import weights_under

core_counts = st.lists(st.floats(0.01, 64), min_size=1, max_size=30)


@given(
    cores=core_counts,
    node_cores=st.floats(0.1, 64),
    at_a_time=st.none() | st.integers(1, 8),
    floor=st.floats(0.001, 0.5),
)
def test_a_line_uses_the_node_and_leaves_nobody_without(
    cores: list[float], node_cores: float, at_a_time: int | None, floor: float
) -> None:
    shares = by_turns(cores, node_cores, at_a_time=at_a_time, floor=floor)
    assert sum(shares.weights) == pytest.approx(1.0)
    assert all(weight > 0 for weight in shares.weights)
    assert 1 <= shares.front <= len(cores)
    behind = shares.weights[shares.front :]
    assert sum(behind) == pytest.approx(floor if behind else 0.0)
    if at_a_time is None and behind:
        # nobody has to wait while cores are free
        assert sum(cores[: shares.front]) >= node_cores * (1 - 1e-6)


@given(limits=st.lists(st.floats(0.001, 1.0), min_size=1, max_size=30))
def test_limits_become_weights_that_waste_nothing_and_keep_the_order(limits: list[float]) -> None:
    weights = weights_under(limits)
    assert sum(weights) == pytest.approx(1.0)
    assert all(weight > 0 for weight in weights)
    ranked = sorted(zip(limits, weights, strict=True))
    assert all(less <= more * (1 + 1e-9) for (_, less), (_, more) in pairwise(ranked))
    if sum(limits) >= 1:
        # then no limit is exceeded
        assert all(weight <= limit * (1 + 1e-9) for weight, limit in zip(weights, limits, strict=True))
