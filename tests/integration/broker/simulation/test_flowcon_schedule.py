"""FlowCon in the simulator, on the kind of schedule that its paper begins with: three jobs, 40 s apart."""

from __future__ import annotations

import pytest

from tiercel.broker.scheduling.options import Option
from tiercel.broker.simulation import Scenario, Workload, equal_nodes, simulate
from tiercel.broker.simulation.cluster import NO_PENALTY, Colocation
from tiercel.broker.simulation.curves import Family, FamilyCurve
from tiercel.broker.simulation.scenario import MachineSettings
from tiercel.broker.simulation.workload import ListedJobs, PlannedJob
from tiercel.core.jobs import Direction, Resources, Tier

CORES = 8.0


def trained_alone(name: str, seconds: int, settles_in: float) -> Workload:
    """A loss from 1 to 0.1 that is reported each second if nobody else is there, without a target to reach."""
    return Workload(
        name=name,
        curve=FamilyCurve(Family.EXPONENTIAL, start=1.0, plateau=0.1, scale=settles_in * CORES),
        tiers=(Tier(0.0),),
        direction=Direction.MIN,
        startup_cpu_seconds=0.0,
        epoch_cpu_seconds=CORES,
        max_epochs=seconds,
        continue_after_last_tier=True,
        resources=Resources(cpu_cores=CORES),
    )


JOBS = (
    PlannedJob(0.0, trained_alone("long", 180, 40.0), name="long"),
    PlannedJob(40.0, trained_alone("medium", 90, 25.0), name="medium"),
    PlannedJob(80.0, trained_alone("short", 30, 8.0), name="short"),
)


def completions(penalty: Colocation, policy: str, **options: Option) -> tuple[dict[str, float], float]:
    """Seconds from arrival to end by job, and the makespan."""
    scenario = Scenario(
        nodes=equal_nodes(1, CORES), jobs=ListedJobs(JOBS), machines=MachineSettings(colocation=penalty)
    )
    result = simulate(scenario, policy, options=options)
    took = {outcome.name: outcome.completion_seconds for outcome in result.jobs}
    return took, max(outcome.finished_at for outcome in result.jobs)


@pytest.mark.parametrize("mode", ["literal", "conserving"])
@pytest.mark.parametrize("alpha", [0.001, 0.01, 0.03])
@pytest.mark.parametrize("interval", [10.0, 20.0, 30.0])
@pytest.mark.parametrize("penalty", [NO_PENALTY, Colocation()])
def test_the_late_short_job_gains_and_the_makespan_stays(
    penalty: Colocation, interval: float, alpha: float, mode: str
) -> None:
    fair, fair_makespan = completions(penalty, "fair")
    flowcon, makespan = completions(penalty, "flowcon", mode=mode, alpha=alpha, interval=interval)
    assert 1 - flowcon["short"] / fair["short"] >= 0.15
    assert abs(makespan / fair_makespan - 1) <= 0.10


def test_one_job_gains_as_much_as_the_paper_says_and_the_makespan_is_no_worse() -> None:
    fair, fair_makespan = completions(Colocation(), "fair")
    flowcon, makespan = completions(Colocation(), "flowcon", mode="literal", alpha=0.001, interval=10.0)
    assert 1 - flowcon["short"] / fair["short"] >= 0.4206
    assert makespan <= fair_makespan


def test_without_updates_it_does_nothing() -> None:
    fair = completions(Colocation(), "fair")
    assert completions(Colocation(), "flowcon", no_update=True, interval=10.0) == fair
