"""What the broker needs of a store; every implementation passes the same tests."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from tiercel.core.endpoints import Delivery, Endpoint
from tiercel.core.events import JobEvent, ShareDecision
from tiercel.core.jobs import Job
from tiercel.core.run_records import RunRecord
from tiercel.core.secrets import SealedSecret
from tiercel.core.tenant_use import TenantUse


class Store(ABC):
    """Jobs, deliveries, endpoints, decisions and events that outlive the broker's process.

    An asynchronous context manager: entering opens it, leaving closes it. Every operation MUST raise
    :class:`.UnavailableError` with a sentence for the user when the store is not open or does not answer, and
    :class:`.StoreDamagedError` when it holds something it cannot read. What it returns MUST equal what was saved, NaN
    and infinities included.

    Durability: once ``save`` has returned, what it saved MUST survive the broker's process being killed. An
    implementation says what it keeps when the machine itself loses power.
    """

    @abstractmethod
    async def open(self) -> None:
        """Make the store ready; bring an older schema up to date.

        Raises:
            UnavailableError: It cannot be opened, is not ours, or was written by a newer Tiercel.
            StoreDamagedError: It is damaged.
        """

    @abstractmethod
    async def close(self) -> None:
        """Let go of everything. MUST be safe to call twice and on a store that failed to open."""

    @abstractmethod
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
        """Save everything given, or nothing: it MUST be one atomic transaction.

        Jobs, deliveries, endpoints, events, run records and uses replace those of the same id, name, sequence, job or
        tenant; decisions are added. A job is saved with its script's content, which MUST NOT change over its life.

        Raises:
            InvalidSpecError: Another job of the tenant has the same idempotency key (field ``idempotency_key``).
            CannotWriteError: The disk takes nothing, or another program holds the store. Nothing was saved.
            UnavailableError: The store does not answer. The call may have been carried out; repeating it is safe, but
                for decisions, which may then be there twice.
            TiercelError: The store refuses something in the call; repeating it is of no use.
            TypeError: Something in the call is not of its field's type, where it has to be written.
        """

    @abstractmethod
    async def load_jobs(self, *, active_only: bool = False) -> list[Job]:
        """All jobs by submission (time, then id), or only those that have not finished."""

    @abstractmethod
    async def list_jobs(
        self,
        *,
        tenant: str | None = None,
        active_only: bool = False,
        after: tuple[float, str] | None = None,
        newest_first: bool = False,
        limit: int = 500,
    ) -> list[Job]:
        """Jobs by submission (time, then id), their scripts without content, which MUST NOT be read.

        Args:
            tenant: Only this one's.
            active_only: Only those that have not finished.
            after: Only what comes behind a job with this time of submission and id.
            newest_first: The other way round.
            limit: At most so many.
        """

    @abstractmethod
    async def get_job(self, job_id: str) -> Job | None:
        """The job, or None."""

    @abstractmethod
    async def job_ids(self, tenant: str, beginning: str, *, limit: int) -> list[str]:
        """Ids of the tenant's jobs that begin like this, sorted, at most so many."""

    @abstractmethod
    async def find_job(self, tenant: str, idempotency_key: str) -> Job | None:
        """The tenant's job with this key, or None. An empty key MUST find nothing."""

    @abstractmethod
    async def load_deliveries(self, job_id: str | None = None) -> list[Delivery]:
        """All deliveries, or those of one job, by the time they were requested, then id."""

    @abstractmethod
    async def load_endpoints(self) -> list[Endpoint]:
        """All endpoints by name."""

    @abstractmethod
    async def events_after(
        self, sequence: int, *, job_id: str | None = None, tenant: str | None = None, limit: int = 1000
    ) -> list[JobEvent]:
        """Events with a larger sequence number, oldest first, at most ``limit``; of one job or one tenant if given."""

    @abstractmethod
    async def last_sequence(self) -> int:
        """The largest sequence number ever saved, 0 for none. Pruning MUST NOT make it smaller."""

    @abstractmethod
    async def load_progress(self, job_id: str, *, limit: int) -> list[JobEvent]:
        """The job's latest ``limit`` progress events, oldest first."""

    @abstractmethod
    async def decisions_of(self, subject: str, *, limit: int) -> list[ShareDecision]:
        """The latest ``limit`` decisions about a subject (:attr:`.ShareDecision.subject`), the one saved last first."""

    @abstractmethod
    async def load_run_records(self) -> list[RunRecord]:
        """All run records by the time they were made, then by job."""

    @abstractmethod
    async def load_uses(self) -> list[TenantUse]:
        """What each tenant has used, by its name."""

    @abstractmethod
    async def save_secret(self, secret: SealedSecret) -> None:
        """Save a secret, in place of an earlier one of the same tenant and name; raises as ``save`` does."""

    @abstractmethod
    async def load_secrets(self, tenant: str) -> list[SealedSecret]:
        """The tenant's secrets by name."""

    @abstractmethod
    async def delete_secret(self, tenant: str, name: str) -> bool:
        """Forget a secret; whether there was one."""

    @abstractmethod
    async def prune_run_records(self, keep_per_workload: int, keep_workloads: int) -> int:
        """Drop run records older than the newest ``keep_per_workload`` of their workload.

        Of workloads, the ``keep_workloads`` whose newest record is the newest stay; all others' records go.

        Returns:
            How many were dropped.
        """

    @abstractmethod
    async def prune_events(self, keep_per_job: int) -> int:
        """Drop progress events older than the newest ``keep_per_job`` of their job; other events MUST stay.

        Returns:
            How many were dropped.
        """

    @abstractmethod
    async def prune_decisions(self, keep: int) -> int:
        """Drop decisions older than the newest ``keep`` of their subject; returns how many were dropped."""

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
