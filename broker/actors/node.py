"""The actor of one node: its lease, and what is wanted of it."""

from __future__ import annotations

import asyncio
import hmac
from dataclasses import replace
from typing import TYPE_CHECKING

from tiercel.broker.actors.mailbox import Actor
from tiercel.broker.actors.node_messages import (
    AcceleratorStatus,
    AccessChanged,
    DeliveryWithdrawn,
    DrainSet,
    EndpointSharesDeclared,
    ModelsDeclared,
    NodeConnected,
    NodeExpelled,
    NodeMessage,
    NodeRemoved,
    NodeReported,
    NodeTicked,
    RoutesChanged,
    RunWithdrawn,
    ServedStatus,
    ServingReported,
    StreamEnded,
    Wanted,
    as_heard,
)
from tiercel.broker.actors.peers import WantedDelivery, WantedRun
from tiercel.broker.actors.serving_nodes import answering_at, serving_node
from tiercel.broker.lifecycle import node as machine
from tiercel.broker.lifecycle.job_events import NodeFenced, NodeGone, NodeSilent, RunUnknown
from tiercel.broker.lifecycle.node import LeaseSettings, NodeLife, NodeNews
from tiercel.broker.lifecycle.routes import NodeServing
from tiercel.broker.lifecycle.versions import VersionFiles
from tiercel.broker.scheduling.views import node_view
from tiercel.core.disk_use import NodeDisk
from tiercel.core.errors import NodeTakenError, UnavailableError
from tiercel.core.events import NodeEvent
from tiercel.core.nodes import Node
from tiercel.core.routes import seen_from_elsewhere

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tiercel.broker.actors.clock import Clock
    from tiercel.broker.actors.journal import Journal
    from tiercel.broker.actors.peers import Peers
    from tiercel.broker.lifecycle.serving_node import ServingNode
    from tiercel.broker.lifecycle.versions import WantedModel


class NodeActor(Actor[NodeMessage]):
    """Owns one node: keeps its lease, and keeps what is wanted of it for the agent to fetch.

    Args:
        life: The node as far as it is known; offline until its agent connects.
    """

    def __init__(self, life: NodeLife, leases: LeaseSettings, journal: Journal, clock: Clock, peers: Peers) -> None:
        super().__init__(f"node {life.node.id}")
        self._life = life
        self._leases = leases
        self._journal = journal
        self._clock = clock
        self._peers = peers
        self._runs: dict[str, WantedRun] = {}
        self._deliveries: dict[str, WantedDelivery] = {}
        self._endpoints: EndpointSharesDeclared | None = None
        self._models: dict[str, tuple[WantedModel, ...]] = {}
        self._served: Mapping[tuple[str, str], ServedStatus] = {}
        self._answering = ServingReported()  # also while an agent begins anew: its inference server outlives it
        self._is_local = True
        self._was_awaited = True
        self._is_expelled = False
        self._accelerators: Mapping[str, AcceleratorStatus] = {}
        self.disk: NodeDisk | None = None
        self.clock_ahead_seconds = 0.0  # of the broker's, as its agent said last
        self._wanted = Wanted(0, (), ())
        self._changed = asyncio.Condition()

    @property
    def node(self) -> Node:
        """The node as it is now."""
        return self._life.node

    @property
    def accelerators(self) -> Mapping[str, AcceleratorStatus]:
        """How its accelerators are, by id; empty while it is offline or has not said."""
        return self._accelerators if self._life.node.online else {}

    @property
    def served(self) -> Mapping[tuple[str, str], ServedStatus]:
        """What its inference server has, by endpoint and variant; empty while it is offline or has not said."""
        return self._served if self._life.node.online else {}

    @property
    def is_local(self) -> bool:
        """Whether its agent is on the broker's own machine."""
        return self._is_local and bool(self._life.instance)

    @property
    def is_awaited(self) -> bool:
        """Whether it may well answer for endpoints, and has not been heard since the broker began."""
        silence = self._clock.alive() - self._life.last_heard_at
        return not self._life.instance and silence <= self._leases.lease_seconds

    @property
    def is_away(self) -> bool:
        """Whether it is of the cluster, as far as we have heard, and offline."""
        return self.is_known and not self._life.node.online

    @property
    def serving(self) -> NodeServing | None:
        """What its inference server answers of endpoints that it has; None while it is offline."""
        if not self._life.node.online:
            return None
        heard = self._answering
        versions: dict[str, int] = {}
        for (endpoint, _), status in heard.served.items():
            if status.version and endpoint in self._models:  # nobody's word counts on what it was not given
                versions[endpoint] = max(status.version, versions.get(endpoint, 0))
        return NodeServing(
            self._life.node.id,
            heard.http,
            heard.grpc,
            self._is_local,
            versions,
            self.leaving & versions.keys(),
            heard.local_http,
            heard.local_grpc,
        )

    @property
    def leaving(self) -> frozenset[str]:
        """The endpoints that it has or had and that shall not answer there."""
        return frozenset(name for name, models in self._models.items() if not any(each.version for each in models))

    @property
    def routes_number(self) -> int | None:
        """Number of the table by which its inference server goes; None where nobody can ask that."""
        is_asked = self._life.node.online and (self._answering.http or self._answering.local_http)
        return self._answering.routes_number if is_asked else None

    @property
    def is_needed(self) -> bool:
        """Whether anything is wanted of it: a run, a delivery, or that it answers for an endpoint."""
        return bool(self._runs or self._deliveries or self.answers_for)

    @property
    def answers_for(self) -> tuple[str, ...]:
        """The endpoints that shall answer there, by name."""
        return tuple(sorted(name for name, models in self._models.items() if any(each.version for each in models)))

    def models_of(self, endpoint: str) -> tuple[WantedModel, ...]:
        """What is wanted here of an endpoint."""
        return self._models.get(endpoint, ())

    def deployed_files(self, endpoint: str) -> list[VersionFiles]:
        """Files that somebody deployed to an endpoint and that it shall answer with."""
        wanted = [each.delivery for each in self._deliveries.values() if each.delivery.endpoint == endpoint]
        return [VersionFiles(each.version, each.sha256, each.id) for each in wanted if each.is_deployment]

    @property
    def is_known(self) -> bool:
        """Whether it has been heard since the broker began, and was not removed since."""
        return bool(self._life.instance) and not self._is_expelled

    @property
    def is_listed(self) -> bool:
        """Whether there is such a node, or it was removed and something is wanted of it still."""
        return self.is_known or self.is_needed or self._life.node.id in self._peers.joined()

    def serving_node(self, endpoint: str) -> ServingNode:
        """What it is to an endpoint."""
        silence = self._clock.alive() - self._life.last_heard_at
        lost = not self._life.node.online and (self._is_expelled or silence > self._leases.lease_seconds)
        wanted = self._models.get(endpoint, ())
        removed = lost and not (self.is_known or self._life.node.id in self._peers.joined())
        return serving_node(self._life.node, endpoint, self._answering, wanted, self.disk, lost=lost, removed=removed)

    def is_instance(self, instance: str) -> bool:
        """Whether this is the agent that speaks for the node, or did last.

        Raises:
            UnavailableError: None has connected yet.
        """
        if not self._life.instance:
            raise UnavailableError(f"node {self._life.node.id} has not connected; try again later")
        return hmac.compare_digest(self._life.instance.encode(), instance.encode())

    def holds_lease(self, lease_epoch: int) -> bool:
        """Whether what is said under this epoch counts: no newer stream took over, and the lease did not run out."""
        return self._life.node.online and self._life.node.lease_epoch == lease_epoch

    async def wait_wanted(self, generation: int, lease_epoch: int) -> Wanted | None:
        """Wait until something newer than ``generation`` is wanted, or (None) until the lease is no longer held."""
        async with self._changed:
            await self._changed.wait_for(
                lambda: self._wanted.generation > generation or not self.holds_lease(lease_epoch)
            )
            return self._wanted if self.holds_lease(lease_epoch) else None

    async def wait_stream_ended(self) -> None:
        """Wait while an agent's stream is open."""
        async with self._changed:
            await self._changed.wait_for(lambda: not self._life.has_stream)

    async def receive(self, message: NodeMessage) -> None:
        """Take one step."""
        match message:
            case NodeConnected():
                await self._connected(message)
            case StreamEnded(lease_epoch):
                await self._on_stream_ended(lease_epoch)
            case NodeReported():
                await self._on_reported(message)
            case NodeTicked():
                await self._ticked()
            case WantedRun():
                self._runs[message.run_id] = message
                await self._declare()
                self._send_fenced(message)
                self._send_if_away(message.job.id)
            case WantedDelivery():
                self._deliveries[message.delivery.id] = message
                await self._declare()
                self._send_if_away(message.delivery.job_id)
            case RunWithdrawn() | DeliveryWithdrawn():
                await self._withdraw(message)
            case EndpointSharesDeclared() | RoutesChanged() | AccessChanged() | ModelsDeclared():
                await self._declare_anew(message)
            case DrainSet() | NodeExpelled() | NodeRemoved():
                await self._on_maintenance(message)

    async def _on_stream_ended(self, lease_epoch: int) -> None:
        async with self._changed:
            self._life = machine.stream_ended(self._life, lease_epoch)
            self._changed.notify_all()

    async def _on_maintenance(self, message: DrainSet | NodeExpelled | NodeRemoved) -> None:
        if isinstance(message, NodeExpelled):
            self._is_expelled = True
            if self._life.node.online:
                await self._announce(machine.expelled(self._life), NodeNews.OFFLINE)
            self._peers.find_routes()
            self._peers.look_after_replicas()
            return
        if isinstance(message, NodeRemoved):
            await self._announce(machine.removed(self._life), NodeNews.GONE)
            return
        self._life = machine.drained(self._life, message.drain)
        self._journal.announce_nowait(_event(self._life.node, self._clock.now()))
        self._show_scheduler()
        self._peers.reschedule("node")

    async def _declare_anew(
        self, message: EndpointSharesDeclared | RoutesChanged | AccessChanged | ModelsDeclared
    ) -> None:
        if isinstance(message, ModelsDeclared):
            if self._models.get(message.endpoint) == message.models:
                return
            self._models[message.endpoint] = message.models
        if isinstance(message, EndpointSharesDeclared):
            self._endpoints = message
        await self._declare()
        if isinstance(message, ModelsDeclared):
            self._peers.find_routes()

    async def _withdraw(self, message: RunWithdrawn | DeliveryWithdrawn) -> None:
        known = (
            self._runs.pop(message.run_id, None)
            if isinstance(message, RunWithdrawn)
            else self._deliveries.pop(message.delivery_id, None)
        )
        if known is not None:
            await self._declare()

    async def _connected(self, message: NodeConnected) -> None:
        if not machine.may_connect(self._life, message.instance):
            if not message.epoch.done():
                message.epoch.set_exception(NodeTakenError(machine.taken_words(message.node.id)))
            return
        life, news = machine.connected(
            self._life, message.node, self._clock.alive(), instance=message.instance, fenced=message.fenced
        )
        self._accelerators, self._served = {}, {}
        self._is_local, self._is_expelled = message.is_local, False
        await self._announce(life, news)
        if not message.epoch.done():
            message.epoch.set_result(life.node.lease_epoch)
        await self._declare()
        for run in self._runs.values():
            self._send_fenced(run)
            if run.run_id not in message.runs:
                self._peers.send_to_job(run.job.id, RunUnknown(run.run_id))

    async def _on_reported(self, message: NodeReported) -> None:
        life = machine.heard(self._life, message.lease_epoch, self._clock.alive(), fenced=message.fenced)
        if life is self._life:
            return
        if life.fenced is not self._life.fenced:
            self._life = replace(self._life, fenced=life.fenced)
            for run in self._runs.values():
                self._send_fenced(run)
        node = replace(
            life.node,
            images=life.node.images if message.images is None else message.images,
            data=life.node.data if message.data is None else message.data,
        )
        if message.serving is not None:
            node = answering_at(node, message.serving)
        self._hear_machine(message)
        if message.accelerators is not None:
            self._accelerators = {heard.id: heard for heard in message.accelerators}
            node = replace(node, accelerators=as_heard(node.accelerators, self._accelerators))
        before, self._life = self._life.node, replace(life, node=node)
        if (node.images, node.accelerators, node.data) != (before.images, before.accelerators, before.data):
            self._show_scheduler()
        if node.accelerators != before.accelerators:
            self._journal.announce_nowait(_event(node, self._clock.now()))
        if (node.accelerators, node.data) != (before.accelerators, before.data):
            self._peers.reschedule("node")
        if message.serving is not None:
            self._hear_serving(message.serving, is_hello=message.is_hello)

    def _hear_machine(self, message: NodeReported) -> None:
        self.disk = message.disk or self.disk
        if message.clock_ahead_seconds is not None:
            self.clock_ahead_seconds = message.clock_ahead_seconds

    def _hear_serving(self, heard: ServingReported, *, is_hello: bool) -> None:
        self._served = heard.served
        if heard.http or not is_hello:
            self._answering = heard
        self._peers.find_routes()
        self._peers.look_after_replicas()

    async def _ticked(self) -> None:
        life, news = machine.ticked(self._life, self._leases, self._clock.alive())
        if news is not None:
            await self._announce(life, news)
        if self._was_awaited and not self.is_awaited:
            self._was_awaited = False
            self._peers.find_routes()

    async def _announce(self, life: NodeLife, news: NodeNews) -> None:
        self._journal.announce_nowait(_event(life.node, self._clock.now()))
        async with self._changed:
            self._life = life
            self._changed.notify_all()
        self._show_scheduler()
        self._peers.find_routes()
        if news is not NodeNews.ONLINE:
            jobs = [run.job.id for run in self._runs.values()]
            jobs += [wanted.delivery.job_id for wanted in self._deliveries.values()]
            for job_id in dict.fromkeys(jobs):
                self._send_if_away(job_id)
        self._peers.look_after_replicas()
        self._peers.reschedule("node")

    def _send_fenced(self, run: WantedRun) -> None:
        known = run.job.run
        if self._life.instance and known is not None and known.fenced is not self._life.fenced:
            self._peers.send_to_job(run.job.id, NodeFenced(self._life.node.id, self._life.fenced))

    def _send_if_away(self, job_id: str) -> None:
        if not self._life.node.online:
            self._peers.send_to_job(job_id, NodeSilent(self._life.node.id))
        if self._life.gone:
            self._peers.send_to_job(job_id, NodeGone(self._life.node.id))

    async def _declare(self) -> None:
        routes = self._peers.routes()
        if routes is not None and not self._is_local:
            routes = seen_from_elsewhere(routes)
        async with self._changed:
            self._wanted = Wanted(
                self._wanted.generation + 1,
                tuple(self._runs.values()),
                tuple(self._deliveries.values()),
                self._endpoints,
                tuple(model for _, models in sorted(self._models.items()) for model in models),
                self._wanted.routes if routes == self._wanted.routes else routes,
                self._peers.access(self._life.node.id),
                self._peers.answered_elsewhere(self._life.node.id),
            )
            self._changed.notify_all()

    def _show_scheduler(self) -> None:
        node = self._life.node
        view = node_view(node) if node.online else None
        self._peers.observe_node(node.id, view)


def _event(node: Node, now: float) -> NodeEvent:
    return NodeEvent(node.id, node.online, node.lease_epoch, now, node.accelerators, node.drain)
