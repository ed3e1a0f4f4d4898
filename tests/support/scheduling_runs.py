"""Runs of the live experiments as they might have been, made up."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.scheduling.kinds import KINDS
from benchmarks.scheduling.outcome import JobOutcome, Point, RunOutcome, Served
from benchmarks.scheduling.recordings import Recording


def job_outcome(
    name: str = "cnn-small-1",
    *,
    kind: str = "cnn-small",
    submitted: float = 0.0,
    reached: tuple[float | None, ...] = (4.0, 6.0),
    finished: float | None = 9.0,
    cpu: float = 5.0,
    shares: tuple[tuple[float, float], ...] = ((0.5, 1.0),),
) -> JobOutcome:
    """A job that reports at 1 s, at each tier, and at its end."""
    targets = KINDS[kind].targets
    values = (0.1, *targets)
    times = (1.0, *(each for each in reached if each is not None))
    return JobOutcome(
        name=name,
        kind=kind,
        training_seed=0,
        submitted_seconds=submitted,
        state="completed" if finished is not None else "running",
        reason="",
        targets=targets,
        reached_seconds=reached,
        delivered_seconds=tuple(None if each is None else each + 0.5 for each in reached),
        finished_seconds=finished,
        cpu_seconds=cpu,
        points=tuple(Point(submitted + at, value, at / 2) for at, value in zip(times, values, strict=False)),
        shares=shares,
    )


def run_outcome(
    arm: str = "fair",
    jobs: Sequence[JobOutcome] | None = None,
    *,
    schedule: str = "small",
    repetition: int = 0,
    makespan: float = 9.0,
    served: Served | None = None,
    key: str = "key",
    setting: str = "setting",
) -> RunOutcome:
    """A run in which one job got everything done, unless told otherwise."""
    return RunOutcome(
        arm=arm,
        schedule=schedule,
        repetition=repetition,
        key=key,
        setting=setting,
        jobs=tuple(jobs if jobs is not None else [job_outcome()]),
        makespan_seconds=makespan,
        broker_cpu_seconds=0.06,
        agent_cpu_seconds=0.03,
        serving_cpu_seconds=0.01,
        foreign_cpu_seconds=0.2,
        steal_seconds=0.0,
        timed_out=False,
        left_over=0,
        errors=0,
        served=served,
    )


def recording(kind: str = "cnn-small", training_seed: int = 0, cpu: float = 4.0) -> Recording:
    """A run alone that reports once a CPU second after 1 s of start-up, and reaches a tier at 3 s and at 4 s."""
    first, second = KINDS[kind].targets
    curve = ((2.0, 0.1), (3.0, first), (4.0, second))
    return Recording(kind, training_seed, 1.0, cpu, cpu, KINDS[kind].targets, curve)
