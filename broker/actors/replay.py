"""What is the case, told as events: for those who keep the latest of each, and lost it while the broker was away."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tiercel.core.events import EndpointEvent, JobChange, JobEvent, ShareChanged, StateChanged, TierChanged
from tiercel.core.jobs import TierState

if TYPE_CHECKING:
    from tiercel.core.endpoints import Endpoint
    from tiercel.core.jobs import Job


def job_as_it_is(job: Job, sequence: int, now: float) -> list[JobEvent]:
    """A job's state, what became of its tiers, and its share.

    Args:
        job: The job.
        sequence: Number of the newest event there is; these are not new.
        now: Seconds since the Unix epoch.
    """
    changes: list[JobChange] = [StateChanged(job.state, job.reason)]
    changes += [TierChanged(tier) for tier in job.tiers if tier.state is not TierState.PENDING]
    if job.share is not None:
        changes.append(ShareChanged(job.node_id, job.share))
    return [JobEvent(sequence, job.id, job.tenant, now, change) for change in changes]


def endpoint_as_it_is(endpoint: Endpoint, now: float) -> list[EndpointEvent]:
    """The versions that an endpoint answers with, one of each variant; ``now`` in seconds since the Unix epoch."""
    return [EndpointEvent(endpoint.name, endpoint.tenant, now, version) for version in endpoint.live]
