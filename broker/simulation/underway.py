"""A job that there is when a simulation begins, which it goes on with from where it is."""

from __future__ import annotations

from dataclasses import dataclass

from tiercel.broker.simulation.curves import Trajectory
from tiercel.broker.simulation.running import SimulatedJob
from tiercel.broker.simulation.workload import PlannedJob
from tiercel.core.jobs import Job, Observation, TierState


@dataclass(frozen=True, slots=True)
class Underway:
    """A job as it is at second 0."""

    planned: PlannedJob  # what it trains
    job: Job  # what its machine knows; times are seconds from the start of the simulation, those of the past negative
    trajectory: Trajectory  # what it will report from now on, its work counted from its beginning
    observations: tuple[Observation, ...] = ()  # what it has reported
    spent: float = 0.0  # CPU seconds that it has used
    first_epoch: int = 0  # epochs that it has reported
    home: str = ""  # the only node that it may be placed on, or empty

    def begin(self) -> SimulatedJob:
        """The job in a simulation."""
        workload, startup = self.planned.workload, self.planned.workload.startup_cpu_seconds
        reached = tuple(
            self.trajectory.first_reaching(tier.target, workload.direction)
            if tier.state in {TierState.PENDING, TierState.UNREACHABLE}
            else None
            for tier in self.job.tiers
        )
        running = self.job.run_active
        sim = SimulatedJob(
            self.planned,
            self.job,
            self.trajectory,
            reached,
            observations=list(self.observations),
            trained=max(self.spent - startup, 0.0),
            run_cpu=self.spent if running else 0.0,
            startup_left=max(startup - self.spent, 0.0) if running else 0.0,
            begun=running and self.spent >= startup,
            first_epoch=self.first_epoch,
            home=self.home,
            is_foreseen=False,  # live, nobody knows it either
        )
        sim.plan_report()
        if running:
            sim.nodes.append(self.job.node_id)
            for tier in self.job.tiers:
                if tier.state is TierState.REACHED:
                    sim.begin_export(tier.number, 0.0)
        return sim
