"""DQoES-style scheduling: endpoints that answer faster than they need to give CPU to those that are too slow.

A reconstruction, not a re-implementation: of DQoES only the abstract can be read, which gives the aim (as many services
as possible within their own delay objective) and that limits follow feedback; the rule is a reconstruction, and
:func:`.limits` says which of it is ours. Each node decides for itself.

* Every endpoint with an objective is faster (G), satisfied (S) or slower (B); G gives, B gets, S keeps its limit.
* A limit is a cap in cores, and the weight is the same fraction: exact matching is the point of DQoES, and an endpoint
  that is *too fast* counts as unsatisfied in its metric.
* Endpoints without an objective, and those that nobody asks anything or that were only just asked for the first time,
  are not limited. What they use is not given out.
* Training jobs share equally what is left of their node, and keep ``training_floor`` of it.

The adaptive listener looks at every snapshot: while nobody's class changes for the worse and nobody both has and wants,
limits are moved less and less often (ours: not while they still move by more than 3 %); a satisfied endpoint that falls
out, or one that comes or goes, has them moved at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tiercel.broker.scheduling.dqoes.rule import (
    DqoesDelay,
    DqoesMode,
    QoeClass,
    RuleSettings,
    Service,
    classify,
    limits,
)
from tiercel.broker.scheduling.interface import Assignment, EndpointView, JobView, NodeView, Plan, Snapshot
from tiercel.broker.scheduling.placement import jobs_by_node, place
from tiercel.core.figures import percent, plural
from tiercel.core.shares import Share

# Limits that change by less than this fraction stand still.
_STILL = 0.03


@dataclass(frozen=True, slots=True)
class DqoesSettings(RuleSettings):
    """How DQoES-style scheduling behaves."""

    training_floor: float = 0.1  # fraction of a node that its training jobs keep together while it has any, in (0, 1)
    interval: float = 4.0  # seconds between two moves of a node's limits (IV), >= 0; 0 is at every snapshot
    max_interval: float = 32.0  # what the interval is doubled to at most, seconds

    def __post_init__(self) -> None:
        """Refuse what no run could make sense of."""
        super(DqoesSettings, self).__post_init__()
        if not 0 < self.training_floor < 1:
            msg = "training_floor must lie between 0 and 1"
            raise ValueError(msg)
        if not 0 <= self.interval <= self.max_interval:
            msg = "interval must be at least 0 and at most max_interval"
            raise ValueError(msg)


@dataclass(frozen=True, slots=True)
class ListenerRecord:
    """What the listener remembers of a node."""

    node_id: str  # the node
    names: tuple[str, ...]  # the endpoints that were listened to
    satisfied: int  # how many of them were satisfied at the last look
    interval: float  # seconds between two moves at present
    next_at: float  # when to move limits next, seconds since the Unix epoch


@dataclass(frozen=True, slots=True)
class DqoesState:
    """One record a node that has endpoints with objectives, by node."""

    records: tuple[ListenerRecord, ...] = ()


class DqoesPolicy:
    """Moves limits between endpoints towards their objectives; see the module's description."""

    name: str = "dqoes"
    settings_type = DqoesSettings

    def __init__(self, settings: DqoesSettings | None = None) -> None:
        self.settings = settings or DqoesSettings()

    def initial_state(self) -> DqoesState:
        """Nobody was listened to yet."""
        return DqoesState()

    def plan(self, snapshot: Snapshot, state: DqoesState) -> tuple[Plan, DqoesState]:
        """Place jobs, move the limits of endpoints where it is time, and give jobs the rest."""
        placement = place(snapshot)
        jobs = jobs_by_node(snapshot, placement)
        endpoints = _by_node(snapshot)
        earlier = {record.node_id: record for record in state.records}
        records: list[ListenerRecord] = []
        shares: dict[str, Share] = {}
        assignments: list[Assignment] = []
        for node in sorted(snapshot.nodes, key=lambda node: node.id):
            on_node = jobs.get(node.id, [])
            given, record = self._serve(
                node, endpoints.get(node.id, []), earlier.get(node.id), snapshot.now, trains=bool(on_node)
            )
            shares |= given
            records += [record] if record else []
            assignments += _train(node, on_node, given)
        # The listener looks more often than it moves limits.
        look_at = snapshot.now + self.settings.interval if records and self.settings.interval else None
        plan = Plan(assignments=tuple(assignments), waiting=placement.waiting, endpoint_shares=shares, next_at=look_at)
        return plan, DqoesState(tuple(records))

    def _serve(
        self,
        node: NodeView,
        endpoints: Sequence[EndpointView],
        record: ListenerRecord | None,
        now: float,
        *,
        trains: bool,
    ) -> tuple[dict[str, Share], ListenerRecord | None]:
        """Shares of a node's endpoints, and what to remember of it."""
        delay = self.settings.delay
        services = [service for endpoint in endpoints if (service := _service(endpoint, node, delay)) is not None]
        if not services:
            return {}, None
        # What was measured of a newcomer may be of a part of the interval only: it is not held to that.
        settled = [service for service in services if record is None or service.name in record.names]
        record, due = self._listen(node.id, services, record, now)
        known = {endpoint.name: endpoint.share for endpoint in endpoints}
        capacity = self._capacity(node, endpoints, settled, trains=trains)
        if due:
            moved = limits(settled, self.settings, capacity)
            if self.settings.mode is DqoesMode.CONSERVING and any(_moves(s, moved[s.name]) for s in settled):
                # Ours: as long as limits still move there is no reason to rest, whatever the classes.
                record = replace(record, interval=self.settings.interval, next_at=now + self.settings.interval)
            return {s.name: _share(s, moved[s.name], node, self.settings) for s in settled}, record
        kept = {s.name: share for s in settled if (share := known[s.name]) is not None}
        return _within(kept, capacity, node), record

    def _capacity(
        self, node: NodeView, endpoints: Sequence[EndpointView], services: Sequence[Service], *, trains: bool
    ) -> float:
        """What endpoints with a limit may have together: the node less the training's floor and what others use."""
        whole = 1 - (self.settings.training_floor if trains else 0.0)
        listened = {service.name for service in services}
        others = sum(e.cpu_cores_used for e in endpoints if e.name not in listened) / node.cpu_cores
        # However much the others use, an endpoint that is looked after keeps something.
        return max(whole - others, whole / 2)

    def _listen(
        self, node_id: str, services: Sequence[Service], record: ListenerRecord | None, now: float
    ) -> tuple[ListenerRecord, bool]:
        """The adaptive listener: what to remember, and whether it is time to move limits."""
        names = tuple(service.name for service in services)
        classes = [classify(service, self.settings.alpha) for service in services]
        satisfied = classes.count(QoeClass.SATISFIED)
        base = self.settings.interval
        if record is None or names != record.names or satisfied < record.satisfied:
            return ListenerRecord(node_id, names, satisfied, base, now + base), True
        if now < record.next_at:
            return replace(record, satisfied=satisfied), False
        tradable = QoeClass.FASTER in classes and QoeClass.SLOWER in classes
        rests = satisfied == record.satisfied and not tradable
        interval = min(2 * record.interval, self.settings.max_interval) if rests else base
        return ListenerRecord(node_id, names, satisfied, interval, now + interval), True


def _moves(service: Service, limit: float) -> bool:
    """Whether a limit differs from the last one by more than what is measured does by chance."""
    return service.limit is None or abs(limit - service.limit) > _STILL * service.limit


def _by_node(snapshot: Snapshot) -> dict[str, list[EndpointView]]:
    """The endpoints of each node, by name."""
    groups: dict[str, list[EndpointView]] = {}
    for endpoint in sorted(snapshot.endpoints, key=lambda endpoint: endpoint.name):
        groups.setdefault(endpoint.node_id, []).append(endpoint)
    return groups


def _service(endpoint: EndpointView, node: NodeView, judged: DqoesDelay) -> Service | None:
    """What the rule reads; None for an endpoint without an objective, or one that nobody asks anything."""
    objective, delay = endpoint.objective_seconds, endpoint.delay_seconds
    if judged is DqoesDelay.P95 and delay is not None and endpoint.p95_seconds is not None:
        delay = endpoint.p95_seconds
    if objective is None or node.cpu_cores <= 0 or (delay is None and not endpoint.requests_per_second > 0):
        return None
    cap = endpoint.share.cpu_cap_cores if endpoint.share else None
    limit = None if cap is None else min(cap / node.cpu_cores, 1.0)
    return Service(endpoint.name, objective, delay, min(endpoint.cpu_cores_used / node.cpu_cores, 1.0), limit)


def _train(node: NodeView, jobs: Sequence[JobView], endpoints: Mapping[str, Share]) -> list[Assignment]:
    """Equal shares of what the endpoints leave."""
    if not jobs:
        return []
    weight = (1 - sum(share.cpu_weight for share in endpoints.values())) / len(jobs)
    reason = f"equal share of what {len(endpoints)} endpoints with an objective leave" if endpoints else "equal share"
    others = len(jobs) - 1
    reason += f", with {plural(others, 'other job')} on this node" if others else ", the only job here"
    return [Assignment(job.id, node.id, Share(weight, reason=reason)) for job in jobs]


def _within(shares: dict[str, Share], capacity: float, node: NodeView) -> dict[str, Share]:
    """Shares kept from before, made to fit where less is left for them than there was."""
    total = sum(share.cpu_weight for share in shares.values())
    if total <= capacity:
        return shares
    scale = capacity / total
    return {
        name: replace(
            share, cpu_weight=scale * share.cpu_weight, cpu_cap_cores=scale * share.cpu_weight * node.cpu_cores
        )
        for name, share in shares.items()
    }


def _share(service: Service, limit: float, node: NodeView, settings: DqoesSettings) -> Share:
    alpha = settings.alpha
    wanted = f"its objective of {1000 * service.objective:.4g} ms"
    if service.delay is None:
        found = f"asked and does not answer yet, {wanted} in view"
    else:
        answer = f"answers in {1000 * service.delay:.4g} ms"
        if settings.delay is DqoesDelay.P95:
            answer += " (p95)"
        found = {
            QoeClass.FASTER: f"{answer}, faster than {wanted}: gives CPU",
            QoeClass.SATISFIED: f"{answer}, within {percent(alpha)} of {wanted}: keeps its limit",
            QoeClass.SLOWER: f"{answer}, slower than {wanted}: gets what others leave",
        }[classify(service, alpha)]
    return Share(limit, limit * node.cpu_cores, f"{found}; limited to {limit * node.cpu_cores:.3g} cores")
