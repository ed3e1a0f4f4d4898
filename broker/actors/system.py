"""All actors and how they find each other: admission of jobs, recovery after a restart, the passing of time."""

from __future__ import annotations

import asyncio
import secrets
from typing import TYPE_CHECKING, Any

from tiercel.broker.actors.admission import check_endpoint, check_feasible, check_quota, home_of
from tiercel.broker.actors.endpoint import DeliverTier, DeliveryAbandoned, DeliveryHeard, EndpointActor, ObjectiveSet
from tiercel.broker.actors.endpoint_book import EndpointObserved, EndpointsMeasured, load_of
from tiercel.broker.actors.job import MAX_OBSERVATIONS, JobActor, is_over, observations_of
from tiercel.broker.actors.journal import Commit
from tiercel.broker.actors.mailbox import Actor, ActorFailedError, MessageT
from tiercel.broker.actors.node import (
    DeliveryWithdrawn,
    EndpointSharesDeclared,
    NodeActor,
    NodeConnected,
    NodeTicked,
    RunWithdrawn,
)
from tiercel.broker.actors.retelling import endpoint_as_it_is, job_as_it_is
from tiercel.broker.actors.scheduler import (
    JobObserved,
    MoveRefused,
    NodeObserved,
    RunsRemembered,
    SchedulerActor,
    SchedulerTicked,
    SomethingHappened,
)
from tiercel.broker.actors.tidying import keep_tidy
from tiercel.broker.domain.endpoints import Endpoint, delivery_id
from tiercel.broker.domain.errors import NotFoundError, OverloadedError
from tiercel.broker.domain.events import EndpointMeasured
from tiercel.broker.domain.jobs import Job, Observation
from tiercel.broker.domain.nodes import Node
from tiercel.broker.domain.tenants import DEFAULT_WEIGHT
from tiercel.broker.domain.validation import validate_spec
from tiercel.broker.lifecycle import job as job_machine
from tiercel.broker.lifecycle.job_events import CancelRequested, JobInput, Ticked
from tiercel.broker.scheduling.interface import Trigger

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

    from tiercel.broker.actors.clock import Clock
    from tiercel.broker.actors.journal import Journal
    from tiercel.broker.actors.node import AcceleratorHeard
    from tiercel.broker.actors.peers import WantedDelivery, WantedRun
    from tiercel.broker.actors.supervisor import Supervisor
    from tiercel.broker.domain.endpoints import Delivery, EndpointLoad, EndpointUsage
    from tiercel.broker.domain.jobs import JobSpec, TierStatus
    from tiercel.broker.domain.run_records import RunRecord
    from tiercel.broker.domain.shares import Share
    from tiercel.broker.domain.tenants import Tenant
    from tiercel.broker.lifecycle.node import LeaseSettings
    from tiercel.broker.scheduling.interface import EndpointView, JobView, NodeView, Policy
    from tiercel.broker.scheduling.loop import LoopSettings
    from tiercel.broker.store.checkpoints import CheckpointStore
    from tiercel.broker.store.contract import Store

TICK_SECONDS = 0.5


class System:
    """Every actor of the broker by name; implements :class:`~tiercel.broker.actors.peers.Peers` for them.

    Args:
        store: What survives a restart.
        journal: Makes steps durable.
        policy: Decides who gets what.
        loop: How often it is asked.
        supervisor: Starts tasks.
        clock: The time.
        leases: How long a node's silence is borne.
        tenant_weights: What the jobs of tenants are worth, by tenant; 1 where nothing is said.
        checkpoints: Checkpoints of jobs that are moved; None where nobody asks for any.
    """

    def __init__(
        self,
        store: Store,
        journal: Journal,
        policy: Policy[Any],
        loop: LoopSettings,
        supervisor: Supervisor,
        clock: Clock,
        leases: LeaseSettings,
        tenant_weights: Mapping[str, float] | None = None,
        checkpoints: CheckpointStore | None = None,
    ) -> None:
        self._store = store
        self._journal = journal
        self._scheduler = SchedulerActor(policy, loop, journal, clock, self.tell_job, self.declare_endpoint_shares)
        self._supervisor = supervisor
        self._clock = clock
        self._leases = leases
        self._checkpoints = checkpoints
        self._tenant_weights = dict(tenant_weights or {})
        self._jobs: dict[str, JobActor] = {}
        self._endpoints: dict[str, EndpointActor] = {}
        self._nodes: dict[str, NodeActor] = {}
        self._admission = asyncio.Lock()

    # --- For the API --------------------------------------------------------------------------------------------------

    async def submit(self, tenant: Tenant, spec: JobSpec, idempotency_key: str) -> Job:
        """Create a job, or return the one that the same key of the same tenant created before.

        Raises:
            InvalidSpecError: A field of the spec is wrong, or no known node could ever run it.
            QuotaExceededError: The tenant has as many active jobs as it may.
            EndpointBusyError: Somebody else's endpoint, or another active job feeds it.
        """
        validate_spec(spec)
        # A client that vanishes in the middle must not leave a job that is stored and that nobody looks after.
        return await self._supervisor.see_through(self._admit(tenant, spec, idempotency_key), name="admission")

    async def _admit(self, tenant: Tenant, spec: JobSpec, idempotency_key: str) -> Job:
        async with self._admission:
            if idempotency_key:
                known = await self._store.find_job(tenant.name, idempotency_key)
                if known is not None:
                    return await self.find_job(tenant.name, known.id)
            jobs = [actor.job for actor in self._jobs.values()]
            actor = self._endpoints.get(spec.endpoint)
            endpoint = actor.endpoint if actor is not None else None
            check_quota(tenant, jobs)
            check_endpoint(tenant, spec, endpoint, jobs)
            home = home_of(spec, endpoint, jobs)
            check_feasible(spec, [node for node in self.nodes() if node.online and home in {"", node.id}])
            await self._open_endpoint(spec.endpoint, tenant.name, spec.endpoint_objective_seconds)
            job, effects = job_machine.create(
                secrets.token_hex(4), tenant.name, spec, self._clock.now(), idempotency_key
            )
            job_actor = self._make_job_actor(job)
            await job_actor.take_step(job, effects)
            self._start_job(job_actor)
            return job

    async def find_job(self, tenant: str, job_id: str) -> Job:
        """The tenant's job.

        Raises:
            NotFoundError: The tenant has no such job.
        """
        actor = self._jobs.get(job_id)
        job = actor.job if actor is not None else await self._store.get_job(job_id)
        if job is None or job.tenant != tenant:
            raise NotFoundError(f"job_id: there is no job {job_id!r}; 'tiercel ls' lists yours", field="job_id")
        return job

    async def jobs_of(self, tenant: str, *, active_only: bool) -> Sequence[Job]:
        """The tenant's jobs, oldest first."""
        known = {job.id: job for job in await self._store.load_jobs(active_only=active_only) if job.tenant == tenant}
        known.update({a.job.id: a.job for a in self._jobs.values() if a.job.tenant == tenant})
        jobs = [job for job in known.values() if not (active_only and job.state.is_final)]
        return sorted(jobs, key=lambda job: (job.submitted_at, job.id))

    async def cancel(self, tenant: str, job_id: str) -> Job:
        """Ask a job to stop; returns it as it is once it has heard.

        Raises:
            NotFoundError: The tenant has no such job.
            OverloadedError: Too much is going on.
            UnavailableError: It does not answer.
        """
        job = await self.find_job(tenant, job_id)
        actor = self._jobs.get(job_id)
        if actor is None:
            return job
        await actor.call(CancelRequested())
        return actor.job

    def nodes(self) -> Sequence[Node]:
        """Every node that has ever connected, by id."""
        return [actor.node for _, actor in sorted(self._nodes.items())]

    def accelerators_of(self, node_id: str) -> Mapping[str, AcceleratorHeard]:
        """How a node's accelerators are, by id, as its agent said last."""
        return self._nodes[node_id].accelerators if node_id in self._nodes else {}

    def jobs_on(self, node_id: str) -> Sequence[Job]:
        """Jobs that hold something of a node, of all tenants."""
        jobs = [actor.job for actor in self._jobs.values() if actor.job.run_active]
        return [job for job in jobs if job.node_id == node_id or job.is_going_to(node_id)]

    def endpoints_of(self, tenant: str) -> Sequence[Endpoint]:
        """The tenant's endpoints, by name."""
        return [a.endpoint for _, a in sorted(self._endpoints.items()) if a.endpoint.tenant == tenant]

    def find_endpoint(self, tenant: str, name: str) -> Endpoint:
        """The tenant's endpoint.

        Raises:
            NotFoundError: The tenant has no such endpoint.
        """
        actor = self._endpoints.get(name)
        if actor is None or actor.endpoint.tenant != tenant:
            raise NotFoundError(
                f"endpoint: there is no endpoint {name!r}; 'tiercel endpoints' lists yours", field="endpoint"
            )
        return actor.endpoint

    def endpoint_share(self, name: str) -> Share | None:
        """What an endpoint may use of its node; None while nothing limits it."""
        return self._scheduler.endpoints.share(name)

    def endpoint_load(self, name: str) -> EndpointLoad | None:
        """What was measured of an endpoint last; None while nothing was, or its node is offline."""
        actor = self._endpoints.get(name)
        node = self._nodes.get(actor.endpoint.node_id) if actor is not None else None
        return self._scheduler.endpoints.load(name) if node is not None and node.node.online else None

    async def connect_node(self, node: Node, runs: frozenset[str]) -> tuple[NodeActor, int]:
        """A node's agent opened a stream and knows of ``runs``; returns the node's actor and the new lease epoch.

        Raises:
            UnavailableError: The node's actor does not answer.
        """
        actor = self._open_node(node.id)
        epoch: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        await actor.call(NodeConnected(node, runs, epoch))
        return actor, epoch.result()

    async def deliver_to_job(self, run_id: str, message: JobInput) -> None:
        """Pass on what a node says of a run, waiting for room in the job's mailbox."""
        actor = self._jobs.get(run_id.rpartition("-")[0])
        if actor is not None:
            await actor.tell(message)

    def measure_endpoints(
        self, node_id: str, usages: tuple[EndpointUsage, ...], lag_seconds: float | None = None
    ) -> None:
        """Show the scheduler, and whoever listens, what a node's inference server counted lately.

        Args:
            node_id: The node.
            usages: What requests took, by endpoint; those that nobody asked anything are not listed.
            lag_seconds: By how much the server's event loop came late, or None.
        """
        _tell(self._scheduler, EndpointsMeasured(node_id, usages, lag_seconds))
        now = self._clock.now()
        for usage in usages:
            actor = self._endpoints.get(usage.endpoint)
            if actor is not None and actor.endpoint.node_id == node_id:
                known = actor.endpoint
                load = load_of(usage, lag_seconds)
                news = EndpointMeasured(known.name, known.tenant, now, node_id, known.objective_seconds, load)
                self._journal.announce_nowait(news)

    async def deliver_to_endpoint(self, message: DeliveryHeard) -> None:
        """Pass on what a node says of a delivery, or let the node forget a delivery that nobody knows."""
        job_id = message.delivery_id.rpartition("-tier-")[0]
        actor = self._jobs.get(job_id)
        if actor is not None:
            await self._endpoints[actor.job.spec.endpoint].tell(message)
        else:
            self.withdraw_delivery(message.node_id, message.delivery_id)

    def expects_checkpoint(self, node_id: str, run_id: str) -> bool:
        """Whether a run of the node is being moved, so that its checkpoint is wanted."""
        actor = self._jobs.get(run_id.rpartition("-")[0])
        return actor is not None and actor.job.is_moving and (actor.job.node_id, actor.job.run_id) == (node_id, run_id)

    def needs_checkpoint(self, run_id: str) -> bool:
        """Whether the job of a run may go on from the run's checkpoint: it is being moved, or goes on already."""
        actor = self._jobs.get(run_id.rpartition("-")[0])
        return actor is not None and (
            (actor.job.is_moving and actor.job.run_id == run_id) or actor.job.carried_run == run_id
        )

    def carried_run_of(self, node_id: str, run_id: str) -> str:
        """The earlier run from whose checkpoint a run of the node goes on, or empty."""
        actor = self._jobs.get(run_id.rpartition("-")[0])
        if actor is None or not actor.job.run_active or (actor.job.node_id, actor.job.run_id) != (node_id, run_id):
            return ""
        return actor.job.carried_run

    # --- Peers --------------------------------------------------------------------------------------------------------

    def tell_job(self, job_id: str, message: JobInput) -> None:
        """Tell a job; a job that is over is not told."""
        actor = self._jobs.get(job_id)
        if actor is not None:
            _tell(actor, message)

    def request_delivery(self, job: Job, tier: TierStatus) -> None:
        """Ask the job's endpoint to have the tier's model delivered from where the job is now."""
        _tell(self._endpoints[job.spec.endpoint], DeliverTier(job, tier))

    def abandon_delivery(self, job: Job, tier: TierStatus, reason: str) -> None:
        """Tell the job's endpoint that nobody can deliver the tier's model any more."""
        _tell(self._endpoints[job.spec.endpoint], DeliveryAbandoned(delivery_id(job.id, tier.number), reason))

    def declare_run(self, run: WantedRun) -> None:
        """Tell the run's node what is wanted."""
        _tell(self._open_node(run.job.node_id), run)

    def withdraw_run(self, node_id: str, run_id: str) -> None:
        """Tell the node that the run is no longer wanted."""
        _tell(self._open_node(node_id), RunWithdrawn(run_id))

    def declare_delivery(self, node_id: str, wanted: WantedDelivery) -> None:
        """Tell the node to carry out a delivery."""
        _tell(self._open_node(node_id), wanted)

    def withdraw_delivery(self, node_id: str, delivery_id: str) -> None:
        """Tell the node that it may forget a delivery."""
        _tell(self._open_node(node_id), DeliveryWithdrawn(delivery_id))

    def observe_job(
        self,
        job_id: str,
        view: JobView | None,
        attempts: int,
        *,
        leaving: str = "",
        leaving_devices: tuple[str, ...] = (),
    ) -> None:
        """Show the scheduler a job as it is now, or (None) that it needs nothing of any node."""
        _tell_latest(self._scheduler, ("job", job_id), JobObserved(job_id, view, attempts, leaving, leaving_devices))

    def refuse_move(self, job_id: str) -> None:
        """Tell the scheduler that the job cannot be moved now."""
        _tell(self._scheduler, MoveRefused(job_id))

    def drop_checkpoint(self, job_id: str) -> None:
        """Remove the checkpoint that the broker may hold for the job."""
        if self._checkpoints is not None:
            self._checkpoints.drop(job_id)

    def remember_run(self, record: RunRecord) -> None:
        """Show the scheduler what became of a job, for the next one that trains the same thing."""
        _tell(self._scheduler, RunsRemembered((record,)))

    def retire_job(self, job_id: str) -> None:
        """Let the actor of a job that is over end."""
        actor = self._jobs.pop(job_id, None)
        if actor is not None:
            actor.finish()

    def observe_node(self, node_id: str, view: NodeView | None) -> None:
        """Show the scheduler a node, or (None) that it is offline."""
        _tell_latest(self._scheduler, ("node", node_id), NodeObserved(node_id, view))

    def observe_endpoint(self, name: str, view: EndpointView | None) -> None:
        """Show the scheduler an endpoint, or (None) that no version of it is live."""
        _tell_latest(self._scheduler, ("endpoint", name), EndpointObserved(name, view))

    def declare_endpoint_shares(
        self, node_id: str, shares: Mapping[str, Share], objectives: Mapping[str, float]
    ) -> None:
        """Tell a node what its endpoints may use; those that are not named are not limited."""
        declared = EndpointSharesDeclared(tuple(sorted(shares.items())), tuple(sorted(objectives.items())))
        _tell(self._open_node(node_id), declared)

    def reschedule(self, trigger: str) -> None:
        """Have the scheduler look at once."""
        happened = SomethingHappened(Trigger(trigger))
        _tell_latest(self._scheduler, happened, happened)

    # --- Life ---------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Continue everything that was under way when the broker stopped, and let time pass."""
        self._supervisor.start(self._scheduler.run(), name=self._scheduler.name)
        await self._recover()
        self._supervisor.start(self._run_clock(), name="clock")
        self._supervisor.start(keep_tidy(self._store, self._clock), name="tidying")

    async def _recover(self) -> None:
        _tell(self._scheduler, RunsRemembered(tuple(await self._store.load_run_records())))
        deliveries = await self._store.load_deliveries()
        for endpoint in await self._store.load_endpoints():
            own = [delivery for delivery in deliveries if delivery.endpoint == endpoint.name]
            self._start_endpoint(self._make_endpoint_actor(endpoint, own))
            for news in endpoint_as_it_is(endpoint, self._clock.now()):
                self._journal.announce_nowait(news)
        for job in await self._store.load_jobs():
            if is_over(job):
                continue
            progress = await self._store.load_progress(job.id, limit=MAX_OBSERVATIONS)
            actor = self._make_job_actor(job, observations_of(progress))
            self._jobs[job.id] = actor
            for event in job_as_it_is(job, self._journal.sequence, self._clock.now()):
                self._journal.announce_nowait(event)
            # Before its task starts: nothing else may touch it meanwhile.
            await actor.resume()
            self._start_job(actor)
        if self._checkpoints is not None:
            jobs = [actor.job for actor in self._jobs.values()]
            self._checkpoints.keep_only({job.id for job in jobs if job.carried_run or job.is_moving})
        # A node that connects must at once be told everything that is wanted of it: what it is not told of, it stops.
        for endpoint_actor in list(self._endpoints.values()):
            await endpoint_actor.wait_idle()
        for node_actor in list(self._nodes.values()):
            await node_actor.wait_idle()

    async def _run_clock(self) -> None:
        while True:
            await self._clock.sleep(TICK_SECONDS)
            for job in self._jobs.values():
                _tell_latest(job, Ticked(), Ticked())
            for node in self._nodes.values():
                _tell_latest(node, NodeTicked(), NodeTicked())
            _tell_latest(self._scheduler, SchedulerTicked(), SchedulerTicked())

    def _make_job_actor(self, job: Job, observations: Sequence[Observation] = ()) -> JobActor:
        weight = self._tenant_weights.get(job.tenant, DEFAULT_WEIGHT)
        return JobActor(job, self._journal, self._clock, self, observations, tenant_weight=weight)

    def _start_job(self, actor: JobActor) -> None:
        self._jobs[actor.job.id] = actor
        self._supervisor.start(actor.run(), name=actor.name)

    def _start_endpoint(self, actor: EndpointActor) -> None:
        self._endpoints[actor.endpoint.name] = actor
        self._supervisor.start(actor.run(), name=actor.name)

    def _open_node(self, node_id: str) -> NodeActor:
        actor = self._nodes.get(node_id)
        if actor is None:
            unknown = Node(node_id, cpu_cores=0.0, memory_bytes=0, online=False)
            actor = NodeActor(unknown, self._leases, self._journal, self._clock, self)
            self._nodes[node_id] = actor
            self._supervisor.start(actor.run(), name=actor.name)
        return actor

    async def _open_endpoint(self, name: str, tenant: str, objective_seconds: float | None) -> None:
        known = self._endpoints.get(name)
        if known is not None:
            if objective_seconds is not None and objective_seconds != known.endpoint.objective_seconds:
                await known.call(ObjectiveSet(objective_seconds))
            return
        endpoint = Endpoint(name, tenant, objective_seconds=objective_seconds)
        await self._journal.commit(Commit(endpoint=endpoint))
        self._start_endpoint(self._make_endpoint_actor(endpoint))

    def _make_endpoint_actor(self, endpoint: Endpoint, deliveries: Sequence[Delivery] = ()) -> EndpointActor:
        weight = self._tenant_weights.get(endpoint.tenant, DEFAULT_WEIGHT)
        return EndpointActor(endpoint, deliveries, self._journal, self._clock, self, tenant_weight=weight)


def _tell(actor: Actor[MessageT], message: MessageT) -> None:
    try:
        actor.tell_nowait(message)
    except OverloadedError as error:
        raise ActorFailedError(f"{actor.name} is stuck: {error.message}") from error


def _tell_latest(actor: Actor[MessageT], key: Hashable, message: MessageT) -> None:
    try:
        actor.tell_latest_nowait(key, message)
    except OverloadedError as error:
        raise ActorFailedError(f"{actor.name} is stuck: {error.message}") from error
