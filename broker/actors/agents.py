"""What agents ask of the broker and tell it: each is believed of the runs that its node has, and of no others."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tiercel.broker.actors.endpoint_states import EndpointsMeasured, load_of
from tiercel.broker.actors.mailbox import send, send_latest
from tiercel.broker.actors.node import NodeActor
from tiercel.broker.actors.node_messages import NodeConnected, StreamEnded
from tiercel.broker.lifecycle.job_events import JobInput, UsageMeasured
from tiercel.core.endpoints import deployed_endpoint, job_of_delivery
from tiercel.core.errors import NotAuthenticatedError, NotFoundError, UnavailableError
from tiercel.core.events import EndpointMeasured
from tiercel.core.nodes import Node

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tiercel.broker.actors.clock import Clock
    from tiercel.broker.actors.endpoint_messages import DeliveryReported
    from tiercel.broker.actors.job import JobActor
    from tiercel.broker.actors.journal import Journal
    from tiercel.broker.actors.registry import ActorRegistry
    from tiercel.broker.lifecycle.node import Fence
    from tiercel.broker.lifecycle.versions import VersionFiles
    from tiercel.core.endpoint_access import KeyUse
    from tiercel.core.endpoints import EndpointUsage
    from tiercel.core.jobs import Job


class AgentService:
    """What agents ask for and tell, done by the actors."""

    def __init__(self, journal: Journal, registry: ActorRegistry, clock: Clock) -> None:
        self._journal = journal
        self._registry = registry
        self._clock = clock

    async def connect_node(
        self, node: Node, runs: frozenset[str], instance: str, *, fenced: bool = False, is_local: bool = True
    ) -> tuple[NodeActor, int]:
        """An agent opened a stream for a node; returns the node's actor and the new lease epoch.

        Args:
            node: What the agent says of the node.
            runs: The runs that it knows of.
            instance: Which agent it is, in which of its lives.
            fenced: Whether it keeps a fence.
            is_local: Whether it is on the broker's machine.

        Raises:
            NodeTakenError: Another agent speaks for the node now.
            UnavailableError: The node's actor does not answer.
        """
        actor = self._registry.open_node(node.id)
        epoch: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        await actor.call(NodeConnected(node, runs, instance, fenced, epoch, is_local))
        return actor, epoch.result()

    def end_stream(self, actor: NodeActor, lease_epoch: int) -> None:
        """The stream of a node's lease epoch is over."""
        send(actor, StreamEnded(lease_epoch))

    def measure_keys(self, node_id: str, uses: Sequence[KeyUse]) -> None:
        """What came with keys of endpoints on a node lately."""
        self._registry.note_key_uses(node_id, uses)

    def fence(self) -> Fence | None:
        """How long agents may go without us now; None for however long it takes."""
        return self._registry.fence()

    def check_agent(self, node_id: str, instance: str) -> None:
        """Let only the agent that speaks for a node act for it.

        Raises:
            NotAuthenticatedError: It is another one.
            UnavailableError: None has connected since the broker began.
        """
        actor = self._registry.nodes.get(node_id)
        if actor is None:
            raise UnavailableError(f"node {node_id} has not connected; try again later")
        if not actor.is_instance(instance):
            raise NotAuthenticatedError(f"another agent speaks for node {node_id}; connect first", field="instance")

    def reports_of(self, node_id: str, run_ids: Iterable[str]) -> dict[str, int]:
        """Of those runs that are the node's: the sequence of the last report that is durable, 0 for none."""
        return {
            run_id: actor.job.last_sequence
            for run_id in run_ids
            if (actor := self._job_on(node_id, run_id)) is not None
        }

    def has_run(self, node_id: str, run_id: str) -> bool:
        """Whether a node's word on a run counts: it is the present run of its job, and there."""
        return self._job_on(node_id, run_id) is not None

    def is_elsewhere(self, node_id: str, run_id: str) -> bool:
        """Whether this is the present run of a job, and on another node."""
        actor = self._registry.job_of(run_id)
        return actor is not None and actor.job.run_id == run_id and actor.job.node_id not in {"", node_id}

    async def deliver_to_job(
        self, node_id: str, run_id: str, message: JobInput, handled: Callable[[], None] | None = None
    ) -> bool:
        """Pass on what a node says of a run, waiting for room in the job's mailbox.

        Args:
            node_id: Who says it.
            run_id: The run.
            message: What is said.
            handled: Called once the job has taken it in for good, or never will.

        Returns:
            Whether it was passed on: not if the run is not the node's.
        """
        actor = self._job_on(node_id, run_id)
        if actor is None:
            if handled is not None:
                handled()
            return False
        await actor.send(message, handled)
        return True

    def measure_run(self, node_id: str, measured: UsageMeasured) -> bool:
        """Pass on what a node measured of a run, in place of an earlier measurement that still waits; never waits.

        Returns:
            Whether it was passed on: not if the run is not the node's.
        """
        actor = self._job_on(node_id, measured.run_id)
        if actor is not None:
            send_latest(actor, UsageMeasured, measured)
        return actor is not None

    def _job_on(self, node_id: str, run_id: str) -> JobActor | None:
        """The job whose present run this is, if it is on this node."""
        actor = self._registry.job_of(run_id)
        return actor if actor is not None and (actor.job.node_id, actor.job.run_id) == (node_id, run_id) else None

    def measure_endpoints(
        self, node_id: str, usages: tuple[EndpointUsage, ...], lag_seconds: float | None = None
    ) -> None:
        """Show the scheduler, and whoever listens, what a node's inference server counted lately.

        Args:
            node_id: The node.
            usages: What requests took, by endpoint; those that nobody asked anything are not listed.
            lag_seconds: By how much the server's event loop came late, or None.
        """
        usages = tuple(usage for usage in usages if usage.endpoint in self._registry.endpoints)
        send(self._registry.scheduler, EndpointsMeasured(node_id, usages, lag_seconds, self._clock.alive()))
        now = self._clock.now()
        for usage in usages:
            actor = self._registry.endpoints.get(usage.endpoint)
            if actor is not None and usage.feedback:
                self._registry.feedback.note(actor.endpoint, node_id, usage.feedback)
            if actor is not None and usage.inputs:
                self._registry.inputs.note(actor.endpoint, node_id, usage.inputs)
            if actor is not None and actor.endpoint.node_id == node_id:
                known = actor.endpoint
                load = load_of(usage, lag_seconds)
                said = tuple(self._registry.feedback.of(known.name).values())
                news = EndpointMeasured(known.name, known.tenant, now, node_id, known.objective_seconds, load, said)
                self._journal.announce_nowait(news)

    async def deliver_to_endpoint(self, message: DeliveryReported) -> None:
        """Pass on what a node says of a delivery, or let the node forget a delivery that nobody knows."""
        name = deployed_endpoint(message.delivery_id)
        if not name and (job := self._registry.jobs.get(job_of_delivery(message.delivery_id))) is not None:
            name = job.job.spec.endpoint
        if name in self._registry.endpoints:
            await self._registry.endpoints[name].send(message)
        else:
            self._registry.withdraw_delivery(message.node_id, message.delivery_id)

    def expects_checkpoint(self, node_id: str, run_id: str) -> bool:
        """Whether the checkpoint of a run of the node is wanted: it leaves, or its job asks for copies."""
        actor = self._job_on(node_id, run_id)
        return actor is not None and (actor.job.is_leaving or _keeps_copies(actor.job))

    def needs_checkpoint(self, run_id: str) -> bool:
        """Whether a job may go on from the checkpoint of a run: it leaves, goes on already, or asks for copies."""
        actor = self._registry.job_of(run_id)
        if actor is None:
            return False
        job = actor.job
        wanted = job.run_id == run_id and (job.is_leaving or _keeps_copies(job))
        return wanted or job.carried_run == run_id

    def wanted_of_version(self, node_id: str, endpoint: str, version: int, *, sends: bool) -> VersionFiles:
        """What a node shall fetch of a version, or (``sends``) send.

        Raises:
            NotFoundError: It shall not.
        """
        node = self._registry.nodes.get(node_id)
        models = node.models_of(endpoint) if node is not None else ()
        found = [files for model in models for files in (model.sends if sends else model.copies)]
        if node is not None and not sends:
            found += node.deployed_files(endpoint)
        for files in found:
            if files.version == version:
                return files
        raise NotFoundError(
            f"version: nothing is wanted of this node of {endpoint!r} version {version}", field="version"
        )

    def look_after_replicas(self) -> None:
        """Have endpoints look whether they answer where they shall: something was taken in for them."""
        self._registry.look_after_replicas()

    def carried_run_of(self, node_id: str, run_id: str) -> str:
        """The earlier run from whose checkpoint a run of the node goes on, or empty."""
        actor = self._job_on(node_id, run_id)
        return actor.job.carried_run if actor is not None and actor.job.run_active else ""

    def secrets_of(self, node_id: str, run_id: str) -> tuple[str, tuple[str, ...]]:
        """The tenant of a run that the node is about to start, and the names of the secrets that it asks for.

        Raises:
            NotFoundError: The node has no such run, or was asked to stop it.
        """
        actor = self._job_on(node_id, run_id)
        if actor is None or not actor.job.run_active or actor.job.stop_outcome is not None:
            raise NotFoundError(f"run_id: no run {run_id!r} is to start on this node", field="run_id")
        return actor.job.tenant, actor.job.spec.secrets

    def now(self) -> float:
        """Seconds since the Unix epoch."""
        return self._clock.now()

    def job_of(self, node_id: str, run_id: str) -> Job:
        """The job whose present run this is.

        Raises:
            NotFoundError: The run is not the node's.
        """
        actor = self._job_on(node_id, run_id)
        if actor is None:
            raise NotFoundError(f"run_id: run {run_id!r} is not of this node", field="run_id")
        return actor.job

    def script_of(self, node_id: str, run_id: str) -> bytes:
        """The content of the script of a run that the node shall have.

        Raises:
            NotFoundError: The node has no such run, or the run no script.
        """
        actor = self._job_on(node_id, run_id)
        script = actor.job.spec.script if actor is not None and actor.job.run_active else None
        if script is None:
            raise NotFoundError(f"run_id: there is no script for run {run_id!r} of this node", field="run_id")
        return script.content

    def project_owner(self, node_id: str, run_id: str) -> str:
        """The tenant whose project a run of the node starts from.

        Raises:
            NotFoundError: The node has no such run, or the run no project.
        """
        actor = self._job_on(node_id, run_id)
        if actor is None or not actor.job.run_active or actor.job.spec.project is None:
            raise NotFoundError(f"run_id: there is no project for run {run_id!r} of this node", field="run_id")
        return actor.job.tenant


def _keeps_copies(job: Job) -> bool:
    """Whether a copy of its newest checkpoint may be of use to it."""
    return job.spec.copy_checkpoint_seconds is not None and not job.state.is_final and not job.carried_run
