"""Where jobs go on nodes of which one is faster."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from testing.scheduling import job, node, snapshot, waiting_job
from tiercel.broker.scheduling.forecast.pace import Pace, Paces, Speeds
from tiercel.broker.scheduling.interface import CurvePoint, JobView, PastRun
from tiercel.broker.scheduling.utility.policy import UtilityPolicy
from tiercel.broker.scheduling.utility.settings import UtilitySettings

NODES = [node("a-slow", cpu_cores=1.0), node("b-fast", cpu_cores=1.0)]
# "gains" is four times as fast on one node as on the other, "hardly" a tenth faster.
PACES = {
    "gains": Paces.of({"a-slow": Pace(0.0, 16), "b-fast": Pace(math.log(4.0), 16)}),
    "hardly": Paces.of({"a-slow": Pace(0.0, 16), "b-fast": Pace(math.log(1.1), 16)}),
}
# Each needs 40 CPU seconds to its tier, and as many to its end.
PAST = (PastRun((CurvePoint(10.0, 0.1), CurvePoint(40.0, 0.9), CurvePoint(90.0, 0.99))),) * 3
HISTORY = dict.fromkeys(("gains", "hardly", "new"), PAST)


def places(*jobs: JobView, speeds: Speeds | None = None) -> dict[str, str]:
    policy = UtilityPolicy(UtilitySettings(guard_ratio=0.0))
    state = replace(policy.initial_state(), speeds=speeds or Speeds(PACES, {"a-slow": -0.4, "b-fast": 0.4}))
    plan, _ = policy.plan(replace(snapshot(jobs, NODES), history=HISTORY), state)
    return {entry.job_id: entry.node_id for entry in plan.assignments}


def waits(program: str, submitted_at: float = 0.0) -> JobView:
    return replace(waiting_job(program, submitted_at=submitted_at), workload=program)


@pytest.mark.parametrize("program", ["gains", "hardly", "new"])
def test_a_job_goes_to_the_faster_of_two_idle_nodes(program: str) -> None:
    assert places(waits(program)) == {program: "b-fast"}
    assert places(waits(program), speeds=Speeds(nodes={})) == {program: "a-slow"}, "the first one by name"


def test_of_two_jobs_the_one_that_gains_most_gets_the_fast_node() -> None:
    # Whoever comes first takes it; who gains most goes there all the same, who hardly gains does not wait for that.
    assert places(waits("hardly"), waits("gains", 1.0))["gains"] == "b-fast"
    assert places(waits("gains"), waits("hardly", 1.0)) == {"gains": "b-fast", "hardly": "a-slow"}


def runs(program: str) -> JobView:
    return replace(job(program, node_id="a-slow", cpu_cores=1.0), workload=program, migratable=True)


def test_a_job_that_runs_alone_moves_to_a_faster_node_where_that_pays() -> None:
    assert places(runs("gains")) == {"gains": "b-fast"}
    assert places(runs("hardly")) == {"hardly": "a-slow"}
    assert places(runs("gains"), speeds=Speeds()) == {"gains": "a-slow"}
