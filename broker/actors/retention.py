"""Removes what is kept no longer of jobs that are over: once a day by itself, and when somebody asks."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tiercel.broker.lifecycle.retention import to_remove
from tiercel.core.errors import UnavailableError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from tiercel.broker.actors.clock import Clock
    from tiercel.broker.actors.service import BrokerService
    from tiercel.broker.lifecycle.retention import RetentionSettings
    from tiercel.broker.store.inventory import Inventory
    from tiercel.core.disk_use import Removal

logger = logging.getLogger(__name__)

# Between two looks; the first comes a while after the start, when there is more to do.
LOOK_SECONDS = 86_400.0
FIRST_LOOK_SECONDS = 600.0


class Retention:
    """Removes what is kept no longer.

    Args:
        service: Knows which jobs live, and which are needed.
        inventory: Knows what is kept.
        clock: The time.
        settings: How long things are kept.
    """

    def __init__(self, service: BrokerService, inventory: Inventory, clock: Clock, settings: RetentionSettings) -> None:
        self._service = service
        self._inventory = inventory
        self._clock = clock
        self._settings = settings

    async def planned(self, tenant: str = "") -> list[Removal]:
        """What would go now, of one tenant or of all."""
        kept = await self._inventory.of_jobs(tenant)
        return to_remove(kept, self._service.needed_jobs(), self._clock.now(), self._settings)

    async def carry_out(self, tenant: str = "") -> AsyncGenerator[Removal]:
        """Remove it, one thing after the other; what somebody began to need meanwhile stays."""
        for removal in await self.planned(tenant):
            async with self._service.undisturbed(removal.job_id) as is_over:
                if not is_over or removal.job_id in self._service.needed_jobs():
                    continue
                await self._inventory.remove(removal.job_id, removal.what)
            yield removal

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
                    logger.info("of job %s went %d %s: %s", each.job_id, each.count, each.what, each.reason)
            await self._clock.sleep(LOOK_SECONDS)
