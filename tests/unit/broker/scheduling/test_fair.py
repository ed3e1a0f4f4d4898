from __future__ import annotations

from testing.scheduling import job, node, snapshot, waiting_job
from tiercel.broker.scheduling.fair import FairPolicy


def test_the_jobs_of_a_node_get_equal_weights() -> None:
    policy = FairPolicy()
    jobs = [job(name, node_id="a") for name in "wxyz"] + [job("alone", node_id="b"), job("lost", node_id="gone")]
    plan, _ = policy.plan(snapshot(jobs, [node("a"), node("b")]), policy.initial_state())
    shares = {entry.job_id: (entry.share.cpu_weight, entry.share.cpu_cap_cores) for entry in plan.assignments}
    assert shares == {"w": (0.25, None), "x": (0.25, None), "y": (0.25, None), "z": (0.25, None), "alone": (1, None)}
    reasons = {entry.job_id: entry.share.reason for entry in plan.assignments}
    assert reasons["w"] == "equal share with 3 other jobs on this node"
    assert reasons["alone"].startswith("the only job on this node")


def test_one_other_job_is_one() -> None:
    policy = FairPolicy()
    plan, _ = policy.plan(snapshot([job("a"), job("b")]), policy.initial_state())
    assert plan.assignments[0].share.reason == "equal share with 1 other job on this node"


def test_a_job_that_fits_nowhere_waits() -> None:
    policy = FairPolicy()
    plan, _ = policy.plan(snapshot([waiting_job("w", cpu_cores=100)]), policy.initial_state())
    assert plan.assignments == ()
    assert "100 cores" in plan.waiting["w"]
