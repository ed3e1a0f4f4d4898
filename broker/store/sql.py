"""A store in an SQL database: SQLite in one file by default.

SQLite runs in write-ahead mode with ``synchronous=FULL``: what was saved survives a killed process, and a machine that
loses power. Before its tables are changed by a newer Tiercel, the file is copied. Whole dataclasses are kept as JSON
beside the columns that they are looked up by. Nothing here is SQLite's own but the settings of a connection and the
words for its failures, so that the URL of a PostgreSQL database can take its place.
"""

from __future__ import annotations

import asyncio
import re
import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self, TypeVar

from sqlalchemy import URL, Connection, Delete, Select, Table, delete, event, func, make_url, select, tuple_
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import DataError, IntegrityError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.pool import ConnectionPoolEntry

from tiercel.broker.store import errors, rows, tables
from tiercel.broker.store.backups import back_up_before_upgrade, backups_of
from tiercel.broker.store.failures import cause_of, failure_of
from tiercel.broker.store.schema import ForeignSchemaError, upgrade_schema
from tiercel.core.endpoints import Delivery, Endpoint
from tiercel.core.errors import StoreDamagedError, TiercelError, UnavailableError
from tiercel.core.events import JobEvent, ProgressMade, ShareDecision
from tiercel.core.jobs import Job, JobState
from tiercel.core.run_records import RunRecord
from tiercel.core.secrets import SealedSecret
from tiercel.core.storage import from_json
from tiercel.core.tenant_use import TenantUse

# Of another program that holds the lock; longer than any transaction of ours.
LOCK_SECONDS = 2.0
# After which an operation is given up.
ANSWER_SECONDS = 30.0
# Some upgrades rewrite every job: a hundred thousand took eleven seconds of CPU.
UPGRADE_SECONDS = 600.0
_T = TypeVar("_T")
_FINAL = sorted(state.value for state in JobState if state.is_final)
_PROGRESS = ProgressMade.__name__
# SQLite names the columns, PostgreSQL the constraint.
_KEY_TAKEN = re.compile("jobs.idempotency_key|jobs_key_once_a_tenant")


def sqlite_url(path: Path) -> URL:
    """The URL of an SQLite database in a file."""
    return URL.create("sqlite+aiosqlite", database=str(path))


class Store:
    """Jobs, deliveries, endpoints, decisions and events that outlive the broker's process.

    Entering it opens it, leaving it closes it. Every operation raises :class:`.UnavailableError` where the database is
    not open or does not answer, and :class:`.StoreDamagedError` where it holds something that cannot be read. What
    comes back equals what was saved, NaN and infinities included.

    Args:
        url: The database, e.g. from :func:`sqlite_url`. A file is made when missing, readable by its owner only.
    """

    def __init__(self, url: URL | str) -> None:
        self._url = make_url(url)
        self._is_sqlite = self._url.get_backend_name() == "sqlite"
        self._file = Path(self._url.database) if self._is_sqlite and self._url.database else None
        self._where = str(self._file) if self._file else self._url.render_as_string(hide_password=True)
        self._engine: AsyncEngine | None = None
        # One writer at a time: SQLite allows no more, and waiting here is cheaper than retrying there.
        self._writing = asyncio.Lock()
        self._scripts_kept: set[str] = set()

    def make_engine(self) -> AsyncEngine:
        """An engine of its own for the same database; whoever asks for it disposes of it."""
        # Shorter than our own deadline, so that the driver can say what it waited for.
        connect_args = {"timeout": LOCK_SECONDS} if self._is_sqlite else {}
        engine = create_async_engine(self._url, connect_args=connect_args)
        if self._is_sqlite:
            event.listen(engine.sync_engine, "connect", _set_up_sqlite)
            event.listen(engine.sync_engine, "begin", _begin_sqlite)
        return engine

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def open(self) -> None:
        """Connect, and bring an older schema up to date.

        Raises:
            UnavailableError: It cannot be opened, is not ours, or was written by a newer Tiercel.
            StoreDamagedError: It is damaged.
        """
        if self._engine is not None:
            return
        engine = self.make_engine()
        try:
            if self._file is not None:
                self._file.touch(mode=0o600)
                await asyncio.to_thread(back_up_before_upgrade, self._file)
            async with asyncio.timeout(ANSWER_SECONDS), engine.connect():
                pass  # it answers
            async with asyncio.timeout(UPGRADE_SECONDS), engine.begin() as connection:
                await connection.run_sync(upgrade_schema)
        except BaseException as error:
            await engine.dispose()
            if isinstance(error, TimeoutError):
                raise errors.cannot_open(self._where, "it does not answer in time") from error
            if isinstance(error, (SQLAlchemyError, sqlite3.Error)):
                raise self._failure_to_open(error) from error
            if isinstance(error, (OSError, ForeignSchemaError)):
                raise errors.cannot_open(self._where, cause_of(error)) from error
            raise
        self._engine = engine

    def _failure_to_open(self, error: BaseException) -> TiercelError:
        """A damaged file needs words of its own; of the others it matters only that it could not be opened."""
        failure = failure_of(error, self._where)
        return errors.cannot_open(self._where, cause_of(error)) if isinstance(failure, UnavailableError) else failure

    async def close(self) -> None:
        """Close all connections; once more, or after opening failed, it does nothing."""
        engine, self._engine = self._engine, None
        if engine is not None:
            await engine.dispose()

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
        """Save everything given, or nothing.

        Jobs, deliveries, endpoints, events, run records and uses replace those of the same id, name, sequence, job or
        tenant; decisions are added. A job is saved with its script's content, which never changes.

        Raises:
            InvalidSpecError: Another job of the tenant has the same idempotency key (field ``idempotency_key``).
            CannotWriteError: The disk takes nothing, or another program holds the database. Nothing was saved.
            UnavailableError: No answer. All of it may have been saved; repeating is safe, but for decisions, which may
                then be there twice.
            TiercelError: Something in the call is refused; repeating it is of no use.
            TypeError: Something in the call is not of its field's type, where it has to be written.
        """
        new_scripts = [row for row in map(rows.script_row, jobs) if row and row["job_id"] not in self._scripts_kept]
        try:
            async with self.writing() as connection:
                await put(connection, tables.scripts, new_scripts)
                await put(connection, tables.jobs, list(map(rows.job_row, jobs)))
                await put(connection, tables.deliveries, list(map(rows.delivery_row, deliveries)))
                await put(connection, tables.endpoints, list(map(rows.endpoint_row, endpoints)))
                await put(connection, tables.events, list(map(rows.event_row, events)))
                await put(connection, tables.run_records, list(map(rows.run_record_row, run_records)))
                await put(connection, tables.tenant_uses, list(map(asdict, uses)))
                if decisions:
                    await connection.execute(tables.decisions.insert(), list(map(rows.decision_row, decisions)))
        except (IntegrityError, DataError) as error:
            if _KEY_TAKEN.search(str(error.orig)):
                raise errors.second_job_with_key() from error
            raise errors.refused(self._where, cause_of(error)) from error
        self._scripts_kept.update(row["job_id"] for row in new_scripts)

    async def list_jobs(
        self,
        *,
        tenant: str | None = None,
        active_only: bool = False,
        after: tuple[float, str] | None = None,
        newest_first: bool = False,
        limit: int = 500,
    ) -> list[Job]:
        """Jobs by submission (time, then id), without their scripts' content; ``after``: behind a job with these."""
        columns = tables.jobs.c
        place = (columns.submitted_at, columns.id)
        query = select(columns.content).order_by(*(c.desc() for c in place) if newest_first else place).limit(limit)
        if tenant is not None:
            query = query.where(columns.tenant == tenant)
        if active_only:
            query = query.where(columns.state.not_in(_FINAL))
        if after is not None:
            query = query.where(tuple_(*place) < after if newest_first else tuple_(*place) > after)
        return await self._load(Job, query)

    async def get_job(self, job_id: str) -> Job | None:
        """The job, or None."""
        return await self._job(_JOBS.where(tables.jobs.c.id == job_id))

    async def job_ids(self, tenant: str, beginning: str, *, limit: int) -> list[str]:
        """Ids of the tenant's jobs that begin like this, sorted, at most so many."""
        columns = tables.jobs.c
        # By its part and not by LIKE, for which SQLite takes large letters for small ones.
        begins = func.substr(columns.id, 1, len(beginning)) == beginning
        query = select(columns.id).where(columns.tenant == tenant, begins).order_by(columns.id).limit(limit)
        async with self.reading() as connection:
            return list((await connection.scalars(query)).all())

    async def find_job(self, tenant: str, idempotency_key: str) -> Job | None:
        """The tenant's job with this key, or None; an empty key is nobody's."""
        # Jobs without a key have NULL there, which equals nothing.
        query = _JOBS.where(tables.jobs.c.tenant == tenant, tables.jobs.c.idempotency_key == idempotency_key)
        return await self._job(query)

    async def load_deliveries(self, job_id: str | None = None) -> list[Delivery]:
        """All deliveries, or those of one job, by the time they were requested, then id."""
        columns = tables.deliveries.c
        query = select(columns.content).order_by(columns.requested_at, columns.id)
        return await self._load(Delivery, query if job_id is None else query.where(columns.job_id == job_id))

    async def load_endpoints(self) -> list[Endpoint]:
        """All endpoints by name."""
        return await self._load(Endpoint, select(tables.endpoints.c.content).order_by(tables.endpoints.c.name))

    async def events_after(
        self, sequence: int, *, job_id: str | None = None, tenant: str | None = None, limit: int = 1000
    ) -> list[JobEvent]:
        """Events with a larger sequence number, oldest first; of one job or one tenant if given."""
        columns = tables.events.c
        query = select(columns.content).where(columns.sequence > sequence).order_by(columns.sequence).limit(limit)
        if job_id is not None:
            query = query.where(columns.job_id == job_id)
        if tenant is not None:
            query = query.where(columns.tenant == tenant)
        return await self._load(JobEvent, query)

    async def last_sequence(self) -> int:
        """The largest sequence number ever saved, pruned or not; 0 for none."""
        async with self.reading() as connection:
            return int(await connection.scalar(select(func.max(tables.events.c.sequence))) or 0)

    async def load_progress(self, job_id: str, *, limit: int) -> list[JobEvent]:
        """The job's latest ``limit`` progress events, oldest first."""
        columns = tables.events.c
        query = select(columns.content).where(columns.job_id == job_id, columns.kind == _PROGRESS)
        newest_first = await self._load(JobEvent, query.order_by(columns.sequence.desc()).limit(limit))
        return newest_first[::-1]

    async def decisions_of(self, subject: str, *, limit: int) -> list[ShareDecision]:
        """The latest decisions about a subject (:attr:`.ShareDecision.subject`), the one saved last first."""
        columns = tables.decisions.c
        query = select(columns.content).where(columns.job_id == subject).order_by(columns.id.desc()).limit(limit)
        return await self._load(ShareDecision, query)

    async def load_run_records(self) -> list[RunRecord]:
        """All run records by the time they were made, then by job."""
        columns = tables.run_records.c
        return await self._load(RunRecord, select(columns.content).order_by(columns.recorded_at, columns.job_id))

    async def load_uses(self) -> list[TenantUse]:
        """What each tenant has used, by its name."""
        async with self.reading() as connection:
            found = await connection.execute(select(tables.tenant_uses).order_by(tables.tenant_uses.c.tenant))
            return [TenantUse(**row) for row in found.mappings()]

    async def save_secret(self, secret: SealedSecret) -> None:
        """Save a secret, in place of one of the same tenant and name; raises as ``save`` does."""
        try:
            async with self.writing() as connection:
                await put(connection, tables.secrets, [asdict(secret)])
        except (IntegrityError, DataError) as error:
            raise errors.refused(self._where, cause_of(error)) from None

    async def load_secrets(self, tenant: str) -> list[SealedSecret]:
        """The tenant's secrets by name."""
        columns = tables.secrets.c
        async with self.reading() as connection:
            found = await connection.execute(
                select(tables.secrets).where(columns.tenant == tenant).order_by(columns.name)
            )
            return [SealedSecret(**row) for row in found.mappings()]

    async def delete_secret(self, tenant: str, name: str) -> bool:
        """Forget a secret; whether there was one."""
        columns = tables.secrets.c
        return bool(await self._delete(delete(tables.secrets).where(columns.tenant == tenant, columns.name == name)))

    async def prune_run_records(self, keep_per_workload: int, keep_workloads: int) -> int:
        """Drop all but the newest records of each workload, and all of those that ran longest ago; how many went."""
        columns = tables.run_records.c
        newest_first = (columns.recorded_at.desc(), columns.job_id.desc())
        rank = func.row_number().over(partition_by=columns.workload, order_by=newest_first)
        ranked = select(columns.job_id, rank.label("rank")).subquery()
        old = select(ranked.c.job_id).where(ranked.c.rank > keep_per_workload)
        latest = func.max(columns.recorded_at)
        kept = (
            select(columns.workload)
            .group_by(columns.workload)
            .order_by(latest.desc(), columns.workload.desc())
            .limit(keep_workloads)
        )
        return await self._delete(
            delete(tables.run_records).where(columns.job_id.in_(old) | columns.workload.not_in(kept))
        )

    async def prune_events(self, keep_per_job: int) -> int:
        """Drop progress events older than the newest ``keep_per_job`` of their job, no other event; how many went."""
        columns = tables.events.c
        rank = func.row_number().over(partition_by=columns.job_id, order_by=columns.sequence.desc())
        ranked = select(columns.sequence, rank.label("rank")).where(columns.kind == _PROGRESS).subquery()
        newest = select(func.max(columns.sequence)).scalar_subquery()
        old = select(ranked.c.sequence).where(ranked.c.rank > keep_per_job)
        # The very last event stays whatever it is: numbers must not be given out again after a restart.
        return await self._delete(delete(tables.events).where(columns.sequence.in_(old), columns.sequence < newest))

    async def prune_decisions(self, keep: int) -> int:
        """Drop decisions older than the newest ``keep`` of their subject; how many went."""
        columns = tables.decisions.c
        rank = func.row_number().over(partition_by=columns.job_id, order_by=columns.id.desc())
        ranked = select(columns.id, rank.label("rank")).subquery()
        old = select(ranked.c.id).where(ranked.c.rank > keep)
        return await self._delete(delete(tables.decisions).where(columns.id.in_(old)))

    async def _load(self, kind: type[_T], query: Select[Any]) -> list[_T]:
        async with self.reading() as connection:
            texts = (await connection.scalars(query)).all()
        try:
            return [from_json(kind, text) for text in texts]
        except ValueError as error:
            raise self._unreadable(kind, error) from error

    async def _job(self, query: Select[Any]) -> Job | None:
        async with self.reading() as connection:
            found = (await connection.execute(query)).first()
        try:
            return rows.job_from_row(*found) if found else None
        except ValueError as error:
            raise self._unreadable(Job, error) from error

    def _unreadable(self, kind: type, error: ValueError) -> StoreDamagedError:
        return errors.unreadable(self._where, kind.__name__, str(error), backups_of(self._file) if self._file else ())

    async def _delete(self, statement: Delete) -> int:
        async with self.writing() as connection:
            return (await connection.execute(statement)).rowcount

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[AsyncConnection]:
        """A connection in a transaction that is committed at the end, or undone when anything goes wrong."""
        if self._engine is None:
            raise errors.not_open()
        try:
            async with asyncio.timeout(ANSWER_SECONDS), self._engine.begin() as connection:
                yield connection
        except TimeoutError as error:
            raise errors.no_answer(self._where, f"no answer within {ANSWER_SECONDS:g} s") from error
        except (IntegrityError, DataError):  # about what is saved, not about the database
            raise
        except SQLAlchemyError as error:
            raise failure_of(error, self._where) from error

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[AsyncConnection]:
        """The same to write with, one at a time; what was written is there for good once this was left."""
        async with self._writing, self.reading() as connection:
            yield connection


_JOBS = select(tables.jobs.c.content, tables.scripts.c.content).outerjoin_from(
    tables.jobs, tables.scripts, tables.jobs.c.id == tables.scripts.c.job_id
)


async def put(connection: AsyncConnection, table: Table, new: list[dict[str, Any]]) -> None:
    """Insert rows, or replace those with the same primary key."""
    if not new:
        return
    insert = postgresql.insert(table) if connection.dialect.name == "postgresql" else sqlite.insert(table)
    key = [column.name for column in table.primary_key]
    others = {column.name: insert.excluded[column.name] for column in table.columns if column.name not in key}
    await connection.execute(insert.on_conflict_do_update(index_elements=key, set_=others), new)


def _set_up_sqlite(connection: DBAPIConnection, _record: ConnectionPoolEntry) -> None:
    # Python's driver would begin transactions by itself, and leave changes of the schema outside of them.
    connection.isolation_level = None
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.execute("PRAGMA synchronous=FULL")
    cursor.close()


def _begin_sqlite(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN")
