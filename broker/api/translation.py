"""What tenants are told of jobs and nodes, from what the broker knows of them; decides nothing."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from tiercel.broker.actors.node_messages import AcceleratorStatus
from tiercel.core.errors import wrong_field
from tiercel.core.jobs import JobSpec, without_script_text
from tiercel.core.views import AcceleratorInfo, JobInfo, NodeInfo
from tiercel.core.wire import from_proto, to_proto
from tiercel.v1 import common_pb2, jobs_pb2

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tiercel.core.jobs import Job
    from tiercel.core.nodes import Accelerator, Node
    from tiercel.core.shares import AcceleratorShare


def spec_from_proto(message: common_pb2.JobSpec) -> JobSpec:
    """A spec with its defaults filled in.

    Raises:
        InvalidSpecError: The direction is missing or unknown.
    """
    if message.direction not in {common_pb2.DIRECTION_MAX, common_pb2.DIRECTION_MIN}:
        raise wrong_field(
            "direction", "is missing; say 'max' when a larger metric is better and 'min' when a smaller one is"
        )
    spec = from_proto(JobSpec, message)
    return replace(spec, name=spec.name or spec.endpoint, runtime=spec.runtime or ("docker" if spec.image else ""))


def job_to_proto(job: Job) -> jobs_pb2.Job:
    """A job as its tenant sees it, without its script's text."""

    def since(at: float | None) -> float | None:
        return None if at is None else max(0.0, at - job.submitted_at)

    info = JobInfo(
        id=job.id,
        tenant=job.tenant,
        spec=without_script_text(job.spec),
        state=job.state,
        reason=job.reason,
        submitted_at=datetime.fromtimestamp(job.submitted_at, UTC),
        started_seconds=since(job.started_at),
        finished_seconds=since(job.finished_at),
        tiers=job.tiers,
        epoch=job.epoch,
        latest_value=job.latest_value,
        best_value=job.best_value,
        node_id=job.node_id,
        share=job.share,
        cpu_seconds=job.cpu_seconds,
        accelerator_seconds=job.accelerator_seconds,
        attempts=job.attempts,
        log_tail=job.log_tail,
        retries=job.retries,
        starts=job.starts,
        checkpoint_copied_seconds=since(job.copy.at) if job.copy is not None else None,
        checkpoint_stored_seconds=since(job.stored.at) if job.stored is not None else None,
        checkpoint_store_problem=job.store_problem,
    )
    return to_proto(info, jobs_pb2.Job)


def node_to_proto(node: Node, jobs: Sequence[Job], heard: Mapping[str, AcceleratorStatus]) -> jobs_pb2.Node:
    """A node as tenants see it.

    Args:
        node: The node.
        jobs: Those that hold something of it.
        heard: How its accelerators are, by id; one that is missing is not known about.
    """
    info = NodeInfo(
        id=node.id,
        online=node.online,
        cpu_cores=node.cpu_cores,
        memory_bytes=node.memory_bytes,
        memory_reserved_bytes=sum(job.spec.resources.memory_bytes for job in jobs),
        jobs=len(jobs),
        runtimes=node.runtimes,
        limits=node.limits,
        serving_http=node.serving_http,
        serving_grpc=node.serving_grpc,
        lease_epoch=node.lease_epoch,
        accelerators=tuple(_accelerator_info(each, jobs, heard) for each in node.accelerators),
        data=node.data,
        labels=node.labels,
        drain=node.drain,
    )
    message = to_proto(info, jobs_pb2.Node)
    message.state = jobs_pb2.NODE_STATE_ONLINE if node.online else jobs_pb2.NODE_STATE_OFFLINE
    return message


def _accelerator_info(
    accelerator: Accelerator, jobs: Iterable[Job], heard: Mapping[str, AcceleratorStatus]
) -> AcceleratorInfo:
    held = [share for job in jobs for share in _accelerator_shares(job) if share.id == accelerator.id]
    now = heard.get(accelerator.id, AcceleratorStatus(accelerator.id))
    return AcceleratorInfo(
        id=accelerator.id,
        name=accelerator.name,
        memory_bytes=accelerator.memory_bytes,
        memory_reserved_bytes=sum(share.memory_bytes for share in held),
        memory_used_bytes=now.memory_used_bytes,
        utilisation=now.utilisation,
        jobs=len(held),
        problem=accelerator.problem,
    )


def _accelerator_shares(job: Job) -> tuple[AcceleratorShare, ...]:
    """What a job holds of accelerators, wherever: a job that is being moved holds some of two nodes."""
    here = job.share.accelerators if job.share is not None else ()
    there = job.moving_to.share.accelerators if job.moving_to is not None else ()
    return here + there
