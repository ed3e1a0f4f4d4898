"""Endpoints and jobs on one node under the utility policy: who gets the next core, by what it is worth.

Requests only use what they need, and a limit that is a little too tight makes their delay explode. So endpoints have
no limit, which protects them from training, unless they want more than their node has. Then each gets what it wants,
those first that are worth most per core: without a limit if its requests come by themselves, else just that, which
leads it to its objective. The others get what is left, unless training is worth more than late answers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from tiercel.broker.scheduling.interface import EndpointView, NodeView
from tiercel.broker.scheduling.utility.serving import (
    FULL,
    LEAST,
    EndpointRecord,
    is_in_time,
    part_in_time,
    value_of,
)
from tiercel.core.figures import percent
from tiercel.core.shares import Share

# Who had all that it wanted keeps it unless another is worth so many times as much.
_STAYS = 1.5


def limits(
    views: Sequence[EndpointView], node: NodeView, price: float, records: Mapping[str, EndpointRecord]
) -> dict[str, Share]:
    """What those endpoints of a node get that are limited; none while they do not compete.

    Args:
        views: Those of the node that have an objective, by name.
        node: The node.
        price: What a core is worth to its jobs, in answers a second; 0 where there are none.
        records: What is held of endpoints, after what was measured.
    """
    if len(views) < 2:
        return {}
    guess = node.cpu_cores / (len(views) + 1)  # nobody knows yet what a newcomer wants
    held = {
        view.name: replace(record, wants=(record.wants or guess) if view.requests_per_second > 0 else 0.0)
        for view in views
        for record in (records[view.name],)
    }
    limited = any(view.share is not None for view in views)
    wanted = math.fsum(record.wants for record in held.values())
    used = math.fsum(max(view.cpu_cores_used, FULL * held[view.name].wants * held[view.name].is_open) for view in views)
    begins = used >= FULL * node.cpu_cores and not all(map(is_in_time, views))
    # Clients that ask again as soon as they are answered never leave anything.
    goes_on = limited and (wanted > node.cpu_cores or not all(record.is_open for record in held.values()))
    if not (begins or goes_on):
        return {}
    worth = {view.name: _worth(view, held[view.name], limited=limited) for view in views}
    left = node.cpu_cores * (1.0 - (LEAST if price > 0 else 0.0))
    least, shares = LEAST * node.cpu_cores / len(views), {}
    for position, view in enumerate(sorted(views, key=lambda view: (-worth[view.name], view.name))):
        record = held[view.name]
        room = left - least * (len(views) - position - 1)
        outbid = record.is_open and position > 0 and worth[view.name] * part_in_time(view) < price
        cores = least if outbid else max(min(record.wants, room), least)
        if record.is_open and (position == 0 or (cores >= record.wants and not outbid)):
            left -= min(record.wants, room)
            continue
        left -= cores
        why = "training is worth more than late answers" if outbid else "others are worth more per core"
        why = f", more than the node has left; {why}" if cores < 0.99 * record.wants else ""
        asked = f"{view.requests_per_second:.3g} requests/s within {(view.objective_seconds or 0.0) * 1000:.3g} ms"
        part = cores / node.cpu_cores
        shares[view.name] = Share(
            part, reason=f"{asked} need {record.wants:.2g} cores{why}: {percent(part)} of the node"
        )
    return shares


def _worth(view: EndpointView, record: EndpointRecord, *, limited: bool) -> float:
    """Answers in time per second and core, if it gets what it wants."""
    if not record.wants:
        return 0.0
    faster = 1.0  # whoever asks again as soon as it is answered asks more often once it is answered in time
    if not record.is_open and view.delay_seconds and view.objective_seconds:
        faster = max(view.delay_seconds / view.objective_seconds, 1.0)
    return (
        value_of(view) * faster / record.wants * (_STAYS if limited and record.is_open and view.share is None else 1.0)
    )
