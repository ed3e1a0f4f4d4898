"""The jobs of a scenario that are still to come, and the making of one when its time has come."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence

from tiercel.broker.lifecycle import machine
from tiercel.broker.lifecycle.job_events import JobEffect
from tiercel.broker.scheduling.feasible import can_hold
from tiercel.broker.scheduling.interface import JobView, NodeView
from tiercel.broker.simulation.randomness import stream
from tiercel.broker.simulation.running import SimulatedJob
from tiercel.broker.simulation.scenario import Scenario, SimulationError


class Incoming:
    """Jobs by the time of their arrival.

    Args:
        nodes: Of the scenario, by id.

    Raises:
        SimulationError: A job fits on none of the nodes.
    """

    def __init__(self, scenario: Scenario, seed: int, nodes: Sequence[NodeView]) -> None:
        self._scenario = scenario
        self._seed = seed
        self._nodes = nodes
        self._planned = deque(sorted(scenario.jobs.draw(seed), key=lambda planned: planned.arrives_at))
        self._id_width = len(str(len(self._planned)))
        self._arrived = 0
        self._refuse_hopeless()

    def __len__(self) -> int:
        """How many are still to come."""
        return len(self._planned)

    @property
    def next_at(self) -> float:
        """When the next one comes, seconds; infinite when none does."""
        return self._planned[0].arrives_at if self._planned else math.inf

    def take(self, now: float) -> tuple[SimulatedJob, Sequence[JobEffect]]:
        """The next one, submitted now, and what its machine wants done first."""
        planned = self._planned.popleft()
        self._arrived += 1
        job_id = f"job{self._arrived:0{self._id_width}}"
        workload = planned.workload
        source = stream(self._seed, "job", self._arrived)
        spec = workload.spec(planned.name or f"{workload.name}-{self._arrived}", planned.endpoint or job_id)
        job, effects = machine.create(job_id, planned.tenant, spec, now)
        trajectory = workload.run(source)
        reached = tuple(trajectory.first_reaching(tier.target, workload.direction) for tier in workload.tiers)
        meant_for = source.choice(self._nodes).id if self._scenario.random_placement else ""
        migrations = self._scenario.machines.migrations
        sim = SimulatedJob(planned, job, trajectory, reached, self._scenario.reports_every, migrations, meant_for)
        sim.plan_report()
        return sim, effects

    def _refuse_hopeless(self) -> None:
        for workload in {planned.workload.resources: planned.workload for planned in self._planned}.values():
            view = JobView("", "", 0.0, workload.direction, (), workload.resources)
            if not any(can_hold(node, view) for node in self._nodes):
                raise SimulationError(f"jobs of workload {workload.name} fit on no node: {workload.resources}")
