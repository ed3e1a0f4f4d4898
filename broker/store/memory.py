"""A store that forgets everything when the process ends: for tests and the simulator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tiercel.broker.domain.events import Decision, JobEvent, ProgressMade
from tiercel.broker.store.contract import Store

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tiercel.broker.domain.endpoints import Delivery, Endpoint
    from tiercel.broker.domain.jobs import Job


class MemoryStore(Store):
    """Keeps everything in dictionaries; domain objects are immutable, so they are kept as they are."""

    def __init__(self) -> None:
        self._jobs: dict[str, Job] = {}
        self._deliveries: dict[str, Delivery] = {}
        self._endpoints: dict[str, Endpoint] = {}
        self._decisions: list[Decision] = []
        self._events: dict[int, JobEvent] = {}

    async def open(self) -> None:
        """Nothing to do."""

    async def close(self) -> None:
        """Nothing to do: what was saved stays, as it would in a file."""

    async def save(
        self,
        *,
        jobs: Sequence[Job] = (),
        deliveries: Sequence[Delivery] = (),
        endpoints: Sequence[Endpoint] = (),
        decisions: Sequence[Decision] = (),
        events: Sequence[JobEvent] = (),
    ) -> None:
        """See :meth:`.Store.save`."""
        self._jobs.update({job.id: job for job in jobs})
        self._deliveries.update({delivery.id: delivery for delivery in deliveries})
        self._endpoints.update({endpoint.name: endpoint for endpoint in endpoints})
        self._decisions.extend(decisions)
        self._events.update({event.sequence: event for event in events})

    async def load_jobs(self, *, active_only: bool = False) -> list[Job]:
        """See :meth:`.Store.load_jobs`."""
        jobs = [job for job in self._jobs.values() if not (active_only and job.state.is_final)]
        return sorted(jobs, key=lambda job: (job.submitted_at, job.id))

    async def get_job(self, job_id: str) -> Job | None:
        """See :meth:`.Store.get_job`."""
        return self._jobs.get(job_id)

    async def find_job(self, tenant: str, idempotency_key: str) -> Job | None:
        """See :meth:`.Store.find_job`."""
        wanted = (tenant, idempotency_key)
        return next((job for job in self._jobs.values() if (job.tenant, job.idempotency_key) == wanted), None)

    async def load_deliveries(self, job_id: str | None = None) -> list[Delivery]:
        """See :meth:`.Store.load_deliveries`."""
        deliveries = [known for known in self._deliveries.values() if job_id is None or known.job_id == job_id]
        return sorted(deliveries, key=lambda delivery: delivery.id)

    async def load_endpoints(self) -> list[Endpoint]:
        """See :meth:`.Store.load_endpoints`."""
        return [endpoint for _, endpoint in sorted(self._endpoints.items())]

    async def last_sequence(self) -> int:
        """See :meth:`.Store.last_sequence`."""
        return max(self._events, default=0)

    async def events_after(
        self, sequence: int, *, job_id: str | None = None, tenant: str | None = None, limit: int
    ) -> list[JobEvent]:
        """See :meth:`.Store.events_after`."""
        found = [
            event
            for number, event in sorted(self._events.items())
            if number > sequence and job_id in {None, event.job_id} and tenant in {None, event.tenant}
        ]
        return found[:limit]

    async def load_progress(self, job_id: str, limit: int) -> list[JobEvent]:
        """See :meth:`.Store.load_progress`."""
        return self._progress_of(job_id)[-limit:] if limit else []

    async def decisions_of(self, job_id: str, limit: int) -> list[Decision]:
        """See :meth:`.Store.decisions_of`."""
        return [decision for decision in reversed(self._decisions) if decision.job_id == job_id][:limit]

    async def prune_events(self, keep_per_job: int) -> int:
        """See :meth:`.Store.prune_events`."""
        gone = 0
        for job_id in {event.job_id for event in self._events.values()}:
            progress = self._progress_of(job_id)
            for event in progress[: max(0, len(progress) - keep_per_job)]:
                del self._events[event.sequence]
                gone += 1
        return gone

    def _progress_of(self, job_id: str) -> list[JobEvent]:
        return [
            event
            for _, event in sorted(self._events.items())
            if event.job_id == job_id and isinstance(event.change, ProgressMade)
        ]
