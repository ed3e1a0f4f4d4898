"""The store in a SQL database: SQLite in a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.util.exc import CommandError
from sqlalchemy.dialects import sqlite
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from tiercel.broker.domain.endpoints import Delivery, Endpoint
from tiercel.broker.domain.errors import UnavailableError
from tiercel.broker.domain.events import Decision, JobEvent, ProgressMade
from tiercel.broker.domain.jobs import Job, JobState
from tiercel.broker.store import schema
from tiercel.broker.store.contract import Store
from tiercel.broker.store.serialization import dumps, loads

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy.engine import Connection

T = TypeVar("T")

_MIGRATIONS = Path(__file__).parent / "migrations"
_FINAL_STATES = [state.value for state in JobState if state.is_final]
_PROGRESS = ProgressMade.__name__
BUSY_SECONDS = 10.0


class SqlStore(Store):
    """Keeps everything in one SQLite database, in write-ahead mode.

    With ``synchronous=NORMAL`` what was saved survives the end of the process in any way, ``kill -9`` included; the
    last moments before a power failure may be lost, but the database stays sound.

    Args:
        url: SQLAlchemy's URL of the database.
    """

    def __init__(self, url: sa.URL) -> None:
        self._url = url
        self._engine: AsyncEngine | None = None

    @classmethod
    def in_file(cls, path: Path) -> Self:
        """A store in a SQLite file, which is made when missing."""
        return cls(sa.URL.create("sqlite+aiosqlite", database=str(path.absolute())))

    async def open(self) -> None:
        """See :meth:`.Store.open`; brings the schema up to date."""
        engine = create_async_engine(self._url, connect_args={"timeout": BUSY_SECONDS})
        sa.event.listen(engine.sync_engine, "connect", _configure_connection)
        try:
            async with engine.begin() as connection:
                await connection.run_sync(_migrate)
        except (sa.exc.DatabaseError, CommandError) as error:
            await engine.dispose()
            cause = error.orig if isinstance(error, sa.exc.DatabaseError) else error
            raise UnavailableError(
                f"the store {self._url.database} cannot be opened ({cause}); if another program or a newer "
                "Tiercel made the file, use that, or another state directory"
            ) from error
        self._engine = engine

    async def close(self) -> None:
        """See :meth:`.Store.close`."""
        engine, self._engine = self._engine, None
        if engine is not None:
            await engine.dispose()

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
        async with self._opened().begin() as connection:
            for table, rows in (
                (schema.jobs, [_job_row(job) for job in jobs]),
                (schema.deliveries, [_delivery_row(delivery) for delivery in deliveries]),
                (schema.endpoints, [_endpoint_row(endpoint) for endpoint in endpoints]),
            ):
                if rows:
                    await connection.execute(_upsert(table), rows)
            if decisions:
                await connection.execute(sa.insert(schema.decisions), [_decision_row(one) for one in decisions])
            if events:
                await connection.execute(sa.insert(schema.events), [_event_row(event) for event in events])

    async def load_jobs(self, *, active_only: bool = False) -> list[Job]:
        """See :meth:`.Store.load_jobs`."""
        query = sa.select(schema.jobs.c.body).order_by(schema.jobs.c.submitted_at, schema.jobs.c.id)
        if active_only:
            query = query.where(schema.jobs.c.state.not_in(_FINAL_STATES))
        return await self._load(Job, query)

    async def get_job(self, job_id: str) -> Job | None:
        """See :meth:`.Store.get_job`."""
        return next(iter(await self._load(Job, sa.select(schema.jobs.c.body).where(schema.jobs.c.id == job_id))), None)

    async def find_job(self, tenant: str, idempotency_key: str) -> Job | None:
        """See :meth:`.Store.find_job`."""
        query = sa.select(schema.jobs.c.body).where(
            schema.jobs.c.tenant == tenant, schema.jobs.c.idempotency_key == idempotency_key
        )
        return next(iter(await self._load(Job, query)), None)

    async def load_deliveries(self, job_id: str | None = None) -> list[Delivery]:
        """See :meth:`.Store.load_deliveries`."""
        query = sa.select(schema.deliveries.c.body).order_by(schema.deliveries.c.id)
        if job_id is not None:
            query = query.where(schema.deliveries.c.job_id == job_id)
        return await self._load(Delivery, query)

    async def load_endpoints(self) -> list[Endpoint]:
        """See :meth:`.Store.load_endpoints`."""
        return await self._load(Endpoint, sa.select(schema.endpoints.c.body).order_by(schema.endpoints.c.name))

    async def last_sequence(self) -> int:
        """See :meth:`.Store.last_sequence`."""
        async with self._opened().connect() as connection:
            newest = await connection.scalar(sa.select(sa.func.max(schema.events.c.sequence)))
        return newest or 0

    async def events_after(
        self, sequence: int, *, job_id: str | None = None, tenant: str | None = None, limit: int
    ) -> list[JobEvent]:
        """See :meth:`.Store.events_after`."""
        table = schema.events
        query = sa.select(table.c.body).where(table.c.sequence > sequence).order_by(table.c.sequence).limit(limit)
        if job_id is not None:
            query = query.where(table.c.job_id == job_id)
        if tenant is not None:
            query = query.where(table.c.tenant == tenant)
        return await self._load(JobEvent, query)

    async def load_progress(self, job_id: str, limit: int) -> list[JobEvent]:
        """See :meth:`.Store.load_progress`."""
        table = schema.events
        query = (
            sa.select(table.c.body)
            .where(table.c.job_id == job_id, table.c.kind == _PROGRESS)
            .order_by(table.c.sequence.desc())
            .limit(limit)
        )
        return (await self._load(JobEvent, query))[::-1]

    async def decisions_of(self, job_id: str, limit: int) -> list[Decision]:
        """See :meth:`.Store.decisions_of`."""
        table = schema.decisions
        query = sa.select(table.c.body).where(table.c.job_id == job_id).order_by(table.c.id.desc()).limit(limit)
        return await self._load(Decision, query)

    async def prune_events(self, keep_per_job: int) -> int:
        """See :meth:`.Store.prune_events`."""
        table = schema.events
        age = sa.func.row_number().over(partition_by=table.c.job_id, order_by=table.c.sequence.desc())
        ranked = sa.select(table.c.sequence, age.label("age")).where(table.c.kind == _PROGRESS).subquery()
        old = sa.select(ranked.c.sequence).where(ranked.c.age > keep_per_job)
        async with self._opened().begin() as connection:
            result = await connection.execute(sa.delete(table).where(table.c.sequence.in_(old)))
        return result.rowcount

    async def _load(self, kind: type[T], query: sa.Select[tuple[str]]) -> list[T]:
        async with self._opened().connect() as connection:
            rows = (await connection.execute(query)).all()
        return [loads(kind, row.body) for row in rows]

    def _opened(self) -> AsyncEngine:
        if self._engine is None:
            raise UnavailableError("the store is not open")
        return self._engine


def _configure_connection(connection: Any, _record: object) -> None:
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.execute("PRAGMA synchronous=NORMAL")
    cursor.close()


def _migrate(connection: Connection) -> None:
    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def _upsert(table: sa.Table) -> sqlite.Insert:
    statement = sqlite.insert(table)
    return statement.on_conflict_do_update(
        index_elements=list(table.primary_key.columns),
        set_={column.name: statement.excluded[column.name] for column in table.columns if not column.primary_key},
    )


def _job_row(job: Job) -> dict[str, object]:
    return {
        "id": job.id,
        "tenant": job.tenant,
        "state": job.state.value,
        "submitted_at": job.submitted_at,
        "idempotency_key": job.idempotency_key or None,
        "body": dumps(job),
    }


def _delivery_row(delivery: Delivery) -> dict[str, object]:
    return {"id": delivery.id, "job_id": delivery.job_id, "state": delivery.state.value, "body": dumps(delivery)}


def _endpoint_row(endpoint: Endpoint) -> dict[str, object]:
    return {"name": endpoint.name, "tenant": endpoint.tenant, "body": dumps(endpoint)}


def _decision_row(decision: Decision) -> dict[str, object]:
    return {"job_id": decision.job_id, "at": decision.at, "body": dumps(decision)}


def _event_row(event: JobEvent) -> dict[str, object]:
    return {
        "sequence": event.sequence,
        "job_id": event.job_id,
        "tenant": event.tenant,
        "kind": type(event.change).__name__,
        "at": event.at,
        "body": dumps(event),
    }
