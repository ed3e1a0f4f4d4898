"""From outcomes to figures: per policy, paired by block, with intervals."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from benchmarks.averages import bootstrap_interval, mean
from benchmarks.scheduling.outcome import JobOutcome, RunOutcome, Served
from benchmarks.scheduling.recordings import Recordings

Measure = Callable[[RunOutcome], float | None]
"""From a run to a figure of which less is better, or None where there is none."""


@dataclass(frozen=True, slots=True)
class Gain:
    """How much better a figure is under one arm than under another, paired by block."""

    mean: float  # mean over blocks of 1 - arm / baseline, or of arm / baseline - 1 where more is better
    low: float | None  # lower end of the bootstrap interval (95 %) of that mean; None with fewer than 3 blocks
    high: float | None  # its upper end
    blocks: int  # how many blocks both ran in
    wins: int  # in how many the arm was better


def by_block(outcomes: Iterable[RunOutcome]) -> dict[str, dict[str, RunOutcome]]:
    """Complete runs by block and arm; a run that missed a tier does not compare."""
    blocks: dict[str, dict[str, RunOutcome]] = {}
    for outcome in outcomes:
        if outcome.complete:
            blocks.setdefault(outcome.block, {})[outcome.arm] = outcome
    return blocks


def gain(outcomes: Sequence[RunOutcome], arm: str, baseline: str, measure: Measure) -> Gain | None:
    """How much lower a figure is under an arm than under a baseline; None when no block has both."""
    gains = []
    for runs in by_block(outcomes).values():
        if arm not in runs or baseline not in runs:
            continue
        mine, theirs = measure(runs[arm]), measure(runs[baseline])
        if mine is not None and theirs:
            gains.append(1.0 - mine / theirs)
    return _gain_of(gains)


def served_gain(outcomes: Sequence[RunOutcome], arm: str, baseline: str) -> Gain | None:
    """How much more served quality there is under an arm than under a baseline; None when no block has both."""
    blocks = [served_quality(runs) for runs in by_block(outcomes).values()]
    return _gain_of([each[arm] / each[baseline] - 1.0 for each in blocks if arm in each and each.get(baseline)])


def _gain_of(gains: Sequence[float]) -> Gain | None:
    if not gains:
        return None
    low, high = bootstrap_interval(gains) if len(gains) > 2 else (None, None)
    return Gain(statistics.fmean(gains), low, high, len(gains), sum(each > 0 for each in gains))


def time_to_tier(number: int) -> Measure:
    """Mean over jobs of the seconds from submission to the report that reached tier ``number``."""
    return lambda run: mean(job.reached_seconds[number - 1] for job in run.jobs)


def time_to_delivery(number: int) -> Measure:
    """Mean over jobs of the seconds from submission to the first answer of tier ``number``'s version."""
    return lambda run: mean(job.delivered_seconds[number - 1] for job in run.jobs)


def finish(run: RunOutcome) -> float | None:
    """Mean over jobs of the seconds from submission to the end of the budget."""
    return mean(job.finished_seconds for job in run.jobs)


def makespan(run: RunOutcome) -> float | None:
    """Seconds from the schedule's beginning to the end of the last job."""
    return run.makespan_seconds


MEASURES: Mapping[str, Measure] = {
    "tier 1": time_to_tier(1),
    "tier 2": time_to_tier(2),
    "tier 1 answers": time_to_delivery(1),
    "tier 2 answers": time_to_delivery(2),
    "finish": finish,
    "makespan": makespan,
}
"""Figures of a run, in seconds; less is better."""


def worst_ratio(
    outcomes: Sequence[RunOutcome], arm: str, baseline: str, of_job: Callable[[JobOutcome], float | None]
) -> float | None:
    """The largest ratio of a job's time to its time under the baseline in the same block, over all blocks."""
    return max(job_ratios(outcomes, arm, baseline, of_job), default=None)


def job_ratios(
    outcomes: Sequence[RunOutcome], arm: str, baseline: str, of_job: Callable[[JobOutcome], float | None]
) -> list[float]:
    """Each job's time against its time under the baseline in the same block."""
    ratios = []
    for runs in by_block(outcomes).values():
        if arm in runs and baseline in runs:
            theirs = {job.name: of_job(job) for job in runs[baseline].jobs}
            pairs = ((of_job(job), theirs.get(job.name)) for job in runs[arm].jobs)
            ratios += [mine / other for mine, other in pairs if mine is not None and other]
    return ratios


def cpu_against_alone(run: RunOutcome, recordings: Recordings) -> float | None:
    """CPU seconds of all jobs against what the recordings needed alone: what sharing cores costs. None if unknown."""
    alone = [recordings.runs.get((job.kind, job.training_seed)) for job in run.jobs]
    known = [each.cpu_seconds for each in alone if each is not None]
    return sum(job.cpu_seconds for job in run.jobs) / sum(known) if known and len(known) == len(alone) else None


def controller_cores(run: RunOutcome) -> float:
    """Cores that broker and agent used while the schedule ran."""
    return (run.broker_cpu_seconds + run.agent_cpu_seconds) / max(run.makespan_seconds, 1e-9)


STANDSTILL_SECONDS = 3


def in_time(served: Served) -> float:
    """The part of all seconds of endpoints that were asked in which they answered within the objective in the mean."""
    return sum(served.satisfied) / max(sum(served.live), 1)


def stood_still(served: Served) -> bool:
    """Whether there were :data:`STANDSTILL_SECONDS` and more in a row in which no endpoint answered in time."""
    late = [live > 0 and found == 0 for live, found in zip(served.live, served.satisfied, strict=True)]
    return any(is_late and len(list(row)) >= STANDSTILL_SECONDS for is_late, row in groupby(late))


def served_quality(runs: Mapping[str, RunOutcome]) -> dict[str, float]:
    """Per arm of a block: mean over seconds and endpoints of accuracy x in-objective, up to the end of the longest.

    After the end of its last job an arm goes on as in its last whole seconds.
    """
    served = {arm: run.served.quality for arm, run in runs.items() if run.served is not None}
    if not served:
        return {}
    horizon = max(len(quality) for quality in served.values())
    endpoints = len(next(iter(runs.values())).jobs)
    means = {}
    for arm, quality in served.items():
        # The last second is cut off where the last job ended.
        whole = quality[:-1] or (0.0,)
        last = statistics.fmean(whole[-3:])
        means[arm] = (math.fsum(whole) + last * (horizon - len(whole))) / (horizon * endpoints)
    return means
