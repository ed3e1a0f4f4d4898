"""Shows policies the weights of tenants by what these have used."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from tiercel.core.tenant_use import TenantUse, fair_factors

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from tiercel.broker.scheduling.interface import JobView, NodeView

# For how long all nodes have to be used until what was used says as much as half of what it would after years.
_AFTER_SECONDS = 3600.0
# Weights move in steps of an eighth of a doubling: policies look again at whatever has changed.
_STEPS = 8


class FairShare:
    """Keeps what it showed: a job that is as it was is shown as the same object.

    Args:
        use_of: What a tenant has used, as of now.
    """

    def __init__(self, use_of: Callable[[str], TenantUse]) -> None:
        self._use_of = use_of
        self._shown: dict[str, tuple[JobView, JobView]] = {}  # by job: as it is, and as it was shown
        self._latest: dict[str, float] = {}

    def weighted(self, jobs: Sequence[JobView], nodes: Collection[NodeView]) -> Sequence[JobView]:
        """The jobs with their tenants' weights; as they are where one tenant has them all, or none has used much."""
        weights = {job.tenant: job.tenant_weight for job in jobs}
        self._latest = factors = self._factors(weights, nodes) if len(weights) > 1 else {}
        if all(factor == 1.0 for factor in factors.values()):
            self._shown.clear()
            return jobs
        before, self._shown = self._shown, {}
        for job in jobs:
            weight = job.tenant_weight * factors[job.tenant]
            known, shown = before.get(job.id, (None, None))
            if known is not job or shown is None or shown.tenant_weight != weight:
                shown = replace(job, tenant_weight=weight)
            self._shown[job.id] = (job, shown)
        return [shown for _, shown in self._shown.values()]

    def factor_of(self, tenant: str) -> float:
        """How many times as much as its weight says a tenant counted for when jobs were shown last."""
        return self._latest.get(tenant, 1.0)

    def _factors(self, weights: dict[str, float], nodes: Collection[NodeView]) -> dict[str, float]:
        cores, accelerators = sum(node.cpu_cores for node in nodes), sum(len(node.accelerators) for node in nodes)
        uses = {tenant: self._use_of(tenant) for tenant in weights}
        factors = fair_factors(weights, uses, cores, accelerators, prior_seconds=_AFTER_SECONDS)
        return {tenant: 2.0 ** (round(math.log2(factor) * _STEPS) / _STEPS) for tenant, factor in factors.items()}
