"""What was, of jobs: curves, shares, runs, events and output, each as much as can be shown."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any

from tiercel.broker.actors.clock import moment_of
from tiercel.broker.api.auth import tenant_of
from tiercel.broker.conversion import event_of
from tiercel.broker.dashboard.curve import decimated
from tiercel.broker.dashboard.routes import Route
from tiercel.broker.lifecycle.duration import run_seconds
from tiercel.core.errors import NotFoundError
from tiercel.core.events import JobEvent, ShareChanged, StateChanged, TierChanged
from tiercel.core.jsonable import Json, json_of
from tiercel.core.lineage import Lineage
from tiercel.core.tasks import run_in_thread
from tiercel.core.wire import from_proto
from tiercel.v1 import jobs_pb2, lineage_pb2

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tiercel.broker.actors.clock import Clock
    from tiercel.broker.actors.registry import ActorRegistry
    from tiercel.broker.actors.service import BrokerService
    from tiercel.broker.api.auth import Context
    from tiercel.broker.api.methods import Calls
    from tiercel.broker.dashboard.asked import Asked
    from tiercel.broker.store.history import History, Report
    from tiercel.broker.store.logs import RunLogs
    from tiercel.broker.tenancy import Tenancy
    from tiercel.core.jobs import Job

WIDTH, MOST_WIDTH = 800, 4_000
MOST_REPORTS = 10_000
MOST_SHARES = 2_000
EVENTS_SHOWN, MOST_EVENTS_SHOWN = 200, 2_000
_REPORTED_AT, _REPORTED = attrgetter("at"), attrgetter("value")
LOG_BYTES, MOST_LOG_BYTES = 64 * 1024, 1024 * 1024


class Histories:
    """Reads what is kept of a tenant's jobs.

    Args:
        service: Knows whose jobs they are.
        registry: Knows when their tiers may be reached.
        history: Their events.
        logs: Their output.
        tenancy: Who asks.
        calls: Say where versions come from.
        clock: What time it is.
    """

    def __init__(
        self,
        service: BrokerService,
        registry: ActorRegistry,
        history: History,
        logs: RunLogs,
        tenancy: Tenancy,
        calls: Calls,
        clock: Clock,
    ) -> None:
        self._clock = clock
        self._registry = registry
        self._calls = calls
        self._service = service
        self._history = history
        self._logs = logs
        self._tenancy = tenancy

    def routes(self) -> tuple[Route, ...]:
        """What is asked of them."""

        def get(asked: Asked) -> jobs_pb2.GetJobRequest:
            return jobs_pb2.GetJobRequest(job_id=asked.part("job"))

        return (
            Route("GET", "jobs/{job}/curve", "JobsService/GetJob", get, read=self._curve),
            Route("GET", "jobs/{job}/shares", "JobsService/GetJob", get, read=self._shares),
            Route("GET", "jobs/{job}/runs", "JobsService/GetJob", get, read=self._runs),
            Route("GET", "jobs/{job}/events", "JobsService/WatchJobs", get, read=self._events),
            Route("GET", "jobs/{job}/lineage", "LineageService/GetLineage", get, read=self._lineage),
            Route("GET", "jobs/{job}/log", "JobsService/StreamLogs", get, read=self._log),
        )

    async def _job(self, asked: Asked, context: Context) -> Job:
        return await self._service.find_job(tenant_of(context, self._tenancy).name, asked.part("job"))

    async def _curve(self, asked: Asked, context: Context) -> Json:
        """What it reported of its metric, thinned to `width` columns, and when its next tiers are expected."""
        job = await self._job(asked, context)
        width = asked.number("width", WIDTH, MOST_WIDTH)
        reports, total = await self._history.reports(job.id, MOST_REPORTS)
        drawn = await run_in_thread(decimated, reports, width, _REPORTED_AT, _REPORTED)
        return {
            "metric": job.spec.metric,
            "direction": job.spec.direction.value,
            "points": [[_since(job, report.at), report.value, report.epoch] for report in drawn],
            "total": total,
            "decimated": len(drawn) < total,
            "best": job.best_value,
            "forecast": self._forecast(job, reports),
        }

    def _forecast(self, job: Job, reports: Sequence[Report]) -> Json | None:
        """When its tiers may be reached, or None while no earlier run tells."""
        times = self._registry.scheduler.tier_times(job.id)
        if not times or not reports or job.state.is_final:
            return None
        now = _since(job, reports[-1].at)
        return {
            "tiers": [
                {
                    "tier": time.number,
                    "seconds": now + time.expected,
                    "low": now + time.low,
                    "high": now + time.high,
                    "never": time.never,
                }
                for time in times
            ]
        }

    async def _shares(self, asked: Asked, context: Context) -> Json:
        """What it had of its node over time, with the reason of each change."""
        job = await self._job(asked, context)
        width = asked.number("width", WIDTH, MOST_WIDTH)
        events = await self._history.events(job.id, (ShareChanged,), MOST_SHARES)
        drawn = decimated(events, width, lambda event: event.at, _weight)
        points = [
            {
                "seconds": _since(job, event.at),
                "node_id": event.change.node_id,
                "cpu_weight": event.change.share.cpu_weight,
                "cpu_cap_cores": event.change.share.cpu_cap_cores,
                "accelerators": json_of(event.change.share.accelerators),
                "reason": event.change.share.reason,
            }
            for event in drawn
            if isinstance(event.change, ShareChanged)
        ]
        return {"points": points, "cut": len(events) == MOST_SHARES, "decimated": len(drawn) < len(events)}

    async def _runs(self, asked: Asked, context: Context) -> Json:
        """Its runs, and how each ended."""
        job = await self._job(asked, context)
        run, earlier = job.run, job.earlier
        return {
            "count": job.attempts,
            "present": None
            if run is None
            else {
                "number": run.number,
                "node_id": run.node_id,
                "active": run.active,
                "cpu_seconds": run.cpu_seconds,
                "accelerator_seconds": run.accelerator_seconds,
                "seconds": run_seconds(run, moment_of(self._clock)) if run.active else run.time.seconds,
                "moving_to": run.move.node_id if run.move is not None else "",
            },
            "earlier": {
                "count": earlier.count,
                "cpu_seconds": earlier.cpu_seconds,
                "accelerator_seconds": earlier.accelerator_seconds,
                "seconds": earlier.seconds,
                "lost": earlier.lost,
                "moves": earlier.migrations,
                "moved_seconds": _since(job, earlier.migrated_at) if earlier.migrated_at is not None else None,
            },
            "starts": json_of(job.starts),
        }

    async def _events(self, asked: Asked, context: Context) -> Json:
        """What happened to it."""
        job = await self._job(asked, context)
        most = asked.number("limit", EVENTS_SHOWN, MOST_EVENTS_SHOWN)
        events = await self._history.events(job.id, (StateChanged, TierChanged, ShareChanged), most)
        return {"events": [event_of(event).to_json() for event in events], "cut": len(events) == most}

    async def _lineage(self, asked: Asked, context: Context) -> list[Json]:
        """Where the versions that it trained come from."""
        job = await self._job(asked, context)
        answer: Any = self._calls.handler("/tiercel.v1.LineageService/GetLineage").unary_unary
        try:
            found = await answer(lineage_pb2.GetLineageRequest(endpoint=job.spec.endpoint), context)
        except NotFoundError:  # it was deleted since
            return []
        return [from_proto(Lineage, each).to_json() for each in found.versions if each.job_id == job.id]

    async def _log(self, asked: Asked, context: Context) -> str:
        """The end of its output, as text."""
        job = await self._job(asked, context)
        most = asked.number("bytes", LOG_BYTES, MOST_LOG_BYTES)
        if not job.run_id:
            return ""
        found, offset = bytearray(), max(0, self._logs.size(job.run_id) - most)
        while len(found) < most:
            begin, data = self._logs.read(job.run_id, offset)
            if not data:
                break
            found += data
            offset = begin + len(data)
        return bytes(found[:most]).decode(errors="replace")


def _since(job: Job, at: float) -> float:
    return max(0.0, at - job.submitted_at)


def _weight(event: JobEvent) -> float:
    return event.change.share.cpu_weight if isinstance(event.change, ShareChanged) else 0.0
