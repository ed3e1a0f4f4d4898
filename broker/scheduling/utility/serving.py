"""Endpoints under the utility policy: what their answers take, what these are worth, and who gets the next core.

Two kinds of clients have to be told apart, since they want the opposite. Requests that come by themselves ("open") take
what they take: with less than that their queue grows without end. Clients that ask again as soon as they are answered
("closed", the batches of DQoES) use whatever there is; their delay is proportional to one over it. Nobody says which
they are. Whoever leaves CPU unused that it could have, or gets more requests than it answers, is open: three
measurements in a row settle that for good.

Requests only use what they need, and a limit that is a little too tight makes their delay explode. So endpoints have
no limit, which protects them from training, unless they want more than their node has. Then each gets what it wants,
those first that are worth most per core: without a limit if its requests come by themselves, else just that, which
leads it to its objective. The others get what is left, unless training is worth more than late answers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from tiercel.broker.scheduling.interface import EndpointView, JobView, NodeView
from tiercel.broker.scheduling.utility.settings import UtilitySettings
from tiercel.core.figures import percent
from tiercel.core.jobs import Direction
from tiercel.core.shares import Share

# An endpoint answers in time when this part of its requests was answered within the objective.
_IN_TIME = 0.95
# Who uses this part of a node, or of what it was given, would use more; who uses less leaves something.
_FULL = 0.9
_OPEN_AFTER = 3
# Who had all that it wanted keeps it unless another is worth so many times as much.
_STAYS = 1.5
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
    views: Iterable[EndpointView], node: NodeView, records: Mapping[str, EndpointRecord]
) -> dict[str, EndpointRecord]:
    """What is held of the endpoints of a node after what was measured; ``records`` is what was held before."""
    used = _used(views)
    return {
        view.name: _observed(view, records.get(view.name, EndpointRecord()), node.cpu_cores, used) for view in views
    }


def cores_left(node: NodeView, views: Iterable[EndpointView]) -> float:
    """Cores that answers leave to the jobs of a node, in steps of :data:`LEAST`."""
    return in_steps(1.0 - _used(views) / node.cpu_cores) * node.cpu_cores if node.cpu_cores > 0 else 0.0


def _used(views: Iterable[EndpointView]) -> float:
    """Cores that answers use."""
    return math.fsum(max(view.cpu_cores_used, 0.0) for view in views)


def _observed(view: EndpointView, record: EndpointRecord, cores: float, node_used: float) -> EndpointRecord:
    rate, used, delay = view.requests_per_second, max(view.cpu_cores_used, 0.0), view.delay_seconds
    if rate <= 0 or used <= 0 or delay is None or delay == record.delay:
        return record
    seconds, on_time = used / rate, _is_in_time(view)
    if record.request_seconds > 0:  # what waits was not answered: what was answered late tells too little of a request
        seconds = (record.request_seconds + seconds) / 2 if on_time else max(record.request_seconds, seconds)
    load, given = rate * seconds, view.share.cpu_weight * cores if view.share is not None else 0.0
    leaves = used < _FULL * (given or cores) and (bool(given) or node_used < _FULL * cores)
    streak = record.open_streak + 1 if (leaves and on_time) or load > used / _FULL else 0
    if record.is_open:
        streak, wants = record.open_streak, load / _FULL
    elif view.objective_seconds and used >= _FULL * min(given or used, cores):
        # Half of the way, on the logarithm.
        wants = max(used, given) * math.sqrt(delay / view.objective_seconds)
    else:
        wants = used / _FULL
    wants = min(max(wants, LEAST * cores), cores)
    return replace(record, delay=delay, request_seconds=seconds, open_streak=streak, wants=wants)


def _is_in_time(view: EndpointView) -> bool:
    """Whether answers come in time, as far as was measured: nearly all of them, or in the mean where nobody counts."""
    return _part_in_time(view) >= (_IN_TIME if view.in_objective is not None else 1.0)


def _part_in_time(view: EndpointView) -> float:
    """The part of its requests that is answered in time: as measured, or guessed from the mean where nobody counts."""
    if view.in_objective is not None:
        return view.in_objective
    delay, objective = view.delay_seconds, view.objective_seconds
    return min(objective / delay, 1.0) if delay and objective else 1.0


@dataclass(frozen=True, slots=True)
class Traffic:
    """How an endpoint is asked: answers in time from a better version are worth more by what it is better."""

    answers: float  # in time that the next window will see, times its tenant's weight, in tiers of value 1
    quality: float  # accuracy of its version

    def gain(self, job: JobView, target: float) -> float:
        """What a version that meets ``target`` is worth to those who ask, as a tier's value; >= 0."""
        return self.answers * max(min(target, 1.0) - self.quality, 0.0) if job.direction is Direction.MAX else 0.0


def traffic_of(views: Iterable[EndpointView], settings: UtilitySettings) -> dict[str, Traffic]:
    """How endpoints are asked, by name, as far as their versions have an accuracy."""
    per_rate = settings.window_seconds / settings.answers_per_value
    asked = ((view, view.tenant_weight * view.requests_per_second * _part_in_time(view) * per_rate) for view in views)
    # Rounded: what is measured differs by chance.
    return {
        view.name: Traffic(float(f"{answers:.2g}"), view.quality)
        for view, answers in asked
        if view.quality is not None and answers > 0
    }


def in_steps(part: float) -> float:
    """The part of a node, in whole steps of :data:`LEAST`, one at least."""
    return max(math.floor(part / LEAST + 1e-6), 1) * LEAST


def limits(
    views: Sequence[EndpointView], node: NodeView, price: float, records: Mapping[str, EndpointRecord]
) -> dict[str, Share]:
    """What those endpoints of a node get that are limited; none while they do not compete.

    Args:
        views: Those of the node, by name.
        node: The node.
        price: What a core is worth to its jobs, in answers a second; 0 where there are none.
        records: What is held of endpoints, after what was measured.
    """
    views = [view for view in views if view.objective_seconds is not None]
    if len(views) < 2 or node.cpu_cores <= 0:
        return {}
    guess = node.cpu_cores / (len(views) + 1)  # nobody knows yet what a newcomer wants
    wants = {each.name: (records[each.name].wants or guess) * (each.requests_per_second > 0) for each in views}
    is_open = {view.name: records[view.name].is_open for view in views}
    limited = any(view.share is not None for view in views)
    used = math.fsum(max(each.cpu_cores_used, _FULL * wants[each.name] * is_open[each.name]) for each in views)
    begins = used >= _FULL * node.cpu_cores and not all(map(_is_in_time, views))
    # Clients that ask again as soon as they are answered never leave anything.
    goes_on = limited and (math.fsum(wants.values()) > node.cpu_cores or not all(is_open.values()))
    if not (begins or goes_on):
        return {}

    def worth(view: EndpointView) -> float:
        """Answers in time per second and core, by quality and tenant's weight, if it gets what it wants."""
        if not is_open[view.name] and view.delay_seconds and view.objective_seconds:
            # Whoever asks again as soon as it is answered asks more often once it is answered in time.
            factor = max(view.delay_seconds / view.objective_seconds, 1.0)
        else:
            factor = _STAYS if limited and is_open[view.name] and view.share is None else 1.0
        quality = view.quality if view.quality is not None and view.quality > 0 else 1.0
        value = view.tenant_weight * view.requests_per_second * quality
        return value * factor / wants[view.name] if wants[view.name] else 0.0

    left = node.cpu_cores * (1.0 - (LEAST if price > 0 else 0.0))
    least, shares = LEAST * node.cpu_cores / len(views), dict[str, Share]()
    for position, view in enumerate(sorted(views, key=lambda view: (-worth(view), view.name))):
        wanted, comes_by_itself = wants[view.name], is_open[view.name]
        outbid = comes_by_itself and position > 0 and worth(view) * _part_in_time(view) < price
        cores = least if outbid else max(min(wanted, left - least * (len(views) - position - 1)), least)
        if comes_by_itself and not outbid and (position == 0 or cores >= wanted):
            left -= min(wanted, cores)
            continue
        left -= cores
        why = "training is worth more than late answers" if outbid else "others are worth more per core"
        why = f", more than the node has left; {why}" if cores < 0.99 * wanted else ""
        asked = f"{view.requests_per_second:.3g} requests/s within {(view.objective_seconds or 0.0) * 1000:.3g} ms"
        part = cores / node.cpu_cores
        shares[view.name] = Share(part, reason=f"{asked} need {wanted:.2g} cores{why}: {percent(part)} of the node")
    return shares
