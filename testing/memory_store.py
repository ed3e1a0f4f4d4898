"""A store that forgets everything with the process, and says what has to be the same of the real one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from tiercel.broker.store.contract import Store
from tiercel.broker.store.errors import not_open, second_job_with_key
from tiercel.broker.store.rows import without_script
from tiercel.core.endpoints import Delivery, Endpoint
from tiercel.core.events import JobEvent, ProgressMade, ShareDecision
from tiercel.core.jobs import Job
from tiercel.core.run_records import RunRecord
from tiercel.core.secrets import SealedSecret
from tiercel.core.tenant_use import TenantUse

_T = TypeVar("_T")


@dataclass(slots=True)
class _Contents:
    """Everything that is kept."""

    jobs: dict[str, Job] = field(default_factory=dict)
    keys: dict[tuple[str, str], str] = field(default_factory=dict)
    deliveries: dict[str, Delivery] = field(default_factory=dict)
    endpoints: dict[str, Endpoint] = field(default_factory=dict)
    events: dict[int, JobEvent] = field(default_factory=dict)
    decisions: list[ShareDecision] = field(default_factory=list)
    run_records: dict[str, RunRecord] = field(default_factory=dict)
    uses: dict[str, TenantUse] = field(default_factory=dict)
    secrets: dict[tuple[str, str], SealedSecret] = field(default_factory=dict)
    last_sequence: int = 0


class MemoryStore(Store):
    """Keeps what it is given for as long as the object lives, also over closing and opening again."""

    def __init__(self) -> None:
        self._contents = _Contents()
        self._is_open = False

    async def open(self) -> None:
        """Make the store ready."""
        self._is_open = True

    async def close(self) -> None:
        """Refuse further calls; what was saved stays."""
        self._is_open = False

    async def save(
        self,
        *,
        jobs: Sequence[Job] = (),
        deliveries: Sequence[Delivery] = (),
        endpoints: Sequence[Endpoint] = (),
        decisions: Sequence[ShareDecision] = (),
        events: Sequence[JobEvent] = (),
        run_records: Sequence[RunRecord] = (),
        uses: Sequence[TenantUse] = (),
    ) -> None:
        """Save everything given, or nothing."""
        contents = self._opened()
        keys = _claimed_keys(contents.keys, jobs)
        contents.keys = keys
        contents.jobs |= {job.id: job for job in jobs}
        contents.deliveries |= {delivery.id: delivery for delivery in deliveries}
        contents.endpoints |= {endpoint.name: endpoint for endpoint in endpoints}
        contents.decisions += decisions
        contents.run_records |= {record.job_id: record for record in run_records}
        contents.uses |= {use.tenant: use for use in uses}
        contents.events |= {event.sequence: event for event in events}
        contents.last_sequence = max(contents.last_sequence, *(event.sequence for event in events), 0)

    async def load_jobs(self, *, active_only: bool = False) -> list[Job]:
        """All jobs by submission, or only those that have not finished."""
        jobs = sorted(self._opened().jobs.values(), key=lambda job: (job.submitted_at, job.id))
        return [job for job in jobs if not (active_only and job.state.is_final)]

    async def list_jobs(
        self,
        *,
        tenant: str | None = None,
        active_only: bool = False,
        after: tuple[float, str] | None = None,
        newest_first: bool = False,
        limit: int = 500,
    ) -> list[Job]:
        """Jobs by submission, a page at a time, without their scripts' content."""

        def is_behind(job: Job) -> bool:
            place = (job.submitted_at, job.id)
            return after is None or (place < after if newest_first else place > after)

        jobs = [job for job in await self.load_jobs(active_only=active_only) if tenant in {None, job.tenant}]
        found = [job for job in (reversed(jobs) if newest_first else jobs) if is_behind(job)]
        return [without_script(job) for job in found[:limit]]

    async def get_job(self, job_id: str) -> Job | None:
        """The job, or None."""
        return self._opened().jobs.get(job_id)

    async def job_ids(self, tenant: str, beginning: str, *, limit: int) -> list[str]:
        """Ids of the tenant's jobs that begin like this."""
        jobs = self._opened().jobs.values()
        return sorted(job.id for job in jobs if job.tenant == tenant and job.id.startswith(beginning))[:limit]

    async def find_job(self, tenant: str, idempotency_key: str) -> Job | None:
        """The tenant's job with this key, or None."""
        contents = self._opened()
        return contents.jobs.get(contents.keys.get((tenant, idempotency_key), ""))

    async def load_deliveries(self, job_id: str | None = None) -> list[Delivery]:
        """All deliveries, or those of one job, by the time they were requested."""
        deliveries = sorted(self._opened().deliveries.values(), key=lambda entry: (entry.requested_at, entry.id))
        return [delivery for delivery in deliveries if job_id in {None, delivery.job_id}]

    async def load_endpoints(self) -> list[Endpoint]:
        """All endpoints by name."""
        return sorted(self._opened().endpoints.values(), key=lambda endpoint: endpoint.name)

    async def events_after(
        self, sequence: int, *, job_id: str | None = None, tenant: str | None = None, limit: int = 1000
    ) -> list[JobEvent]:
        """Events with a larger sequence number, oldest first."""
        return [
            event
            for event in self._events()
            if event.sequence > sequence and job_id in {None, event.job_id} and tenant in {None, event.tenant}
        ][:limit]

    async def last_sequence(self) -> int:
        """The largest sequence number ever saved, 0 for none."""
        return self._opened().last_sequence

    async def load_progress(self, job_id: str, *, limit: int) -> list[JobEvent]:
        """The job's latest progress events, oldest first."""
        progress = [event for event in self._events() if event.job_id == job_id and _is_progress(event)]
        return progress[max(len(progress) - limit, 0) :]

    async def decisions_of(self, subject: str, *, limit: int) -> list[ShareDecision]:
        """The latest decisions about a job or an endpoint, the one saved last first."""
        return [decision for decision in reversed(self._opened().decisions) if decision.subject == subject][:limit]

    async def load_run_records(self) -> list[RunRecord]:
        """All run records by the time they were made, then by job."""
        return sorted(self._opened().run_records.values(), key=lambda record: (record.recorded_at, record.job_id))

    async def load_uses(self) -> list[TenantUse]:
        """What each tenant has used, by its name."""
        return [use for _, use in sorted(self._opened().uses.items())]

    async def save_secret(self, secret: SealedSecret) -> None:
        """Save a secret, in place of an earlier one."""
        self._opened().secrets[secret.tenant, secret.name] = secret

    async def load_secrets(self, tenant: str) -> list[SealedSecret]:
        """The tenant's secrets by name."""
        found = (secret for secret in self._opened().secrets.values() if secret.tenant == tenant)
        return sorted(found, key=lambda secret: secret.name)

    async def delete_secret(self, tenant: str, name: str) -> bool:
        """Forget a secret; whether there was one."""
        return self._opened().secrets.pop((tenant, name), None) is not None

    async def prune_run_records(self, keep_per_workload: int, keep_workloads: int) -> int:
        """Drop run records of workloads that have not run for long, and older ones of the others."""
        records = await self.load_run_records()
        newest = {record.workload: (record.recorded_at, record.workload) for record in records}
        kept = set(sorted(newest, key=newest.__getitem__, reverse=True)[:keep_workloads])
        dropped = _older(records, lambda record: record.workload, keep_per_workload)
        gone = {record.job_id for record in dropped}
        gone |= {record.job_id for record in records if record.workload not in kept}
        for job_id in gone:
            del self._contents.run_records[job_id]
        return len(gone)

    async def prune_events(self, keep_per_job: int) -> int:
        """Drop progress events older than the newest ``keep_per_job`` of their job."""
        progress = [event for event in self._events() if _is_progress(event)]
        dropped = _older(progress, lambda event: event.job_id, keep_per_job)
        for event in dropped:
            del self._contents.events[event.sequence]
        return len(dropped)

    async def prune_decisions(self, keep: int) -> int:
        """Drop decisions older than the newest ``keep`` of their subject."""
        contents = self._opened()
        dropped = _older(contents.decisions, lambda decision: decision.subject, keep)
        gone = set(map(id, dropped))
        contents.decisions = [decision for decision in contents.decisions if id(decision) not in gone]
        return len(dropped)

    def _opened(self) -> _Contents:
        if not self._is_open:
            raise not_open()
        return self._contents

    def _events(self) -> list[JobEvent]:
        return sorted(self._opened().events.values(), key=lambda event: event.sequence)


def _claimed_keys(present: dict[tuple[str, str], str], jobs: Iterable[Job]) -> dict[tuple[str, str], str]:
    """The idempotency keys in use once ``jobs`` are saved too."""
    keys = dict(present)
    for job in jobs:
        if job.idempotency_key and keys.setdefault((job.tenant, job.idempotency_key), job.id) != job.id:
            raise second_job_with_key()
    return keys


def _is_progress(event: JobEvent) -> bool:
    return isinstance(event.change, ProgressMade)


def _older(entries: Iterable[_T], job_of: Callable[[_T], str], keep_per_job: int) -> list[_T]:
    """All but the last ``keep_per_job`` of each job."""
    by_job: dict[str, list[_T]] = defaultdict(list)
    for entry in entries:
        by_job[job_of(entry)].append(entry)
    return [entry for group in by_job.values() for entry in group[: max(len(group) - keep_per_job, 0)]]
