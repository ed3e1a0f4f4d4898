"""The life of the broker: what was under way when it stopped goes on, and time passes."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tiercel.broker.actors.endpoint_messages import NodesChanged
from tiercel.broker.actors.job import MAX_OBSERVATIONS, observations_of
from tiercel.broker.actors.job_pages import load_unfinished_jobs
from tiercel.broker.actors.mailbox import send, send_latest
from tiercel.broker.actors.node_messages import NodeTicked
from tiercel.broker.actors.scheduler_messages import RunsRemembered, SchedulerTicked
from tiercel.broker.lifecycle.checkpoints import with_what_is_held
from tiercel.broker.lifecycle.job_events import Ticked
from tiercel.core.errors import UnavailableError
from tiercel.core.events import EndpointEvent, JobChange, JobEvent, ShareChanged, StateChanged, TierChanged
from tiercel.core.jobs import TierState
from tiercel.core.run_records import RUNS_KEPT_PER_WORKLOAD, WORKLOADS_KEPT

if TYPE_CHECKING:
    from tiercel.broker.actors.clock import Clock
    from tiercel.broker.actors.journal import Journal
    from tiercel.broker.actors.registry import ActorRegistry
    from tiercel.broker.actors.supervisor import Supervisor
    from tiercel.broker.store.checkpoints import CheckpointStore
    from tiercel.broker.store.sql import Store
    from tiercel.broker.store.version_files import VersionStore
    from tiercel.core.endpoints import Endpoint
    from tiercel.core.jobs import Job

logger = logging.getLogger(__name__)

TICK_SECONDS = 0.5
PRUNE_SECONDS = 600.0
# For how long nodes may go on to send what the broker's last life took in a part of.
LEFT_SECONDS = 600.0
# Of each job; older ones are dropped.
KEPT_PROGRESS_EVENTS = 2_000
KEPT_DECISIONS = 500


class BrokerLife:
    """Starts the actors with what is stored, and tells them that time passes.

    Args:
        checkpoints: Checkpoints of jobs that are moved.
        versions: Files of versions that several nodes are to have.
    """

    def __init__(
        self,
        store: Store,
        journal: Journal,
        registry: ActorRegistry,
        supervisor: Supervisor,
        clock: Clock,
        checkpoints: CheckpointStore,
        versions: VersionStore,
    ) -> None:
        self._store = store
        self._journal = journal
        self._registry = registry
        self._supervisor = supervisor
        self._clock = clock
        self._checkpoints = checkpoints
        self._versions = versions

    async def start(self) -> None:
        """Continue everything that was under way when the broker stopped, and let time pass."""
        self._supervisor.start(self._registry.scheduler.run(), name=self._registry.scheduler.name)
        await self._recover()
        self._supervisor.start(self._run_clock(), name="clock")
        self._supervisor.start(keep_pruned(self._store, self._clock), name="pruning")
        self._supervisor.start(self._drop_left_over(), name="leftovers")

    async def _recover(self) -> None:
        send(self._registry.scheduler, RunsRemembered(tuple(await self._store.load_run_records())))
        self._registry.uses.load(await self._store.load_uses())
        deliveries = await self._store.load_deliveries()
        for endpoint in await self._store.load_endpoints():
            own = [delivery for delivery in deliveries if delivery.endpoint == endpoint.name]
            self._registry.start_endpoint(endpoint, own)
            if endpoint.coming:  # files that were being deployed
                send(self._registry.endpoints[endpoint.name], NodesChanged())
            for news in endpoint_as_it_is(endpoint, self._clock.now()):
                self._journal.announce_nowait(news)
        for stored in await load_unfinished_jobs(self._store):
            job = self._with_copy_that_is_there(stored)
            progress = await self._store.load_progress(job.id, limit=MAX_OBSERVATIONS)
            actor = self._registry.make_job(job, observations_of(progress))
            self._registry.jobs[job.id] = actor
            for event in job_as_it_is(job, self._journal.sequence, self._clock.now()):
                self._journal.announce_nowait(event)
            # Before its task starts: nothing else may touch it meanwhile.
            await actor.resume()
            self._registry.start_job(actor)
        jobs = [actor.job for actor in self._registry.jobs.values()]
        self._checkpoints.keep_only({job.id for job in jobs if job.carried_run or job.is_leaving or job.copy})
        self._versions.keep_endpoints(self._registry.endpoints)
        # A node that connects must at once be told everything that is wanted of it: what it is not told of, it stops.
        for endpoint_actor in list(self._registry.endpoints.values()):
            await endpoint_actor.wait_idle()
        for node_actor in list(self._registry.nodes.values()):
            await node_actor.wait_idle()

    def _with_copy_that_is_there(self, job: Job) -> Job:
        """The job as what is on the disk lets it go on."""
        held = self._checkpoints.find_of_job(job.id)
        return with_what_is_held(job, held.run_id if held is not None else "", has_store=self._registry.has_store)

    async def _drop_left_over(self) -> None:
        await self._clock.sleep(LEFT_SECONDS)
        self._checkpoints.drop_left_over()
        self._versions.drop_left_over()

    async def _run_clock(self) -> None:
        while True:
            await self._clock.sleep(TICK_SECONDS)
            if not self._journal.is_writable:
                # What nodes and runs say may wait for the disk: the silence is the broker's, and does not count.
                continue
            self._clock.tick()
            for job in self._registry.jobs.values():
                send_latest(job, Ticked(), Ticked())
            for node in self._registry.nodes.values():
                send_latest(node, NodeTicked(), NodeTicked())
            self._registry.let_queues_move()
            self._registry.look_after_replicas()
            send_latest(self._registry.scheduler, SchedulerTicked(), SchedulerTicked())


async def keep_pruned(store: Store, clock: Clock) -> None:
    """Bound the history in the store, until cancelled."""
    while True:
        try:
            await store.prune_events(KEPT_PROGRESS_EVENTS)
            await store.prune_decisions(KEPT_DECISIONS)
            await store.prune_run_records(RUNS_KEPT_PER_WORKLOAD, WORKLOADS_KEPT)
        except UnavailableError as error:  # whoever has something to store will say so as well
            logger.warning("old events cannot be dropped: %s", error.message)
        await clock.sleep(PRUNE_SECONDS)


def job_as_it_is(job: Job, sequence: int, now: float) -> list[JobEvent]:
    """A job's state, what became of its tiers, and its share.

    Args:
        job: The job.
        sequence: Number of the newest event there is; these are not new.
        now: Seconds since the Unix epoch.
    """
    changes: list[JobChange] = [StateChanged(job.state, job.reason)]
    changes += [TierChanged(tier) for tier in job.tiers if tier.state is not TierState.PENDING]
    if job.share is not None:
        changes.append(ShareChanged(job.node_id, job.share))
    return [JobEvent(sequence, job.id, job.tenant, now, change) for change in changes]


def endpoint_as_it_is(endpoint: Endpoint, now: float) -> list[EndpointEvent]:
    """The versions that an endpoint answers with, one of each variant; ``now`` in seconds since the Unix epoch."""
    return [EndpointEvent(endpoint.name, endpoint.tenant, now, version) for version in endpoint.live]
