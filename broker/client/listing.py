"""The part of the client that lists what there is: tuples that notebooks show as tables, and data frames."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from tiercel.broker.client.connection import Connection
from tiercel.broker.client.curves import pandas
from tiercel.broker.client.parameters import parameters_of
from tiercel.broker.conversion import endpoint_from_proto, node_from_proto
from tiercel.core.endpoint_views import EndpointInfo
from tiercel.core.errors import wrong_field
from tiercel.core.html import table
from tiercel.core.jobs import TierState
from tiercel.core.jsonable import Jsonable
from tiercel.core.views import JobInfo, NodeInfo
from tiercel.core.wire import from_proto
from tiercel.v1 import jobs_pb2

if TYPE_CHECKING:
    from pandas import DataFrame

T = TypeVar("T", bound=Jsonable)
MOST_ROWS = 200
JOBS_AT_A_TIME = 500


class Listing(tuple[T, ...]):
    """Some of one kind; a tuple."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        """A table, for notebooks."""
        rows = [_row(each) for each in self[:MOST_ROWS]]
        return table(rows, len(self) - len(rows))


def _row(shown: Jsonable) -> Mapping[str, Any]:
    match shown:
        case JobInfo():
            delivered = sum(tier.state is TierState.DELIVERED for tier in shown.tiers)
            return {
                "job": shown.id,
                "name": shown.spec.name,
                "state": shown.state.value,
                "epoch": shown.epoch,
                "best": shown.best_value,
                "tiers": f"{delivered} of {len(shown.tiers)}",
                "endpoint": shown.spec.endpoint,
                "node": shown.node_id,
            }
        case EndpointInfo():
            return {
                "endpoint": shown.name,
                "live version": shown.live_version,
                "requests per second": shown.requests_per_second,
                "mean delay (s)": shown.delay_seconds,
                "access": shown.access.value,
                "node": shown.node_id,
                "serving": shown.serving_http,
            }
        case NodeInfo():
            return {
                "node": shown.id,
                "online": shown.online,
                "cores": shown.cpu_cores,
                "memory (GiB)": shown.memory_bytes / 1024**3,
                "accelerators": len(shown.accelerators),
                "jobs": shown.jobs,
                "drain": shown.drain.value,
            }
    return shown.to_json()


def jobs_frame(jobs: Iterable[JobInfo]) -> DataFrame:
    """A row for each job: what it is, how far it came, what it used, and ``parameter.NAME`` for each parameter.

    Raises:
        SetupError: pandas is not installed.
    """
    rows = [
        {
            "job": job.id,
            "name": job.spec.name,
            "state": job.state.value,
            "endpoint": job.spec.endpoint,
            "metric": job.spec.metric,
            "best": job.best_value,
            "latest": job.latest_value,
            "epoch": job.epoch,
            "tiers_delivered": sum(tier.state is TierState.DELIVERED for tier in job.tiers),
            "cpu_seconds": job.cpu_seconds,
            "accelerator_seconds": job.accelerator_seconds,
            "submitted_at": job.submitted_at,
            "started_seconds": job.started_seconds,
            "finished_seconds": job.finished_seconds,
            **{f"parameter.{name}": value for name, value in parameters_of(job.spec).items()},
        }
        for job in jobs
    ]
    return pandas().DataFrame(rows)


class Lists(ABC):
    """What there is, for a client to look at."""

    @property
    @abstractmethod
    def _connection(self) -> Connection:
        """To the broker."""

    async def get_job(self, job_id: str) -> JobInfo:
        """A job as it is now."""
        request = jobs_pb2.GetJobRequest(job_id=job_id)
        response = await self._connection.call(self._connection.stub.GetJob, request)
        return from_proto(JobInfo, response.job)

    async def list_jobs(self, *, active_only: bool = False, limit: int | None = None) -> tuple[JobInfo, ...]:
        """The tenant's jobs, oldest first; fetched a page at a time.

        Args:
            active_only: Leave out those that have finished.
            limit: Only so many, the newest; None for all.
        """
        if limit is not None and limit < 1:
            raise wrong_field("limit", f"{limit} is not a number of jobs; give 1 or more, or none")
        newest_first = limit is not None
        jobs: list[JobInfo] = []
        token = ""
        while limit is None or len(jobs) < limit:
            request = jobs_pb2.ListJobsRequest(
                active_only=active_only,
                page_size=0 if limit is None else min(limit - len(jobs), JOBS_AT_A_TIME),
                page_token=token,
                newest_first=newest_first,
            )
            response = await self._connection.call(self._connection.stub.ListJobs, request)
            jobs.extend(from_proto(JobInfo, job) for job in response.jobs)
            token = response.next_page_token
            if not token:
                break
        return Listing(reversed(jobs) if newest_first else jobs)

    async def frame(self, jobs: Sequence[str] | None = None) -> DataFrame:
        """Jobs side by side as a pandas data frame: a row for each, with its parameters and how far it came.

        Args:
            jobs: Their ids, 200 at most; None for the tenant's newest 200.

        Raises:
            NotFoundError: The tenant has no such job.
            SetupError: pandas is not installed.
        """
        if jobs is None:
            return jobs_frame(await self.list_jobs(limit=MOST_ROWS))
        if len(jobs) > MOST_ROWS:
            raise wrong_field("jobs", f"are {len(jobs)}; give {MOST_ROWS} at most")
        return jobs_frame([await self.get_job(job_id) for job_id in jobs])

    async def list_nodes(self) -> tuple[NodeInfo, ...]:
        """The machines with an agent."""
        response = await self._connection.call(self._connection.stub.ListNodes, jobs_pb2.ListNodesRequest())
        return Listing(node_from_proto(node) for node in response.nodes)

    async def list_endpoints(self) -> tuple[EndpointInfo, ...]:
        """The tenant's endpoints."""
        response = await self._connection.call(self._connection.stub.ListEndpoints, jobs_pb2.ListEndpointsRequest())
        return Listing(endpoint_from_proto(endpoint) for endpoint in response.endpoints)
