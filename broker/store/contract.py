"""What every store must do; one test suite runs over all of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from tiercel.broker.domain.endpoints import Delivery, Endpoint
    from tiercel.broker.domain.events import Decision, JobEvent
    from tiercel.broker.domain.jobs import Job


class Store(ABC):
    """What survives a restart of the broker; an async context manager that is open inside.

    Implementations MUST return what was saved last, equal in every field, and MUST keep the order that each method
    promises. They need not be safe for several writers: there is one broker.
    """

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @abstractmethod
    async def open(self) -> None:
        """Make ready for use.

        Raises:
            UnavailableError: It cannot be opened; the message says why and what to do.
        """

    @abstractmethod
    async def close(self) -> None:
        """Let go of everything. Closing twice is harmless."""

    @abstractmethod
    async def save(
        self,
        *,
        jobs: Sequence[Job] = (),
        deliveries: Sequence[Delivery] = (),
        endpoints: Sequence[Endpoint] = (),
        decisions: Sequence[Decision] = (),
        events: Sequence[JobEvent] = (),
    ) -> None:
        """Keep all of it or nothing.

        Jobs, deliveries and endpoints replace what has the same id or name; decisions and events are added. A process
        that is killed right after this returned MUST find it again.
        """

    @abstractmethod
    async def load_jobs(self, *, active_only: bool = False) -> list[Job]:
        """All jobs, oldest first (submission, then id); with ``active_only`` those that are not final."""

    @abstractmethod
    async def get_job(self, job_id: str) -> Job | None:
        """The job, or None."""

    @abstractmethod
    async def find_job(self, tenant: str, idempotency_key: str) -> Job | None:
        """The job that the tenant created with this (non-empty) key, or None."""

    @abstractmethod
    async def load_deliveries(self, job_id: str | None = None) -> list[Delivery]:
        """All deliveries, or those of one job, by id."""

    @abstractmethod
    async def load_endpoints(self) -> list[Endpoint]:
        """All endpoints, by name."""

    @abstractmethod
    async def last_sequence(self) -> int:
        """Number of the newest event; 0 when there is none."""

    @abstractmethod
    async def events_after(
        self, sequence: int, *, job_id: str | None = None, tenant: str | None = None, limit: int
    ) -> list[JobEvent]:
        """At most ``limit`` events with a larger number, oldest first."""

    @abstractmethod
    async def load_progress(self, job_id: str, limit: int) -> list[JobEvent]:
        """The newest ``limit`` events of a job whose change is progress, oldest first."""

    @abstractmethod
    async def decisions_of(self, job_id: str, limit: int) -> list[Decision]:
        """The newest ``limit`` decisions about a job, newest first."""

    @abstractmethod
    async def prune_events(self, keep_per_job: int) -> int:
        """Drop progress of each job but the newest ``keep_per_job``; other events stay. Returns how many went."""
