"""What actors may say to each other; :mod:`.registry` connects them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from tiercel.broker.actors.endpoint_states import Counted
    from tiercel.broker.lifecycle.job_events import JobInput
    from tiercel.broker.lifecycle.serving_node import ServingNode
    from tiercel.broker.lifecycle.versions import WantedModel
    from tiercel.broker.scheduling.interface import EndpointView, JobView, NodeView
    from tiercel.core.endpoint_access import AccessTable
    from tiercel.core.endpoints import DelayWindow, Delivery, Endpoint
    from tiercel.core.jobs import Direction, Job, TierStatus
    from tiercel.core.routes import Routes
    from tiercel.core.run_records import RunRecord
    from tiercel.core.tenant_use import TenantUse


@dataclass(frozen=True, slots=True)
class WantedRun:
    """A run that a node shall have."""

    job: Job  # its job as it is
    script_sha256: str = field(init=False)  # of the content of the job's script, hexadecimal; empty where it has none

    def __post_init__(self) -> None:
        script = self.job.spec.script
        digest = hashlib.sha256(script.content).hexdigest() if script is not None else ""
        object.__setattr__(self, "script_sha256", digest)

    @property
    def stop(self) -> bool:
        """Whether the node shall end it."""
        return self.job.stop_outcome is not None or self.job.is_leaving

    @property
    def finish(self) -> bool:
        """Whether its training shall end as it would after its last epoch."""
        return self.job.run is not None and self.job.run.finishing_from is not None

    @property
    def run_id(self) -> str:
        """The run."""
        return self.job.run_id


@dataclass(frozen=True, slots=True)
class WantedDelivery:
    """A delivery that a node shall carry out, from the run that has the model or, without any, with a deployed file."""

    delivery: Delivery
    run_id: str
    metric: str
    direction: Direction


class Peers(Protocol):
    """The other actors, as one of them sees them.

    Nothing here waits. Everything here may raise ActorFailedError: the other one is stuck, and what follows from a
    change that is durable already would be lost.
    """

    def send_to_job(self, job_id: str, message: JobInput) -> None:
        """Tell a job; a job that is over is not told."""

    def request_delivery(self, job: Job, tier: TierStatus) -> None:
        """Ask the job's endpoint to have the tier's model delivered from where the job is now."""

    def abandon_delivery(self, job: Job, tier: TierStatus, reason: str) -> None:
        """Tell the job's endpoint that nobody can deliver the tier's model any more."""

    def declare_run(self, run: WantedRun) -> None:
        """Tell the run's node what is wanted."""

    def withdraw_run(self, node_id: str, run_id: str) -> None:
        """Tell the node that the run is no longer wanted."""

    def declare_delivery(self, node_id: str, wanted: WantedDelivery) -> None:
        """Tell the node to carry out a delivery."""

    def withdraw_delivery(self, node_id: str, delivery_id: str) -> None:
        """Tell the node that it may forget a delivery."""

    def declare_models(self, node_id: str, endpoint: str, models: tuple[WantedModel, ...]) -> None:
        """Tell a node which versions of an endpoint shall answer there; endpoints that are not named stay as they are.

        Args:
            node_id: The node.
            endpoint: The endpoint.
            models: One for each of its variants.
        """

    def show_access(self, endpoint: Endpoint) -> None:
        """Tell all nodes who may ask an endpoint, where that is another than before."""

    def access(self, node_id: str) -> AccessTable:
        """Who may ask what, for one node; the same object for as long as that is the same."""

    def find_routes(self) -> None:
        """Have it found out again who answers for which endpoint, and all nodes told where that has changed."""

    def routes(self) -> Routes | None:
        """Who answers for which endpoint; None until all have been heard who may."""

    def answered_elsewhere(self, node_id: str) -> frozenset[str]:
        """The endpoints that may stop to answer on a node, as all others know who does in its place."""

    def joined(self) -> Collection[str]:
        """The names by which machines have joined that were not removed since; none beside the broker ever does."""

    def serving_nodes(self, endpoint: str) -> Mapping[str, ServingNode]:
        """What each node is to an endpoint, by name."""

    def counted(self, endpoint: str) -> Mapping[str, Counted]:
        """What nodes have counted of an endpoint since the broker began, by name."""

    def look_after_replicas(self) -> None:
        """Have endpoints that answer on several nodes look whether that is as it shall be."""

    @property
    def has_store(self) -> bool:
        """Whether there is an artefact store."""

    def answers_on(self, node_id: str, endpoint: str) -> int:
        """The version of an endpoint without variants that answers on a node; 0 for none, or while it is offline."""

    def held_files(self, endpoint: str, *, arriving: bool = False) -> Mapping[int, str]:
        """SHA-256 of the versions of an endpoint whose files the broker holds (``arriving``: or is sent), by number."""

    def delays(self, endpoint: str) -> DelayWindow | None:
        """How long the answers of an endpoint took in the longest window that is measured; None while nothing is."""

    def keep_files(self, endpoint: str, versions: Collection[int]) -> None:
        """Remove the files that the broker holds of other versions of an endpoint."""

    def served_version(self, endpoint: str) -> int:
        """The highest version of an endpoint that answers on any node, as that says; 0 for none."""

    def observe_job(
        self,
        job_id: str,
        view: JobView | None,
        attempts: int,
        *,
        leaving: str = "",
        leaving_accelerators: tuple[str, ...] = (),
    ) -> None:
        """Show the scheduler a job as it is now, or (None) that it needs nothing of any node.

        Args:
            job_id: The job.
            view: What a policy may see of it.
            attempts: Number of its latest run.
            leaving: While it is moved: the node that it leaves, and where it still holds what it was given.
            leaving_accelerators: Ids of the accelerators that it still holds there.
        """

    def refuse_move(self, job_id: str) -> None:
        """Tell the scheduler that the job cannot be moved now."""

    def drop_checkpoint(self, job_id: str) -> None:
        """Remove the checkpoint that the broker may hold for the job."""

    def remember_run(self, record: RunRecord) -> None:
        """Show the scheduler what became of a job, for the next one that trains the same thing."""

    def remember_starts(self, workload: str, job: Job) -> None:
        """Show the scheduler what the job's runs took to get to work."""

    def count_use(self, tenant: str, core_seconds: float, accelerator_seconds: float) -> TenantUse:
        """Count what a tenant's job has used; less than nothing takes back what did not become durable."""

    def begin_job(self, job: Job) -> None:
        """Look after a job that was made with the end of another one, and is durable."""

    def retire_job(self, job_id: str) -> None:
        """Let the actor of a job that is over end."""

    def observe_node(self, node_id: str, view: NodeView | None) -> None:
        """Show the scheduler a node, or (None) that it is offline."""

    def observe_endpoint(self, name: str, view: EndpointView | None, copies: tuple[EndpointView, ...] = ()) -> None:
        """Show the scheduler an endpoint on its home and on other nodes, or (None) that no version of it is live."""

    def reschedule(self, trigger: str) -> None:
        """Have the scheduler look at once."""
