"""Every actor of the broker by what it stands for, and how they find each other."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from tiercel.broker.actors.access_tables import AccessTables
from tiercel.broker.actors.endpoint import EndpointActor
from tiercel.broker.actors.endpoint_messages import AccessSet, DeliverTier, DeliveryAbandoned, NodesChanged, TermsSet
from tiercel.broker.actors.endpoint_queues import queue_steps
from tiercel.broker.actors.endpoint_states import EndpointObserved
from tiercel.broker.actors.feedback import FeedbackHeard, InputsHeard
from tiercel.broker.actors.job import JobActor
from tiercel.broker.actors.mailbox import send, send_latest
from tiercel.broker.actors.node import NodeActor
from tiercel.broker.actors.node_messages import (
    AccessChanged,
    DeliveryWithdrawn,
    EndpointSharesDeclared,
    ModelsDeclared,
    NodeExpelled,
    NodeRemoved,
    RoutesChanged,
    RunWithdrawn,
    ServedStatus,
)
from tiercel.broker.actors.scheduler import SchedulerActor
from tiercel.broker.actors.scheduler_messages import (
    JobObserved,
    MoveRefused,
    NodeObserved,
    RunsRemembered,
    SomethingHappened,
    StartsMeasured,
)
from tiercel.broker.actors.tenant_uses import TenantUses
from tiercel.broker.lifecycle.job_events import Deferred, TurnCame
from tiercel.broker.lifecycle.node import NodeLife, fence_of
from tiercel.broker.lifecycle.routes import ToldRoutes, known_elsewhere, renewed, routes_of
from tiercel.broker.scheduling.interface import Trigger
from tiercel.core.endpoints import delivery_id
from tiercel.core.nodes import Drain, Node
from tiercel.core.tenants import Tenant

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from tiercel.broker.actors.clock import Clock
    from tiercel.broker.actors.endpoint_states import Counted
    from tiercel.broker.actors.journal import Journal
    from tiercel.broker.actors.peers import WantedDelivery, WantedRun
    from tiercel.broker.actors.supervisor import Supervisor
    from tiercel.broker.lifecycle.job_events import JobInput
    from tiercel.broker.lifecycle.node import Fence, LeaseSettings
    from tiercel.broker.lifecycle.serving_node import ServingNode
    from tiercel.broker.lifecycle.versions import WantedModel
    from tiercel.broker.scheduling.interface import EndpointView, JobView, NodeView, Policy
    from tiercel.broker.scheduling.loop import LoopSettings
    from tiercel.broker.store.checkpoints import CheckpointStore
    from tiercel.broker.store.version_files import VersionStore
    from tiercel.core.endpoint_access import AccessTable, KeyUse
    from tiercel.core.endpoints import DelayWindow, Delivery, Endpoint
    from tiercel.core.errors import CannotWriteError
    from tiercel.core.jobs import Job, Observation, TierStatus
    from tiercel.core.routes import Routes
    from tiercel.core.run_records import RunRecord
    from tiercel.core.shares import Share
    from tiercel.core.tenant_use import TenantUse

STREAM_END_SECONDS = 5.0
_NOBODY = Tenant("", "")


class ActorRegistry:
    """Makes actors, starts them, and passes on what they say: :class:`~tiercel.broker.actors.peers.Peers` for them.

    Args:
        tenants: By name: what their jobs are worth, 1 where nothing is said, and the priority classes they may use; a
            job that names another has none.
        checkpoints: Checkpoints of jobs that are moved.
        versions: Files of versions that several nodes are to have.
        joined: The nodes of other machines that are of the cluster, whether they have connected or not.
        has_store: Whether there is an artefact store.

    Attributes:
        scheduler: The one there is.
        jobs: Those that are not over, by id.
        endpoints: By name.
        nodes: Every one that has ever connected, by id.
        drains: Those that are being emptied, whether they have connected or not.
        uses: What tenants have used.
        access_tables: Who may ask what.
        feedback: How often versions are right in use.
        inputs: Whether what versions are asked is as it was at first.
    """

    def __init__(
        self,
        journal: Journal,
        policy: Policy[Any],
        loop: LoopSettings,
        supervisor: Supervisor,
        clock: Clock,
        leases: LeaseSettings,
        tenants: Mapping[str, Tenant],
        checkpoints: CheckpointStore,
        versions: VersionStore,
        joined: Callable[[], Collection[str]],
        *,
        has_store: bool,
    ) -> None:
        self._journal = journal
        self._supervisor = supervisor
        self._clock, self._began_at = clock, clock.alive()
        self._leases = leases
        self._tenants = tenants
        self._checkpoints = checkpoints
        self.versions = versions
        self.joined = joined
        self.has_store = has_store
        self.uses = TenantUses(clock)
        self.scheduler = SchedulerActor(
            policy, loop, journal, clock, self.send_to_job, self.declare_endpoint_shares, self.uses.of
        )
        self.jobs: dict[str, JobActor] = {}
        self.endpoints: dict[str, EndpointActor] = {}
        self.nodes: dict[str, NodeActor] = {}
        self.drains: dict[str, Drain] = {}
        self._told: ToldRoutes | None = None
        self._elsewhere: dict[str, frozenset[str]] = {}
        self.access_tables = AccessTables()
        self.feedback = FeedbackHeard()
        self.inputs = InputsHeard()
        journal.on_away(self._refuse_calls)

    def job_of(self, run_id: str) -> JobActor | None:
        """The job of a run; None for one that is over, or that nobody knows."""
        return self.jobs.get(run_id.rpartition("-")[0])

    def living_jobs(self) -> list[Job]:
        """The jobs of all tenants that something can still happen to."""
        return [actor.job for actor in self.jobs.values()]

    def make_job(self, job: Job, observations: Sequence[Observation] = ()) -> JobActor:
        """The actor of a job, which nobody finds yet."""
        tenant = self._tenants.get(job.tenant, _NOBODY)
        weight, known = tenant.weight, tenant.class_of(job.spec.priority_class)
        return JobActor(job, self._journal, self._clock, self, observations, tenant_weight=weight, priority_class=known)

    def start_job(self, actor: JobActor) -> None:
        """Let it take in messages."""
        self.jobs[actor.job.id] = actor
        self._supervisor.start(actor.run(), name=actor.name)

    def start_endpoint(self, endpoint: Endpoint, deliveries: Sequence[Delivery] = ()) -> None:
        """Make the actor of an endpoint, in place of one that had the name before, and let it take in messages."""
        weight = self._tenants.get(endpoint.tenant, _NOBODY).weight
        actor = EndpointActor(endpoint, deliveries, self._journal, self._clock, self, tenant_weight=weight)
        if (before := self.endpoints.get(endpoint.name)) is not None:
            before.finish()
        self.endpoints[endpoint.name] = actor
        self._supervisor.start(actor.run(), name=actor.name)

    def open_node(self, node_id: str) -> NodeActor:
        """A node's actor, which is made where there is none."""
        actor = self.nodes.get(node_id)
        if actor is None:
            drain = self.drains.get(node_id, Drain.NO)
            unknown = Node(node_id, cpu_cores=0.0, memory_bytes=0, online=False, drain=drain)
            life = NodeLife(unknown, self._began_at)  # nobody was silent for longer
            actor = self.nodes[node_id] = NodeActor(life, self._leases, self._journal, self._clock, self)
            self._supervisor.start(actor.run(), name=actor.name)
        return actor

    async def forget_node(self, node_id: str) -> None:
        """Forget a node that is none any more; one of which something is still wanted stays, as one that is away."""
        actor = self.nodes.get(node_id)
        if actor is None:
            self.find_routes()
            return
        send(actor, NodeExpelled())
        if actor.is_needed:
            return
        # Its stream ends by itself, with a word to the agent on why.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STREAM_END_SECONDS):
                await actor.wait_stream_ended()
        send(actor, NodeRemoved())
        # Told before another machine may be known by its name.
        await actor.wait_idle()
        del self.nodes[node_id]
        self._elsewhere.pop(node_id, None)
        actor.finish()

    def _refuse_calls(self, error: CannotWriteError) -> None:
        """What was asked of jobs and endpoints must not wait behind a step of theirs that waits for the disk."""
        actors: list[JobActor | EndpointActor] = [*self.jobs.values(), *self.endpoints.values()]
        for actor in actors:
            actor.refuse_calls(error)

    def fence(self) -> Fence | None:
        """What agents are told about how long they may go without us."""
        return fence_of(self._leases, len(self.nodes))

    def let_queues_move(self) -> None:
        """Tell the jobs that are queued for endpoints whose turn it is, and what the others wait for."""
        steps = queue_steps(self.living_jobs(), self._clock.now())
        for job in steps.turns:
            send(self.endpoints[job.spec.endpoint], TermsSet.of(job.spec))
            if job.spec.access is not None:
                send(self.endpoints[job.spec.endpoint], AccessSet(job.spec.access))
            send_latest(self.jobs[job.id], TurnCame(), TurnCame())
        for job_id, words in steps.waiting.items():
            if self.jobs[job_id].job.reason != words:
                send_latest(self.jobs[job_id], Deferred, Deferred(words))

    # --- Peers --------------------------------------------------------------------------------------------------------

    def send_to_job(self, job_id: str, message: JobInput) -> None:
        """Tell a job; a job that is over is not told."""
        if (actor := self.jobs.get(job_id)) is not None:
            send(actor, message)

    def request_delivery(self, job: Job, tier: TierStatus) -> None:
        """Ask the job's endpoint to have the tier's model delivered from where the job is now."""
        send(self.endpoints[job.spec.endpoint], DeliverTier(job, tier))

    def abandon_delivery(self, job: Job, tier: TierStatus, reason: str) -> None:
        """Tell the job's endpoint that nobody can deliver the tier's model any more."""
        known = delivery_id(job.id, tier.number, job.delivery_count(tier))
        send(self.endpoints[job.spec.endpoint], DeliveryAbandoned(known, reason))

    def declare_run(self, run: WantedRun) -> None:
        """Tell the run's node what is wanted."""
        send(self.open_node(run.job.node_id), run)

    def withdraw_run(self, node_id: str, run_id: str) -> None:
        """Tell the node that the run is no longer wanted."""
        send(self.open_node(node_id), RunWithdrawn(run_id))

    def declare_delivery(self, node_id: str, wanted: WantedDelivery) -> None:
        """Tell the node to carry out a delivery."""
        send(self.open_node(node_id), wanted)

    def withdraw_delivery(self, node_id: str, delivery_id: str) -> None:
        """Tell the node that it may forget a delivery."""
        send(self.open_node(node_id), DeliveryWithdrawn(delivery_id))

    def declare_models(self, node_id: str, endpoint: str, models: tuple[WantedModel, ...]) -> None:
        """Tell a node which versions of an endpoint shall answer there."""
        send(self.open_node(node_id), ModelsDeclared(endpoint, models))

    def show_access(self, endpoint: Endpoint) -> None:
        """Tell all nodes who may ask an endpoint, where that is another than before."""
        if self.access_tables.show(endpoint):
            self.tell_access()

    def tell_access(self) -> None:
        """Tell all nodes who may ask what."""
        for node in self.nodes.values():
            send_latest(node, AccessChanged, AccessChanged())

    def access(self, node_id: str) -> AccessTable:
        """Who may ask what, for one node; the same object for as long as that is the same."""
        return self.access_tables.table(node_id)

    def note_key_uses(self, node_id: str, uses: Sequence[KeyUse]) -> None:
        """What came with keys on a node; divides their rates anew where it is time to."""
        self.access_tables.note_uses(node_id, uses)
        online = [name for name, actor in self.nodes.items() if actor.node.online]
        if self.access_tables.divide(online, self._clock.alive()):
            self.tell_access()

    def find_routes(self) -> None:
        """Have it found out again who answers for which endpoint, and all nodes told where that has changed."""
        nodes = tuple(self.nodes.values())
        if any(node.is_awaited for node in nodes):  # of a broker that began anew: what nodes know already is better
            return
        away = {node.node.id for node in nodes if node.is_away} | {*self.joined()}
        routes = routes_of((serving for node in nodes if (serving := node.serving) is not None), away)
        before, self._told = self._told, renewed(self._told, routes, first=round(self._clock.now() * 1e6))
        confirmed = [number for node in nodes if (number := node.routes_number) is not None]
        for node in nodes:
            may_go = known_elsewhere(self._told, node.node.id, node.leaving, confirmed)
            if self._told is not before or may_go != self._elsewhere.get(node.node.id, frozenset()):
                self._elsewhere[node.node.id] = may_go
                send_latest(node, RoutesChanged, RoutesChanged())

    def routes(self) -> Routes | None:
        """Who answers for which endpoint; None until all have been heard who may."""
        return self._told.table if self._told is not None else None

    def answered_elsewhere(self, node_id: str) -> frozenset[str]:
        """The endpoints that may stop to answer on a node, as all others know who does in its place."""
        return self._elsewhere.get(node_id, frozenset())

    def serving_nodes(self, endpoint: str) -> Mapping[str, ServingNode]:
        """What each node is to an endpoint, by name."""
        return {node_id: actor.serving_node(endpoint) for node_id, actor in self.nodes.items()}

    def counted(self, endpoint: str) -> Mapping[str, Counted]:
        """What nodes have counted of an endpoint since the broker began, by name."""
        return self.scheduler.endpoints.counted(endpoint)

    def look_after_replicas(self) -> None:
        """Have endpoints that answer on several nodes look whether that is as it shall be."""
        is_draining = any(actor.node.drain is not Drain.NO for actor in self.nodes.values())
        for actor in self.endpoints.values():
            if actor.needs_looks or is_draining:
                send_latest(actor, NodesChanged, NodesChanged())

    def answers_on(self, node_id: str, endpoint: str) -> int:
        """The version of an endpoint without variants that answers on a node; 0 for none, or while it is offline."""
        served = self.nodes[node_id].served if node_id in self.nodes else {}
        return served.get((endpoint, ""), ServedStatus()).version

    def held_files(self, endpoint: str, *, arriving: bool = False) -> Mapping[int, str]:
        """SHA-256 of the versions of an endpoint whose files the broker holds (``arriving``: or is sent), by number."""
        return self.versions.held(endpoint, arriving=arriving)

    def delays(self, endpoint: str) -> DelayWindow | None:
        """How long the answers of an endpoint took in the longest window that is measured; None while nothing is."""
        load = self.scheduler.endpoints.load(endpoint)
        return load.windows[-1] if load is not None and load.windows else None

    def keep_files(self, endpoint: str, versions: Collection[int]) -> None:
        """Remove the files that the broker holds of other versions of an endpoint."""
        self.versions.keep_only(endpoint, versions)

    def served_version(self, endpoint: str) -> int:
        """The highest version of an endpoint that answers on any node, as that says; 0 for none."""
        heard = [(name, each.version) for node in self.nodes.values() for (name, _), each in node.served.items()]
        return max((version for name, version in heard if name == endpoint), default=0)

    def observe_job(
        self,
        job_id: str,
        view: JobView | None,
        attempts: int,
        *,
        leaving: str = "",
        leaving_accelerators: tuple[str, ...] = (),
    ) -> None:
        """Show the scheduler a job as it is now, or (None) that it needs nothing of any node."""
        send_latest(self.scheduler, ("job", job_id), JobObserved(job_id, view, attempts, leaving, leaving_accelerators))

    def refuse_move(self, job_id: str) -> None:
        """Tell the scheduler that the job cannot be moved now."""
        send(self.scheduler, MoveRefused(job_id))

    def drop_checkpoint(self, job_id: str) -> None:
        """Remove the checkpoint that the broker may hold for the job."""
        self._checkpoints.drop(job_id)

    def remember_run(self, record: RunRecord) -> None:
        """Show the scheduler what became of a job, for the next one that trains the same thing."""
        send(self.scheduler, RunsRemembered((record,)))

    def remember_starts(self, workload: str, job: Job) -> None:
        """Show the scheduler what the job's runs took to get to work."""
        send(self.scheduler, StartsMeasured(workload, job.id, job.starts))

    def count_use(self, tenant: str, core_seconds: float, accelerator_seconds: float) -> TenantUse:
        """Count what a tenant's job has used; less than nothing takes back what did not become durable."""
        return self.uses.count(tenant, core_seconds, accelerator_seconds)

    def begin_job(self, job: Job) -> None:
        """Look after a job that was made with the end of another one, and is durable."""
        self.start_job(self.make_job(job))

    def retire_job(self, job_id: str) -> None:
        """Let the actor of a job that is over end."""
        if (actor := self.jobs.pop(job_id, None)) is not None:
            actor.finish()

    def observe_node(self, node_id: str, view: NodeView | None) -> None:
        """Show the scheduler a node, or (None) that it is offline."""
        send_latest(self.scheduler, ("node", node_id), NodeObserved(node_id, view))

    def observe_endpoint(self, name: str, view: EndpointView | None, copies: tuple[EndpointView, ...] = ()) -> None:
        """Show the scheduler an endpoint on its home and on other nodes, or (None) that no version of it is live."""
        send_latest(self.scheduler, ("endpoint", name), EndpointObserved(name, view, copies))

    def declare_endpoint_shares(
        self, node_id: str, shares: Mapping[str, Share], objectives: Mapping[str, float]
    ) -> None:
        """Tell a node what its endpoints may use; those that are not named are not limited."""
        declared = EndpointSharesDeclared(tuple(sorted(shares.items())), tuple(sorted(objectives.items())))
        send(self.open_node(node_id), declared)

    def reschedule(self, trigger: str) -> None:
        """Have the scheduler look at once."""
        happened = SomethingHappened(Trigger(trigger))
        send_latest(self.scheduler, happened, happened)
