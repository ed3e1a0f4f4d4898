"""What tenants may use, as the operator set it while the broker runs, and what they do use."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tiercel.core.errors import NotFoundError, wrong_field
from tiercel.core.quotas import MAX_ACTIVE_JOBS, Quota

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tiercel.broker.store.inventory import Inventory
    from tiercel.broker.store.quotas import QuotaStore
    from tiercel.broker.tenancy import Tenancy
    from tiercel.core.jobs import Job


class Quotas:
    """Knows what each tenant may use.

    Args:
        projects_bytes: What the projects of one tenant may have.
        files_bytes: What the files that are kept of its jobs may have.
    """

    def __init__(
        self, store: QuotaStore, tenancy: Tenancy, inventory: Inventory, projects_bytes: int, files_bytes: int
    ) -> None:
        self._store = store
        self._tenancy = tenancy
        self._inventory = inventory
        self._max_bytes = (projects_bytes, files_bytes)
        # What is kept and what counts are the same also when two ask at a time.
        self._changing = asyncio.Lock()

    async def start(self) -> None:
        """Read what was set."""
        self._tenancy.active_jobs.update(await self._store.load())

    async def of(self, tenant: str, jobs: Iterable[Job]) -> tuple[Quota, ...]:
        """What a tenant, or (empty) each of them, may use and does; ``jobs`` are those of all that are not over.

        Raises:
            NotFoundError: There is no such tenant.
        """
        names = [self._known(tenant)] if tenant else sorted(self._tenancy.tenants)
        all_jobs = list(jobs)
        return tuple([await self._quota(name, all_jobs) for name in names])

    async def set(self, tenant: str, max_active_jobs: int | None, jobs: Iterable[Job]) -> Quota:
        """Say how many unfinished jobs a tenant may have, or (None) leave it to ``tenants.toml`` again.

        Raises:
            NotFoundError: There is no such tenant.
            InvalidSpecError: That is too many.
            CannotWriteError: The broker's disk takes nothing now; nothing changes.
        """
        self._known(tenant)
        if max_active_jobs is not None and max_active_jobs > MAX_ACTIVE_JOBS:
            raise wrong_field("max_active_jobs", f"{max_active_jobs} is more than {MAX_ACTIVE_JOBS}; give fewer")
        async with self._changing:
            await self._store.put(tenant, max_active_jobs)
            if max_active_jobs is None:
                self._tenancy.active_jobs.pop(tenant, None)
            else:
                self._tenancy.active_jobs[tenant] = max_active_jobs
        return await self._quota(tenant, list(jobs))

    def _known(self, tenant: str) -> str:
        if tenant not in self._tenancy.tenants:
            raise NotFoundError(f"tenant: there is no tenant {tenant!r}; tenants.toml has them", field="tenant")
        return tenant

    async def _quota(self, name: str, jobs: list[Job]) -> Quota:
        tenant = self._tenancy.with_quota(self._tenancy.tenants[name])
        active = [job for job in jobs if job.tenant == name and not job.state.is_final]
        running = [job for job in active if job.run_active]
        taken = {part.name: part.size_bytes for part in await self._inventory.of_tenant(name)}
        max_projects_bytes, max_files_bytes = self._max_bytes
        return Quota(
            name,
            tenant.max_active_jobs,
            name in self._tenancy.active_jobs,
            tenant.weight,
            len(active),
            len(running),
            sum(job.spec.resources.cpu_cores for job in running),
            sum(job.spec.resources.memory_bytes for job in running),
            sum(len(job.share.accelerators) for job in running if job.share is not None),
            taken.get("projects", 0),
            max_projects_bytes,
            taken.get("files", 0),
            max_files_bytes,
        )
