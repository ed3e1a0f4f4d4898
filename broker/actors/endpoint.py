"""The actor of one endpoint and its deliveries."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tiercel.broker.actors.journal import Commit
from tiercel.broker.actors.mailbox import Actor
from tiercel.broker.actors.peers import WantedDelivery
from tiercel.broker.lifecycle import endpoint as machine
from tiercel.broker.lifecycle import versions
from tiercel.broker.lifecycle.endpoint import DeliveryReport
from tiercel.broker.lifecycle.job_events import DeliveryEnded
from tiercel.broker.scheduling.interface import EndpointView
from tiercel.core.endpoints import Delivery, DeliveryState, Endpoint, Verdict, delivery_id
from tiercel.core.events import EndpointEvent, EndpointGone, Event
from tiercel.core.jobs import Direction
from tiercel.core.tenants import DEFAULT_WEIGHT

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tiercel.broker.actors.clock import Clock
    from tiercel.broker.actors.journal import Journal
    from tiercel.broker.actors.peers import Peers
    from tiercel.core.endpoint_access import EndpointAccess
    from tiercel.core.jobs import Job, TierStatus


@dataclass(frozen=True, slots=True)
class DeliverTier:
    """A job reached a tier; asking again, for instance from another node, is harmless."""

    job: Job
    tier: TierStatus


@dataclass(frozen=True, slots=True)
class DeliveryReported:
    """A node says how far a delivery is."""

    node_id: str
    delivery_id: str
    report: DeliveryReport


@dataclass(frozen=True, slots=True)
class DeliveryAbandoned:
    """Nobody can carry out a delivery any more."""

    delivery_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class ObjectiveSet:
    """Its tenant wants answers within so many seconds."""

    objective_seconds: float


@dataclass(frozen=True, slots=True)
class AccessSet:
    """Its tenant says who may ask it."""

    access: EndpointAccess


@dataclass(frozen=True, slots=True)
class VersionChosen:
    """Its tenant wants a version to answer; None for the newest or, to go back, for the one before."""

    version: int | None
    back: bool = False


@dataclass(frozen=True, slots=True)
class EndpointDeleted:
    """Its tenant wants it gone; no job feeds it."""


EndpointMessage = (
    DeliverTier | DeliveryReported | DeliveryAbandoned | ObjectiveSet | AccessSet | VersionChosen | EndpointDeleted
)


@dataclass(frozen=True, slots=True)
class _Work:
    """A delivery under way: the node it is asked of, or none while its job is on none, and what its job said."""

    node_id: str
    run_id: str
    metric: str
    direction: Direction
    may_replace: bool
    asked: frozenset[str] = frozenset()  # nodes; nobody else's word on it counts


class EndpointActor(Actor[EndpointMessage]):
    """Owns one endpoint: numbers its versions and sees to it that each tier is delivered exactly once.

    Args:
        endpoint: The endpoint as it is.
        deliveries: Its deliveries so far.
        journal: Makes steps durable.
        clock: The time.
        peers: The other actors.
        tenant_weight: Its tenant's weight among tenants.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        deliveries: Iterable[Delivery],
        journal: Journal,
        clock: Clock,
        peers: Peers,
        *,
        tenant_weight: float = DEFAULT_WEIGHT,
    ) -> None:
        super().__init__(f"endpoint {endpoint.name}")
        self._endpoint = endpoint
        self._deliveries = {delivery.id: delivery for delivery in deliveries}
        self._work: dict[str, _Work] = {}
        self._journal = journal
        self._clock = clock
        self._peers = peers
        self._tenant_weight = tenant_weight
        self._show()

    @property
    def endpoint(self) -> Endpoint:
        """The endpoint as it is now."""
        return self._endpoint

    async def receive(self, message: EndpointMessage) -> None:
        """Take one step of a delivery."""
        match message:
            case DeliverTier(job, tier):
                await self._deliver(job, tier)
            case DeliveryReported(node_id, known_id, report):
                await self._on_report(node_id, known_id, report)
            case DeliveryAbandoned(known_id, reason):
                if known_id in self._work:
                    report = DeliveryReport(DeliveryState.FAILED, reason=reason)
                    await self._step(self._deliveries[known_id], report, self._work[known_id].node_id)
            case ObjectiveSet(objective_seconds):
                await self._change(replace(self._endpoint, objective_seconds=objective_seconds))
            case AccessSet(access):
                await self._change(replace(self._endpoint, access=access))
            case EndpointDeleted():
                name, tenant, now = self._endpoint.name, self._endpoint.tenant, self._clock.now()
                gone = [EndpointGone(name, tenant, now, version.variant) for version in self._endpoint.live]
                await self._change(replace(versions.deleted(self._endpoint), keys_from=now), gone)
            case VersionChosen():
                await self._choose(message)

    async def _change(self, endpoint: Endpoint, news: Sequence[Event] = ()) -> None:
        """Carry out what was asked for from outside."""
        await self._journal.commit_or_refuse(Commit(endpoint=endpoint, news=news))
        self._endpoint = endpoint
        self._show()

    def _show(self) -> None:
        """Show the scheduler what the endpoint is now, and its nodes what shall answer."""
        self._peers.observe_endpoint(self._endpoint.name, view_of(self._endpoint, self._tenant_weight))
        self._peers.show_access(self._endpoint)  # before a node hears of a model of it
        for node_id, models in versions.wanted_models(self._endpoint).items():
            self._peers.declare_models(node_id, self._endpoint.name, models)

    async def _choose(self, message: VersionChosen) -> None:
        choose = versions.rolled_back if message.back else versions.promoted
        before, endpoint = self._endpoint, choose(self._endpoint, message.version)
        if endpoint == before:
            return
        now = self._clock.now()
        news = [
            EndpointEvent(endpoint.name, endpoint.tenant, now, each)
            for each in endpoint.live
            if each not in before.live
        ]
        await self._change(endpoint, news)

    async def _deliver(self, job: Job, tier: TierStatus) -> None:
        delivery = self._deliveries.get(delivery_id(job.id, tier.number, job.delivery_count(tier)))
        if delivery is None:
            endpoint, delivery = machine.request(
                self._endpoint,
                job.id,
                tier.number,
                tier.tier.target,
                self._clock.now(),
                variant=job.spec.variant,
                count=job.delivery_count(tier),
                served=self._peers.served_version(self._endpoint.name),
            )
            # The version's number is durable before any node hears of it.
            await self._journal.commit(Commit(endpoint=endpoint, delivery=delivery))
            self._endpoint = endpoint
            self._deliveries[delivery.id] = delivery
        if delivery.state.is_final:
            self._send_to_job(delivery)
            return
        earlier = self._work.get(delivery.id)
        spec = job.spec
        asked = (earlier.asked if earlier is not None else frozenset()) | {job.node_id} - {""}
        self._work[delivery.id] = _Work(
            job.node_id, job.run_id, spec.metric, spec.direction, may_replace=spec.replace, asked=asked
        )
        if earlier is not None and earlier.node_id and earlier.node_id != job.node_id:
            self._peers.withdraw_delivery(earlier.node_id, delivery.id)
            delivery = self._deliveries[delivery.id] = machine.forget_verdict(delivery)
        self._declare(delivery)

    def _declare(self, delivery: Delivery) -> None:
        work = self._work[delivery.id]
        if work.node_id:
            wanted = WantedDelivery(delivery, work.run_id, work.metric, work.direction)
            self._peers.declare_delivery(work.node_id, wanted)

    async def _on_report(self, node_id: str, known_id: str, report: DeliveryReport) -> None:
        work = self._work.get(known_id)
        if work is None:  # nothing that is wanted: the node may forget it
            self._peers.withdraw_delivery(node_id, known_id)
        elif node_id == work.node_id or (node_id in work.asked and report.state is DeliveryState.DELIVERED):
            # A model that answers is delivered, wherever it was asked for; a failure counts only where it is now.
            await self._step(self._deliveries[known_id], report, node_id)

    async def _step(self, known: Delivery, report: DeliveryReport, node_id: str) -> None:
        work = self._work[known.id]
        endpoint, delivery = machine.progress(
            self._endpoint,
            known,
            report,
            metric=work.metric,
            node_id=node_id,
            now=self._clock.now(),
            direction=work.direction,
            may_replace=work.may_replace,
            others=self._deliveries.values(),
        )
        if delivery is known:
            return
        news = []
        version = next((each for each in endpoint.live if each.version == delivery.version), None)
        if delivery.state is DeliveryState.DELIVERED and version is not None and version not in self._endpoint.live:
            news = [EndpointEvent(endpoint.name, endpoint.tenant, version.delivered_at, version)]
        await self._journal.commit(Commit(endpoint=endpoint, delivery=delivery, news=news))
        self._endpoint = endpoint
        self._deliveries[delivery.id] = delivery
        if delivery.state is DeliveryState.DELIVERED:
            self._show()  # before the delivery is withdrawn: until then the node holds what it was told before for old
        if delivery.state.is_final:
            await self._finish(delivery, work, node_id)
        elif delivery.verdict is not known.verdict:
            self._declare(delivery)

    async def _finish(self, delivery: Delivery, work: _Work, node_id: str) -> None:
        del self._work[delivery.id]
        for holder in {node_id, work.node_id} - {""}:
            self._peers.withdraw_delivery(holder, delivery.id)
        self._send_to_job(delivery)
        for other in [self._deliveries[each] for each in self._work]:
            if other.sha256 == delivery.sha256 != "" and other.verdict is Verdict.OPEN:  # it waited for this one
                await self._step(other, machine.facts_of(other), self._work[other.id].node_id)

    def _send_to_job(self, delivery: Delivery) -> None:
        delivered = delivery.state is DeliveryState.DELIVERED
        self._peers.send_to_job(
            delivery.job_id,
            DeliveryEnded(
                tier=delivery.tier,
                version=delivery.version if delivered else None,
                value=delivery.value,
                at=delivery.delivered_at if delivery.delivered_at is not None else self._clock.now(),
                reason=delivery.reason,
            ),
        )


def view_of(endpoint: Endpoint, tenant_weight: float) -> EndpointView | None:
    """An endpoint as a policy may see it, its load and share left out; None while no version of it is live."""
    if not endpoint.live or not endpoint.node_id:
        return None
    comparable = all(version.direction is Direction.MAX and 0 <= version.value <= 1 for version in endpoint.live)
    return EndpointView(
        name=endpoint.name,
        tenant=endpoint.tenant,
        node_id=endpoint.node_id,
        tenant_weight=tenant_weight,
        objective_seconds=endpoint.objective_seconds,
        # Of variants the best one: what answers are worth while there is time.
        quality=max(version.value for version in endpoint.live) if comparable else None,
    )
