"""What endpoints get under the utility policy: CPU goes to answers in time where that is worth more than training.

An endpoint is worth ``request rate x quality x d`` per second, ``d`` being 1 within the objective and falling beyond it
as objective / delay. How many cores that takes depends on its clients:

* Requests that come at a rate of their own: with ``load`` cores of work and ``x`` cores to do it, one that takes ``s``
  CPU seconds is answered after about ``s / (x - load)`` (a queue that shares its server, M/G/1-PS). What was measured
  corrects ``s`` from pass to pass, since delays have other causes too.
* Clients that ask again as soon as they are answered use whatever there is, and the delay is proportional to
  ``1 / x``: the share follows ``delay / objective``, half of the way (on the logarithm) at each new measurement.

More than that is of no use. The endpoint that is worth most per core comes first; one that is worth less per core than
training is gets what training leaves.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tiercel.broker.domain.shares import Share
from tiercel.broker.scheduling.interface import EndpointView, NodeView

# An endpoint that uses this part of what it was given would use more.
_SATURATED = 0.9
# What is given changes by no more than this factor, or one over it, at a measurement.
_SLOWEST_STEP = 0.5
# As long as answers come in time, smaller changes than this part are left alone.
_NOT_WORTH_IT = 0.1


@dataclass(frozen=True, slots=True)
class ServingSettings:
    """How endpoints are priced.

    Attributes:
        answers_per_value: Good answers in time that are worth as much as a tier of value 1, > 0.
        headroom: Endpoints get this times what they are held to need, >= 1.
        training_floor: Fraction of a node that its jobs keep in any case, in (0, 1).
        idle_share: Fraction of a node that an endpoint without requests keeps, > 0.
        mean_part: Mean delay that is aimed at where requests queue, as a part of the objective, so that most of them
            and not only the mean one are answered in time; in (0, 1].
    """

    answers_per_value: float = 100.0
    headroom: float = 1.1
    training_floor: float = 0.1
    idle_share: float = 0.02
    mean_part: float = 0.5


@dataclass(frozen=True, slots=True)
class EndpointRecord:
    """What is held of an endpoint between passes.

    Attributes:
        request_seconds: CPU seconds that a request takes.
        factor: By how much delays are longer than they tell.
        cores: What it was given last.
        target: Cores that it is held to need; 0 while nothing was measured.
        saturated: Whether it used up what it was given.
        delay: The delay measured last, seconds, or None.
    """

    request_seconds: float = 0.0
    factor: float = 1.0
    cores: float = 0.0
    target: float = 0.0
    saturated: bool = False
    delay: float | None = None


@dataclass(frozen=True, slots=True)
class Serving:
    """What the endpoints of a node get.

    Attributes:
        shares: By endpoint.
        records: What is held of them, by endpoint.
        capacity: Fraction of the node that is left for jobs.
    """

    shares: Mapping[str, Share]
    records: Mapping[str, EndpointRecord]
    capacity: float


@dataclass(frozen=True, slots=True)
class _Need:
    """What an endpoint needs, in cores, and what that is worth per core and second, in answers."""

    view: EndpointView
    cores: float
    worth: float


def serve(
    endpoints: Sequence[EndpointView],
    node: NodeView,
    training_worth: float,
    records: Mapping[str, EndpointRecord],
    settings: ServingSettings,
) -> Serving:
    """Divide a node between its endpoints with an objective and its jobs.

    Args:
        endpoints: Those of the node that have an objective.
        node: The node.
        training_worth: Value per CPU second of the jobs that would run, 0 when none does.
        records: What was held of endpoints before.
        settings: How endpoints are priced.
    """
    kept = {view.name: _updated(view, records.get(view.name, EndpointRecord()), node, settings) for view in endpoints}
    needs = [_need(view, kept[view.name], node, len(endpoints)) for view in endpoints]
    needs.sort(key=lambda need: (-need.worth, need.cores, need.view.name))
    price = training_worth * settings.answers_per_value
    left = 1.0 - (settings.training_floor if training_worth > 0 else 0.0)
    least = settings.idle_share * left / max(len(needs), 1)
    shares: dict[str, Share] = {}
    for position, need in enumerate(needs):
        rest = least * (len(needs) - position - 1)
        outbid = need.worth < price
        part = least if outbid else max(min(need.cores / node.cpu_cores, left - rest), least)
        left -= part
        shares[need.view.name] = Share(part, reason=_reason(need, part, node, outbid=outbid))
        kept[need.view.name] = replace(kept[need.view.name], cores=part * node.cpu_cores)
    return Serving(shares, kept, 1.0 - sum(share.cpu_weight for share in shares.values()))


def _updated(view: EndpointView, record: EndpointRecord, node: NodeView, settings: ServingSettings) -> EndpointRecord:
    rate, used, delay = view.requests_per_second, view.cpu_cores_used, view.delay_seconds
    if rate <= 0 or used <= 0 or not view.objective_seconds:
        return record
    seconds = used / rate
    given = record.cores or (view.share.cpu_weight * node.cpu_cores if view.share is not None else 0.0)
    saturated = delay is not None and delay > 1.5 * seconds and used >= _SATURATED * min(given or used, node.cpu_cores)
    if delay is None or delay == record.delay:
        factor, target = record.factor, record.target
    elif saturated:
        step = min(max(math.sqrt(delay / view.objective_seconds), _SLOWEST_STEP), 1 / _SLOWEST_STEP)
        factor, target = record.factor, max(used, given if given <= used / _SATURATED else used) * step
    else:
        ratio = delay / (settings.mean_part * view.objective_seconds)
        factor = record.factor * min(max(math.sqrt(ratio), _SLOWEST_STEP), 1 / _SLOWEST_STEP) if given else 1.0
        factor = min(max(factor, 0.25), 64.0)
        target = 0.0
    if not saturated:
        wait = settings.mean_part * view.objective_seconds
        target = settings.headroom * (used + factor * seconds / wait)
    if abs(target - record.target) <= _NOT_WORTH_IT * record.target and _in_time(delay, view.objective_seconds):
        target = record.target
    least = settings.idle_share * node.cpu_cores
    return EndpointRecord(seconds, factor, record.cores, min(max(target, least), node.cpu_cores), saturated, delay)


def _in_time(delay: float | None, objective_seconds: float) -> bool:
    """Whether answers come in time, as far as was measured."""
    return delay is None or delay <= objective_seconds


def _need(view: EndpointView, record: EndpointRecord, node: NodeView, endpoints: int) -> _Need:
    if record.target <= 0:  # nothing is known of it: its even part
        return _Need(view, node.cpu_cores / (endpoints + 1), math.inf)
    rate = view.requests_per_second
    if record.saturated and record.delay is not None and view.objective_seconds:
        rate *= record.delay / view.objective_seconds  # as soon as it is answered in time
    quality = view.quality if view.quality is not None and view.quality > 0 else 1.0
    if rate <= 0:
        return _Need(view, 0.0, math.inf)
    return _Need(view, record.target, view.tenant_weight * rate * quality / record.target)


def _reason(need: _Need, part: float, node: NodeView, *, outbid: bool) -> str:
    objective = need.view.objective_seconds or 0.0
    if need.view.requests_per_second <= 0:
        return f"no requests at the moment; keeps {part:.1%} of the node for the next one"
    asked = (
        f"{need.view.requests_per_second:.3g} requests/s within {objective * 1000:.3g} ms need {need.cores:.2g} cores"
    )
    if outbid:
        return f"{asked}; training is worth more at the moment, so it gets {part:.1%} of the node"
    if part * node.cpu_cores < need.cores * 0.99:
        return f"{asked}; {part:.1%} of the node is what is left for it"
    return f"{asked}: {part:.1%} of the node"
