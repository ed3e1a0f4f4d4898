"""Which endpoints are limited under the utility policy: none, unless they compete with each other.

Requests only use what they need, and a limit that is a little too tight makes their delay explode. So endpoints are
left without a limit, which protects them from training, as long as their node can answer them all; training loses only
what answers really use. Two things are otherwise:

* More requests come by themselves to a node than it can answer, and some are late. Who is worth most per core, by
  ``request rate x quality x tenant's weight``, is served in full, without a limit, as many as the node can bear. Each
  of the others gets what is left (as does training, where that is worth more than late answers). Whoever is served
  stays so unless another is clearly worth more, and arbitration is only over when all fit easily.
* Several endpoints whose clients ask again as soon as they are answered fill their node. Each is led to its objective:
  its share follows ``delay / objective``, half of the way (on the logarithm) at each measurement.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tiercel.broker.scheduling.interface import EndpointView, NodeView
from tiercel.broker.scheduling.utility.serving import IDLE_SHARE, SATURATED, TRAINING_FLOOR, EndpointRecord, in_time
from tiercel.broker.scheduling.utility.settings import UtilitySettings
from tiercel.core.shares import Share

# Arbitration begins when requests want more than this part of a node, and ends when they want less than the other.
_BEGINS, _ENDS = 0.95, 0.8
# Who is served in full must be able to keep up with room to spare.
_KEEPS_UP = 0.9
# Who is served in full is displaced by another that is worth this much more.
_STAYS = 1.5


@dataclass(frozen=True, slots=True)
class Arbitration:
    """What the endpoints of a node get."""

    shares: Mapping[str, Share]  # of those that are limited
    capacity: float  # fraction of the node's weight that is left for jobs
    changed: Mapping[str, EndpointRecord]  # records that differ from those before, by endpoint


@dataclass(frozen=True, slots=True)
class _Claim:
    """What an endpoint needs, in cores, and what that is worth per core and second, in answers."""

    view: EndpointView
    cores: float
    priority: float


def arbitrate(
    endpoints: Sequence[EndpointView],
    node: NodeView,
    training_priority: float,
    records: Mapping[str, EndpointRecord],
    settings: UtilitySettings,
) -> Arbitration:
    """Limit the endpoints of a node as far as they compete.

    Args:
        endpoints: Those of the node that have an objective, by name.
        node: The node.
        training_priority: Value per CPU second of the jobs that would run, 0 when none does.
        records: What is held of endpoints, after what was measured.
        settings: Of the policy.
    """
    shares: dict[str, Share] = {}
    served: set[str] = set()
    if len(endpoints) > 1:
        left = node.cpu_cores * (1.0 - (TRAINING_FLOOR if training_priority > 0 else 0.0))
        by_themselves = [view for view in endpoints if records[view.name].is_open]
        if _overcommitted(by_themselves, node, records):
            claims = _by_priority(by_themselves, records, {v.name: records[v.name].load(v) for v in by_themselves})
            served, left = _served_in_full(claims, node.cpu_cores, left)
            price = training_priority * settings.answers_per_value
            shares, left = _rest([c for c in claims if c.view.name not in served], node, left, price)
        else:
            left -= sum(records[view.name].load(view) for view in by_themselves) / _KEEPS_UP
        closed = [view for view in endpoints if not records[view.name].is_open]
        if _fill(closed, endpoints, node, records):
            shares |= _led(closed, node, max(left, 0.3 * node.cpu_cores), records)
    changed = {}
    for view in endpoints:
        record, share = records[view.name], shares.get(view.name)
        cores = share.cpu_weight * node.cpu_cores if share is not None else 0.0
        if cores != record.cores or (view.name in served) is not record.served:
            changed[view.name] = replace(record, cores=cores, served=view.name in served)
    return Arbitration(shares, 1.0 - math.fsum(share.cpu_weight for share in shares.values()), changed)


def _overcommitted(views: Sequence[EndpointView], node: NodeView, records: Mapping[str, EndpointRecord]) -> bool:
    """Whether more requests come than the node can answer."""
    if len(views) < 2:
        return False
    wanted = math.fsum(records[view.name].load(view) for view in views)
    if any(records[view.name].served for view in views):
        return wanted > _ENDS * node.cpu_cores
    return wanted > _BEGINS * node.cpu_cores and not all(map(in_time, views))


def _by_priority(
    views: Sequence[EndpointView], records: Mapping[str, EndpointRecord], needs: Mapping[str, float]
) -> list[_Claim]:
    """Claims, the one that is worth most first."""
    claims = []
    for view in views:
        cores = needs[view.name]
        quality = view.quality if view.quality is not None and view.quality > 0 else 1.0
        priority = view.tenant_weight * view.requests_per_second * quality / cores if cores > 0 else math.inf
        claims.append(_Claim(view, cores, priority * (_STAYS if records[view.name].served else 1.0)))
    return sorted(claims, key=lambda claim: (-claim.priority, claim.cores, claim.view.name))


def _served_in_full(claims: Sequence[_Claim], cores: float, left: float) -> tuple[set[str], float]:
    """As many as the node can bear, the first in any case, and the cores that they leave."""
    served: set[str] = set()
    room = cores
    for claim in claims:
        needed = claim.cores / _KEEPS_UP
        if needed <= room or not served:
            served.add(claim.view.name)
            room -= needed
            left -= needed
    return served, max(left, 0.0)


def _rest(claims: Sequence[_Claim], node: NodeView, left: float, price: float) -> tuple[dict[str, Share], float]:
    """Shares of those that cannot be served in full: what is left, the first one first."""
    shares: dict[str, Share] = {}
    least = IDLE_SHARE * node.cpu_cores / max(len(claims), 1)
    for claim in claims:
        view = claim.view
        priority = claim.priority * _part_in_time(view)
        outbid = priority < price
        cores = least if outbid else min(max(left, least), max(claim.cores, least))
        left = max(left - cores, 0.0)
        part = cores / node.cpu_cores
        why = "training is worth more than late answers" if outbid else "others are worth more per core"
        reason = f"{_asked(view)} need {claim.cores:.2g} cores, more than the node has left; {why}: {part:.1%} of it"
        shares[view.name] = Share(part, reason=reason)
    return shares, left


def _fill(
    closed: Sequence[EndpointView],
    endpoints: Sequence[EndpointView],
    node: NodeView,
    records: Mapping[str, EndpointRecord],
) -> bool:
    """Whether clients that never wait to ask again compete: they fill the node, or what they were limited to."""
    if not closed or len(endpoints) < 2:
        return False
    if any(records[view.name].cores > 0 for view in closed):
        return True
    return math.fsum(view.cpu_cores_used for view in endpoints) >= SATURATED * node.cpu_cores


def _part_in_time(view: EndpointView) -> float:
    """The part of its requests that is answered in time: as measured, or guessed from the mean where nobody counts."""
    if view.in_objective is not None:
        return view.in_objective
    delay, objective = view.delay_seconds, view.objective_seconds or 0.0
    return min(objective / delay, 1.0) if delay else 1.0


def _led(
    views: Sequence[EndpointView],
    node: NodeView,
    left: float,
    records: Mapping[str, EndpointRecord],
) -> dict[str, Share]:
    """Shares that lead each endpoint to its objective; where they do not all fit, who is worth most comes first."""
    needs: dict[str, float] = {}
    for view in views:
        needs[view.name] = 0.0
        if view.requests_per_second > 0:
            needs[view.name] = records[view.name].target or node.cpu_cores / (len(views) + 1)
    claims = _by_priority([_as_if_in_time(view, records[view.name]) for view in views], records, needs)
    least = IDLE_SHARE * left / len(claims)
    shares: dict[str, Share] = {}
    for position, claim in enumerate(claims):
        rest = least * (len(claims) - position - 1)
        cores = max(min(claim.cores, left - rest), least)
        left -= cores
        part = cores / node.cpu_cores
        asked = f"{_asked(claim.view)} need {claim.cores:.2g} cores"
        if claim.view.requests_per_second <= 0:
            reason = f"no requests at the moment; keeps {part:.1%} of the node for the next one"
        elif cores < 0.99 * claim.cores:
            reason = f"{asked}; {part:.1%} of the node is what is left for it"
        else:
            reason = f"{asked}: {part:.1%} of the node"
        shares[claim.view.name] = Share(part, reason=reason)
    return shares


def _as_if_in_time(view: EndpointView, record: EndpointRecord) -> EndpointView:
    """The endpoint with the requests that it will have as soon as it answers them in time."""
    if not record.saturated or record.delay is None or not view.objective_seconds:
        return view
    return replace(view, requests_per_second=view.requests_per_second * record.delay / view.objective_seconds)


def _asked(view: EndpointView) -> str:
    return f"{view.requests_per_second:.3g} requests/s within {(view.objective_seconds or 0.0) * 1000:.3g} ms"
