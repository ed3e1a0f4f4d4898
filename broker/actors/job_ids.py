"""A job by its id, or by the beginning of it where that is one of a tenant's alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tiercel.core.errors import NotFoundError, wrong_field

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tiercel.broker.actors.registry import ActorRegistry
    from tiercel.broker.store.sql import Store
    from tiercel.core.jobs import Job

_SHOWN = 5


async def job_of(tenant: str, job_id: str, registry: ActorRegistry, store: Store) -> Job:
    """The tenant's job.

    Args:
        tenant: Whose.
        job_id: Its id, or the beginning of it.
        registry: Has the jobs that go on.
        store: Has all.

    Raises:
        NotFoundError: The tenant has no such job.
        InvalidSpecError: Several ids begin like that; names them.
    """
    job = await find_job(job_id, registry, store)
    if job is None or job.tenant != tenant:
        found = await store.job_ids(tenant, job_id, limit=_SHOWN + 1) if job_id else []
        job = await find_job(the_one(job_id, found), registry, store)
    if job is None:
        raise NotFoundError(f"job_id: there is no job {job_id!r}; 'tiercel ls' lists yours", field="job_id")
    return job


def the_one(beginning: str, found: Sequence[str]) -> str:
    """The id that begins like this; empty where none does.

    Raises:
        InvalidSpecError: Several do; names them.
    """
    if len(found) > 1:
        told = ", ".join(found[:_SHOWN]) + (" and others" if len(found) > _SHOWN else "")
        raise wrong_field("job_id", f"{beginning!r} is the beginning of {told}; give more of the id")
    return found[0] if found else ""


async def find_job(job_id: str, registry: ActorRegistry, store: Store) -> Job | None:
    """The job of this id, whosever it is; None where there is none."""
    actor = registry.jobs.get(job_id)
    return actor.job if actor is not None else await store.get_job(job_id) if job_id else None
