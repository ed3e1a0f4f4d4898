"""How a job gets another try: by itself after its script failed, as often as its spec says, or when its tenant asks."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tiercel.broker.lifecycle.job_events import JobEffect, Reschedule
from tiercel.broker.lifecycle.job_steps import Step, enter, request_deliveries, with_run_counted
from tiercel.core.backoff import Backoff
from tiercel.core.jobs import Job, JobState, TierState, TierStatus

if TYPE_CHECKING:
    from tiercel.broker.lifecycle.job_events import RunExited
    from tiercel.core.moments import Moment

BACKOFF = Backoff(first_seconds=1.0, longest_seconds=60.0)


def may_retry(job: Job, event: RunExited) -> bool:
    """Whether a run that ended starts again by itself: its script failed or was killed, and nobody wanted it to end."""
    failed = event.exit_code is not None and event.exit_code != 0 and not event.lost
    return failed and job.stop_outcome is None and job.retries < job.spec.retries


def retry(job: Job, how: str, now: Moment) -> Step:
    """Let a job whose script failed wait a while and then start again.

    Args:
        job: The job, its run over.
        how: How its script failed.
        now: The time.
    """
    pause = BACKOFF.seconds(job.retries + 1)
    number = job.retries + 1
    job = replace(job, retries=number, retry_at=now.alive + pause)
    words = f"{how}; it starts again from its last checkpoint in {pause:g} s, retry {number} of {job.spec.retries}"
    return wait_again(job, words, checkpoint_node=job.node_id)


def ticked(job: Job, now: Moment) -> Step:
    """Time passed: the pause before another try may be over."""
    if job.retry_at is None or now.alive < job.retry_at:
        return job, ()
    return replace(job, retry_at=None), (Reschedule("arrival"),)


def resume_requested(job: Job, max_epochs: int) -> Step:
    """The tenant wants a job that ended without all of its tiers to go on; one that goes on already just does.

    What was delivered stays. What could not be delivered is open again.

    Args:
        job: The job.
        max_epochs: Epochs that it may train, those of earlier runs counted; 0 for as many as before.
    """
    if not job.state.is_final or job.state is JobState.COMPLETED:
        return job, ()
    job = replace(
        job,
        spec=replace(job.spec, max_epochs=max_epochs or job.spec.max_epochs),
        tiers=tuple(map(_open_again, job.tiers)),
        finished_at=None,
        log_tail="",
        retries=0,
        lost_runs=0,
        lost_at=(),
        # What the broker held of it went when it ended.
        carried_run="",
    )
    return wait_again(job, "resumed by its tenant", checkpoint_node=job.checkpoint_node or job.node_id)


def wait_again(job: Job, words: str, *, checkpoint_node: str) -> Step:
    """Let a job without a run wait for its next one, and what it had reached for that as well.

    Args:
        job: The job.
        words: Why it waits.
        checkpoint_node: Node that has its newest checkpoint, or empty if that is gone.
    """
    job = replace(
        with_run_counted(job),
        offered_value=None,
        run_active=False,
        node_id="",
        share=None,
        stop_outcome=None,
        stop_reason="",
        move=None,
        # What the broker holds serves on every node; what a node holds serves there.
        checkpoint_node="" if job.carried_run else checkpoint_node,
    )
    job, entered = enter(job, JobState.PENDING, words)
    # Their node cannot carry them out any more; the next one will.
    effects: list[JobEffect] = [*entered, *request_deliveries(job), Reschedule("exit")]
    return job, effects


def _open_again(tier: TierStatus) -> TierStatus:
    if tier.state is not TierState.FAILED:
        return tier
    return TierStatus(tier.number, tier.tier, failed_deliveries=tier.failed_deliveries + 1)
