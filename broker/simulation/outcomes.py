"""From a simulated job that is over to what is told of it."""

from __future__ import annotations

from tiercel.broker.simulation.result import JobOutcome, TierOutcome
from tiercel.broker.simulation.running import SimulatedJob


def outcome_of(sim: SimulatedJob) -> JobOutcome:
    """What became of a job that is over."""
    job, workload = sim.job, sim.planned.workload
    tiers = tuple(
        TierOutcome(
            target=tier.tier.target,
            reached_seconds=tier.reached_seconds,
            delivered_seconds=tier.delivered_seconds,
            true_work=None if index is None else _work_until(sim, index),
        )
        for tier, index in zip(job.tiers, sim.tier_reports, strict=True)
    )
    cores = workload.resources.cpu_cores
    return JobOutcome(
        id=job.id,
        name=job.spec.name,
        workload=workload.name,
        tenant=job.tenant,
        arrived_at=job.submitted_at,
        started_at=job.started_at,
        finished_at=job.finished_at if job.finished_at is not None else job.submitted_at,
        state=job.state,
        reason=job.reason,
        tiers=tiers,
        nodes=tuple(sim.nodes),
        cpu_seconds=job.cpu_seconds,
        alone_seconds=(workload.startup_cpu_seconds + sim.trained + sim.exported_cpu) / workload.alone_speed,
        cpu_cores=cores,
        migrations=job.earlier.migrations,
        usage=tuple(sim.usage),
        accelerators=workload.resources.accelerators,
        accelerator_seconds=sim.accelerator_seconds,
    )


def _work_until(sim: SimulatedJob, report: int) -> float:
    """CPU seconds that its run would need until a report if it were alone: start-up, training, the exports before."""
    workload = sim.planned.workload
    exports = sum(index is not None and index < report for index in sim.tier_reports)
    return workload.startup_cpu_seconds + sim.trajectory.work[report] + workload.exports(exports)
