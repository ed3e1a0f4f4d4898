"""What a job is told of itself beyond what it knows: why it has its share now, and what a drained node means for it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tiercel.broker.lifecycle.move import drained_words
from tiercel.core.jobs import JobState
from tiercel.core.nodes import Drain
from tiercel.core.tenant_use import fair_words

if TYPE_CHECKING:
    from tiercel.broker.actors.registry import ActorRegistry
    from tiercel.core.jobs import Job


def explained(job: Job, registry: ActorRegistry) -> Job:
    """The job with the reason that its share has now, which may be another than when it was given.

    One that runs on a drained node, and of which nothing else is to be said, tells whether and when it leaves.
    """
    if job.run is None or job.state.is_final:
        return job
    reason = registry.scheduler.reason_for(job.id, job.node_id)
    if reason:
        fair = fair_words(registry.scheduler.fair_factor(job.tenant))
        reason += f"; {job.tenant} {fair}" if fair else ""
        job = replace(job, run=replace(job.run, share=replace(job.run.share, reason=reason)))
    drain = registry.drains.get(job.node_id, Drain.NO)
    if drain is not Drain.NO and job.state is JobState.RUNNING and not job.reason:
        job = replace(job, reason=drained_words(job, drain, registry.scheduler.reason_to_stay(job.id)))
    return job
