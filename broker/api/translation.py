"""Between the wire's messages and the broker's words; decides nothing."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from google.protobuf.timestamp_pb2 import Timestamp

from tiercel.broker.api.accelerators import accelerator_to_wire
from tiercel.core.errors import InvalidSpecError
from tiercel.core.events import ProgressMade, ShareChanged, StateChanged, TierChanged
from tiercel.core.jobs import (
    DEFAULT_MAX_EPOCHS,
    DEFAULT_REPORT_TIMEOUT_SECONDS,
    Direction,
    Job,
    JobSpec,
    JobState,
    Resources,
    Script,
    Shipping,
    Tier,
    TierState,
)
from tiercel.v1 import common_pb2, jobs_pb2

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tiercel.broker.actors.node import AcceleratorHeard
    from tiercel.core.events import Decision, JobEvent
    from tiercel.core.jobs import TierStatus
    from tiercel.core.nodes import Node
    from tiercel.core.shares import Share

_DIRECTIONS = {common_pb2.DIRECTION_MAX: Direction.MAX, common_pb2.DIRECTION_MIN: Direction.MIN}
_DIRECTIONS_TO_WIRE = {direction: number for number, direction in _DIRECTIONS.items()}
_JOB_STATES = {state: jobs_pb2.JobState.Value(f"JOB_STATE_{state.name}") for state in JobState}
_TIER_STATES = {state: jobs_pb2.TierState.Value(f"TIER_STATE_{state.name}") for state in TierState}


def timestamp(seconds: float) -> Timestamp:
    """Seconds since the Unix epoch as the wire has them."""
    stamp = Timestamp()
    stamp.FromDatetime(datetime.fromtimestamp(seconds, UTC))
    return stamp


def seconds_of(stamp: Timestamp) -> float:
    """The wire's time as seconds since the Unix epoch."""
    return stamp.seconds + stamp.nanos / 1e9


def direction_to_wire(direction: Direction) -> common_pb2.Direction.ValueType:
    """A direction as the wire has it."""
    return _DIRECTIONS_TO_WIRE[direction]


def spec_from_wire(message: common_pb2.JobSpec) -> JobSpec:
    """A spec with its defaults filled in.

    Raises:
        InvalidSpecError: The direction is missing or unknown.
    """
    direction = _DIRECTIONS.get(message.direction)
    if direction is None:
        raise InvalidSpecError(
            "direction: is missing; say 'max' when a larger metric is better and 'min' when a smaller one is",
            field="direction",
        )
    script = Script(message.script.name, message.script.content) if message.HasField("script") else None
    defaults = Resources()
    return JobSpec(
        name=message.name or message.endpoint,
        endpoint=message.endpoint,
        metric=message.metric,
        direction=direction,
        tiers=tuple(Tier(tier.target, tier.value or 1.0, tier.deadline_seconds or None) for tier in message.tiers),
        script=script,
        module=message.module,
        image=message.image,
        arguments=tuple(message.arguments),
        resources=Resources(
            message.resources.cpu_cores or defaults.cpu_cores,
            message.resources.memory_bytes or defaults.memory_bytes,
            message.resources.accelerators,
            message.resources.accelerator_memory_bytes,
        ),
        # An image asks for the one runtime that can use it.
        runtime=message.runtime or ("docker" if message.image else ""),
        max_epochs=message.max_epochs or DEFAULT_MAX_EPOCHS,
        report_timeout_seconds=message.report_timeout_seconds or DEFAULT_REPORT_TIMEOUT_SECONDS,
        continue_after_last_tier=message.continue_after_last_tier,
        endpoint_objective_seconds=message.endpoint_objective_seconds or None,
        variant=message.variant,
        replace=message.replace,
        retries=message.retries,
        ship=Shipping(message.ship.only_tiers, message.ship.every or None, message.ship.best_every_seconds or None),
    )


def shipping_to_wire(ship: Shipping) -> common_pb2.Shipping:
    """What a job delivers beyond its tiers, as the wire has it."""
    return common_pb2.Shipping(
        only_tiers=ship.only_tiers, every=ship.every or 0.0, best_every_seconds=ship.best_every_seconds or 0.0
    )


def spec_to_wire(spec: JobSpec, *, script_text: bool = True) -> common_pb2.JobSpec:
    """A spec as the wire has it; only nodes need the script's text."""
    message = common_pb2.JobSpec(
        name=spec.name,
        endpoint=spec.endpoint,
        image=spec.image,
        arguments=spec.arguments,
        metric=spec.metric,
        direction=direction_to_wire(spec.direction),
        tiers=[tier_to_wire(tier) for tier in spec.tiers],
        resources=common_pb2.Resources(
            cpu_cores=spec.resources.cpu_cores,
            memory_bytes=spec.resources.memory_bytes,
            accelerators=spec.resources.accelerators,
            accelerator_memory_bytes=spec.resources.accelerator_memory_bytes,
        ),
        runtime=spec.runtime,
        max_epochs=spec.max_epochs,
        report_timeout_seconds=spec.report_timeout_seconds,
        continue_after_last_tier=spec.continue_after_last_tier,
        endpoint_objective_seconds=spec.endpoint_objective_seconds or 0.0,
        variant=spec.variant,
        replace=spec.replace,
        retries=spec.retries,
        ship=shipping_to_wire(spec.ship),
    )
    if spec.script is not None:
        content = spec.script.content if script_text else b""
        message.script.CopyFrom(common_pb2.Script(name=spec.script.name, content=content))
    elif spec.module:
        message.module = spec.module
    return message


def tier_to_wire(tier: Tier) -> common_pb2.Tier:
    """A tier as the wire has it."""
    return common_pb2.Tier(target=tier.target, value=tier.value, deadline_seconds=tier.deadline_seconds or 0.0)


def share_to_wire(share: Share) -> common_pb2.Share:
    """A share as the wire has it."""
    return common_pb2.Share(
        cpu_weight=share.cpu_weight,
        cpu_cap_cores=share.cpu_cap_cores or 0.0,
        reason=share.reason,
        accelerators=[
            common_pb2.AcceleratorShare(
                id=held.id, fraction=held.fraction, memory_bytes=held.memory_bytes, cap=held.cap or 0.0
            )
            for held in share.accelerators
        ],
    )


def tier_status_to_wire(status: TierStatus) -> jobs_pb2.TierStatus:
    """A tier's status as the wire has it."""
    return jobs_pb2.TierStatus(
        number=status.number,
        tier=tier_to_wire(status.tier),
        state=_TIER_STATES[status.state],
        reached_value=status.reached_value or 0.0,
        delivered_value=status.delivered_value or 0.0,
        reached_seconds=status.reached_seconds or 0.0,
        delivered_seconds=status.delivered_seconds or 0.0,
        version=status.version or 0,
        reason=status.reason,
    )


def job_to_wire(job: Job) -> jobs_pb2.Job:
    """A job as the wire has it, without its script's text."""
    return jobs_pb2.Job(
        id=job.id,
        tenant=job.tenant,
        spec=spec_to_wire(job.spec, script_text=False),
        state=_JOB_STATES[job.state],
        reason=job.reason,
        submitted_at=timestamp(job.submitted_at),
        started_seconds=_since(job, job.started_at),
        finished_seconds=_since(job, job.finished_at),
        tiers=[tier_status_to_wire(tier) for tier in job.tiers],
        epoch=job.epoch,
        latest_value=job.latest_value,
        best_value=job.best_value,
        node_id=job.node_id,
        share=share_to_wire(job.share) if job.share is not None else None,
        cpu_seconds=job.cpu_seconds,
        accelerator_seconds=job.accelerator_seconds,
        attempts=job.attempts,
        log_tail=job.log_tail,
        retries=job.retries,
    )


def event_to_wire(event: JobEvent) -> jobs_pb2.JobEvent:
    """An event as the wire has it."""
    message = jobs_pb2.JobEvent(
        sequence=event.sequence, job_id=event.job_id, tenant=event.tenant, at=timestamp(event.at)
    )
    match event.change:
        case StateChanged(state, reason):
            message.state_changed.CopyFrom(jobs_pb2.StateChanged(state=_JOB_STATES[state], reason=reason))
        case ProgressMade(epoch, value, metrics, cpu_seconds, accelerator_seconds):
            message.progress_made.CopyFrom(
                jobs_pb2.ProgressMade(
                    epoch=epoch,
                    value=value,
                    metrics=metrics,
                    cpu_seconds=cpu_seconds,
                    accelerator_seconds=accelerator_seconds,
                )
            )
        case TierChanged(tier):
            message.tier_changed.CopyFrom(jobs_pb2.TierChanged(tier=tier_status_to_wire(tier)))
        case ShareChanged(node_id, share):
            message.share_changed.CopyFrom(jobs_pb2.ShareChanged(node_id=node_id, share=share_to_wire(share)))
    return message


def decision_to_wire(decision: Decision) -> jobs_pb2.Decision:
    """A decision as the wire has it."""
    return jobs_pb2.Decision(
        at=timestamp(decision.at),
        policy=decision.policy,
        trigger=decision.trigger,
        node_id=decision.node_id,
        share=share_to_wire(decision.share),
    )


def node_to_wire(node: Node, jobs: Sequence[Job], heard: Mapping[str, AcceleratorHeard]) -> jobs_pb2.Node:
    """A node as the wire has it.

    Args:
        node: The node.
        jobs: Those that hold something of it.
        heard: How its accelerators are, by id.
    """
    return jobs_pb2.Node(
        id=node.id,
        state=jobs_pb2.NODE_STATE_ONLINE if node.online else jobs_pb2.NODE_STATE_OFFLINE,
        cpu_cores=node.cpu_cores,
        memory_bytes=node.memory_bytes,
        memory_reserved_bytes=sum(job.spec.resources.memory_bytes for job in jobs),
        jobs=len(jobs),
        runtimes=node.runtimes,
        limits=node.limits,
        serving_http=node.serving_http,
        serving_grpc=node.serving_grpc,
        lease_epoch=node.lease_epoch,
        accelerators=[accelerator_to_wire(each, jobs, heard) for each in node.accelerators],
    )


def _since(job: Job, at: float | None) -> float:
    return 0.0 if at is None else max(0.0, at - job.submitted_at)
