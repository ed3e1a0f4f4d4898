"""What a CPU second of work on a job is worth, in values of tiers: the price by which jobs of a node are lined up.

A job is worth what its next tier brings for the work to it, or what its being over brings for the work to its end,
whichever is more. Being over counts a little: the tenant waits for it and its memory is held up, but nobody's model
gets better by it. Without that, jobs that had all their tiers waited for the last tier of the longest.
"""

from __future__ import annotations

from dataclasses import replace

from tiercel.broker.scheduling.utility.reasons import Standing
from tiercel.broker.scheduling.utility.settings import UtilitySettings


def appraised(entry: Standing, most_cores: float, now: float, settings: UtilitySettings) -> Standing:
    """A standing with what its job is worth.

    Args:
        entry: The standing; what it says of worth is not read.
        most_cores: Cores of its node.
        now: Seconds since the Unix epoch.
        settings: Of the policy.
    """
    finishing = settings.finishing * entry.job.tenant_weight / entry.record.to_end
    of_tier = _worth_of_next_tier(entry, entry.traffic_value, most_cores, now, settings)
    held_on_to = 1.0 + settings.hysteresis if entry.in_front else 1.0
    worth = to_tenant = held_on_to * _with_delivery(max(of_tier, finishing), entry, settings)
    if entry.traffic_value:
        unasked = _worth_of_next_tier(entry, 0.0, most_cores, now, settings)
        to_tenant = held_on_to * _with_delivery(max(unasked, finishing), entry, settings)
    return replace(entry, worth=worth, worth_to_tenant=to_tenant, is_worth_finishing=finishing > of_tier)


def _worth_of_next_tier(
    entry: Standing, traffic_value: float, most_cores: float, now: float, settings: UtilitySettings
) -> float:
    """Value of the next tier per CPU second of work for it; nothing where there is none."""
    status, record = entry.status, entry.record
    if status is None:
        return 0.0
    worth = status.tier.value * entry.job.tenant_weight + traffic_value
    worth *= settings.later_tiers**record.stage * record.outlook.rate
    if status.tier.deadline_seconds is not None:
        left = entry.job.submitted_at + status.tier.deadline_seconds - now
        needed = record.outlook.expected / min(entry.cores, most_cores)
        if left >= needed > 0:
            worth *= 1 + settings.urgency * needed / left
    return worth


def _with_delivery(worth: float, entry: Standing, settings: UtilitySettings) -> float:
    """What it is worth while a model is handed over: little is left to do, and nobody has anything of it before."""
    delivering = entry.delivering
    if delivering is None:
        return worth
    value = delivering.tier.value * entry.job.tenant_weight * settings.later_tiers ** (delivering.number - 1)
    handing_over = value / settings.delivery_cpu_seconds
    return handing_over if entry.record.unreachable else max(worth, handing_over)
