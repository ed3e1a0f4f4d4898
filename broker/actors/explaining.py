"""What a tenant is told beyond what jobs and endpoints know of themselves: why it is so now, and what is awaited."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tiercel.broker.lifecycle.awaited import awaited_words
from tiercel.broker.lifecycle.move import drained_words
from tiercel.core.endpoints import delivery_id
from tiercel.core.jobs import JobState, TierState
from tiercel.core.nodes import Drain
from tiercel.core.tenant_use import fair_words

if TYPE_CHECKING:
    from tiercel.broker.actors.registry import ActorRegistry
    from tiercel.core.jobs import Job


def awaited(endpoint: str, registry: ActorRegistry) -> dict[str, str]:
    """By delivery: why a version of an endpoint is not announced yet that was judged, and how far that is."""
    actor, store = registry.endpoints.get(endpoint), registry.versions
    if actor is None:
        return {}
    return {
        each.files.delivery_id: awaited_words(
            each,
            is_held=store.held(endpoint).get(each.files.version) == each.files.sha256,
            arrived=store.arrived(endpoint, each.files.version),
            fetched=store.fetched(endpoint, each.files.version),
        )
        for each in actor.awaited
    }


def explained(job: Job, registry: ActorRegistry) -> Job:
    """The job with the reason that its share has now, which may be another than when it was given.

    One that runs on a drained node, and of which nothing else is to be said, tells whether and when it leaves; a tier
    that was reached, which other nodes it waits for before it is delivered.
    """
    if job.state.is_final:
        return job
    if any(tier.state is TierState.REACHED for tier in job.tiers):
        words = awaited(job.spec.endpoint, registry)
        tiers = [(tier, words.get(delivery_id(job.id, tier.number, job.delivery_count(tier)))) for tier in job.tiers]
        job = replace(job, tiers=tuple(replace(tier, reason=said) if said else tier for tier, said in tiers))
    if job.run is None:
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
