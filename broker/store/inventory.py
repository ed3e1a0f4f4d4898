"""What the broker keeps, counted and measured, by job and by tenant; and the removal of what is kept no longer."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from sqlalchemy import delete, func, select

from tiercel.broker.lifecycle.retention import EVENTS, FILES, LOGS, KeptOfJob
from tiercel.broker.store import tables
from tiercel.core.disk_use import RoomTaken

if TYPE_CHECKING:
    from pathlib import Path

    from tiercel.broker.store.kept_files import KeptFiles
    from tiercel.broker.store.logs import RunLogs
    from tiercel.broker.store.projects import ProjectStore
    from tiercel.broker.store.sql import Store

_JOBS_AT_A_TIME = 500
# Whose size says what an event takes.
_SAMPLE = 1_000


class Inventory:
    """Knows what is kept."""

    def __init__(self, state_dir: Path, store: Store, logs: RunLogs, files: KeptFiles, projects: ProjectStore) -> None:
        self._state_dir = state_dir
        self._store = store
        self._logs = logs
        self._files = files
        self._projects = projects

    async def of_jobs(self, tenant: str = "") -> list[KeptOfJob]:
        """What is kept of each job of which anything is, of one tenant or of all."""
        counts: dict[str, Counter[str]] = {EVENTS: await self._event_counts(tenant)}
        sizes: dict[str, Counter[str]] = {EVENTS: Counter()}
        event_bytes = await self._event_bytes()
        sizes[EVENTS] = Counter({job_id: count * event_bytes for job_id, count in counts[EVENTS].items()})
        counts[LOGS], sizes[LOGS] = _by_job(await asyncio.to_thread(self._logs.sizes))
        counts[FILES], sizes[FILES] = await self._files.by_job(tenant)
        found: list[KeptOfJob] = []
        after: tuple[float, str] | None = None
        while page := await self._store.list_jobs(tenant=tenant or None, after=after, limit=_JOBS_AT_A_TIME):
            for job in page:
                own = {what: counted[job.id] for what, counted in counts.items() if counted[job.id]}
                project = job.spec.project.sha256 if job.spec.project is not None else ""
                if own or project:
                    finished_at = (job.finished_at or job.submitted_at) if job.state.is_final else None
                    taken = {what: sizes[what][job.id] for what in own}
                    found.append(KeptOfJob(job.id, job.tenant, finished_at, own, taken, project))
            after = (page[-1].submitted_at, page[-1].id)
        return found

    async def of_tenant(self, tenant: str) -> tuple[RoomTaken, ...]:
        """What a tenant has at the broker."""
        jobs = await self.of_jobs(tenant)
        parts = [
            RoomTaken(what, sum(job.sizes.get(what, 0) for job in jobs), sum(job.counts.get(what, 0) for job in jobs))
            for what in (EVENTS, LOGS, FILES)
        ]
        return (*parts, RoomTaken("projects", await asyncio.to_thread(self._projects.used_bytes, tenant)))

    async def of_broker(self) -> tuple[RoomTaken, ...]:
        """What the broker's state directory has, for all tenants together."""
        return await asyncio.to_thread(self._measure)

    async def remove(self, job_id: str, what: str) -> None:
        """Keep something of a job no longer; it MUST be over."""
        if what == EVENTS:
            await self._remove_events(job_id)
        elif what == LOGS:
            await asyncio.to_thread(self._logs.remove, job_id)
        elif what == FILES:
            await self._files.remove([(job_id, file.path) for file in await self._files.of_job(job_id)])

    async def unused_projects(self, tenant: str, roots: Iterable[str]) -> dict[str, int]:
        """The objects of a tenant that no project needs, each with its bytes."""
        return await asyncio.to_thread(self._projects.unused, tenant, roots)

    async def remove_projects(self, tenant: str, objects: Iterable[str], roots: Iterable[str]) -> None:
        """Remove objects of a tenant but for those that these projects need."""
        await asyncio.to_thread(self._projects.remove, tenant, objects, roots)

    def tenants_with_projects(self) -> list[str]:
        """Those who have sent something."""
        return self._projects.tenants()

    def _measure(self) -> tuple[RoomTaken, ...]:
        folder = self._state_dir
        parts = {
            "database": [*folder.glob("broker.sqlite"), *folder.glob("broker.sqlite-*")],
            "backups": list(folder.glob("broker.sqlite.*.backup")),
            **{name: _files_below(folder / name) for name in ("logs", "checkpoints", "files", "projects")},
        }
        return tuple(_room(name, paths) for name, paths in parts.items())

    async def _event_counts(self, tenant: str) -> Counter[str]:
        columns = tables.events.c
        # The very last event stays whatever it is: numbers must not be given out again after a restart.
        newest = select(func.max(columns.sequence)).scalar_subquery()
        query = select(columns.job_id, func.count()).where(columns.sequence < newest).group_by(columns.job_id)
        if tenant:
            query = query.where(columns.tenant == tenant)
        async with self._store.reading() as connection:
            found = (await connection.execute(query)).all()
        return Counter(dict(map(tuple, found)))

    async def _event_bytes(self) -> int:
        """What an event takes in the mean, as the newest ones do."""
        columns = tables.events.c
        sample = select(columns.content).order_by(columns.sequence.desc()).limit(_SAMPLE).subquery()
        async with self._store.reading() as connection:
            mean = await connection.scalar(select(func.avg(func.length(sample.c.content))))
        return round(float(mean or 0.0))

    async def _remove_events(self, job_id: str) -> None:
        columns = tables.events.c
        newest = select(func.max(columns.sequence)).scalar_subquery()
        async with self._store.writing() as connection:
            await connection.execute(delete(tables.events).where(columns.job_id == job_id, columns.sequence < newest))
            await connection.execute(delete(tables.decisions).where(tables.decisions.c.job_id == job_id))


def _by_job(sizes: dict[str, int]) -> tuple[Counter[str], Counter[str]]:
    """Number and size of the logs of each job, of the sizes by run."""
    numbers, bytes_ = Counter[str](), Counter[str]()
    for run_id, size in sizes.items():
        job_id = run_id.rpartition("-")[0]
        numbers[job_id] += 1
        bytes_[job_id] += size
    return numbers, bytes_


def _files_below(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def _room(name: str, paths: Iterable[Path]) -> RoomTaken:
    sizes: list[int] = []
    for path in paths:
        with contextlib.suppress(FileNotFoundError):  # it was removed meanwhile
            sizes.append(path.stat().st_size)
    return RoomTaken(name, sum(sizes), len(sizes))
