"""Copies what jobs report to a sink until they are over; what the sink has already is not copied again."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Protocol

from tiercel.core.errors import NotFoundError, wrong_field
from tiercel.core.views import JobInfo, ProgressEvent

if TYPE_CHECKING:
    from tiercel.broker.client.client import Client
    from tiercel.core.lineage import Lineage

AT_A_TIME = 200
MOST_JOBS = 100
MOST_VERSIONS = 20
PAUSE_SECONDS = 2.0


class Sink(Protocol):
    """A place that keeps by itself how far it is; called on threads, by one at a time."""

    def begin(self, job: JobInfo) -> int:
        """Make a place for a job, with its parameters, or find it; returns the number of the last event there, or 0."""

    def write(self, job: JobInfo, reports: Sequence[ProgressEvent]) -> None:
        """Keep reports, and with them the number of the last one."""

    def end(self, job: JobInfo, versions: Sequence[Lineage]) -> None:
        """Keep what became of the job, and where its versions come from."""


async def follow(client: Client, job_ids: Sequence[str], sink: Sink) -> dict[str, int]:
    """Copy what jobs have reported and will report until all are over; returns the number of reports of each.

    Args:
        client: Of the tenant.
        job_ids: The jobs, 100 at most.
        sink: Where to.

    Raises:
        NotFoundError: The tenant has no such job.
        TiercelError: The broker is away for too long, or the sink takes nothing; beginning again goes on from there.
    """
    if len(job_ids) > MOST_JOBS:
        raise wrong_field("jobs", f"are {len(job_ids)}; give {MOST_JOBS} at most")
    last: dict[str, int] = {}
    for job_id in dict.fromkeys(job_ids):
        last[job_id] = await asyncio.to_thread(sink.begin, await client.get_job(job_id))
    copied, going_on = dict.fromkeys(last, 0), list(last)
    told: dict[str, tuple[int, float | None]] = {}
    while True:
        for job_id in list(going_on):
            # Asked before its events: once a job is over, all there is to tell is kept.
            job = await client.get_job(job_id)
            is_over = job.state.is_final
            if is_over or told.get(job_id) != (job.epoch, job.latest_value):  # else it has reported nothing since
                last[job_id], more = await _copy(client, job, sink, last[job_id])
                copied[job_id] += more
                told[job_id] = job.epoch, job.latest_value
            if is_over:
                await asyncio.to_thread(sink.end, job, await _versions(client, job))
                going_on.remove(job_id)
        if not going_on:
            return copied
        await asyncio.sleep(PAUSE_SECONDS)


async def _copy(client: Client, job: JobInfo, sink: Sink, after: int) -> tuple[int, int]:
    """Copy what happened since; returns the number of the last event, and how many reports these were."""
    last, copied = after, 0
    batch: list[ProgressEvent] = []
    async with aclosing(client.events(job_id=job.id, after=after, follow=False)) as events:
        async for event in events:
            last = event.sequence
            if isinstance(event, ProgressEvent):
                batch.append(event)
            if len(batch) == AT_A_TIME:
                await asyncio.to_thread(sink.write, job, batch)
                copied, batch = copied + len(batch), []
    if batch:
        await asyncio.to_thread(sink.write, job, batch)
    return last, copied + len(batch)


async def _versions(client: Client, job: JobInfo) -> list[Lineage]:
    try:
        own = [each for each in await client.models.list(job.spec.endpoint) if each.job_id == job.id]
        shown = [await client.models.show(each.endpoint, each.version) for each in own[:MOST_VERSIONS]]
    except NotFoundError:  # nothing was delivered, or the endpoint was deleted since
        return []
    return [card.lineage for card in shown]
