from __future__ import annotations

import pytest

from benchmarks import decision_cost
from benchmarks.decision_cost import Cluster, measure
from tiercel.broker.scheduling.loop import changed_assignments
from tiercel.broker.scheduling.registry import create_policy
from tiercel.broker.scheduling.validation import check_plan


@pytest.mark.parametrize("name", ["fifo", "tradl"])
def test_the_cluster_goes_on_as_policies_decide(name: str) -> None:
    cluster, policy = Cluster(40, 4), create_policy(name)
    state = policy.initial_state()
    for _ in range(3):
        before = cluster.snapshot()
        plan, state = policy.plan(before, state)
        assert check_plan(plan, before) == []
        cluster.carry_out(plan)
        assert changed_assignments(plan, cluster.snapshot(), tolerance=0.0) == ()
        cluster.go_on()
        after = cluster.snapshot()
        assert len(after.jobs) == len(before.jobs) == 40
        assert {job.id for job in after.jobs} != {job.id for job in before.jobs}
        assert sum(len(job.observations) for job in after.jobs) != sum(len(job.observations) for job in before.jobs)


def test_a_row_tells_size_and_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decision_cost, "DECISIONS", 3)
    row = measure("fair", 20, 2)
    assert (row["jobs"], row["nodes"]) == (20, 2)
    assert row["longest_ms"] >= row["median_ms"] >= 0
