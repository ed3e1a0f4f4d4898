"""Reading the store's jobs a page at a time: there may be many that are over."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tiercel.broker.actors.job import is_over

if TYPE_CHECKING:
    from tiercel.broker.store.sql import Store
    from tiercel.core.jobs import Job

# That are read from the store together.
JOBS_AT_A_TIME = 500


async def load_unfinished_jobs(store: Store) -> list[Job]:
    """What there is left to do, by submission; of what is over no more than a page is held, and no script is read."""
    found: list[Job] = []
    after: tuple[float, str] | None = None
    while page := await store.list_jobs(after=after, limit=JOBS_AT_A_TIME):
        known = [await store.get_job(job.id) for job in page if not is_over(job)]
        found.extend(job for job in known if job is not None)
        after = (page[-1].submitted_at, page[-1].id)
    return found
