"""What tenants have used, counted as their jobs tell it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tiercel.core.tenant_use import TenantUse

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tiercel.broker.actors.clock import Clock

HALF_LIFE_SECONDS = 7 * 24 * 3600.0


class TenantUses:
    """Has one figure for each tenant that has ever used anything.

    Args:
        clock: The time.
        half_life: Seconds after which half of what was used counts.
    """

    def __init__(self, clock: Clock, half_life: float = HALF_LIFE_SECONDS) -> None:
        self._clock = clock
        self._uses: dict[str, TenantUse] = {}
        self.half_life = half_life

    def load(self, uses: Iterable[TenantUse]) -> None:
        """Go on from what was stored."""
        self._uses.update({use.tenant: use for use in uses})

    def of(self, tenant: str) -> TenantUse:
        """What a tenant has used, as of now."""
        return self._uses.get(tenant, TenantUse(tenant)).faded(self._clock.now(), self.half_life)

    def count(self, tenant: str, core_seconds: float, accelerator_seconds: float) -> TenantUse:
        """Count more; less than nothing takes back what was counted and did not become durable.

        Returns:
            What is to be stored with the step of the job that has used it.
        """
        self._uses[tenant] = use = self.of(tenant).plus(core_seconds, accelerator_seconds)
        return use
