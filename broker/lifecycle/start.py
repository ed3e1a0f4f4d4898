"""What it takes a run to get to work, measured by the clock of the broker's own life.

A script says when it begins to train, and nothing else: how long that took is ours to say, and what it used until then
its node's, never more than its cores could in that time. A run whose node was silent meanwhile is not measured, nor is
one that was ordered in another life of the broker.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from tiercel.broker.lifecycle.silence import silent_seconds
from tiercel.core.starts import LONGEST_SECONDS, Start

if TYPE_CHECKING:
    from tiercel.broker.lifecycle.job_events import RunIsAlive
    from tiercel.core.jobs import Job
    from tiercel.core.moments import Moment
    from tiercel.core.runs import Run


def with_start(job: Job, run: Run, event: RunIsAlive, now: Moment) -> Run:
    """The run that knows what it took to get to work, once it trains.

    Args:
        job: Its job.
        run: The run, before its silence is over.
        event: What its node says of it.
        now: The time.
    """
    used = event.begun_cpu_seconds
    if used is None or not math.isfinite(used) or run.ordered_at is None or run.is_leaving:
        return run
    passed = max(0.0, now.alive - run.ordered_at)
    cores = max(job.spec.resources.cpu_cores, 1e-3)
    cpu_seconds = min(max(used, 0.0), passed * cores, LONGEST_SECONDS)
    # What it can use is known as a least: while its neighbours leave it more, it works faster than that says.
    seconds = min(max(passed - _slowed_seconds(run, now.alive), cpu_seconds / cores), LONGEST_SECONDS)
    start = Start(run.node_id, seconds, cpu_seconds, event.warm, run.stop_seconds)
    return replace(run, start=start, ordered_at=None)


def stop_seconds(run: Run, now: Moment) -> float | None:
    """How long it took to stop a run that is gone, so that its job moves; None where that is not known."""
    if run.ordered_at is None or run.move is None:
        return None
    return min(max(0.0, now.alive - run.ordered_at), LONGEST_SECONDS)


def unmeasured(job: Job) -> Job:
    """The job whose run is not measured any more: nobody knows when its node heard of the order, or did it."""
    if job.run is None or job.run.ordered_at is None:
        return job
    return replace(job, run=replace(job.run, ordered_at=None))


def _slowed_seconds(run: Run, alive: float) -> float:
    """How much longer the run has taken, since it exists, than it would have at full speed."""
    return 0.0 if run.silence is None else alive - run.silence.since - silent_seconds(run, alive)
