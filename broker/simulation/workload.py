"""What simulated jobs do: start-up, learning curve, tiers, and how one run differs from the next."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from tiercel.broker.simulation.arrivals import Arrivals
from tiercel.broker.simulation.curves import Curve, Trajectory
from tiercel.broker.simulation.randomness import Random, log_normal, stream
from tiercel.core.jobs import Direction, JobSpec, Resources, Tier
from tiercel.core.tenants import NO_CLASS, PriorityClass

# No simulated run hangs unless a scenario says what counts as hanging.
_NO_TIMEOUT_SECONDS = 1e9

FIRST_EXPORT_CPU_SECONDS = 0.16
"""CPU seconds that handing over the model of its first tier took a run, beyond its training: the median of 336 live
jobs, most of it for loading the exporter."""

EXPORT_CPU_SECONDS = 0.07
"""The same for a later tier."""


def exports_cpu_seconds(
    count: int, first: float = FIRST_EXPORT_CPU_SECONDS, further: float = EXPORT_CPU_SECONDS
) -> float:
    """CPU seconds of a run's first ``count`` exports."""
    return first + further * (count - 1) if count else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A training script with its arguments, as far as a scheduler can tell."""

    name: str  # jobs of one name train the same thing: the key of what is remembered of earlier runs
    curve: Curve  # how it learns
    tiers: tuple[Tier, ...]  # targets, from the easiest to the hardest
    direction: Direction = Direction.MAX  # whether a larger or a smaller metric is better
    startup_cpu_seconds: float = 2.0  # CPU seconds before training begins (imports, data), in every run anew
    # CPU seconds from the last report until the process is gone (last checkpoint and exports, the interpreter's end);
    # nothing where a job is stopped at its last tier.
    closing_cpu_seconds: float = 0.0
    # CPU seconds that it takes its run to hand over the first model of a tier: the exporter is loaded, the export is
    # compared with the model and measured again. Training waits meanwhile.
    first_export_cpu_seconds: float = FIRST_EXPORT_CPU_SECONDS
    export_cpu_seconds: float = EXPORT_CPU_SECONDS  # the same for each further model of a run
    epoch_cpu_seconds: float = 1.0  # CPU seconds of training between two reports; recorded curves have their own
    max_epochs: int = 100  # reports it makes at most
    continue_after_last_tier: bool = False  # whether it trains on until ``max_epochs``
    noise: float = 0.0  # standard deviation of what is added to each reported value
    # How much a job's need of CPU differs from run to run: standard deviation of its logarithm, which for small values
    # is the coefficient of variation (measured live: 0.01 to 0.21).
    speed_spread: float = 0.0
    # It does ``speed ** speed_exponent`` of its work in a CPU second of a node: above 1 it gains more than most.
    speed_exponent: float = 1.0
    # What it may use at most; it has as many threads as cores, rounded up.
    resources: Resources = field(default_factory=Resources)
    report_timeout_seconds: float = _NO_TIMEOUT_SECONDS  # silence after which a run counts as hung
    # Seconds of each of its accelerators that a CPU second of work takes, start-up and exports included; 0 for one that
    # uses none. Above 1 a job with a core of its own waits for its device.
    accelerator_intensity: float = 0.0
    # What it shares with workloads that are like it, the likest first; see :func:`.similar_to`.
    similar: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse what no job could be."""
        if not self.tiers or self.max_epochs < 1 or self.epoch_cpu_seconds <= 0:
            msg = f"workload {self.name}: it needs a tier, at least one epoch, and epochs that take CPU time"
            raise ValueError(msg)
        costs = (self.startup_cpu_seconds, self.closing_cpu_seconds, self.first_export_cpu_seconds)
        if min(*costs, self.export_cpu_seconds, self.noise, self.speed_spread) < 0:
            msg = f"workload {self.name}: start-up, closing, exports, noise and spread cannot be negative"
            raise ValueError(msg)
        if self.accelerator_intensity < 0 or (self.accelerator_intensity > 0 and not self.resources.accelerators):
            msg = f"workload {self.name}: an accelerator intensity is at least 0, and above 0 it needs an accelerator"
            raise ValueError(msg)

    @property
    def alone_speed(self) -> float:
        """CPU seconds of work per second that a run does on a node of its own."""
        cores = self.resources.cpu_cores
        return min(cores, 1.0 / self.accelerator_intensity) if self.accelerator_intensity > 0 else cores

    def exports(self, count: int) -> float:
        """CPU seconds that a run needs to hand over its first ``count`` models."""
        return exports_cpu_seconds(count, self.first_export_cpu_seconds, self.export_cpu_seconds)

    def spec(self, name: str, endpoint: str) -> JobSpec:
        """What a tenant would submit."""
        return JobSpec(
            name=name,
            endpoint=endpoint,
            metric="metric",
            direction=self.direction,
            tiers=self.tiers,
            module=self.name,
            resources=self.resources,
            max_epochs=self.max_epochs,
            report_timeout_seconds=self.report_timeout_seconds,
            continue_after_last_tier=self.continue_after_last_tier,
        )

    def run(self, source: Random) -> Trajectory:
        """What one job of it will report."""
        factor = log_normal(source, self.speed_spread)
        trajectory = self.curve.trajectory(
            self.max_epochs, self.epoch_cpu_seconds, self.startup_cpu_seconds, self.noise, source
        )
        if factor == 1.0:
            return trajectory
        return replace(trajectory, work=tuple(factor * work for work in trajectory.work))


@dataclass(frozen=True, slots=True)
class PlannedJob:
    """A job that will be submitted."""

    arrives_at: float  # seconds from the start of the simulation
    workload: Workload  # what it does
    name: str = ""  # what its tenant calls it
    tenant: str = "tenant"  # its owner
    tenant_weight: float = 1.0  # its tenant's weight among tenants, > 0
    endpoint: str = ""  # the endpoint that it feeds; empty for one of its own
    priority_class: PriorityClass = NO_CLASS  # its class among the jobs of all tenants


class JobSource(Protocol):
    """Where a scenario's jobs come from."""

    def draw(self, seed: int) -> Sequence[PlannedJob]:
        """The jobs of one simulation, the same for the same seed."""


@dataclass(frozen=True, slots=True)
class ListedJobs:
    """Exactly these jobs, whatever the seed."""

    jobs: tuple[PlannedJob, ...]

    def draw(self, seed: int) -> Sequence[PlannedJob]:
        """The jobs of one simulation; see :class:`JobSource`."""
        del seed
        return self.jobs


@dataclass(frozen=True, slots=True)
class DrawnJobs:
    """So many jobs, each of a workload that is drawn."""

    workloads: tuple[Workload, ...]  # what they are drawn from
    count: int  # how many
    arrivals: Arrivals  # when they come
    # Every workload as often as every other (plus or minus one) and only the order is drawn; else each job is drawn on
    # its own.
    each_equally: bool = True
    # Endpoints that the first jobs to arrive feed, one each; the others feed endpoints that nobody asks.
    feeds: tuple[str, ...] = ()

    def draw(self, seed: int) -> Sequence[PlannedJob]:
        """The jobs of one simulation; see :class:`JobSource`."""
        source = stream(seed, "workloads")
        if self.each_equally:
            drawn = [self.workloads[index % len(self.workloads)] for index in range(self.count)]
            source.shuffle(drawn)
        else:
            drawn = source.choices(self.workloads, k=self.count)
        times = self.arrivals.times(self.count, stream(seed, "arrivals"))
        endpoints = itertools.chain(self.feeds, itertools.repeat(""))
        return [PlannedJob(at, workload, endpoint=next(endpoints)) for at, workload in zip(times, drawn, strict=True)]
