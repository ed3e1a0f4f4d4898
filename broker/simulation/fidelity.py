"""How true the simulator is: live runs replayed, and times to tiers compared job by job (live §5.6)."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass

from tiercel.broker.scheduling.interface import NodeView
from tiercel.broker.scheduling.loop import LoopSettings
from tiercel.broker.simulation.recordings import LiveRun, Recording
from tiercel.broker.simulation.result import Result
from tiercel.broker.simulation.scenario import MachineSettings, Scenario
from tiercel.broker.simulation.simulation import simulate
from tiercel.broker.simulation.workload import ListedJobs, PlannedJob


@dataclass(frozen=True, slots=True)
class Comparison:
    """A tier of a job, live and simulated.

    Attributes:
        run: Name of the live run.
        policy: Its policy.
        job: Name of the job.
        tier: Number of the tier, from 1.
        live_seconds: From arrival to the tier.
        simulated_seconds: The same in the simulator, or None when it was not reached there.
    """

    run: str
    policy: str
    job: str
    tier: int
    live_seconds: float
    simulated_seconds: float | None

    @property
    def error(self) -> float:
        """Relative error of the simulator; infinite when it did not reach the tier."""
        if self.simulated_seconds is None:
            return math.inf
        return abs(self.simulated_seconds - self.live_seconds) / self.live_seconds


@dataclass(frozen=True, slots=True)
class Fidelity:
    """How true the simulator is to live runs."""

    comparisons: tuple[Comparison, ...]

    def median_error(self, tier: int, policy: str = "") -> float:
        """Median relative error of the times to a tier, of one policy or all; NaN when nothing was compared."""
        errors = self._errors(tier, policy)
        return statistics.median(errors) if errors else math.nan

    def p90_error(self, tier: int, policy: str = "") -> float:
        """The error that nine of ten do not exceed; NaN when nothing was compared."""
        errors = sorted(self._errors(tier, policy))
        return errors[math.ceil(0.9 * len(errors)) - 1] if errors else math.nan

    def policies(self) -> tuple[str, ...]:
        """The policies that were compared, by name."""
        return tuple(sorted({comparison.policy for comparison in self.comparisons}))

    def _errors(self, tier: int, policy: str) -> list[float]:
        return [each.error for each in self.comparisons if each.tier == tier and policy in {"", each.policy}]


def replay(recording: Recording, run: LiveRun, machines: MachineSettings | None = None) -> Result:
    """Simulate what was submitted in a live run, when it was, with the curves that were recorded alone.

    Jobs of the result are in the order of arrival; those that arrived together, in the order of the run.

    Args:
        recording: What each job does alone, and the node.
        run: The live run.
        machines: How nodes behave; the co-location penalty must not be fitted to the runs that are compared.
    """
    planned = tuple(PlannedJob(job.arrived_at, recording.jobs[job.job], name=job.job) for job in run.jobs)
    scenario = Scenario(
        name=run.name,
        nodes=(NodeView("node", recording.cpu_cores, recording.memory_bytes),),
        jobs=ListedJobs(planned),
        machines=machines or MachineSettings(),
        loop=LoopSettings(interval_seconds=run.interval_seconds),
    )
    return simulate(scenario, run.policy, 0, run.options)


def compare(recording: Recording, machines: MachineSettings | None = None) -> Fidelity:
    """Replay every live run of a recording and compare each tier that was reached live."""
    return Fidelity(tuple(each for run in recording.runs for each in _compare_run(recording, run, machines)))


def _compare_run(recording: Recording, run: LiveRun, machines: MachineSettings | None) -> Iterable[Comparison]:
    result = replay(recording, run, machines)
    for live, simulated in zip(sorted(run.jobs, key=lambda job: job.arrived_at), result.jobs, strict=True):
        for number, seconds in enumerate(live.tier_seconds, start=1):
            if seconds is not None and seconds > 0:
                yield Comparison(run.name, run.policy, live.job, number, seconds, simulated.time_to_tier(number))
