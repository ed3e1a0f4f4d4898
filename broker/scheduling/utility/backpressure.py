"""CPU that is kept from a node's jobs while answers beside them come late, under the utility policy.

Serving is protected from training, yet not from all of it: memory bandwidth, caches and the kernel's time slices are
shared, and where control groups may not be used nothing is protected at all. Only what is measured tells: the part of
requests that were answered within the objective. As soon as it falls short, and what is lost is worth more than what
the jobs would make of the CPU, a quarter of what they can use is taken from them in the same plan, by caps. It comes
back in small steps once answers are in time again, and at once where taking it did not help: then training is not the
reason (measure and revert, as Gandiva does; the numbers are ours).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tiercel.broker.scheduling.interface import Assignment, EndpointView
from tiercel.broker.scheduling.utility.queue import Queue
from tiercel.broker.scheduling.utility.serving import IN_TIME, TRAINING_FLOOR
from tiercel.broker.scheduling.utility.settings import UtilitySettings

_STEP = 0.25
_BACK = 0.05
# Seconds in which what was taken shows in what is measured.
_SETTLE_SECONDS = 2.0
# Seconds in time before some of it is given back.
_CALM_SECONDS = 10.0
# Taking that much again must have brought so many more requests in time, or it is of no use.
_HELPS = 0.02
_TRIES = 4
# Seconds after which it is tried again.
_REST_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Backpressure:
    """What is kept from a node's jobs."""

    part: float = 0.0  # fraction of the CPU that they can use
    at: float = -math.inf  # when that was last changed, seconds since the Unix epoch
    before: float = 0.0  # the part of requests in time before anything was taken
    vain: int = 0  # how often in a row taking more did not help
    rests_until: float = -math.inf  # nothing is taken before, seconds since the Unix epoch
    reason: str = ""  # why it is kept, in words; empty while nothing is


NONE = Backpressure()


def backpressure_after(
    before: Backpressure,
    endpoints: Sequence[EndpointView],
    queue: Queue,
    now: float,
    settings: UtilitySettings,
) -> Backpressure:
    """What is to be kept from the jobs of a node after what was measured.

    Args:
        before: What was.
        endpoints: Those of the node that have an objective.
        queue: Its jobs.
        now: Seconds since the Unix epoch.
        settings: Of the policy.
    """
    if not queue.candidates:
        return NONE
    late = [view for view in endpoints if view.in_objective is not None and view.in_objective < IN_TIME]
    if not late:
        return _given_back(before, now)
    if now < before.rests_until or now < before.at + _SETTLE_SECONDS:
        return before
    # Answers per second that come late, and as how many of them training values the next quarter of its CPU.
    lost = math.fsum(_lost(view) for view in late)
    if lost < queue.priority * settings.answers_per_value * _STEP * _usable(queue):
        return replace(_given_back(before, now), rests_until=before.rests_until)
    worst = min(late, key=_in_objective)
    found = _in_objective(worst)
    vain = before.vain + 1 if before.part and found < before.before + _HELPS else 0
    if vain >= _TRIES:
        return Backpressure(at=now, rests_until=now + _REST_SECONDS)
    part = min(before.part + _STEP, 1.0 - TRAINING_FLOOR)
    reason = f"{part:.0%} of the jobs' CPU is kept for answers: endpoint {worst.name} has {found:.0%} of them in time"
    return Backpressure(part, now, before.before if before.part else found, vain, reason=reason)


def capped(queue: Queue, backpressure: Backpressure) -> tuple[Assignment, ...]:
    """The assignments of a node's jobs, held to their part of what they could use: weights alone keep nothing.

    Of accelerators as well: who answers with one is late for the same reason, and nobody here knows which it uses.
    """
    left = _usable(queue) * (1.0 - backpressure.part)
    weights = math.fsum(assignment.share.cpu_weight for assignment in queue.assignments)
    return tuple(
        replace(
            assignment,
            share=replace(
                assignment.share,
                cpu_cap_cores=left * assignment.share.cpu_weight / weights,
                accelerators=tuple(
                    replace(held, cap=held.fraction * (1.0 - backpressure.part))
                    for held in assignment.share.accelerators
                ),
                reason=f"{assignment.share.reason}; {backpressure.reason}",
            ),
        )
        for assignment in queue.assignments
    )


def _usable(queue: Queue) -> float:
    """Cores that the jobs of a node can use together."""
    return min(math.fsum(candidate.cores for candidate in queue.candidates), queue.node.cpu_cores)


def _given_back(before: Backpressure, now: float) -> Backpressure:
    if not before.part or now < before.at + _CALM_SECONDS:
        return before
    part = round(before.part - _BACK, 9)
    if part <= 0:
        return NONE
    return replace(before, part=part, at=now, vain=0, reason=f"{part:.0%} of the jobs' CPU is still kept for answers")


def _lost(view: EndpointView) -> float:
    quality = view.quality if view.quality is not None and view.quality > 0 else 1.0
    return view.tenant_weight * view.requests_per_second * quality * (1.0 - _in_objective(view))


def _in_objective(view: EndpointView) -> float:
    return view.in_objective if view.in_objective is not None else 1.0
