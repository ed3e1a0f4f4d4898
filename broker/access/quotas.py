"""What tenants may use, as the operator set it while the broker runs, and what they do use."""

from __future__ import annotations

import asyncio
import math
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from tiercel.core.errors import NotFoundError, wrong_field
from tiercel.core.quotas import MAX_ACTIVE_JOBS, MAX_HOURS, Allowance, Quota, UsableClass

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tiercel.broker.actors.tenant_uses import TenantUses
    from tiercel.broker.store.inventory import Inventory
    from tiercel.broker.store.quotas import QuotaStore
    from tiercel.broker.tenancy import Tenancy
    from tiercel.core.jobs import Job
    from tiercel.core.tenants import Tenant


class Quotas:
    """Knows what each tenant may use.

    Args:
        projects_bytes: What the projects of one tenant may have.
        files_bytes: What the files that are kept of its jobs may have.
    """

    def __init__(
        self,
        store: QuotaStore,
        tenancy: Tenancy,
        inventory: Inventory,
        uses: TenantUses,
        *,
        projects_bytes: int,
        files_bytes: int,
    ) -> None:
        self._store = store
        self._tenancy = tenancy
        self._inventory = inventory
        self._uses = uses
        self._max_bytes = (projects_bytes, files_bytes)
        # What is kept and what counts are the same also when two ask at a time.
        self._changing = asyncio.Lock()

    async def start(self) -> None:
        """Read what was set."""
        self._tenancy.allowances.update(await self._store.load())

    async def of(self, tenant: str, jobs: Iterable[Job]) -> tuple[Quota, ...]:
        """What a tenant, or (empty) each of them, may use and does; ``jobs`` are those of all that are not over.

        Raises:
            NotFoundError: There is no such tenant.
        """
        names = [self._known(tenant)] if tenant else sorted(self._tenancy.tenants)
        all_jobs = list(jobs)
        return tuple([await self._quota(name, all_jobs) for name in names])

    async def set(self, tenant: str, changes: Allowance, jobs: Iterable[Job]) -> Quota:
        """Say what a tenant may use from now on; what is None stays. All None: ``tenants.toml`` says it again.

        Raises:
            NotFoundError: There is no such tenant.
            InvalidSpecError: That is too many, or no number.
            CannotWriteError: The broker's disk takes nothing now; nothing changes.
        """
        self._known(tenant)
        said = {name: value for name, value in asdict(changes).items() if value is not None}
        _check(said)
        async with self._changing:
            before = self._tenancy.allowances.get(tenant, Allowance())
            after = replace(before, **said) if said else None
            await self._store.put(tenant, after)
            if after is None:
                self._tenancy.allowances.pop(tenant, None)
            else:
                self._tenancy.allowances[tenant] = after
        return await self._quota(tenant, list(jobs))

    def _known(self, tenant: str) -> str:
        if tenant not in self._tenancy.tenants:
            raise NotFoundError(f"tenant: there is no tenant {tenant!r}; tenants.toml has them", field="tenant")
        return tenant

    async def _quota(self, name: str, jobs: list[Job]) -> Quota:
        tenant = self._tenancy.with_quota(self._tenancy.tenants[name])
        active = [job for job in jobs if job.tenant == name and not job.state.is_final]
        running = [job for job in active if job.run_active]
        use = self._uses.of(name)
        taken = {part.name: part.size_bytes for part in await self._inventory.of_tenant(name)}
        max_projects_bytes, max_files_bytes = self._max_bytes
        return Quota(
            name,
            tenant.max_active_jobs,
            name in self._tenancy.allowances,
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
            use.core_seconds / 3600,
            _or_none(tenant.max_core_hours),
            use.accelerator_seconds / 3600,
            _or_none(tenant.max_accelerator_hours),
            self._uses.half_life,
            classes=_classes(tenant),
        )


def _check(said: Mapping[str, float]) -> None:
    for name, value in said.items():
        most = MAX_ACTIVE_JOBS if name == "max_active_jobs" else MAX_HOURS
        if not 0 <= value <= most:
            raise wrong_field(name, f"{value:g} is not a number from 0 to {most:g}")


def _classes(tenant: Tenant) -> tuple[UsableClass, ...]:
    by_value = sorted(tenant.classes, key=lambda each: (-each.value, each.name))
    return tuple(UsableClass(each.name, each.value, each.preempts) for each in by_value)


def _or_none(hours: float) -> float | None:
    return hours if math.isfinite(hours) else None
