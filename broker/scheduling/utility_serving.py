"""What endpoints get under the utility policy: CPU goes to answers in time where that is worth more than training.

An endpoint is worth ``request rate x quality x d`` per second, ``d`` being 1 within the objective and falling beyond it
as objective / delay. With ``load`` cores of work and ``x`` cores to do it, a request that takes ``s`` CPU seconds is
answered after about ``s / (x - load)`` (a queue that shares its server, M/G/1-PS), so that the objective is met from
``load + s / objective`` cores on, and more is of no use. What was measured corrects ``s`` from pass to pass, since
delays have other causes too. The endpoint that is worth most per core comes first; one that is worth less per core
than training is gets what training leaves.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tiercel.broker.domain.shares import Share
from tiercel.broker.scheduling.interface import EndpointView, NodeView


@dataclass(frozen=True, slots=True)
class ServingSettings:
    """How endpoints are priced.

    Attributes:
        answers_per_value: Good answers in time that are worth as much as a tier of value 1, > 0.
        headroom: Endpoints get this times what they are held to need, >= 1.
        training_floor: Fraction of a node that its jobs keep in any case, in (0, 1).
        idle_share: Fraction of a node that an endpoint without requests keeps, > 0.
    """

    answers_per_value: float = 100.0
    headroom: float = 1.25
    training_floor: float = 0.1
    idle_share: float = 0.02


@dataclass(frozen=True, slots=True)
class EndpointRecord:
    """What is held of an endpoint between passes.

    Attributes:
        request_seconds: CPU seconds that a request takes.
        factor: By how much delays are longer than they tell.
        cores: What it was given last.
    """

    request_seconds: float = 0.0
    factor: float = 1.0
    cores: float = 0.0


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
    kept = {view.name: _updated(view, records.get(view.name, EndpointRecord())) for view in endpoints}
    needs = [_need(view, kept[view.name], node, settings) for view in endpoints]
    needs.sort(key=lambda need: (-need.worth, need.view.name))
    price = training_worth * settings.answers_per_value
    left = 1.0 - (settings.training_floor if training_worth > 0 else 0.0)
    shares: dict[str, Share] = {}
    for position, need in enumerate(needs):
        least = settings.idle_share * left / len(needs)
        wanted = max(need.cores / node.cpu_cores, least)
        rest = least * (len(needs) - position - 1)
        part = max(min(wanted, left - rest), least) if need.worth >= price or not price else least
        left -= part
        shares[need.view.name] = Share(part, reason=_reason(need, part, node, outbid=need.worth < price))
        record = kept[need.view.name]
        kept[need.view.name] = EndpointRecord(record.request_seconds, record.factor, part * node.cpu_cores)
    return Serving(shares, kept, 1.0 - sum(share.cpu_weight for share in shares.values()))


def _updated(view: EndpointView, record: EndpointRecord) -> EndpointRecord:
    rate, used = view.requests_per_second, view.cpu_cores_used
    seconds = used / rate if rate > 0 and used > 0 else record.request_seconds
    factor = record.factor
    if view.delay_seconds is not None and view.objective_seconds and seconds > 0 and record.cores > 0:
        ratio = view.delay_seconds / view.objective_seconds
        if not 0.5 <= ratio <= 1.0:  # half of the objective is good enough to leave things alone
            factor = min(max(factor * min(max(ratio, 0.8), 1.5), 0.25), 64.0)
    return EndpointRecord(seconds, factor, record.cores)


def _need(view: EndpointView, record: EndpointRecord, node: NodeView, settings: ServingSettings) -> _Need:
    if view.requests_per_second <= 0 or not view.objective_seconds:
        return _Need(view, 0.0, math.inf)
    load = max(view.cpu_cores_used, view.requests_per_second * record.request_seconds)
    cores = settings.headroom * (load + record.factor * record.request_seconds / view.objective_seconds)
    cores = min(max(cores, settings.idle_share * node.cpu_cores), node.cpu_cores)
    quality = view.quality if view.quality is not None and view.quality > 0 else 1.0
    return _Need(view, cores, view.tenant_weight * view.requests_per_second * quality / cores)


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
