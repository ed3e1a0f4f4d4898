"""All endpoints of a simulation: who answers where, with what, and what is counted of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tiercel.broker.lifecycle import endpoint as machine
from tiercel.broker.lifecycle.endpoint import DeliveryReport
from tiercel.broker.scheduling.interface import EndpointView
from tiercel.broker.simulation.endpoints import SimulatedEndpoint
from tiercel.broker.simulation.nodes import SimulatedNode
from tiercel.broker.simulation.result import ClassCount, EndpointOutcome
from tiercel.broker.simulation.scenario import Scenario
from tiercel.core.endpoints import Delivery, DeliveryState, Endpoint, Verdict
from tiercel.core.jobs import Direction, Job, TierStatus
from tiercel.core.shares import Share

CLASS_TOLERANCE = 0.1
"""Part of the objective by which a delay may differ from it in class S (Mao et al., 2020)."""


class Serving:
    """The endpoints that are asked, and the versions of those that are not."""

    def __init__(self, scenario: Scenario, nodes: Mapping[str, SimulatedNode], seed: int) -> None:
        self._noise = scenario.measurement_noise
        self._until = scenario.duration_seconds
        self._nodes = nodes
        self._asked = {load.name: SimulatedEndpoint.begin(load, seed) for load in scenario.endpoints}
        self._versions: dict[str, Endpoint] = {}
        self.class_counts: list[ClassCount] = []
        for asked in self._asked.values():
            if asked.node_id:
                nodes[asked.node_id].endpoints.append(asked)

    def step(self, now: float) -> list[str]:
        """Look up how many requests come from now on; returns the nodes whose division that changes."""
        if not self._asked:
            return []
        self._count_classes(now)
        for asked in self._asked.values():
            asked.advance(now)
            asked.refresh_rate(now)
        stirred = sorted({asked.node_id for asked in self._asked.values() if asked.node_id})
        if now >= self._until:
            self._close()
        return stirred

    def _close(self) -> None:
        """Nobody asks any more."""
        for asked in self._asked.values():
            if asked.node_id:
                self._nodes[asked.node_id].endpoints.remove(asked)
                asked.node_id = ""

    def _count_classes(self, now: float) -> None:
        over = satisfied = under = 0
        for asked in self._asked.values():
            objective = asked.load.objective_seconds
            if objective is None or not asked.is_open(now) or asked.synced_at <= asked.load.opens_at:
                continue
            gap = objective - asked.delay_seconds
            if gap > CLASS_TOLERANCE * objective:
                over += 1
            elif gap < -CLASS_TOLERANCE * objective:
                under += 1
            else:
                satisfied += 1
        self.class_counts.append(ClassCount(now, over, satisfied, under))

    def views(self, now: float) -> tuple[EndpointView, ...]:
        """What policies see: every endpoint that is asked and has a live version."""
        shown = [asked for asked in self._asked.values() if asked.is_open(now)]
        for asked in shown:
            asked.advance(now)
        return tuple(asked.view(self._noise) for asked in shown)

    def reshare(self, shares: Mapping[str, Share]) -> list[str]:
        """Take over what a plan gives to endpoints; returns the nodes whose division that changes."""
        changed = []
        for name, asked in self._asked.items():
            share = shares.get(name)
            if share is None and asked.share is None:
                continue
            if share is None or not share.same_limits(asked.share):
                asked.share = share
                changed.append(asked.node_id)
        return [node_id for node_id in changed if node_id]

    def deliver(self, job: Job, tier: TierStatus, now: float) -> int:
        """The model of a tier goes live on the job's node; returns the number of its version."""
        name = job.spec.endpoint
        endpoint = self._versions.get(name) or Endpoint(name, job.tenant)
        endpoint, delivery = machine.request(endpoint, job.id, tier.number, tier.tier.target, now)
        endpoint, delivery = self._progress(endpoint, delivery, job, tier)
        self._versions[name] = endpoint
        if delivery.verdict is Verdict.LIVE:
            self._go_live(job, tier, now)
        return delivery.version

    def _progress(
        self, endpoint: Endpoint, delivery: Delivery, job: Job, tier: TierStatus
    ) -> tuple[Endpoint, Delivery]:
        report = DeliveryReport(DeliveryState.DELIVERED, tier.reached_value)
        at = delivery.requested_at
        spec = job.spec
        return machine.progress(
            endpoint,
            delivery,
            report,
            metric=spec.metric,
            node_id=job.node_id,
            now=at,
            direction=spec.direction,
            may_replace=spec.replace,
        )

    def _go_live(self, job: Job, tier: TierStatus, now: float) -> None:
        asked = self._asked.get(job.spec.endpoint)
        if asked is None or now >= self._until:
            return
        asked.advance(now)
        if asked.node_id != job.node_id:
            if asked.node_id:
                self._nodes[asked.node_id].endpoints.remove(asked)
            self._nodes[job.node_id].endpoints.append(asked)
            asked.node_id, asked.share = job.node_id, None
        if job.spec.direction is Direction.MAX and tier.reached_value is not None:
            asked.quality = min(max(tier.reached_value, 0.0), 1.0)

    def forget(self, name: str) -> None:
        """Nobody will deliver to an endpoint again, and nobody asks it."""
        if name not in self._asked:
            self._versions.pop(name, None)

    def finish(self, now: float) -> None:
        """Count what was answered until now."""
        for asked in self._asked.values():
            asked.advance(now)

    def outcomes(self) -> tuple[EndpointOutcome, ...]:
        """What became of all requests."""
        return tuple(_outcome_of(asked) for asked in _by_name(self._asked.values()))


def _by_name(endpoints: Iterable[SimulatedEndpoint]) -> list[SimulatedEndpoint]:
    return sorted(endpoints, key=lambda asked: asked.load.name)


def _outcome_of(asked: SimulatedEndpoint) -> EndpointOutcome:
    total = asked.total
    return EndpointOutcome(
        name=asked.load.name,
        requests=total.arrived,
        answered=total.answered,
        in_objective=total.in_objective,
        mean_delay_seconds=total.delay_sum / total.answered if total.answered > 0 else None,
        cpu_seconds=total.cpu_seconds,
        served_quality=total.quality_sum,
    )
