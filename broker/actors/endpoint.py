"""The actor of one endpoint and its deliveries."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tiercel.broker.actors.delivery_work import Outcomes, Work, work_on
from tiercel.broker.actors.endpoint_messages import (
    AccessSet,
    CandidateChosen,
    DeliverTier,
    DeliveryAbandoned,
    DeliveryReported,
    EndpointDeleted,
    EndpointMessage,
    FileAnnounced,
    FileArrived,
    FilesAsked,
    KeptSet,
    NodesChanged,
    PromisesJudged,
    RetrainingNoted,
    TermsSet,
    VersionChosen,
    VersionRemoved,
    VersionStored,
    changed,
    terms_of,
)
from tiercel.broker.actors.endpoint_views import view_of, views_of_copies
from tiercel.broker.actors.journal import Commit
from tiercel.broker.actors.mailbox import Actor
from tiercel.broker.actors.peers import WantedDelivery
from tiercel.broker.actors.replica_loads import ReplicaCount
from tiercel.broker.actors.replicas import Replicas
from tiercel.broker.lifecycle import deployment, homes, replicas, variant_files, versions
from tiercel.broker.lifecycle import endpoint as machine
from tiercel.broker.lifecycle.endpoint import DeliveryReport
from tiercel.broker.lifecycle.job_events import DeliveryEnded
from tiercel.broker.lifecycle.retraining import Terms
from tiercel.core.endpoints import Delivery, DeliveryState, Endpoint, Verdict, Version, delivery_id
from tiercel.core.errors import TiercelError
from tiercel.core.events import EndpointEvent, EndpointGone, Event
from tiercel.core.tenants import DEFAULT_WEIGHT

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from tiercel.broker.actors.clock import Clock
    from tiercel.broker.actors.journal import Journal
    from tiercel.broker.actors.peers import Peers
    from tiercel.broker.lifecycle.awaited import Awaited
    from tiercel.broker.lifecycle.replicas import Upcoming
    from tiercel.broker.lifecycle.serving_node import ServingNode
    from tiercel.core.jobs import Job, TierStatus


class EndpointActor(Actor[EndpointMessage]):
    """Owns one endpoint: numbers its versions and sees to it that each tier is delivered exactly once."""

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
        self._work: dict[str, Work] = {}
        self._journal = journal
        self._clock = clock
        self._peers = peers
        self._tenant_weight = tenant_weight
        self._outcomes = Outcomes()
        self._replicas = Replicas(clock, peers)
        self._count = ReplicaCount(clock, peers)
        self._show()

    @property
    def endpoint(self) -> Endpoint:
        """The endpoint as it is now."""
        return self._endpoint

    @property
    def needs_looks(self) -> bool:
        """Whether it matters to it how nodes are."""
        known = self._endpoint
        is_spread = known.auto_replicas or known.replicas > 1 or bool(known.replica_nodes) or bool(self.pulled)
        return is_spread or bool(known.coming) or self._needs_store or bool(known.left)

    @property
    def _needs_store(self) -> bool:
        """Whether files of it shall go to the artefact store, or come from there."""
        known = self._endpoint
        if not self._peers.has_store or not known.versions:
            return False
        is_on_its_way = bool(replicas.unstored(known) or self._peers.held_files(known.name))
        return is_on_its_way or self._peers.answers_on(known.node_id, known.name) != known.live_version

    @property
    def from_store(self) -> tuple[Version, ...]:
        """Versions whose files the artefact store shall give back, as no node has them that is heard."""
        return self._replicas.from_store

    @property
    def pulled(self) -> Collection[int]:
        """Numbers of the versions whose files are held, or on their way, since its tenant asked for them."""
        return self._replicas.pulled

    @property
    def awaited(self) -> tuple[Awaited, ...]:
        """The versions that are not announced yet, since other nodes are waited for."""
        return self._replicas.awaited(self._endpoint, self._deliveries, self._work)

    @property
    def replicas_reason(self) -> str:
        """Why it answers on as many nodes as it does; empty where its job says on how many."""
        return self._count.reason

    async def receive(self, message: EndpointMessage) -> None:
        """Take one step of a delivery."""
        match message:
            case DeliverTier() | DeliveryReported() | DeliveryAbandoned():
                await self._hear_of_delivery(message)
            case TermsSet():
                await self._change(message.applied_to(self._endpoint))
                self._count.begin_anew()
            case AccessSet() | VersionRemoved() | KeptSet() | RetrainingNoted() | PromisesJudged():
                await self._change(*changed(message, self._endpoint))
            case NodesChanged():
                await self._look()
            case VersionStored():
                await self._keep(message.applied_to(self._endpoint))
                self._show()
            case EndpointDeleted():
                await self._delete()
            case VersionChosen() | CandidateChosen():
                await self._choose(message)
            case FilesAsked(version):
                self._replicas.pull(version)
                self._show()
            case FileAnnounced() | FileArrived():
                await self._hear_of_file(message)

    async def _hear_of_delivery(self, message: DeliverTier | DeliveryReported | DeliveryAbandoned) -> None:
        match message:
            case DeliverTier(job, tier):
                await self._deliver(job, tier)
            case DeliveryReported(node_id, known_id, report):
                await self._on_report(node_id, known_id, report)
            case DeliveryAbandoned(known_id, reason):
                await self._abandon(known_id, reason)

    async def _change(self, endpoint: Endpoint, news: Sequence[Event] = ()) -> None:
        """Carry out what was asked for from outside."""
        await self._journal.commit_or_refuse(Commit(endpoint=endpoint, news=news))
        self._endpoint = endpoint
        self._show()

    async def _abandon(self, known_id: str, reason: str) -> None:
        if known_id in self._work:
            work = self._work[known_id]
            report = work.answered or DeliveryReport(DeliveryState.FAILED, reason=reason)
            await self._step(self._deliveries[known_id], report, work.node_id)

    async def _hear_of_file(self, message: FileAnnounced | FileArrived) -> None:
        if (known := deployment.repeated(self._endpoint, message.deploy)) is not None:
            await self._change(terms_of(message.deploy, self._endpoint))
            self._outcomes.tell_of(known, message.outcome)
        elif isinstance(message, FileArrived):
            await self._ingest_file(message)
        else:
            message.outcome.cancel()

    async def _ingest_file(self, message: FileArrived) -> None:
        nodes, served = self._replicas.nodes(self._endpoint), self._peers.served_version(self._endpoint.name)
        try:
            endpoint = terms_of(message.deploy, self._endpoint)
            endpoint, coming = deployment.accepted(endpoint, message.arrived, nodes, self._clock.now(), served)
        except TiercelError as error:  # a mistake of whoever asks is none of the actor's
            self._outcomes.refuse(message.outcome, error)
            return
        # In its place before anybody relies on it; what a broker that is killed in between leaves there is removed.
        await message.put(endpoint.name, coming.delivery.version)
        await self._change(endpoint)
        self._outcomes.expect(coming.delivery.id, message.outcome)
        await self._look()

    async def _deploy(self, nodes: Mapping[str, ServingNode]) -> None:
        """Have the file that is next become a version, or give it up."""
        for coming in self._endpoint.coming[:1]:
            known_id = coming.delivery.id
            is_begun = known_id in self._work
            if not is_begun:
                delivery = self._deliveries[known_id] = deployment.judged(self._endpoint, coming)
                self._work[known_id] = work_on(coming)
            held, is_late = self._peers.held_files(self._endpoint.name), self._replicas.is_late(known_id)
            # A broker that began anew hears of its node once it is asked something.
            node = nodes.get(coming.node_id) if is_begun else None
            if why := deployment.why_lost(coming, node, held, is_late=is_late):
                await self._abandon(known_id, why)
            elif not is_begun and machine.answers(
                self._endpoint, delivery
            ):  # a broker that was killed waited for copies
                answered = replace(machine.facts_of(delivery), state=DeliveryState.DELIVERED)
                self._work[known_id] = replace(self._work[known_id], released=True, answered=answered)
            elif not is_begun:
                self._declare(delivery)

    async def _delete(self) -> None:
        name, tenant, now = self._endpoint.name, self._endpoint.tenant, self._clock.now()
        gone = [EndpointGone(name, tenant, now, version.variant) for version in self._endpoint.live]
        await self._change(replace(versions.deleted(self._endpoint), keys_from=now), gone)

    def _show(self) -> None:
        """Show the scheduler what the endpoint is now, and its nodes what shall answer."""
        nodes = self._replicas.nodes(self._endpoint)
        view = view_of(self._endpoint, self._tenant_weight)
        self._peers.observe_endpoint(self._endpoint.name, view, views_of_copies(self._endpoint, view, nodes))
        self._peers.show_access(self._endpoint)  # before a node hears of a model of it
        for node_id, models in self._replicas.wanted(self._endpoint, nodes, self._upcoming(nodes)).items():
            self._peers.declare_models(node_id, self._endpoint.name, models)

    def _upcoming(self, nodes: Mapping[str, ServingNode]) -> list[Upcoming]:
        return self._replicas.under_way(self._endpoint, nodes, self._deliveries, self._work)

    async def _look(self) -> None:
        """See whether it answers where it shall, and go on with deliveries that waited for that."""
        nodes = self._replicas.nodes(self._endpoint)
        endpoint = homes.settled(self._count.applied_to(self._endpoint, nodes), nodes)
        endpoint = replicas.spread(endpoint, nodes)
        endpoint = variant_files.moved(endpoint, nodes, has_store=self._peers.has_store)
        await self._keep(endpoint)
        await self._deploy(nodes)
        self._show()
        for coming in self._upcoming(nodes):
            known = coming.files.delivery_id
            if not self._work[known].released and not self._replicas.waits_for_copies(coming, nodes):
                self._work[known] = replace(self._work[known], released=True)
                self._declare(self._deliveries[known])
        for known, work in list(self._work.items()):
            if work.answered is not None and not self._replicas.waits_for_flips(self._endpoint, nodes):
                await self._step(self._deliveries[known], work.answered, work.node_id)

    async def _keep(self, endpoint: Endpoint) -> None:
        if endpoint is not self._endpoint:
            await self._journal.commit(Commit(endpoint=endpoint))
            self._endpoint = endpoint

    async def _choose(self, message: VersionChosen | CandidateChosen) -> None:
        before, endpoint = self._endpoint, message.applied_to(self._endpoint)
        nodes = self._replicas.nodes(before)
        if endpoint == before or homes.why_gone(before, endpoint, nodes, has_store=self._peers.has_store):
            return
        endpoint = versions.with_delays(before, homes.at_home(endpoint, nodes), self._peers.delays(before.name))
        now, begun = self._clock.now(), [each for each in endpoint.live if each not in before.live]
        news = [EndpointEvent(endpoint.name, endpoint.tenant, now, each) for each in begun]
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
        if earlier is not None and earlier.answered is not None:
            return
        spec = job.spec
        asked = (earlier.asked if earlier is not None else frozenset()) | {job.node_id} - {""}
        work = Work(job.node_id, job.run_id, spec.metric, spec.direction, may_replace=spec.replace, asked=asked)
        self._work[delivery.id] = replace(work, terms=Terms.of(job))
        if earlier is not None and earlier.node_id and earlier.node_id != job.node_id:
            self._peers.withdraw_delivery(earlier.node_id, delivery.id)
            delivery = self._deliveries[delivery.id] = machine.forget_verdict(delivery)
        if machine.answers(self._endpoint, delivery):  # a broker that was killed since waited for copies of it
            answered = replace(machine.facts_of(delivery), state=DeliveryState.DELIVERED)
            self._work[delivery.id] = replace(self._work[delivery.id], released=True, answered=answered)
            await self._look()
            return
        self._declare(delivery)

    def _declare(self, delivery: Delivery) -> None:
        work = self._work[delivery.id]
        if not work.node_id:
            return
        if delivery.verdict is Verdict.LIVE and not work.released:
            nodes = self._replicas.nodes(self._endpoint)
            (coming,) = self._replicas.upcoming(self._endpoint, nodes, [(delivery, work.node_id)])
            if self._replicas.waits_for_copies(coming, nodes):  # its node is told once they are there
                delivery = replace(delivery, verdict=Verdict.OPEN)
                self._show()
        wanted = WantedDelivery(delivery, work.run_id, work.metric, work.direction)
        self._peers.declare_delivery(work.node_id, wanted)

    async def _on_report(self, node_id: str, known_id: str, report: DeliveryReport) -> None:
        work = self._work.get(known_id)
        if work is None:  # nothing that is wanted: the node may forget it
            self._peers.withdraw_delivery(node_id, known_id)
        elif work.answered is not None:
            return
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
            terms=work.terms,
        )
        if delivery is known:
            return
        news = []
        version = next((each for each in endpoint.live if each.version == delivery.version), None)
        is_new = version is not None and (work.answered is not None or version not in self._endpoint.live)
        if delivery.state is DeliveryState.DELIVERED and version is not None and is_new:
            endpoint = versions.with_delays(self._endpoint, endpoint, self._peers.delays(endpoint.name))
            endpoint = replicas.spread(endpoint, self._replicas.nodes(endpoint))
            if work.answered is None and endpoint.replica_nodes:
                await self._wait_for_flips(endpoint, known, report, node_id)
                return
            news = [EndpointEvent(endpoint.name, endpoint.tenant, version.delivered_at, version)]
        if delivery.is_deployment and delivery.state.is_final:
            endpoint = deployment.without(endpoint, delivery)
        # What is known of a file is with its endpoint, until it is a version of that or never will be.
        stored = None if delivery.is_deployment else delivery
        await self._journal.commit(Commit(endpoint=endpoint, delivery=stored, news=news))
        self._endpoint = endpoint
        self._deliveries[delivery.id] = delivery
        if delivery.state is DeliveryState.DELIVERED:
            self._show()  # before the delivery is withdrawn: until then the node holds what it was told before for old
        if delivery.state.is_final:
            await self._finish(delivery, work, node_id)
        elif delivery.verdict is not known.verdict:
            self._declare(delivery)

    async def _wait_for_flips(self, endpoint: Endpoint, known: Delivery, report: DeliveryReport, node_id: str) -> None:
        """The version answers on its node; it is delivered once it does on the others, which are told now."""
        await self._keep(endpoint)
        answered = replace(report, delivered_at=None)  # when all of them answer
        self._work[known.id] = replace(self._work[known.id], node_id=node_id, released=True, answered=answered)
        await self._look()

    async def _finish(self, delivery: Delivery, work: Work, node_id: str) -> None:
        del self._work[delivery.id]
        for holder in {node_id, work.node_id} - {""}:
            self._peers.withdraw_delivery(holder, delivery.id)
        if delivery.is_deployment:
            del self._deliveries[delivery.id]
            self._show()
            self._outcomes.tell(delivery)
            return
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
