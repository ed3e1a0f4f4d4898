"""Endpoints and jobs on one node under the utility policy: who gets the next core, by what it is worth.

Requests only use what they need, and a limit that is a little too tight makes their delay explode. So endpoints have
no limit, which protects them from training, as long as nobody is late. Two things are otherwise:

* Endpoints want more than their node has. Each gets what it wants, those first that are worth most per core: without
  a limit if its requests come by themselves, else just that, which leads it to its objective. The others get what is
  left, unless training is worth more than late answers.
* Answers come late beside jobs: memory bandwidth, caches and the kernel's time slices are shared. As long as that
  loses more than the CPU is worth to the jobs, some of it is taken from them by caps, and comes back once answers are
  in time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tiercel.broker.scheduling.interface import Assignment, EndpointView, NodeView
from tiercel.broker.scheduling.utility.serving import (
    FULL,
    IN_TIME,
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
# Seconds in which what was taken shows in what is measured, and seconds in time before some of it is given back.
_SETTLE_SECONDS, _CALM_SECONDS = 2.0, 10.0


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
    if len(views) < 2 or not (begins or goes_on):
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


@dataclass(frozen=True, slots=True)
class Backpressure:
    """What is kept from a node's jobs."""

    part: float = 0.0  # fraction of the CPU that they can use
    at: float = -math.inf  # when that was last changed, seconds since the Unix epoch
    reason: str = ""  # why it is kept, in words; empty while nothing is


NONE = Backpressure()


def backpressure_after(
    before: Backpressure, views: Sequence[EndpointView], price: float, usable: float, now: float, step: float
) -> Backpressure:
    """What is to be kept from the jobs of a node after what was measured.

    Args:
        before: What was.
        views: Those endpoints of the node that have an objective.
        price: What a core is worth to its jobs, in answers a second.
        usable: Cores that the jobs can use together.
        now: Seconds since the Unix epoch.
        step: What is taken at a time; see :class:`.UtilitySettings`.
    """
    late = [view for view in views if view.in_objective is not None and view.in_objective < IN_TIME]
    lost = math.fsum(value_of(view) * (1.0 - part_in_time(view)) for view in late)
    is_worth_it = bool(late) and lost >= price * step * usable
    if not usable or not step or not (before.part or is_worth_it):
        return NONE
    if now < before.at + (_SETTLE_SECONDS if is_worth_it else _CALM_SECONDS):
        return before
    part = min(before.part + step, 1.0 - LEAST) if is_worth_it else round(before.part - step / 5, 9)
    worst = min(late or views, key=part_in_time, default=None)
    found = f": endpoint {worst.name} has {percent(part_in_time(worst))} of them in time" if worst is not None else ""
    return Backpressure(part, now, f"{percent(part)} of the jobs' CPU is kept for answers{found}") if part > 0 else NONE


def capped(assignments: Sequence[Assignment], usable: float, backpressure: Backpressure) -> tuple[Assignment, ...]:
    """The assignments of a node's jobs, held to their part of what they could use: weights alone keep nothing.

    Of accelerators as well: who answers with one is late for the same reason, and nobody here knows which it uses.
    """
    left = 1.0 - backpressure.part
    weights = math.fsum(each.share.cpu_weight for each in assignments)
    return tuple(
        replace(
            each,
            share=replace(
                each.share,
                cpu_cap_cores=left * usable * each.share.cpu_weight / weights,
                accelerators=tuple(replace(held, cap=held.fraction * left) for held in each.share.accelerators),
                reason=f"{each.share.reason}; {backpressure.reason}",
            ),
        )
        for each in assignments
    )
