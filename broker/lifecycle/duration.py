"""For how long the runs of a job have existed.

A run's time counts from the first word that it exists to its confirmed end, whatever share it has; what its node does
before that, and waiting between runs, takes none of it. While the broker lives it counts by the clock that only counts
then. The time in which the broker was away counts by the machine's clock, which nobody else could tell, once the run
turns out to be there still. A run that is lost counts as far as it was heard.

What happens when it is over is in :mod:`.time_limit`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tiercel.core.durations import in_words
from tiercel.core.runs import RunTime

if TYPE_CHECKING:
    from tiercel.core.jobs import Job
    from tiercel.core.moments import Moment
    from tiercel.core.runs import Run


def run_seconds(run: Run, now: Moment) -> float:
    """For how long a run has existed; as when it was last counted if nobody has heard of it in this life."""
    time = run.time
    return time.seconds if time.alive is None else time.seconds + max(0.0, now.alive - time.alive)


def counted(run: Run, now: Moment) -> Run:
    """A run that is heard of, its time counted until now."""
    return replace(run, time=time_until(run, now))


def time_until(run: Run, now: Moment) -> RunTime:
    """The time of a run that is heard of, counted until now."""
    time = run.time
    if time.alive is None and time.at is not None:  # it went on while the broker was away
        seconds = time.seconds + max(0.0, now.at - time.at)
    else:
        seconds = run_seconds(run, now)
    return RunTime(seconds, now.at, now.alive)


def in_a_new_life(run: Run) -> Run:
    """A run after the broker was started again: whether it still exists, and has meanwhile, is to be heard."""
    return replace(run, time=replace(run.time, alive=None))


def finishing_words(job: Job) -> str:
    """What a job says of its run that was told to finish; empty for any other."""
    return f"{over_words(job)}, so that its training ends now and what it has is delivered" if over_words(job) else ""


def over_words(job: Job) -> str:
    """That the job's time is over, or its budget spent; empty while its last run was not told so."""
    if job.run is None or job.run.finishing_from is None:
        return ""
    if job.retrains is not None and job.is_spent:
        return f"the {job.retrains.budget_seconds / 3600:.3g} core-hours that this retraining may use are spent"
    if job.spec.max_duration_seconds is None:
        return ""
    return f"its max_duration of {in_words(job.spec.max_duration_seconds)} is over"
