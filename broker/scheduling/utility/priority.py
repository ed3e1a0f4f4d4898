"""What a CPU second of work on a job is worth, in values of tiers: the price by which jobs of a node are ranked.

A job is worth what its next tier brings for the work to it, or what its being over brings for the work to its end,
whichever is more. Being over counts a little: the tenant waits for it and its memory is held up, but nobody's model
gets better by it. Without that, jobs that had all their tiers waited for the last tier of the longest.
"""

from __future__ import annotations

from dataclasses import replace

from tiercel.broker.scheduling.utility.candidate import Candidate
from tiercel.broker.scheduling.utility.settings import UtilitySettings


def with_priority(entry: Candidate, most_cores: float, now: float, settings: UtilitySettings) -> Candidate:
    """A candidate with its priority.

    Args:
        entry: The candidate; what it says of priority is not read.
        most_cores: Cores of its node.
        now: Seconds since the Unix epoch.
        settings: Of the policy.
    """
    finishing = settings.finishing * entry.job.tenant_weight / entry.record.to_end
    of_tier = _priority_of_next_tier(entry, entry.traffic_value, most_cores, now, settings)
    priority = to_tenant = _with_delivery(max(of_tier, finishing), entry, settings)
    if entry.traffic_value:
        unasked = _priority_of_next_tier(entry, 0.0, most_cores, now, settings)
        to_tenant = _with_delivery(max(unasked, finishing), entry, settings)
    return replace(entry, priority=priority, priority_to_tenant=to_tenant, is_worth_finishing=finishing > of_tier)


def _priority_of_next_tier(
    entry: Candidate, traffic_value: float, most_cores: float, now: float, settings: UtilitySettings
) -> float:
    """Value of the next tier per CPU second of work for it; nothing where there is none."""
    status, record = entry.status, entry.record
    if status is None:
        return 0.0
    priority = status.tier.value * entry.job.tenant_weight + traffic_value
    priority *= settings.later_tiers**record.stage * record.remaining.rate
    if status.tier.deadline_seconds is not None:
        left = entry.job.submitted_at + status.tier.deadline_seconds - now
        needed = record.remaining.expected / min(entry.cores, most_cores)
        if left >= needed > 0:
            priority *= 1 + needed / left
    return priority


def _with_delivery(priority: float, entry: Candidate, settings: UtilitySettings) -> float:
    """What it is worth while a model is handed over: little is left to do, and nobody has anything of it before."""
    delivering = entry.delivering
    if delivering is None:
        return priority
    value = delivering.tier.value * entry.job.tenant_weight * settings.later_tiers ** (delivering.number - 1)
    handing_over = value / settings.delivery_cpu_seconds
    return handing_over if entry.record.unreachable else max(priority, handing_over)
