"""A node while it is simulated: who gets how much of it, and when something happens on it next."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from tiercel.broker.scheduling.interface import NodeView
from tiercel.broker.simulation.accelerators import AcceleratorUser, limited_by_accelerators
from tiercel.broker.simulation.cluster import Colocation, cores_for_runs
from tiercel.broker.simulation.endpoints import SimulatedEndpoint
from tiercel.broker.simulation.running import SimulatedJob, Usage
from tiercel.core.filling import fill

# A run that was not given a share yet, or whose weight is nothing in floating point, still is a process.
_LEAST_WEIGHT = 1e-9


@dataclass(slots=True, eq=False)
class SimulatedNode:
    """A node, the runs on it and the endpoints it answers for."""

    view: NodeView  # what policies see of it
    colocation: Colocation  # what sharing its cores costs
    overhead_cores: float = 0.0  # what is used of it besides runs and endpoints
    record_usage: bool = False  # whether runs note what they got
    speed: float = 1.0  # work that a CPU second of it does, > 0; see :attr:`.Workload.speed_exponent`
    given: float = 1.0  # part that runs get of the cores that are theirs, in (0, 1]
    runs: list[SimulatedJob] = field(default_factory=list)  # the jobs that have a run here, in the order they came
    endpoints: list[SimulatedEndpoint] = field(default_factory=list)  # the endpoints whose requests are answered here
    version: int = 0  # grows with each change; what was foretold before a change is void

    @property
    def next_at(self) -> float:
        """When the next run on it reports, or counts as hanging."""
        return min((min(run.due_at, run.hangs_at) for run in self.runs), default=math.inf)

    def reallocate(self, now: float) -> None:
        """Divide the node anew, since shares, runs or requests changed."""
        for run in self.runs:
            run.advance(now)
        for endpoint in self.endpoints:
            endpoint.advance(now)
        serving = self._serve_unlimited(now) if self.endpoints else 0.0
        limited = [endpoint for endpoint in self.endpoints if endpoint.share is not None and endpoint.is_open(now)]
        self._hold(limited)
        self._share(limited, cores_for_runs(self.view.cpu_cores, serving + self.overhead_cores), now)

    def _serve_unlimited(self, now: float) -> float:
        """Give endpoints without a share what they need first; returns what they use."""
        free = [endpoint for endpoint in self.endpoints if endpoint.share is None and endpoint.is_open(now)]
        if not free:
            return 0.0
        beside = math.fsum(run.ceiling for run in self.runs)
        beside += math.fsum(endpoint.wanted_cores for endpoint in self.endpoints if endpoint.share is not None)
        # Runs keep a little even of a node whose inference server could use all of it; see cores_for_runs.
        least = min(beside, cores_for_runs(self.view.cpu_cores, self.view.cpu_cores))
        weights = [1.0] * len(free)
        return _grant(free, weights, [endpoint.wanted_cores for endpoint in free], self.view.cpu_cores - least, 0)

    def _hold(self, limited: list[SimulatedEndpoint]) -> None:
        """Make weights of endpoints into caps while jobs run, as agents do."""
        # The inference server is not in training's group: without a cap it would not leave training its part. What no
        # job can use is left to endpoints.
        training = math.fsum(run.planned.workload.resources.cpu_cores for run in self.runs if not run.halted)
        free = self.view.cpu_cores - training
        for endpoint in limited:
            weight = endpoint.share.cpu_weight if endpoint.share is not None else 1.0
            endpoint.held_to_cores = max(weight * self.view.cpu_cores, free) if training > 0 else math.inf

    def _share(self, limited: list[SimulatedEndpoint], cores: float, now: float) -> None:
        """Divide ``cores`` among the runs and the endpoints that have a share."""
        runs = self.runs
        weights = [max(run.job.share.cpu_weight if run.job.share else 0.0, _LEAST_WEIGHT) for run in runs]
        ceilings = [run.ceiling for run in runs]
        threads = sum(run.threads for run in runs if not run.halted)
        if limited:
            weights += [endpoint.share.cpu_weight if endpoint.share else 1.0 for endpoint in limited]
            ceilings += [endpoint.wanted_cores for endpoint in limited]
            threads += sum(math.ceil(endpoint.wanted_cores) for endpoint in limited if endpoint.load.clients)
        if users := self._device_users():
            ceilings = limited_by_accelerators(users, weights, ceilings, cores)
        given = fill(weights, ceilings, cores)
        if limited:
            _grant(limited, weights, ceilings, cores, len(runs))
        held_up = {user.index for user in users}
        for index, (run, granted) in enumerate(zip(runs, given, strict=False)):
            # A run that waits for a device is not short of the cores that it does not want.
            share = granted / ceilings[index] if index in held_up and ceilings[index] > 0 else granted / run.threads
            self._set_speed(run, granted * self.given, share, threads, now)

    def _device_users(self) -> list[AcceleratorUser]:
        """The runs that use accelerators."""
        return [
            AcceleratorUser(index, intensity, run.job.share.accelerators)
            for index, run in enumerate(self.runs)
            if (intensity := run.planned.workload.accelerator_intensity) > 0 and run.job.share is not None
        ]

    def _set_speed(self, run: SimulatedJob, cores: float, core_share: float, threads: int, now: float) -> None:
        efficiency = self.colocation.efficiency(core_share, threads, self.view.cpu_cores)
        efficiency *= self.speed**run.planned.workload.speed_exponent
        changes = cores != run.cores or not run.usage
        run.cores, run.efficiency = cores, efficiency
        if self.record_usage and changes:
            weight = run.job.share.cpu_weight if run.job.share else 0.0
            run.usage.append(Usage(now, cores, weight, self.view.id, run.accelerator_rate))
        run.find_due()


def _grant(
    endpoints: list[SimulatedEndpoint], weights: list[float], ceilings: list[float], cores: float, first: int
) -> float:
    """Say of each endpoint, from index ``first`` of all who compete on, what it may use; returns what they use."""
    # That is what it would get if requests came without end, others being as they are.
    for index, endpoint in enumerate(endpoints, start=first):
        wishes = [*ceilings[:index], endpoint.ceiling, *ceilings[index + 1 :]]
        endpoint.cores = fill(weights, wishes, cores)[index]
    return math.fsum(endpoint.used_cores for endpoint in endpoints)
