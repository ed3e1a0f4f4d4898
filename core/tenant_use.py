"""What a tenant's jobs have used, which counts for less the longer ago it was."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from tiercel.core.jsonable import Jsonable


@dataclass(frozen=True, slots=True)
class TenantUse(Jsonable):
    """What the jobs of a tenant have used, as of a moment."""

    tenant: str  # its name
    core_seconds: float = 0.0  # CPU seconds of training; after each half-life half of them count
    accelerator_seconds: float = 0.0  # of accelerators, alike
    at: float = 0.0  # the moment, in seconds since the Unix epoch

    def faded(self, now: float, half_life: float) -> TenantUse:
        """The same at another moment; a clock that was set back makes nothing more.

        Args:
            now: Seconds since the Unix epoch.
            half_life: Seconds after which half is left.
        """
        left = 0.5 ** (max(0.0, now - self.at) / half_life)
        return replace(
            self, core_seconds=self.core_seconds * left, accelerator_seconds=self.accelerator_seconds * left, at=now
        )

    def plus(self, core_seconds: float, accelerator_seconds: float) -> TenantUse:
        """With more that was used now."""
        return replace(
            self,
            core_seconds=max(0.0, self.core_seconds + core_seconds),
            accelerator_seconds=max(0.0, self.accelerator_seconds + accelerator_seconds),
        )


def seconds_until(used: float, allowed: float, half_life: float) -> float:
    """After how many seconds ``used`` is no more than ``allowed``, if nothing is added; infinity where that is 0."""
    if allowed <= 0:
        return math.inf
    return half_life * math.log2(used / allowed) if used > allowed else 0.0


def fair_words(factor: float) -> str:
    """What a factor of :func:`fair_factors` means for its tenant; empty where it means nothing."""
    if factor == 1.0:
        return ""
    used = "more" if factor < 1 else "less"
    return f"has used {used} than its weight says, so that its jobs count {factor:.2f} times as much"


def fair_factors(
    weights: Mapping[str, float],
    uses: Mapping[str, TenantUse],
    cores: float,
    accelerators: int,
    *,
    prior_seconds: float,
) -> dict[str, float]:
    """By how much each tenant counts for more or less than its weight, since others have used more or less than theirs.

    As the fair-tree factor of Slurm does, 2 to the power of what a tenant has used of what all have, against what its
    weight is of all weights; of cores and accelerators the one that it has used more of counts (dominant resource
    fairness, Ghodsi et al., 2011). Nobody counts for more than four times as much, or less than a quarter. A single
    tenant's factor is 1, and so are those of tenants who have used as much as their weights say.

    Args:
        weights: Those of the tenants that have jobs, > 0.
        uses: What they have used, as of now.
        cores: Cores of all nodes.
        accelerators: Accelerators of all nodes.
        prior_seconds: For how long all nodes have to be used until what was used counts for half of what it would.
    """
    core_seconds = _parts({name: uses[name].core_seconds for name in weights}, cores * prior_seconds)
    accelerator_seconds = _parts(
        {name: uses[name].accelerator_seconds for name in weights}, accelerators * prior_seconds
    )
    all_weights = sum(weights.values())
    parts = {name: max(core_seconds[name], accelerator_seconds[name]) for name in weights}
    mean = sum(parts.values())
    return {
        name: min(max(2.0 ** (mean - parts[name] * all_weights / weight), 0.25), 4.0)
        for name, weight in weights.items()
    }


def _parts(used: Mapping[str, float], prior: float) -> dict[str, float]:
    """What each has used, as a part of what all have, and of ``prior`` beside it."""
    total = sum(used.values()) + prior
    return {name: amount / total if total > 0 else 0.0 for name, amount in used.items()}
