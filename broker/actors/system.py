"""All actors and how they find each other: admission of jobs, recovery after a restart, the passing of time."""

from __future__ import annotations

import asyncio
import secrets
from typing import TYPE_CHECKING

from tiercel.broker.actors.endpoint import DeliverTier, DeliveryHeard, EndpointActor
from tiercel.broker.actors.job import JobActor, is_over
from tiercel.broker.actors.journal import Commit
from tiercel.broker.actors.node import (
    DeliveryWithdrawn,
    NodeActor,
    NodeConnected,
    NodeTicked,
    RunWithdrawn,
)
from tiercel.broker.actors.scheduler import (
    JobObserved,
    NodeObserved,
    SchedulerActor,
    SchedulerTicked,
    SomethingHappened,
)
from tiercel.broker.domain.endpoints import Endpoint
from tiercel.broker.domain.errors import EndpointBusyError, InvalidSpecError, NotFoundError, QuotaExceededError
from tiercel.broker.domain.jobs import Job, Observation
from tiercel.broker.domain.nodes import Node
from tiercel.broker.domain.validation import validate_spec
from tiercel.broker.lifecycle import job as job_machine
from tiercel.broker.lifecycle.job_events import CancelRequested, JobInput, Ticked
from tiercel.broker.scheduling.interface import Trigger

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tiercel.broker.actors.clock import Clock
    from tiercel.broker.actors.journal import Journal
    from tiercel.broker.actors.peers import WantedDelivery, WantedRun
    from tiercel.broker.actors.supervisor import Supervisor
    from tiercel.broker.domain.jobs import JobSpec, TierStatus
    from tiercel.broker.domain.tenants import Tenant
    from tiercel.broker.lifecycle.node import LeaseSettings
    from tiercel.broker.scheduling.interface import JobView, NodeView
    from tiercel.broker.store.contract import Store

TICK_SECONDS = 0.5


class System:
    """Every actor of the broker by name; implements :class:`~tiercel.broker.actors.peers.Peers` for them.

    Args:
        store: What survives a restart.
        journal: Makes steps durable.
        scheduler: The scheduler's actor.
        supervisor: Starts tasks.
        clock: The time.
        leases: How long a node's silence is borne.
    """

    def __init__(
        self,
        store: Store,
        journal: Journal,
        scheduler: SchedulerActor,
        supervisor: Supervisor,
        clock: Clock,
        leases: LeaseSettings,
    ) -> None:
        self._store = store
        self._journal = journal
        self._scheduler = scheduler
        self._supervisor = supervisor
        self._clock = clock
        self._leases = leases
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
        async with self._admission:
            if idempotency_key:
                known = await self._store.find_job(tenant.name, idempotency_key)
                if known is not None:
                    return known
            self._check_quota(tenant)
            self._check_endpoint(tenant, spec.endpoint)
            self._check_feasible(spec)
            await self._open_endpoint(spec.endpoint, tenant.name)
            job, effects = job_machine.create(
                secrets.token_hex(4), tenant.name, spec, self._clock.now(), idempotency_key
            )
            actor = JobActor(job, self._journal, self._clock, self)
            await actor.take_step(job, effects)
            self._start_job(actor)
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
        """Ask a job to stop.

        Raises:
            NotFoundError: The tenant has no such job.
            OverloadedError: Too much is going on.
        """
        job = await self.find_job(tenant, job_id)
        actor = self._jobs.get(job_id)
        if actor is not None:
            actor.tell_nowait(CancelRequested())
        return job

    def nodes(self) -> Sequence[Node]:
        """Every node that has ever connected, by id."""
        return [actor.node for _, actor in sorted(self._nodes.items())]

    def jobs_on(self, node_id: str) -> Sequence[Job]:
        """Jobs that hold something of a node, of all tenants."""
        return [a.job for a in self._jobs.values() if a.job.run_active and a.job.node_id == node_id]

    def endpoints_of(self, tenant: str) -> Sequence[Endpoint]:
        """The tenant's endpoints, by name."""
        return [a.endpoint for _, a in sorted(self._endpoints.items()) if a.endpoint.tenant == tenant]

    async def connect_node(self, node: Node) -> tuple[NodeActor, int]:
        """A node's agent opened a stream; returns the node's actor and the new lease epoch."""
        actor = self._open_node(node.id)
        epoch: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        await actor.tell(NodeConnected(node, epoch))
        return actor, await epoch

    async def deliver_to_job(self, run_id: str, message: JobInput) -> None:
        """Pass on what a node says of a run, waiting for room in the job's mailbox."""
        actor = self._jobs.get(run_id.rpartition("-")[0])
        if actor is not None:
            await actor.tell(message)

    async def deliver_to_endpoint(self, message: DeliveryHeard) -> None:
        """Pass on what a node says of a delivery, or let the node forget a delivery that nobody knows."""
        job_id = message.delivery_id.rpartition("-tier-")[0]
        actor = self._jobs.get(job_id)
        if actor is not None:
            await self._endpoints[actor.job.spec.endpoint].tell(message)
        else:
            self.withdraw_delivery(message.node_id, message.delivery_id)

    # --- Peers --------------------------------------------------------------------------------------------------------

    def tell_job(self, job_id: str, message: JobInput) -> None:
        """Tell a job; a job that is over is not told."""
        actor = self._jobs.get(job_id)
        if actor is not None:
            actor.tell_nowait(message)

    def request_delivery(self, job: Job, tier: TierStatus) -> None:
        """Ask the job's endpoint to have the tier's model delivered."""
        self._endpoints[job.spec.endpoint].tell_nowait(DeliverTier(job, tier))

    def declare_run(self, run: WantedRun) -> None:
        """Tell the run's node what is wanted."""
        self._open_node(run.job.node_id).tell_nowait(run)

    def withdraw_run(self, node_id: str, run_id: str) -> None:
        """Tell the node that the run is no longer wanted."""
        self._open_node(node_id).tell_nowait(RunWithdrawn(run_id))

    def declare_delivery(self, node_id: str, wanted: WantedDelivery) -> None:
        """Tell the node to carry out a delivery."""
        self._open_node(node_id).tell_nowait(wanted)

    def withdraw_delivery(self, node_id: str, delivery_id: str) -> None:
        """Tell the node that it may forget a delivery."""
        self._open_node(node_id).tell_nowait(DeliveryWithdrawn(delivery_id))

    def observe_job(self, job_id: str, view: JobView | None, attempts: int) -> None:
        """Show the scheduler a job as it is now, or (None) that it needs nothing of any node."""
        self._scheduler.tell_nowait(JobObserved(job_id, view, attempts))

    def retire_job(self, job_id: str) -> None:
        """Let the actor of a job that is over end."""
        actor = self._jobs.pop(job_id, None)
        if actor is not None:
            actor.finish()

    def observe_node(self, node_id: str, view: NodeView | None) -> None:
        """Show the scheduler a node, or (None) that it is offline."""
        self._scheduler.tell_nowait(NodeObserved(node_id, view))

    def reschedule(self, trigger: str) -> None:
        """Have the scheduler look at once."""
        self._scheduler.tell_nowait(SomethingHappened(Trigger(trigger)))

    # --- Life ---------------------------------------------------------------------------------------------------------

    async def recover(self) -> None:
        """Load everything that was under way when the broker stopped, and continue it."""
        deliveries = await self._store.load_deliveries()
        for endpoint in await self._store.load_endpoints():
            own = [delivery for delivery in deliveries if delivery.endpoint == endpoint.name]
            self._start_endpoint(EndpointActor(endpoint, own, self._journal, self._clock, self))
        for job in await self._store.load_jobs():
            if is_over(job):
                continue
            observations = [
                Observation(event.at, event.change.epoch, event.change.value, event.change.cpu_seconds)
                for event in await self._store.load_progress(job.id, 500)
            ]
            actor = JobActor(job, self._journal, self._clock, self, observations)
            self._start_job(actor)
            await actor.resume()

    async def run_clock(self) -> None:
        """Tell the actors that time passes, for ever."""
        while True:
            await self._clock.sleep(TICK_SECONDS)
            for job in self._jobs.values():
                job.tell_nowait(Ticked())
            for node in self._nodes.values():
                node.tell_nowait(NodeTicked())
            self._scheduler.tell_nowait(SchedulerTicked())

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

    async def _open_endpoint(self, name: str, tenant: str) -> None:
        if name in self._endpoints:
            return
        endpoint = Endpoint(name, tenant)
        await self._journal.commit(Commit(endpoint=endpoint))
        self._start_endpoint(EndpointActor(endpoint, (), self._journal, self._clock, self))

    # --- Admission ----------------------------------------------------------------------------------------------------

    def _check_quota(self, tenant: Tenant) -> None:
        active = sum(a.job.tenant == tenant.name and not a.job.state.is_final for a in self._jobs.values())
        if active >= tenant.max_active_jobs:
            raise QuotaExceededError(
                f"tenant {tenant.name} has {active} unfinished jobs and may have {tenant.max_active_jobs}; "
                "wait for one to finish or cancel one"
            )

    def _check_endpoint(self, tenant: Tenant, name: str) -> None:
        actor = self._endpoints.get(name)
        if actor is not None and actor.endpoint.tenant != tenant.name:
            raise EndpointBusyError(
                f"endpoint: {name!r} belongs to another tenant; choose another name", field="endpoint"
            )
        for job in (a.job for a in self._jobs.values()):
            if job.spec.endpoint == name and not job.state.is_final:
                raise EndpointBusyError(
                    f"endpoint: {name!r} is being fed by job {job.id}; wait for it, cancel it, or choose another name",
                    field="endpoint",
                )

    def _check_feasible(self, spec: JobSpec) -> None:
        nodes = [actor.node for actor in self._nodes.values() if actor.node.online]
        if not nodes:  # nothing is known yet; the job waits
            return
        if all(spec.resources.cpu_cores > node.cpu_cores for node in nodes):
            most = max(node.cpu_cores for node in nodes)
            raise InvalidSpecError(
                f"resources.cpu_cores: {spec.resources.cpu_cores:g} cores are more than any node has ({most:g})",
                field="resources.cpu_cores",
            )
        if all(spec.resources.memory_bytes > node.memory_bytes for node in nodes):
            most_bytes = max(node.memory_bytes for node in nodes)
            raise InvalidSpecError(
                f"resources.memory_bytes: {spec.resources.memory_bytes} are more than any node has ({most_bytes})",
                field="resources.memory_bytes",
            )
        offered = sorted({runtime for node in nodes for runtime in node.runtimes})
        if spec.runtime and spec.runtime not in offered:
            raise InvalidSpecError(
                f"runtime: no node offers {spec.runtime!r}; the nodes that are online offer {', '.join(offered)}",
                field="runtime",
            )
        images = {image for node in nodes for image in node.images}
        if spec.image and spec.image not in images:
            raise InvalidSpecError(
                f"image: no node has {spec.image!r}; build it there (make image) or pull it first, with its tag",
                field="image",
            )
