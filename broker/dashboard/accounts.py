"""Who did what, who used what, and who may use what."""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from tiercel.broker.api.auth import caller_by_metadata
from tiercel.broker.dashboard.routes import Route
from tiercel.core.audit import calls_of
from tiercel.core.durations import seconds_in
from tiercel.core.errors import InvalidRequestError
from tiercel.core.jsonable import Json, json_of
from tiercel.core.quotas import Quota
from tiercel.core.wire import from_proto
from tiercel.v1 import audit_pb2, quotas_pb2, status_pb2

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from tiercel.broker.actors.clock import Clock
    from tiercel.broker.actors.registry import ActorRegistry
    from tiercel.broker.actors.service import BrokerService
    from tiercel.broker.api.auth import Context
    from tiercel.broker.dashboard.asked import Asked
    from tiercel.broker.store.audit import AuditStore
    from tiercel.broker.store.history import History
    from tiercel.broker.tenancy import Tenancy
    from tiercel.core.jobs import Job

ROWS_SHOWN, MOST_ROWS_SHOWN = 200, 1_000
JOBS_AT_A_TIME = 100
# Of those that were submitted last.
MOST_JOBS = 1_000


class Accounts:
    """Reads the audit log, and adds up what was used.

    Args:
        audit: The log.
        service: Knows the jobs.
        registry: Knows what endpoints used.
        history: What jobs had used by when.
        tenancy: Who asks.
        clock: The time.
    """

    def __init__(
        self,
        audit: AuditStore,
        service: BrokerService,
        registry: ActorRegistry,
        history: History,
        tenancy: Tenancy,
        clock: Clock,
    ) -> None:
        self._audit = audit
        self._service = service
        self._registry = registry
        self._history = history
        self._tenancy = tenancy
        self._clock = clock

    def routes(self) -> tuple[Route, ...]:
        """What is asked of them."""
        return (
            Route("GET", "audit", "AuditService/ReadAudit", lambda _: audit_pb2.ReadAuditRequest(), read=self._rows),
            Route("GET", "usage", "StatusService/GetStatus", lambda _: status_pb2.GetStatusRequest(), read=self._usage),
            Route(
                "GET",
                "quotas",
                "QuotasService/GetQuotas",
                lambda _: quotas_pb2.GetQuotasRequest(),
                lambda found: [from_proto(Quota, each).to_json() for each in found.quotas],
            ),
        )

    async def _rows(self, asked: Asked, _: Context) -> Json:
        """Who changed what and who was refused, the newest first; `before` and `limit` say which."""
        limit = asked.number("limit", ROWS_SHOWN, MOST_ROWS_SHOWN)
        rows, ended_later = await self._audit.latest(asked.number("before", 0, 2**62), limit)
        calls = sorted(calls_of(rows), key=lambda call: call.number, reverse=True)
        return {
            "calls": [call.to_json() for call in calls if call.number not in ended_later],
            "next": rows[0].number if len(rows) == limit else None,
        }

    async def _usage(self, asked: Asked, context: Context) -> Json:
        """CPU and accelerator time by tenant, job and endpoint; `since` says from when on."""
        caller = caller_by_metadata(context.invocation_metadata(), self._tenancy)
        tenant = caller.tenant.name if caller.tenant is not None else ""
        since = self._since(asked.text("since"))
        jobs: list[Json] = []
        seen = 0
        async for job in self._jobs(tenant):
            seen += 1
            if job.finished_at is None or job.finished_at >= since:
                jobs.append(await self._of_job(job, since))
        endpoints = self._of_endpoints(tenant)
        sums: defaultdict[str, Json] = defaultdict(lambda: {"cpu_seconds": 0.0, "accelerator_seconds": 0.0, "jobs": 0})
        for job_use in jobs:
            total = sums[job_use["tenant"]]
            total["cpu_seconds"] += job_use["cpu_seconds"]
            total["accelerator_seconds"] += job_use["accelerator_seconds"]
            total["jobs"] += 1
        return {
            "since": json_of(datetime.fromtimestamp(since, UTC)) if since else None,
            "tenants": [{"tenant": name, **total} for name, total in sorted(sums.items())],
            "jobs": jobs,
            "endpoints": endpoints,
            "cut": seen >= MOST_JOBS,
        }

    def _since(self, text: str) -> float:
        if not text:
            return 0.0
        try:
            return max(0.0, self._clock.now() - seconds_in(text))
        except ValueError:
            message = f"since: {text[:40]!r} is no time; write how long ago, such as 24h or 7d"
            raise InvalidRequestError(message, field="since") from None

    async def _jobs(self, tenant: str) -> AsyncGenerator[Job]:
        """The latest jobs of a tenant, or of all."""
        after: tuple[float, str] | None = None
        for _ in range(MOST_JOBS // JOBS_AT_A_TIME):
            page = await self._service.jobs_of(
                tenant or None, active_only=False, after=after, newest_first=True, limit=JOBS_AT_A_TIME
            )
            for job in page:
                yield job
            if len(page) < JOBS_AT_A_TIME:
                return
            after = page[-1].submitted_at, page[-1].id

    async def _of_job(self, job: Job, since: float) -> Json:
        """What it used since then: all of it, but for what it had used by its last report before."""
        began_before = job.started_at is not None and job.started_at < since
        before = await self._history.last_before(job.id, since) if began_before else None
        return {
            "id": job.id,
            "name": job.spec.name,
            "tenant": job.tenant,
            "state": job.state.value,
            "cpu_seconds": max(0.0, job.cpu_seconds - (before.cpu_seconds if before is not None else 0.0)),
            "accelerator_seconds": max(
                0.0, job.accelerator_seconds - (before.accelerator_seconds if before is not None else 0.0)
            ),
            "approximate": began_before,
        }

    def _of_endpoints(self, tenant: str) -> list[Json]:
        """What endpoints used since the broker began, on all nodes."""
        found: list[Json] = []
        for name, actor in sorted(self._registry.endpoints.items()):
            if actor.endpoint.versions and tenant in {"", actor.endpoint.tenant}:
                counted = [each.usage for each in self._registry.counted(name).values()]
                found.append(
                    {
                        "name": name,
                        "tenant": actor.endpoint.tenant,
                        "cpu_seconds": sum(usage.cpu_seconds for usage in counted),
                        "requests": sum(usage.requests for usage in counted),
                    }
                )
        return found
