"""A job while it is simulated: what its machine knows, and what its run really does."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field, replace

from tiercel.broker.lifecycle.silence import hangs_at
from tiercel.broker.scheduling.interface import JobView
from tiercel.broker.scheduling.views import JobFacts, job_view
from tiercel.broker.simulation.curves import Trajectory
from tiercel.broker.simulation.workload import PlannedJob
from tiercel.core.jobs import Job, JobState, Observation, TierState

# Reports that a policy sees of a job, as live.
MAX_OBSERVATIONS = 500
# The job machine waits for longer than the timeout, not for as long.
_A_MOMENT_SECONDS = 1e-6


@dataclass(frozen=True, slots=True)
class Usage:
    """What a job used from some moment on."""

    at: float  # seconds from the start of the simulation
    cores: float  # CPU seconds per second
    weight: float  # the weight of its share
    node_id: str  # where
    accelerator: float = 0.0  # seconds of each of its accelerators per second


@dataclass(slots=True, eq=False)
class SimulatedJob:
    """A job of a simulation. CPU and work go on at constant speed between two calls of :meth:`advance`."""

    planned: PlannedJob  # what was planned of it
    job: Job  # what its machine knows
    trajectory: Trajectory  # what it will report
    tier_reports: tuple[int | None, ...]  # index of the report that reaches each tier, or None
    reports_every: int = 1  # every so manyth report is told
    may_migrate: bool = True  # whether it may be sent to another node
    meant_for: str = ""  # node that it is meant for while it waits, or empty
    cores: float = 0.0  # CPU seconds per second that its run gets
    efficiency: float = 1.0  # work done per CPU second
    startup_left: float = 0.0  # CPU seconds of start-up left of the present run
    begun: bool = False  # whether the present run trains, its start-up over
    trained: float = 0.0  # CPU seconds of training done, as if alone
    run_cpu: float = 0.0  # CPU seconds of the present run
    accelerator_seconds: float = 0.0  # seconds that all its runs kept each of their accelerators busy
    synced_at: float = 0.0  # when all of that was true
    next_report: int = 0  # index of the next report
    told: int = 0  # reports of the present run that were told
    # Numbers of the tiers whose models its run exports now, one after the other; training waits meanwhile.
    exports: deque[int] = field(default_factory=deque)
    export_left: float = 0.0  # CPU seconds left of the first of them
    exported: int = 0  # models that the present run has exported
    exported_cpu: float = 0.0  # CPU seconds of work that all its exports took
    # When its start-up is over, the next report comes, or the export under way is done, if nothing changes.
    due_at: float = math.inf
    halted: bool = False  # whether the run trains no more: it stops, or is checkpointed
    nodes: list[str] = field(default_factory=list)  # where it ran, in order
    usage: list[Usage] = field(default_factory=list)
    observations: list[Observation] = field(default_factory=list)
    view: JobView | None = None
    is_foreseen: bool = True  # whether an oracle is shown what its trajectory is
    # CPU seconds from the start at which each tier will be reached, as of the latest view, if it is foreseen.
    true_work: tuple[float, ...] = ()
    viewed_at: float = 0.0
    first_epoch: int = 0  # epochs that were reported before the trajectory begins
    home: str = ""  # the only node that it may be placed on, or empty

    @property
    def threads(self) -> int:
        """Threads that want to run."""
        return max(1, math.ceil(self.planned.workload.resources.cpu_cores))

    @property
    def ceiling(self) -> float:
        """Cores that its run can use at most now."""
        if self.halted:
            return 0.0
        cores = self.planned.workload.resources.cpu_cores
        cap = self.job.share.cpu_cap_cores if self.job.share is not None else None
        return cores if cap is None else min(cores, cap)

    @property
    def accelerator_rate(self) -> float:
        """Seconds of each of its accelerators per second that its run uses now."""
        return self.cores * self.efficiency * self.planned.workload.accelerator_intensity

    @property
    def visible(self) -> bool:
        """Whether the scheduler has anything to do with it; as the actors see it."""
        return self.job.concerns_scheduler

    @property
    def cpu_seconds(self) -> float:
        """CPU seconds of all its runs, as its node measures them."""
        job = self.job
        return job.earlier.cpu_seconds + self.run_cpu if job.run_active else job.cpu_seconds

    def begin_run(self, now: float) -> None:
        """A new run starts up; it goes on where the last one was."""
        self.startup_left = self.planned.workload.startup_cpu_seconds
        self.begun = False
        self.run_cpu = 0.0
        self.told = self.exported = 0
        self.synced_at = now
        self.halted = False

    def halt(self, now: float) -> None:
        """It trains no more, and what it has not handed over stays here."""
        self.advance(now)
        self.halted = True
        self.exports.clear()
        self.export_left, self.due_at = 0.0, math.inf

    def advance(self, now: float) -> None:
        """Let time pass at the present speed."""
        seconds = now - self.synced_at
        self.synced_at = now
        if seconds <= 0 or self.cores <= 0:
            return
        used = self.cores * seconds
        self.run_cpu += used
        work = used * self.efficiency
        self.accelerator_seconds += work * self.planned.workload.accelerator_intensity
        startup = min(work, self.startup_left)
        self.startup_left -= startup
        export = min(work - startup, self.export_left)
        self.export_left -= export
        self.exported_cpu += export
        self.trained += work - startup - export

    def begin_export(self, tier_number: int, now: float) -> None:
        """Its run is asked for the model of a tier that it reached."""
        if self.halted or tier_number in self.exports:
            return
        self.advance(now)
        self.exports.append(tier_number)
        if len(self.exports) == 1:
            self.export_left = self._next_export()
        self.find_due()

    def end_export(self, now: float) -> int:
        """It has exported the first model that it was asked for; returns the number of that tier."""
        self.advance(now)
        self.exported += 1
        done = self.exports.popleft()
        self.export_left = self._next_export() if self.exports else 0.0
        self.find_due()
        return done

    def _next_export(self) -> float:
        """CPU seconds that its run needs for the next model that it exports."""
        workload = self.planned.workload
        return workload.export_cpu_seconds if self.exported else workload.first_export_cpu_seconds

    def begin_training(self, now: float) -> None:
        """Its start-up is over."""
        self.advance(now)
        self.startup_left, self.begun = 0.0, True
        self.find_due()

    def arrive_at_report(self) -> None:
        """The run is exactly where it reports; sums of many small steps are not."""
        self.trained = self.trajectory.work[self.next_report]

    def plan_report(self) -> None:
        """Choose what is told next: the report that reaches a tier, the last one, or every so manyth."""
        index = self.next_report
        last = len(self.trajectory.work) - 1
        told = min(index + self.reports_every - 1, last)
        for tier in self.tier_reports:
            if tier is not None and index <= tier < told:
                told = tier
        self.next_report = told

    def find_due(self) -> None:
        """Work out when the next report comes, or the export is done, at the present speed."""
        speed = self.cores * self.efficiency
        if speed <= 0:
            self.due_at = math.inf
            return
        if not self.begun:
            left = self.startup_left
        else:
            left = self.export_left if self.exports else self._work_until_due() - self.trained
        self.due_at = self.synced_at + max(left, 0.0) / speed

    @property
    def is_closing(self) -> bool:
        """Whether its last report is told and its process is on its way out."""
        return self.next_report >= len(self.trajectory.work)

    def _work_until_due(self) -> float:
        if self.is_closing:
            return self.trajectory.work[-1] + self.planned.workload.closing_cpu_seconds
        return self.trajectory.work[self.next_report]

    @property
    def hangs_at(self) -> float:
        """When its silence will count as hanging."""
        job, run = self.job, self.job.run
        if job.state is not JobState.RUNNING or run is None or job.stop_outcome is not None:
            return math.inf
        return hangs_at(run, job.spec.report_timeout_seconds) + _A_MOMENT_SECONDS

    def present(self, now: float, usage_seconds: float = 0.0) -> JobView:
        """What policies see of it; kept until something changes, and of a run for so many seconds."""
        if self.view is None or (self.cores > 0 and now - self.viewed_at >= usage_seconds):
            self.view = self._view(now)
            self.viewed_at = now
        return self.view

    def _view(self, now: float) -> JobView:
        self.advance(now)
        if self.is_foreseen:
            self.true_work = self._true_work()
        facts = JobFacts(
            self.planned.workload.name,
            self.planned.workload.similar,
            self.planned.tenant_weight,
            tuple(self.observations[-MAX_OBSERVATIONS:]),
            self.cpu_seconds,
            self.accelerator_seconds,
            self.may_migrate,
            self.planned.priority_class,
            self.meant_for,
        )
        view = job_view(self.job, facts)
        return replace(view, home=self.home) if self.home else view

    def _true_work(self) -> tuple[float, ...]:
        """CPU seconds at which each tier will be reached, if the job has cores to itself from now on."""
        before = self.startup_left if self.job.run_active else self.planned.workload.startup_cpu_seconds
        start = self.cpu_seconds + before - self.trained
        return tuple(
            math.inf
            if index is None
            else self._cpu_when_reached(number)
            if self._is_reached(number)
            else start + self.trajectory.work[index] + self._exports_until(index)
            for number, index in enumerate(self.tier_reports)
        )

    def _is_reached(self, number: int) -> bool:
        return self.job.tiers[number].state not in {TierState.PENDING, TierState.UNREACHABLE}

    def _exports_until(self, report: int) -> float:
        """CPU seconds of the exports that are left before a report: those under way and those of tiers before it."""
        before = [
            number
            for number, index in enumerate(self.tier_reports)
            if index is not None and index < report and not self._is_reached(number)
        ]
        exports, begun = self.planned.workload.exports, self.exported + bool(self.exports)
        return self.export_left + exports(self.exported + len(self.exports) + len(before)) - exports(begun)

    def _cpu_when_reached(self, number: int) -> float:
        target = self.job.tiers[number].tier.target
        reaches = self.job.spec.direction.reaches
        return next((seen.cpu_seconds for seen in self.observations if reaches(seen.value, target)), 0.0)
