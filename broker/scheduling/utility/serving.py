"""What is held of endpoints under the utility policy: the CPU that their answers take, and what these are worth.

Two kinds of clients have to be told apart, since they want the opposite. Requests that come by themselves ("open") take
what they take: with less than that their queue grows without end. Clients that ask again as soon as they are answered
("closed", the batches of DQoES) use whatever there is; their delay is proportional to one over it. Nobody says which
they are. Whoever leaves CPU unused that it could have, or gets more requests than it answers, is open: three
measurements in a row settle that for good.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from tiercel.broker.scheduling.interface import EndpointView, NodeView

# An endpoint answers in time when this part of its requests was answered within the objective.
_IN_TIME = 0.95
# Who uses this part of a node, or of what it was given, would use more; who uses less leaves something.
FULL = 0.9
_OPEN_AFTER = 3
LEAST = 0.02
"""Fraction of a node that its jobs keep together, that endpoints that are limited keep together, and in which what
endpoints leave is told apart: nobody needs new weights for less."""


@dataclass(frozen=True, slots=True)
class EndpointRecord:
    """What is held of an endpoint between passes."""

    delay: float | None = None  # the delay measured last, seconds, or None
    request_seconds: float = 0.0  # CPU seconds that a request takes
    open_streak: int = 0  # measurements in a row that say that its requests come by themselves
    wants: float = 0.0  # cores that it needs to answer in time; 0 while nothing was measured

    @property
    def is_open(self) -> bool:
        """Whether its requests come by themselves, as far as one can tell."""
        return self.open_streak >= _OPEN_AFTER


def observe(
    views: Iterable[EndpointView], nodes: Mapping[str, NodeView], records: Mapping[str, EndpointRecord]
) -> dict[str, EndpointRecord]:
    """What is held of the endpoints of these nodes after what was measured.

    Args:
        views: All endpoints, by name.
        nodes: By id.
        records: What was held of them before.
    """
    views = [view for view in views if view.node_id in nodes and nodes[view.node_id].cpu_cores > 0]
    used = _used(views)
    return {
        view.name: _observed(
            view,
            records.get(view.name, EndpointRecord()),
            nodes[view.node_id].cpu_cores,
            used[view.node_id],
        )
        for view in views
    }


def _used(views: Iterable[EndpointView]) -> dict[str, float]:
    """Cores that answers use, by node."""
    used: dict[str, float] = {}
    for view in views:
        used[view.node_id] = used.get(view.node_id, 0.0) + max(view.cpu_cores_used, 0.0)
    return used


def _observed(view: EndpointView, record: EndpointRecord, cores: float, node_used: float) -> EndpointRecord:
    rate, used, delay = view.requests_per_second, max(view.cpu_cores_used, 0.0), view.delay_seconds
    if rate <= 0 or used <= 0 or delay is None or delay == record.delay:
        return record
    seconds, on_time = used / rate, is_in_time(view)
    if record.request_seconds > 0:  # what waits was not answered: what was answered late tells too little of a request
        seconds = (record.request_seconds + seconds) / 2 if on_time else max(record.request_seconds, seconds)
    load, given = rate * seconds, view.share.cpu_weight * cores if view.share is not None else 0.0
    leaves = used < FULL * (given or cores) and (bool(given) or node_used < FULL * cores)
    streak = record.open_streak + 1 if (leaves and on_time) or load > used / FULL else 0
    if record.is_open:
        streak, wants = record.open_streak, load / FULL
    elif view.objective_seconds and used >= FULL * min(given or used, cores):
        # Half of the way, on the logarithm.
        wants = max(used, given) * math.sqrt(delay / view.objective_seconds)
    else:
        wants = used / FULL
    wants = min(max(wants, LEAST * cores), cores)
    return replace(record, delay=delay, request_seconds=seconds, open_streak=streak, wants=wants)


def is_in_time(view: EndpointView) -> bool:
    """Whether answers come in time, as far as was measured: nearly all of them, or in the mean where nobody counts."""
    return part_in_time(view) >= (_IN_TIME if view.in_objective is not None else 1.0)


def part_in_time(view: EndpointView) -> float:
    """The part of its requests that is answered in time: as measured, or guessed from the mean where nobody counts."""
    if view.in_objective is not None:
        return view.in_objective
    delay, objective = view.delay_seconds, view.objective_seconds
    return min(objective / delay, 1.0) if delay and objective else 1.0


def value_of(view: EndpointView) -> float:
    """What its answers are worth a second if all come in time: ``requests x accuracy x tenant's weight``."""
    quality = view.quality if view.quality is not None and view.quality > 0 else 1.0
    return view.tenant_weight * view.requests_per_second * quality


def cores_left(nodes: Sequence[NodeView], views: Iterable[EndpointView]) -> dict[str, float]:
    """Cores that answers leave to jobs, in steps of :data:`LEAST`; by node."""
    used = _used(views)
    return {
        node.id: in_steps(1.0 - used.get(node.id, 0.0) / node.cpu_cores) * node.cpu_cores if node.cpu_cores > 0 else 0.0
        for node in nodes
    }


def in_steps(part: float) -> float:
    """The part of a node, in whole steps of :data:`LEAST`, one at least."""
    return max(math.floor(part / LEAST + 1e-6), 1) * LEAST
