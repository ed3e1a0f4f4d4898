"""The figures of a result file, made of outcomes."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from benchmarks.averages import mean, rounded
from benchmarks.prediction_error import LEAST_SECONDS, Settled, figures_of
from benchmarks.scheduling.analysis import (
    MEASURES,
    Gain,
    by_block,
    controller_cores,
    cpu_against_alone,
    gain,
    in_time,
    job_ratios,
    served_gain,
    served_quality,
    stood_still,
)
from benchmarks.scheduling.arms import ARMS, OURS
from benchmarks.scheduling.fidelity import Fidelity, foretold, is_comparable, replayed
from benchmarks.scheduling.outcome import JobOutcome, RunOutcome, Served
from benchmarks.scheduling.recordings import Recordings
from benchmarks.scheduling.schedules import SCHEDULES

Json = dict[str, Any]
BASELINES = ("fair", "fair-slices", "fifo")


def make_figures(
    outcomes: Sequence[RunOutcome], recordings: Recordings, cores: int, missing: Mapping[str, str], planned: int
) -> Json:
    """Everything that was measured."""
    idle = [run for run in outcomes if run.served is None]
    alone = [run for run in idle if SCHEDULES[run.schedule].nodes == 1]
    moving = [run for run in idle if SCHEDULES[run.schedule].nodes > 1]
    arms = [name for name in ARMS if any(run.arm == name for run in outcomes)]
    return {
        "runs": len(outcomes),
        "planned_runs": planned,
        "errors": sum(run.errors for run in outcomes),
        "left_over": sum(run.left_over for run in outcomes),
        "tiers": sum(len(job.targets) for run in outcomes for job in run.jobs),
        "delivered": sum(each is not None for run in outcomes for job in run.jobs for each in job.delivered_seconds),
        "incomplete_runs": [f"{run.block} {run.arm}" for run in outcomes if not run.complete],
        "blocks": sorted({run.block for run in outcomes}),
        "commits": sorted({run.origin.commit for run in outcomes}),
        "processors": sorted({run.origin.processor for run in outcomes}),
        "missing_arms": dict(missing),
        "arms": {name: _arm_figures(name, alone, recordings) for name in arms},
        "gains": _gains(alone, BASELINES),
        "gains_two_nodes": _gains(moving, ("fair", "specon")),
        "served": _served(outcomes),
        "fidelity": _fidelity(idle, recordings, cores),
        "what_if": _what_if(outcomes),
        "table": [_row(run, recordings) for run in outcomes],
    }


def _gains(outcomes: Sequence[RunOutcome], baselines: Sequence[str]) -> Json:
    arms = [name for name in ARMS if any(run.arm == name for run in outcomes)]
    return {
        baseline: {
            name: {measure: _gain_json(gain(outcomes, name, baseline, of_run)) for measure, of_run in MEASURES.items()}
            for name in arms
            if name != baseline
        }
        for baseline in baselines
        if baseline in arms
    }


def _arm_figures(arm: str, outcomes: Sequence[RunOutcome], recordings: Recordings) -> Json:
    runs = [run for run in outcomes if run.arm == arm and run.complete]
    ratios = job_ratios(outcomes, arm, "fair", _finish_of) if arm != "fair" else []
    tier_ratios = job_ratios(outcomes, arm, "fair", _tier_1_of) if arm != "fair" else []
    against_alone = [each for run in runs if (each := cpu_against_alone(run, recordings)) is not None]
    return {
        "about": ARMS[arm].about,
        "time_slice_seconds": ARMS[arm].time_slice_seconds,
        "runs": len(runs),
        "seconds": {
            name: _rounded_mean([each for run in runs if (each := of_run(run))]) for name, of_run in MEASURES.items()
        },
        "worst_finish": _max(ratios),
        "best_finish": _rounded(min(ratios)) if ratios else None,
        "median_finish": _rounded(statistics.median(ratios)) if ratios else None,
        "worst_tier_1": _max(tier_ratios),
        "cpu_against_alone": _rounded_mean(against_alone),
        "controller_cores": _rounded_mean([controller_cores(run) for run in runs]),
        "foreign_cpu_seconds": _max([run.foreign_cpu_seconds or 0.0 for run in runs]),
    }


def _finish_of(job: JobOutcome) -> float | None:
    return job.finished_seconds


def _tier_1_of(job: JobOutcome) -> float | None:
    return job.reached_seconds[0]


def _served(outcomes: Sequence[RunOutcome]) -> Json:
    quality: dict[str, list[float]] = {}
    for runs in by_block(outcomes).values():
        for arm, value in served_quality(runs).items():
            quality.setdefault(arm, []).append(value)
    loaded = [run for run in outcomes if run.served is not None]
    return {
        "quality": {arm: _rounded_mean(values) for arm, values in quality.items()},
        "in_time": {arm: _in_time([run.served for run in loaded if run.arm == arm and run.served]) for arm in quality},
        "above": {
            arm: {other: _gain_json(served_gain(outcomes, arm, other)) for other in quality if other != arm}
            for arm in OURS
            if arm in quality
        },
        "requests": sum(run.served.requests for run in loaded if run.served is not None),
        "failed": sum(run.served.failed for run in loaded if run.served is not None),
        "p99_ms": {f"{run.block} {run.arm}": _rounded(run.served.p99_ms) for run in loaded if run.served is not None},
    }


def _in_time(served: Sequence[Served]) -> Json:
    return {
        "mean": _rounded_mean([in_time(each) for each in served]),
        "standstills": sum(map(stood_still, served)),
        "runs": len(served),
    }


def _fidelity(outcomes: Sequence[RunOutcome], recordings: Recordings, cores: int) -> Json:
    arms = sorted({run.arm for run in outcomes})
    return {
        "left_out": sum(not is_comparable(run, recordings, cores) for run in outcomes),
        "all": _both_ways(outcomes, recordings, cores),
        "by_arm": {arm: _both_ways([run for run in outcomes if run.arm == arm], recordings, cores) for arm in arms},
    }


def _both_ways(outcomes: Sequence[RunOutcome], recordings: Recordings, cores: int) -> Json:
    return {
        "replayed": _fidelity_json(replayed(outcomes, recordings, cores)),
        "foretold": _fidelity_json(foretold(outcomes, recordings, cores)),
    }


def _fidelity_json(found: Fidelity) -> Json:
    return {
        "runs": found.runs,
        "jobs": len(found.errors),
        "median_percent": _hundredfold(found.median),
        "p90_percent": _hundredfold(found.p90),
        "bias_percent": _hundredfold(statistics.median(found.errors) if found.errors else None),
    }


def _what_if(outcomes: Sequence[RunOutcome]) -> Json:
    """How far off the brokers' predictions were, by arm; those that know the future foretell nothing."""
    found = {}
    for name, arm in ARMS.items():
        runs = [_settled(run) for run in outcomes if run.arm == name and run.predictions and not arm.knows_future]
        if runs:
            found[name] = figures_of(runs)
    return found


def _settled(run: RunOutcome) -> list[Settled]:
    submitted = [job.submitted_seconds for job in run.jobs]
    return [
        Settled(each.drawn, came, alone=not any(each.made_seconds < at < each.made_seconds + came for at in submitted))
        for each in run.predictions
        if (came := each.came_seconds) is not None and came > LEAST_SECONDS
    ]


def _row(run: RunOutcome, recordings: Recordings) -> Json:
    return {
        "block": run.block,
        "arm": run.arm,
        "complete": run.complete,
        # Seconds to tiers 1 and 2 and to the end, and CPU seconds.
        "jobs": {job.name: [*job.reached_seconds, job.finished_seconds, job.cpu_seconds] for job in run.jobs},
        "makespan": run.makespan_seconds,
        "cpu_against_alone": _rounded(cpu_against_alone(run, recordings)),
        "controller_cores": _rounded(controller_cores(run)),
        "foreign_cpu_seconds": run.foreign_cpu_seconds,
        "steal_seconds": run.steal_seconds,
    }


def _gain_json(found: Gain | None) -> Json | None:
    if found is None:
        return None
    return {name: _rounded(value) if isinstance(value, float) else value for name, value in asdict(found).items()}


def _max(values: Sequence[float]) -> float | None:
    return _rounded(max(values)) if values else None


def _rounded_mean(values: Sequence[float]) -> float | None:
    return rounded(mean(values), 4)


def _rounded(value: float | None) -> float | None:
    return rounded(value, 4)


def _hundredfold(value: float | None) -> float | None:
    return None if value is None else round(100.0 * value, 2)
