"""How true the simulator is: the same jobs at the same times under the same policy, live and simulated.

Two questions. *Replayed*: given what each job's CPU seconds bought in that very run, and what everything else used of
the machine, does the simulator divide cores and place tiers in time as the product did? *Foretold*: from recordings of
each job alone, made earlier, and nothing of the run: this has the machine's own changes of speed in it as well, by
which the same training takes up to a quarter more CPU seconds in one run than in another.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from benchmarks.scheduling.arms import ARMS, Arm, oracle_options
from benchmarks.scheduling.kinds import KINDS, Kind
from benchmarks.scheduling.outcome import JobOutcome, RunOutcome
from benchmarks.scheduling.recordings import Recordings
from benchmarks.scheduling.schedules import SCHEDULES
from tiercel.broker.scheduling.interface import CurvePoint, PastRun
from tiercel.broker.simulation import MachineSettings, Scenario, Workload, equal_nodes, simulate
from tiercel.broker.simulation.cluster import SLICED, Colocation
from tiercel.broker.simulation.curves import RecordedCurve
from tiercel.broker.simulation.result import Result
from tiercel.broker.simulation.workload import ListedJobs, PlannedJob, exports_cpu_seconds
from tiercel.core.jobs import Tier

DISTURBED = 0.05
"""A run is left out in which other programs used more of the machine's CPU than this fraction."""

_CLOCK_TICK = 1e-3
"""Reports of one tick of the CPU clock come this many CPU seconds after another."""

Curve = Sequence[tuple[float, float]]
WorkloadOf = Callable[[JobOutcome], Workload]


@dataclass(frozen=True, slots=True)
class Fidelity:
    """How far the simulator is off."""

    errors: tuple[float, ...]  # for each job of each run: simulated / live - 1 of its time to tier 1
    median: float | None  # of the errors' sizes, or None without any
    p90: float | None  # their 90th percentile
    runs: int  # how many runs were compared


def foretold(outcomes: Sequence[RunOutcome], recordings: Recordings, cores: float) -> Fidelity:
    """Simulate runs from the recordings and compare the times to tier 1."""
    return _fidelity(outcomes, recordings, cores, partial(simulate_from_recordings, recordings=recordings, cores=cores))


def replayed(outcomes: Sequence[RunOutcome], recordings: Recordings, cores: float) -> Fidelity:
    """Simulate runs from what their own jobs did, and compare the times to tier 1; arguments as of :func:`foretold`."""
    return _fidelity(outcomes, recordings, cores, partial(simulate_again, recordings=recordings, cores=cores))


def is_comparable(outcome: RunOutcome, recordings: Recordings, cores: float) -> bool:
    """Whether a run came to its end, without requests beside it and without other programs, with all kinds recorded."""
    known = all((job.kind, job.training_seed) in recordings.runs for job in outcome.jobs)
    return outcome.complete and outcome.served is None and known and outcome.arm in ARMS and _is_quiet(outcome, cores)


def simulate_from_recordings(outcome: RunOutcome, recordings: Recordings, cores: float) -> Result:
    """Simulate what was submitted in a run, from runs of each kind alone."""
    machines = MachineSettings(colocation=SLICED if ARMS[outcome.arm].time_slice_seconds else Colocation())
    return _simulate(outcome, recordings, cores, machines, partial(_recorded, recordings=recordings))


def simulate_again(outcome: RunOutcome, recordings: Recordings, cores: float) -> Result:
    """Simulate a run from the CPU seconds at which its own jobs reported, and what else used the machine then."""
    beside = outcome.broker_cpu_seconds + outcome.agent_cpu_seconds + outcome.serving_cpu_seconds
    beside += (outcome.foreign_cpu_seconds or 0.0) + outcome.steal_seconds
    overhead = beside / (outcome.makespan_seconds or math.inf) / SCHEDULES[outcome.schedule].nodes
    # What sharing cores cost is in the CPU seconds already.
    machines = MachineSettings(colocation=Colocation(0.0), overhead_cores=overhead)
    return _simulate(outcome, recordings, cores, machines, _lived)


def compare(outcome: RunOutcome, result: Result) -> list[float]:
    """Simulated / live - 1 of each job's time to tier 1."""
    live = {job.name: job.reached_seconds[0] for job in outcome.jobs}
    pairs = ((job.time_to_tier(1), live.get(job.name)) for job in result.jobs)
    return [simulated / real - 1.0 for simulated, real in pairs if simulated is not None and real]


def _is_quiet(outcome: RunOutcome, cores: float) -> bool:
    foreign = outcome.foreign_cpu_seconds
    return foreign is None or foreign <= DISTURBED * cores * outcome.makespan_seconds


def _fidelity(
    outcomes: Sequence[RunOutcome], recordings: Recordings, cores: float, simulated: Callable[[RunOutcome], Result]
) -> Fidelity:
    comparable = [outcome for outcome in outcomes if is_comparable(outcome, recordings, cores)]
    errors = [error for outcome in comparable for error in compare(outcome, simulated(outcome))]
    sizes = sorted(abs(error) for error in errors)
    p90 = sizes[int(0.9 * (len(sizes) - 1))] if sizes else None
    return Fidelity(tuple(errors), statistics.median(sizes) if sizes else None, p90, len(comparable))


def _simulate(
    outcome: RunOutcome, recordings: Recordings, cores: float, machines: MachineSettings, workload_of: WorkloadOf
) -> Result:
    arm = ARMS[outcome.arm]
    jobs = tuple(PlannedJob(job.submitted_seconds, workload_of(job), job.name) for job in outcome.jobs)
    count = SCHEDULES[outcome.schedule].nodes
    scenario = Scenario(
        nodes=equal_nodes(count, cpu_cores=cores / count),
        jobs=ListedJobs(jobs),
        machines=machines,
        history=_history(outcome, recordings) if arm.knows_past else {},
    )
    return simulate(scenario, arm.policy, options=_options(outcome, arm, recordings))


def _options(outcome: RunOutcome, arm: Arm, recordings: Recordings) -> dict[str, str | float | int | bool]:
    options = dict(arm.options)
    if arm.knows_future:
        options |= oracle_options({job.name: recordings.works(job.kind, job.training_seed) for job in outcome.jobs})
    return options


def _history(outcome: RunOutcome, recordings: Recordings) -> dict[str, tuple[PastRun, ...]]:
    return {
        job.kind: tuple(PastRun(_points(run.curve)) for run in recordings.earlier(job.kind, job.training_seed))
        for job in outcome.jobs
    }


def _recorded(job: JobOutcome, recordings: Recordings) -> Workload:
    run = recordings.get(job.kind, job.training_seed)
    return _workload(job, run.curve, run.startup_cpu_seconds, run.cpu_seconds)


def _lived(job: JobOutcome) -> Workload:
    curve: list[tuple[float, float]] = []
    for point in job.points:
        least = curve[-1][0] + _CLOCK_TICK if curve else 0.0
        curve.append((max(point.cpu_seconds, least), point.value))
    epoch = (curve[-1][0] - curve[0][0]) / max(len(curve) - 1, 1)
    return _workload(job, curve, max(curve[0][0] - epoch, 0.0), job.cpu_seconds)


def _workload(job: JobOutcome, curve: Curve, startup_cpu_seconds: float, cpu_seconds: float) -> Workload:
    kind = KINDS[job.kind]
    training, exports = _without_exports(curve, kind)
    return Workload(
        name=job.kind,
        curve=RecordedCurve(_points(training)),
        tiers=tuple(Tier(target) for target in kind.targets),
        direction=kind.direction,
        startup_cpu_seconds=startup_cpu_seconds,
        closing_cpu_seconds=max(cpu_seconds - training[-1][0] - exports, 0.0),
        max_epochs=len(training),
        continue_after_last_tier=True,
        resources=kind.spec(job.kind, job.training_seed, "process").resources,
    )


def _without_exports(curve: Curve, kind: Kind) -> tuple[Curve, float]:
    """A recorded curve without the CPU seconds of exports, which the simulator adds, and how many those are."""
    reports = [
        next((index for index, (_, value) in enumerate(curve) if kind.direction.reaches(value, target)), None)
        for target in kind.targets
    ]
    reached = [index for index in reports if index is not None]
    trained: list[tuple[float, float]] = []
    for index, (cpu, value) in enumerate(curve):
        least = trained[-1][0] + _CLOCK_TICK if trained else 0.0
        trained.append((max(cpu - exports_cpu_seconds(sum(report < index for report in reached)), least), value))
    return trained, exports_cpu_seconds(len(reached))


def _points(curve: Curve) -> tuple[CurvePoint, ...]:
    return tuple(CurvePoint(cpu, value) for cpu, value in curve)
