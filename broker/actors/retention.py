"""Removes what is kept no longer of jobs that are over: once a day by itself, and when somebody asks."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tiercel.broker.lifecycle.retention import PROJECTS, needed_projects, to_remove
from tiercel.core.disk_use import Removal
from tiercel.core.errors import UnavailableError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping, Sequence

    from tiercel.broker.actors.clock import Clock
    from tiercel.broker.actors.service import BrokerService
    from tiercel.broker.lifecycle.retention import KeptOfJob, RetentionSettings
    from tiercel.broker.store.inventory import Inventory

logger = logging.getLogger(__name__)

# Between two looks; the first comes a while after the start, when there is more to do.
LOOK_SECONDS = 86_400.0
FIRST_LOOK_SECONDS = 600.0


class Retention:
    """Removes what is kept no longer."""

    def __init__(self, service: BrokerService, inventory: Inventory, clock: Clock, settings: RetentionSettings) -> None:
        self._service = service
        self._inventory = inventory
        self._clock = clock
        self._settings = settings

    async def planned(self, tenant: str = "") -> list[Removal]:
        """What would go now, of one tenant or of all."""
        kept = await self._inventory.of_jobs(tenant)
        removals = to_remove(kept, self._service.needed_jobs(), self._clock.now(), self._settings)
        objects = await self._unused_projects(kept, tenant)
        return removals + [self._of_projects(name, sizes) for name, sizes in objects.items() if sizes]

    async def carry_out(self, tenant: str = "") -> AsyncGenerator[Removal]:
        """Remove it, one thing after the other; what somebody began to need meanwhile stays."""
        kept = await self._inventory.of_jobs(tenant)
        for removal in to_remove(kept, self._service.needed_jobs(), self._clock.now(), self._settings):
            async with self._service.undisturbed(removal.job_id) as is_over:
                if not is_over or removal.job_id in self._service.needed_jobs():
                    continue
                await self._inventory.remove(removal.job_id, removal.what)
            yield removal
        for name, sizes in (await self._unused_projects(kept, tenant)).items():
            if sizes:
                async with self._service.undisturbed(""):
                    await self._inventory.remove_projects(name, sizes, self._service.living_projects(name))
                yield self._of_projects(name, sizes)

    async def _unused_projects(self, kept: Sequence[KeptOfJob], tenant: str) -> dict[str, dict[str, int]]:
        """Objects of projects that are kept no longer, by tenant, each with its bytes."""
        needed = needed_projects(kept, self._service.needed_jobs(), self._clock.now(), self._settings)
        tenants = [tenant] if tenant else self._inventory.tenants_with_projects()
        return {name: await self._inventory.unused_projects(name, needed.get(name, set())) for name in tenants}

    def _of_projects(self, tenant: str, sizes: Mapping[str, int]) -> Removal:
        days = self._settings.projects_seconds / 86_400.0
        reason = f"no job of the last {days:.0f} days runs from them"
        return Removal("", tenant, PROJECTS, len(sizes), sum(sizes.values()), reason)

    async def run(self) -> None:
        """Remove it once a day, until cancelled."""
        await self._clock.sleep(FIRST_LOOK_SECONDS)
        while True:
            try:
                removed = [removal async for removal in self.carry_out()]
            except (UnavailableError, OSError) as error:
                logger.warning("what is kept no longer cannot be removed: %s", error)
            else:
                for each in removed:
                    whose = each.job_id or each.tenant
                    logger.info("of %s went %d %s: %s", whose, each.count, each.what, each.reason)
            await self._clock.sleep(LOOK_SECONDS)
