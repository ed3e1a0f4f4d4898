"""What tenants ask of the broker."""

from __future__ import annotations

import asyncio
import secrets
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from tiercel.broker.actors.admission import (
    check_class,
    check_endpoint,
    check_feasible,
    check_hours,
    check_quota,
    home_of,
    warm_node_of,
)
from tiercel.broker.actors.clock import moment_of
from tiercel.broker.actors.endpoint import EndpointActor
from tiercel.broker.actors.endpoint_messages import AccessSet, TermsSet
from tiercel.broker.actors.endpoint_service import EndpointService
from tiercel.broker.actors.explaining import explained
from tiercel.broker.actors.job import MAX_OBSERVATIONS, observations_of
from tiercel.broker.actors.job_ids import job_of
from tiercel.broker.actors.job_pages import JOBS_AT_A_TIME
from tiercel.broker.actors.resuming import check_resumable
from tiercel.broker.actors.retraining import Retrainings
from tiercel.broker.actors.secrets import check_secrets
from tiercel.broker.lifecycle import machine as job_machine
from tiercel.broker.lifecycle import retraining, versions
from tiercel.broker.lifecycle.job_events import (
    CancelRequested,
    JobEffect,
    PrioritySet,
    ResumeRequested,
    SuspendRequested,
)
from tiercel.core.endpoint_access import EndpointAccess
from tiercel.core.endpoints import Endpoint
from tiercel.core.errors import NotFoundError, wrong_field
from tiercel.core.jobs import Job
from tiercel.core.nodes import Node
from tiercel.core.retraining import REPEATS_LABEL
from tiercel.core.validation import validate_spec
from tiercel.core.validation_over_time import validate_priority

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

    from tiercel.broker.actors.clock import Clock
    from tiercel.broker.actors.endpoint_queues import QueuePlace
    from tiercel.broker.actors.job import JobActor
    from tiercel.broker.actors.journal import Journal
    from tiercel.broker.actors.node_messages import AcceleratorStatus
    from tiercel.broker.actors.registry import ActorRegistry
    from tiercel.broker.actors.supervisor import Supervisor
    from tiercel.broker.lifecycle.job_events import JobInput
    from tiercel.broker.store.sql import Store
    from tiercel.core.disk_use import NodeDisk
    from tiercel.core.jobs import JobSpec
    from tiercel.core.retraining import Retraining
    from tiercel.core.tenants import Tenant


class BrokerService:
    """The broker without its doors: what tenants ask for, done by the actors.

    Args:
        tenants: A tenant with its quota, by name; None for one that there is no more.

    Attributes:
        endpoints: What tenants ask about them.
        retrainings: Trains models again by itself.
    """

    def __init__(
        self,
        store: Store,
        journal: Journal,
        registry: ActorRegistry,
        supervisor: Supervisor,
        clock: Clock,
        tenants: Callable[[str], Tenant | None],
    ) -> None:
        self._store = store
        self._journal = journal
        self._registry = registry
        self._supervisor = supervisor
        self._clock = clock
        self._admission = asyncio.Lock()
        self._tenants = tenants
        self.endpoints = EndpointService(journal, registry, supervisor, self._admission)
        self.retrainings = Retrainings(store, journal, registry, clock, self._submit_again)

    async def submit(self, tenant: Tenant, spec: JobSpec, idempotency_key: str, words: str = "") -> Job:
        """Create a job, of which ``words`` say what is known, or return the one that its tenant's key created before.

        Raises:
            InvalidSpecError: A field of the spec is wrong, or no known node could ever run it.
            QuotaExceededError: The tenant has as many active jobs as it may.
            EndpointBusyError: Somebody else's endpoint, or another active job feeds it.
            CannotWriteError: The broker's disk takes nothing now; there is no such job.
        """
        validate_spec(spec)
        # A client that vanishes in the middle must not leave a job that is stored and that nobody looks after.
        return await self._supervisor.shield(self._admit(tenant, spec, idempotency_key, words), name="admission")

    async def check(self, tenant: Tenant, spec: JobSpec) -> None:
        """Check a spec as :meth:`submit` does, and create nothing.

        Raises:
            TiercelError: As there.
        """
        warm_node = warm_node_of(await self._warm_source(tenant, spec))
        await self._check_place(tenant, spec, may_queue=spec.queue, warm_node=warm_node)

    async def _admit(self, tenant: Tenant, spec: JobSpec, idempotency_key: str, words: str = "") -> Job:
        async with self._admission:
            if idempotency_key:
                known = await self._store.find_job(tenant.name, idempotency_key)
                if known is not None:
                    return await self.find_job(tenant.name, known.id)
            source = await self._warm_source(tenant, spec)
            warm_node = warm_node_of(source)
            spec = replace(spec, warm_start=source.id if source is not None else "")
            opened, place = await self._check_room(tenant, spec, may_queue=spec.queue, warm_node=warm_node)
            job, effects = job_machine.create(
                secrets.token_hex(4),
                tenant.name,
                spec,
                self._clock.now(),
                idempotency_key,
                queued=place.number if place is not None else 0,
                reason=place.words if place is not None else words,
                warm_node=warm_node,
            )
            return await self._begin(self._registry.make_job(job), job, effects, opened)

    async def _submit_again(self, repeated: Job, owner: str, known: Retraining, words: str) -> None:
        """Submit a job as a retraining, once; not for an endpoint that has forgotten it."""
        tenant = self._tenants(owner)
        if tenant is None:
            raise NotFoundError(f"tenant: there is no tenant {owner!r} any more", field="tenant")
        await self._supervisor.shield(self._admit_again(tenant, repeated, known, words), name="admission")

    async def _admit_again(self, tenant: Tenant, repeated: Job, known: Retraining, words: str) -> None:
        async with self._admission:
            actor = self.endpoints.taken(repeated.spec.endpoint)
            if actor is None or known not in actor.endpoint.retrainings or await self._store.get_job(known.job_id):
                return
            spec, retrains = retraining.again(repeated, known)
            warm_node = warm_node_of(await self._warm_source(tenant, spec))
            # Nothing else about the endpoint is set anew: its tenant may have changed it since.
            await self._check_place(tenant, spec, may_queue=False, warm_node=warm_node)
            now = self._clock.now()
            job, effects = job_machine.create(
                known.job_id, tenant.name, spec, now, reason=words, warm_node=warm_node, retrains=retrains
            )
            await self._begin(self._registry.make_job(job), job, effects, None)

    async def _warm_source(self, tenant: Tenant, spec: JobSpec) -> Job | None:
        """The job with whose weights a new one begins, if any."""
        if not spec.warm_start:
            return None
        try:
            return await self.find_job(tenant.name, spec.warm_start)
        except NotFoundError as error:
            raise NotFoundError(error.message.replace("job_id", "warm_start", 1), field="warm_start") from None

    async def find_job(self, tenant: str, job_id: str) -> Job:
        """The tenant's job; see :func:`.job_of`.

        Raises:
            NotFoundError: The tenant has no such job.
            InvalidSpecError: It is the beginning of several ids.
        """
        return await job_of(tenant, job_id, self._registry, self._store)

    async def jobs_of(
        self,
        tenant: str | None,
        *,
        active_only: bool,
        after: tuple[float, str] | None = None,
        newest_first: bool = False,
        limit: int = JOBS_AT_A_TIME,
    ) -> Sequence[Job]:
        """A page of a tenant's jobs, or (None) of all; see :meth:`~tiercel.broker.store.sql.Store.list_jobs`."""
        found = await self._store.list_jobs(
            tenant=tenant, active_only=active_only, after=after, newest_first=newest_first, limit=limit
        )
        # What is measured all the time is stored only with the job's next step.
        actors = self._registry.jobs
        return [actors[job.id].job if job.id in actors else job for job in found]

    def explained(self, job: Job) -> Job:
        """The job as its tenant is told; see :mod:`.explaining`."""
        return explained(job, self._registry)

    async def cancel(self, tenant: str, job_id: str) -> Job:
        """Ask a job to stop; returns it as it is once it has heard.

        Raises:
            NotFoundError: The tenant has no such job.
            OverloadedError: Too much is going on.
            CannotWriteError: The broker's disk takes nothing now; the job goes on.
            UnavailableError: It does not answer.
        """
        return await self._told(await self.find_job(tenant, job_id), CancelRequested())

    async def suspend(self, tenant: str, job_id: str) -> Job:
        """Have a job free what it holds and wait until it is resumed; returns it as it is once it has heard.

        Raises:
            InvalidSpecError: It is over.
            TiercelError: As :meth:`cancel`.
        """
        return await self._told(await self._find_open(tenant, job_id, "suspend"), SuspendRequested())

    async def set_priority(self, tenant: str, job_id: str, priority: int) -> Job:
        """Give a job another priority among its tenant's; returns it as it is once it has heard.

        Raises:
            InvalidSpecError: That is none, or the job is over.
            TiercelError: As :meth:`cancel`.
        """
        validate_priority(priority)
        return await self._told(await self._find_open(tenant, job_id, "put first"), PrioritySet(priority))

    async def _find_open(self, tenant: str, job_id: str, verb: str) -> Job:
        job = await self.find_job(tenant, job_id)
        if job.state.is_final:
            raise wrong_field("job_id", f"job {job_id!r} is {job.state.value}, so that there is nothing to {verb}")
        return job

    async def _told(self, job: Job, message: JobInput) -> Job:
        """A job once it has heard; one that is over hears nothing."""
        actor = self._registry.jobs.get(job.id)
        if actor is None:
            return job
        self._journal.check_writable()
        await actor.call(message)
        return actor.job

    async def resume(self, tenant: Tenant, job_id: str, max_epochs: int = 0) -> Job:
        """Let a job go on that is suspended or ended without all of its tiers; one that goes on already just does.

        Args:
            tenant: Who asks.
            job_id: The job.
            max_epochs: Epochs that it may train, those of earlier runs counted; 0 for as many as before.

        Raises:
            NotFoundError: The tenant has no such job.
            InvalidSpecError: Every tier of it is delivered, or no known node could run it any more.
            QuotaExceededError: The tenant has as many active jobs as it may.
            EndpointBusyError: Another active job feeds its endpoint.
        """
        return await self._supervisor.shield(
            self._resume(tenant, job_id, ResumeRequested(max_epochs)), name="admission"
        )

    async def _resume(self, tenant: Tenant, job_id: str, message: ResumeRequested) -> Job:
        async with self._admission:
            job = await self.find_job(tenant.name, job_id)
            if not job.state.is_final:
                return await self._told(job, message)
            check_resumable(job, self._registry.living_jobs())
            opened, _ = await self._check_room(tenant, job.spec, warm_node=job.warm_node if job.starts_warm else "")
            actor = self._registry.jobs.get(job.id)
            if actor is not None:  # its last delivery is still under way
                await actor.call(message)
                return actor.job
            progress = await self._store.load_progress(job.id, limit=MAX_OBSERVATIONS)
            actor = self._registry.make_job(job, observations_of(progress))
            return await self._begin(actor, *job_machine.handle(job, message, moment_of(self._clock)), opened)

    async def retry(self, tenant: Tenant, job_id: str, *, from_scratch: bool, idempotency_key: str = "") -> Job:
        """Start a job that is over again: from its last checkpoint, or (``from_scratch``) as a new job.

        What a job reports and delivers is of one training, by which it is judged and forecast. So one that begins anew
        is another job, whose label says which one it repeats.

        Raises:
            InvalidSpecError: It is not over.
            TiercelError: As :meth:`resume` and :meth:`submit`.
        """
        job = await self.find_job(tenant.name, job_id)
        if not job.state.is_final:
            then = f"'tiercel resume {job_id}' lets it go on" if job.suspended else "cancel it first"
            raise wrong_field("job_id", f"job {job_id!r} is {job.state.value} and not over; {then}")
        if not from_scratch:
            return await self.resume(tenant, job_id)
        spec = replace(job.spec, labels={**job.spec.labels, REPEATS_LABEL: job.id})
        return await self._supervisor.shield(self._admit(tenant, spec, idempotency_key), name="admission")

    async def _begin(self, actor: JobActor, job: Job, effects: Sequence[JobEffect], opened: Endpoint | None) -> Job:
        await actor.begin(job, effects, opened)
        if opened is not None:
            self._registry.start_endpoint(opened)
        self._registry.start_job(actor)
        return actor.job

    async def _check_room(
        self, tenant: Tenant, spec: JobSpec, *, may_queue: bool = False, warm_node: str = ""
    ) -> tuple[Endpoint | None, QueuePlace | None]:
        """Check that one more job may go on; returns the endpoint to be made for it, and its place in a queue."""
        actor, place = await self._check_place(tenant, spec, may_queue=may_queue, warm_node=warm_node)
        self._journal.check_writable()
        if place is not None:  # what it wants of the endpoint counts from its turn on
            return None, place
        return await self._open_endpoint(spec, tenant, actor), None

    async def _check_place(
        self, tenant: Tenant, spec: JobSpec, *, may_queue: bool, warm_node: str
    ) -> tuple[EndpointActor | None, QueuePlace | None]:
        """Check the same and change nothing; returns the endpoint that it feeds, if there is one, and its place."""
        jobs = self._registry.living_jobs()
        actor = self.endpoints.taken(spec.endpoint)
        endpoint = actor.endpoint if actor is not None else None
        if endpoint is None:
            self.endpoints.check_room(tenant.name)
        check_quota(tenant, jobs)
        check_class(tenant, spec)
        check_hours(tenant, spec, self._registry.uses.of(tenant.name), self._registry.uses.half_life)
        place = check_endpoint(tenant, spec, endpoint, jobs, may_queue=may_queue, now=self._clock.now())
        await check_secrets(self._store, tenant.name, spec.secrets)
        home = home_of(spec, endpoint, jobs, warm_node)
        check_feasible(spec, [node for node in self.nodes() if home in {"", node.id}])
        return actor, place

    def nodes(self) -> Sequence[Node]:
        """Every node, by id, and those that were removed and of which something is wanted still."""
        return [actor.node for _, actor in sorted(self._registry.nodes.items()) if actor.is_listed]

    def is_own(self, node_id: str) -> bool:
        """Whether an agent on this machine has spoken for a node of that name, however it is spelt."""
        name = node_id.lower()
        return any(actor.is_local and known.lower() == name for known, actor in self._registry.nodes.items())

    def accelerators_of(self, node_id: str) -> Mapping[str, AcceleratorStatus]:
        """How a node's accelerators are, by id, as its agent said last."""
        return self._registry.nodes[node_id].accelerators if node_id in self._registry.nodes else {}

    def node_disks(self) -> tuple[NodeDisk, ...]:
        """What takes room on nodes, by id, as far as their agents have said."""
        disks = [actor.disk for _, actor in sorted(self._registry.nodes.items())]
        return tuple(disk for disk in disks if disk is not None)

    def jobs_on(self, node_id: str) -> Sequence[Job]:
        """Jobs that hold something of a node, of all tenants."""
        jobs = [actor.job for actor in self._registry.jobs.values() if actor.job.run_active]
        return [job for job in jobs if job.node_id == node_id or job.is_going_to(node_id)]

    @asynccontextmanager
    async def undisturbed(self, job_id: str) -> AsyncIterator[bool]:
        """Whether a job is over, which it stays inside: nobody resumes it."""
        async with self._admission:
            yield job_id not in self._registry.jobs

    def needed_jobs(self) -> set[str]:
        """The jobs that something refers to: a version that answers or may be chosen, or a job that lives."""
        endpoints = [actor.endpoint for actor in self._registry.endpoints.values()]
        found = {version.job_id for each in endpoints for version in (*each.live, *versions.kept(each))}
        living = self._registry.living_jobs()
        return found | {job.id for job in living} | {job.spec.warm_start for job in living}

    def living_projects(self, tenant: str) -> set[str]:
        """The projects that a tenant's jobs run from which something can still happen to."""
        specs = [job.spec for job in self._registry.living_jobs() if job.tenant == tenant]
        return {spec.project.sha256 for spec in specs if spec.project is not None}

    async def _open_endpoint(self, spec: JobSpec, tenant: Tenant, known: EndpointActor | None) -> Endpoint | None:
        """Give a known endpoint the objective that a new job wants; returns one that is to be made, or None."""
        terms = TermsSet.of(spec)
        if known is None:  # one that takes the name of an earlier one counts its versions on
            before = self._registry.endpoints.get(spec.endpoint)
            earlier = before.endpoint if before is not None else Endpoint(spec.endpoint, tenant.name)
            access = spec.access or EndpointAccess.TENANT
            opened = replace(earlier, tenant=tenant.name, objective_seconds=None, access=access)
            return terms.applied_to(opened)
        if terms.applied_to(known.endpoint) != known.endpoint:
            await known.call(terms)
        if spec.access is not None and spec.access is not known.endpoint.access:
            await known.call(AccessSet(spec.access))
        return None
