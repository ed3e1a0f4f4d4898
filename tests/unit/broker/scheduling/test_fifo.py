from __future__ import annotations

from testing.scheduling import job, node, snapshot, tiers
from tiercel.broker.scheduling.fifo import FifoPolicy
from tiercel.broker.scheduling.queue import QueueSettings


def test_tier_one_goes_first_in_the_order_of_submission() -> None:
    policy = FifoPolicy()
    jobs = [
        job("second-tier", ladder=tiers(0.5, 0.9, reached=1), submitted_at=0, cpu_cores=1),
        job("late", submitted_at=9, cpu_cores=1),
        job("early", submitted_at=1, cpu_cores=1),
        job("middle", submitted_at=5, cpu_cores=1),
    ]
    plan, _ = policy.plan(snapshot(jobs, [node(cpu_cores=2)]), policy.initial_state())
    weights = {entry.job_id: entry.share.cpu_weight for entry in plan.assignments}
    assert weights == {"early": 0.495, "middle": 0.495, "late": 0.005, "second-tier": 0.005}
    assert plan.assignments[0].share.reason == (
        "works for its tier 1, in the order of submission: one of 2 that run now, with 50 % of the node"
    )


def test_one_at_a_time_with_a_floor_of_ones_own() -> None:
    policy = FifoPolicy(QueueSettings(at_a_time=1, floor=0.1))
    jobs = [job("a"), job("b"), job("c")]
    plan, _ = policy.plan(snapshot(jobs), policy.initial_state())
    assert {entry.job_id: entry.share.cpu_weight for entry in plan.assignments} == {"a": 0.9, "b": 0.05, "c": 0.05}
