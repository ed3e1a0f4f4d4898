"""What a simulation found."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass, field

from tiercel.broker.simulation.running import Usage
from tiercel.core.jobs import JobState


@dataclass(frozen=True, slots=True)
class TierOutcome:
    """What became of a tier. Seconds count from the job's arrival."""

    target: float  # the target
    reached_seconds: float | None  # until the report that reached it, or None
    delivered_seconds: float | None  # until its version answered, or None
    # CPU seconds that a run alone on a node needs to reach it, start-up and the exports of tiers before it included;
    # None: it never would.
    true_work: float | None


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """What became of a job. Times are seconds from the start of the simulation."""

    id: str  # the job
    name: str  # what its tenant calls it
    workload: str  # what it trained
    tenant: str  # its owner
    arrived_at: float  # when it was submitted
    started_at: float | None  # when it first ran, or None
    finished_at: float  # when it was over
    state: JobState  # how it ended
    reason: str  # in words
    tiers: tuple[TierOutcome, ...]  # its tiers
    nodes: tuple[str, ...]  # where its runs were, in order
    cpu_seconds: float  # CPU seconds that it used, of all its runs
    # Seconds that what it trained and exported would have taken on a node of its own, with start-up.
    alone_seconds: float
    cpu_cores: float  # cores that it could use
    migrations: int  # how often it was sent to another node
    usage: tuple[Usage, ...] = ()  # what it got over time, if that was recorded
    accelerators: int = 0  # devices that it used at once
    accelerator_seconds: float = 0.0  # seconds that it kept each of them busy

    @property
    def completion_seconds(self) -> float:
        """From arrival to the end."""
        return self.finished_at - self.arrived_at

    @property
    def slowdown(self) -> float:
        """Completion against what it would have taken on a node of its own (finish-time fairness, Themis)."""
        return self.completion_seconds / self.alone_seconds if self.alone_seconds > 0 else 1.0

    def time_to_tier(self, number: int) -> float | None:
        """Seconds from arrival to tier ``number`` (1 is the first), or None when it was not reached."""
        return self.tiers[number - 1].reached_seconds if number <= len(self.tiers) else None

    def time_to_answer(self, number: int) -> float | None:
        """Seconds from arrival until the model of tier ``number`` answers, or None when it never did."""
        return self.tiers[number - 1].delivered_seconds if number <= len(self.tiers) else None


@dataclass(frozen=True, slots=True)
class ClassCount:
    """Endpoints by DQoES class at a moment (Mao et al., 2020; with a tolerance of 10 %)."""

    at: float  # seconds from the start of the simulation
    over: int  # class G: answered faster than the objective by more than the tolerance
    satisfied: int  # class S: within the tolerance
    under: int  # class B: slower by more than the tolerance


@dataclass(frozen=True, slots=True)
class EndpointOutcome:
    """What became of an endpoint's requests until the scenario's duration was over."""

    name: str  # the endpoint
    requests: float  # requests that came
    answered: float  # those answered
    in_objective: float  # those answered within the objective; all that were answered where there is none
    mean_delay_seconds: float | None  # mean time to an answer, or None when nothing was answered
    cpu_seconds: float  # what its answers took
    served_quality: float  # accuracy of the answer, summed over the requests answered within the objective


@dataclass(frozen=True, slots=True)
class Pass:
    """One pass of the policy."""

    at: float  # seconds from the start of the simulation
    jobs: int  # jobs in the snapshot
    changed: int  # assignments that were carried out
    # How long the policy took on this machine; of all that is in a result, the only thing that differs from one run to
    # the next.
    seconds: float = field(compare=False)


@dataclass(frozen=True, slots=True)
class Result:
    """What a simulation found; equal for the same scenario, policy and seed."""

    scenario: str  # the scenario's name
    policy: str  # the policy's name
    seed: int  # the seed
    jobs: tuple[JobOutcome, ...]  # every job, by arrival
    endpoints: tuple[EndpointOutcome, ...]  # every endpoint that had requests, by name
    # Endpoints by class over time, one entry a step; only those with an objective count.
    class_counts: tuple[ClassCount, ...]
    decisions: tuple[Pass, ...]  # every pass of the policy
    ended_at: float  # seconds from the start of the simulation
    devices: int = 0  # accelerators of all nodes

    def times_to_tier(self, number: int) -> tuple[float, ...]:
        """Seconds from arrival to tier ``number`` of the jobs that reached it, by arrival."""
        times = (job.time_to_tier(number) for job in self.jobs)
        return tuple(time for time in times if time is not None)

    def mean_time_to_tier(self, number: int) -> float:
        """Mean over the jobs that reached tier ``number``; NaN when none did.

        Tiers that no CPU could have reached are missing for every policy alike; see :meth:`missed_tiers` for others.
        """
        return mean(self.times_to_tier(number))

    def mean_time_to_answer(self, number: int) -> float:
        """Mean over the jobs whose model of tier ``number`` came to answer; NaN when none did."""
        times = (job.time_to_answer(number) for job in self.jobs)
        return mean(time for time in times if time is not None)

    def missed_tiers(self) -> int:
        """Tiers that a run of the job would have reached, and that were not."""
        tiers = (tier for job in self.jobs for tier in job.tiers)
        return sum(tier.true_work is not None and tier.reached_seconds is None for tier in tiers)

    @property
    def makespan(self) -> float:
        """Seconds from the first arrival to the end of the last job."""
        if not self.jobs:
            return 0.0
        return max(job.finished_at for job in self.jobs) - min(job.arrived_at for job in self.jobs)

    @property
    def mean_completion(self) -> float:
        """Mean seconds from arrival to the end; NaN without jobs."""
        return mean(job.completion_seconds for job in self.jobs)

    @property
    def migrations(self) -> int:
        """How often jobs were sent to another node."""
        return sum(job.migrations for job in self.jobs)

    @property
    def accelerator_utilisation(self) -> float:
        """Part of the time from the first arrival to the last end that devices were busy; NaN without devices."""
        available = self.devices * self.makespan
        busy = math.fsum(job.accelerators * job.accelerator_seconds for job in self.jobs)
        return busy / available if available > 0 else math.nan

    @property
    def served_quality(self) -> float:
        """Accuracy of the answers, summed over all requests answered within their objective."""
        return math.fsum(endpoint.served_quality for endpoint in self.endpoints)

    def mean_satisfied(self, *, from_part: float = 0.6) -> float:
        """Endpoints in class S in the mean over the last part of the time (Mao et al., 2020: the last 40 %)."""
        counts = self.class_counts[int(len(self.class_counts) * from_part) :]
        return mean(count.satisfied for count in counts)

    def decision_seconds(self) -> tuple[float, ...]:
        """How long each pass of the policy took, sorted."""
        return tuple(sorted(decision.seconds for decision in self.decisions))


def mean(values: Iterable[float]) -> float:
    """The mean, or NaN of nothing."""
    known = list(values)
    return statistics.fmean(known) if known else math.nan
