"""How true the simulator is: the same jobs at the same times under the same policy, live and simulated."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.scheduling.arms import ARMS, Arm, oracle_options
from benchmarks.scheduling.kinds import KINDS
from benchmarks.scheduling.outcome import RunOutcome
from benchmarks.scheduling.recordings import Recordings
from benchmarks.scheduling.schedules import SCHEDULES
from tiercel.broker.domain.jobs import Tier
from tiercel.broker.scheduling.interface import CurvePoint, PastRun
from tiercel.broker.simulation import MachineSettings, Scenario, Workload, equal_nodes, simulate
from tiercel.broker.simulation.cluster import SLICED, Colocation
from tiercel.broker.simulation.curves import RecordedCurve
from tiercel.broker.simulation.result import Result
from tiercel.broker.simulation.workload import ListedJobs, PlannedJob


@dataclass(frozen=True, slots=True)
class Fidelity:
    """How far the simulator is off.

    Attributes:
        errors: For each job of each run: simulated / live - 1 of its time to tier 1.
        median: Of the errors' sizes, or None without any.
        p90: Their 90th percentile.
        runs: How many runs were replayed.
    """

    errors: tuple[float, ...]
    median: float | None
    p90: float | None
    runs: int


def fidelity(outcomes: Sequence[RunOutcome], recordings: Recordings, cores: float) -> Fidelity:
    """Replay runs from the recordings and compare the times to tier 1.

    Args:
        outcomes: Live runs; those with requests beside them are left out, and those without recordings.
        recordings: Of each kind alone.
        cores: Of all nodes together.
    """
    errors: list[float] = []
    replayed = 0
    for outcome in outcomes:
        known = all((job.kind, job.training_seed) in recordings.runs for job in outcome.jobs)
        if not outcome.complete or outcome.served is not None or not known or outcome.arm not in ARMS:
            continue
        errors += compare(outcome, replay(outcome, ARMS[outcome.arm], recordings, cores))
        replayed += 1
    sizes = sorted(abs(error) for error in errors)
    p90 = sizes[int(0.9 * (len(sizes) - 1))] if sizes else None
    return Fidelity(tuple(errors), statistics.median(sizes) if sizes else None, p90, replayed)


def replay(outcome: RunOutcome, arm: Arm, recordings: Recordings, cores: float) -> Result:
    """Simulate what was run live."""
    jobs = []
    history: dict[str, tuple[PastRun, ...]] = {}
    for job in outcome.jobs:
        jobs.append(PlannedJob(job.submitted_seconds, _workload(job.kind, job.training_seed, recordings), job.name))
        if arm.knows_past:
            earlier = recordings.earlier(job.kind, job.training_seed)
            history[job.kind] = tuple(PastRun(_points(run.curve)) for run in earlier)
    options = dict(arm.options)
    if arm.knows_future:
        options |= oracle_options({job.name: recordings.works(job.kind, job.training_seed) for job in outcome.jobs})
    machines = MachineSettings(colocation=SLICED if arm.time_slice_seconds else Colocation())
    count = SCHEDULES[outcome.schedule].nodes
    nodes = equal_nodes(count, cpu_cores=cores / count)
    scenario = Scenario(nodes=nodes, jobs=ListedJobs(tuple(jobs)), machines=machines, history=history)
    return simulate(scenario, arm.policy, options=options)


def compare(outcome: RunOutcome, result: Result) -> list[float]:
    """Simulated / live - 1 of each job's time to tier 1."""
    live = {job.name: job.reached_seconds[0] for job in outcome.jobs}
    pairs = ((job.time_to_tier(1), live.get(job.name)) for job in result.jobs)
    return [simulated / real - 1.0 for simulated, real in pairs if simulated is not None and real]


def _workload(kind_name: str, training_seed: int, recordings: Recordings) -> Workload:
    kind, run = KINDS[kind_name], recordings.get(kind_name, training_seed)
    return Workload(
        name=kind_name,
        curve=RecordedCurve(_points(run.curve)),
        tiers=tuple(Tier(target) for target in kind.targets),
        direction=kind.direction,
        startup_cpu_seconds=run.startup_cpu_seconds,
        max_epochs=len(run.curve),
        continue_after_last_tier=True,
        resources=kind.spec(kind_name, training_seed, "process").resources,
    )


def _points(curve: Sequence[tuple[float, float]]) -> tuple[CurvePoint, ...]:
    return tuple(CurvePoint(cpu, value) for cpu, value in curve)
