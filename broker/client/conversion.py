"""Between the wire's messages and the dataclasses of the client; the only place that knows both."""

from __future__ import annotations

from datetime import UTC, datetime

from google.protobuf.timestamp_pb2 import Timestamp

from tiercel.broker.client.info import (
    AcceleratorInfo,
    DecisionInfo,
    EndpointExplanation,
    EndpointInfo,
    Explanation,
    JobEvent,
    JobInfo,
    NodeInfo,
    ProgressEvent,
    ShareEvent,
    StateEvent,
    TierEvent,
    TierInfo,
    VariantInfo,
    VersionInfo,
)
from tiercel.core.endpoints import DelayWindow
from tiercel.core.errors import InvalidSpecError
from tiercel.core.jobs import Direction, JobSpec, JobState, Resources, Script, Shipping, Tier, TierState
from tiercel.core.shares import AcceleratorShare, Share
from tiercel.v1 import common_pb2, jobs_pb2

_DIRECTIONS = {Direction.MAX: common_pb2.DIRECTION_MAX, Direction.MIN: common_pb2.DIRECTION_MIN}


def spec_to_wire(spec: JobSpec) -> common_pb2.JobSpec:
    """The spec as it is sent.

    Raises:
        InvalidSpecError: What the wire cannot tell: a number is 0, which it takes for one that was left out, or there
            are two programs, of which it takes one; names it.
    """
    _refuse_zeros(spec)
    if spec.script is not None and spec.module:
        raise InvalidSpecError("module: is given beside a script; give one of the two", field="module")
    wire = common_pb2.JobSpec(
        name=spec.name,
        endpoint=spec.endpoint,
        image=spec.image,
        arguments=spec.arguments,
        metric=spec.metric,
        direction=_DIRECTIONS[spec.direction],
        tiers=[
            common_pb2.Tier(target=tier.target, value=tier.value, deadline_seconds=tier.deadline_seconds or 0)
            for tier in spec.tiers
        ],
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
        ship=common_pb2.Shipping(
            only_tiers=spec.ship.only_tiers,
            every=spec.ship.every or 0.0,
            best_every_seconds=spec.ship.best_every_seconds or 0.0,
        ),
    )
    if spec.script is not None:
        wire.script.CopyFrom(common_pb2.Script(name=spec.script.name, content=spec.script.content))
    elif spec.module:
        wire.module = spec.module
    return wire


def _refuse_zeros(spec: JobSpec) -> None:
    numbers: dict[str, float | None] = {
        "resources.cpu_cores": spec.resources.cpu_cores,
        "resources.memory_bytes": spec.resources.memory_bytes,
        "max_epochs": spec.max_epochs,
        "report_timeout_seconds": spec.report_timeout_seconds,
        "endpoint_objective_seconds": spec.endpoint_objective_seconds,
        "ship.every": spec.ship.every,
        "ship.best_every": spec.ship.best_every_seconds,
    }
    for index, tier in enumerate(spec.tiers):
        numbers[f"tiers[{index}].value"] = tier.value
        numbers[f"tiers[{index}].deadline_seconds"] = tier.deadline_seconds
    for field, number in numbers.items():
        if number == 0:
            raise InvalidSpecError(f"{field}: is 0; give a number above 0, or leave it out", field=field)


def job_from_wire(job: jobs_pb2.Job) -> JobInfo:
    """A job as the broker tells it."""
    return JobInfo(
        id=job.id,
        tenant=job.tenant,
        spec=_spec(job.spec),
        state=_job_state(job.state),
        reason=job.reason,
        submitted_at=_time(job.submitted_at),
        started_seconds=job.started_seconds or None,
        finished_seconds=job.finished_seconds or None,
        tiers=tuple(_tier(status) for status in job.tiers),
        epoch=job.epoch,
        latest_value=job.latest_value if job.HasField("latest_value") else None,
        best_value=job.best_value if job.HasField("best_value") else None,
        node_id=job.node_id,
        share=share_from_wire(job.share) if job.HasField("share") else None,
        cpu_seconds=job.cpu_seconds,
        accelerator_seconds=job.accelerator_seconds,
        attempts=job.attempts,
        log_tail=job.log_tail,
        retries=job.retries,
    )


def event_from_wire(event: jobs_pb2.JobEvent) -> JobEvent | None:
    """An event, or None for a kind that this client is too old to know."""
    about = (event.sequence, event.job_id, event.tenant, _time(event.at))
    match event.WhichOneof("event"):
        case "state_changed":
            return StateEvent(*about, _job_state(event.state_changed.state), event.state_changed.reason)
        case "progress_made":
            progress = event.progress_made
            used = (progress.cpu_seconds, progress.accelerator_seconds)
            return ProgressEvent(*about, progress.epoch, progress.value, dict(progress.metrics), *used)
        case "tier_changed":
            return TierEvent(*about, _tier(event.tier_changed.tier))
        case "share_changed":
            return ShareEvent(*about, event.share_changed.node_id, share_from_wire(event.share_changed.share))
        case _:
            return None


def explanation_from_wire(response: jobs_pb2.ExplainJobResponse) -> Explanation:
    """Why a job has its share."""
    return Explanation(job_from_wire(response.job), tuple(map(_decision, response.decisions)))


def endpoint_explanation_from_wire(response: jobs_pb2.ExplainEndpointResponse) -> EndpointExplanation:
    """Why an endpoint has its share."""
    return EndpointExplanation(endpoint_from_wire(response.endpoint), tuple(map(_decision, response.decisions)))


def node_from_wire(node: jobs_pb2.Node) -> NodeInfo:
    """A node as the broker tells it."""
    return NodeInfo(
        id=node.id,
        online=node.state == jobs_pb2.NODE_STATE_ONLINE,
        cpu_cores=node.cpu_cores,
        memory_bytes=node.memory_bytes,
        memory_reserved_bytes=node.memory_reserved_bytes,
        jobs=node.jobs,
        runtimes=tuple(node.runtimes),
        limits=node.limits,
        serving_http=node.serving_http,
        serving_grpc=node.serving_grpc,
        lease_epoch=node.lease_epoch,
        accelerators=tuple(map(_accelerator, node.accelerators)),
    )


def _accelerator(accelerator: jobs_pb2.NodeAccelerator) -> AcceleratorInfo:
    return AcceleratorInfo(
        id=accelerator.id,
        name=accelerator.name,
        memory_bytes=accelerator.memory_bytes,
        memory_reserved_bytes=accelerator.memory_reserved_bytes,
        memory_used_bytes=accelerator.memory_used_bytes,
        utilisation=accelerator.utilisation if accelerator.HasField("utilisation") else None,
        jobs=accelerator.jobs,
        problem=accelerator.problem,
    )


def endpoint_from_wire(endpoint: jobs_pb2.Endpoint) -> EndpointInfo:
    """An endpoint as the broker tells it."""
    versions = tuple(
        VersionInfo(
            version=version.version,
            job_id=version.job_id,
            tier=version.tier,
            metric=version.metric,
            value=version.value,
            delivered_at=_time(version.delivered_at),
            sha256=version.sha256,
            variant=version.variant,
            live=version.live,
            held=version.held,
            kept=version.kept,
        )
        for version in endpoint.versions
    )
    return EndpointInfo(
        name=endpoint.name,
        tenant=endpoint.tenant,
        live_version=endpoint.live_version or None,
        versions=versions,
        node_id=endpoint.node_id,
        serving_http=endpoint.serving_http,
        serving_grpc=endpoint.serving_grpc,
        objective_seconds=endpoint.objective_seconds or None,
        share=share_from_wire(endpoint.share) if endpoint.HasField("share") else None,
        requests_per_second=endpoint.load.requests_per_second if endpoint.HasField("load") else None,
        delay_seconds=endpoint.load.delay_seconds if endpoint.load.HasField("delay_seconds") else None,
        cpu_cores=endpoint.load.cpu_cores if endpoint.HasField("load") else None,
        in_objective=endpoint.load.in_objective if endpoint.load.HasField("in_objective") else None,
        windows=tuple(map(_window, endpoint.load.windows)),
        lag_seconds=endpoint.load.serving_lag_seconds if endpoint.load.HasField("serving_lag_seconds") else None,
        variants=tuple(map(_variant, endpoint.variants)),
        answering_version=endpoint.answering_version or None,
        problem=endpoint.problem,
        pinned=endpoint.pinned,
    )


def _variant(variant: jobs_pb2.EndpointVariant) -> VariantInfo:
    part = variant.answered_part if variant.HasField("answered_part") else None
    return VariantInfo(
        name=variant.name,
        live_version=variant.live_version,
        accuracy=variant.accuracy,
        answered_part=part,
        answering_version=variant.answering_version or None,
        problem=variant.problem,
        pinned=variant.pinned,
    )


def _window(window: common_pb2.DelayWindow) -> DelayWindow:
    return DelayWindow(
        window.seconds,
        window.answers,
        window.failures,
        window.in_objective if window.HasField("in_objective") else None,
        window.p50_seconds if window.HasField("p50_seconds") else None,
        window.p95_seconds if window.HasField("p95_seconds") else None,
        window.p99_seconds if window.HasField("p99_seconds") else None,
    )


def _decision(decision: jobs_pb2.Decision) -> DecisionInfo:
    return DecisionInfo(
        _time(decision.at), decision.policy, decision.trigger, decision.node_id, share_from_wire(decision.share)
    )


def _spec(spec: common_pb2.JobSpec) -> JobSpec:
    return JobSpec(
        name=spec.name,
        endpoint=spec.endpoint,
        metric=spec.metric,
        direction=Direction.MIN if spec.direction == common_pb2.DIRECTION_MIN else Direction.MAX,
        tiers=tuple(Tier(tier.target, tier.value, tier.deadline_seconds or None) for tier in spec.tiers),
        script=Script(spec.script.name, spec.script.content) if spec.HasField("script") else None,
        module=spec.module,
        image=spec.image,
        arguments=tuple(spec.arguments),
        resources=Resources(
            spec.resources.cpu_cores,
            spec.resources.memory_bytes,
            spec.resources.accelerators,
            spec.resources.accelerator_memory_bytes,
        ),
        runtime=spec.runtime,
        max_epochs=spec.max_epochs,
        report_timeout_seconds=spec.report_timeout_seconds,
        continue_after_last_tier=spec.continue_after_last_tier,
        endpoint_objective_seconds=spec.endpoint_objective_seconds or None,
        variant=spec.variant,
        replace=spec.replace,
        retries=spec.retries,
        ship=Shipping(spec.ship.only_tiers, spec.ship.every or None, spec.ship.best_every_seconds or None),
    )


def _tier(status: jobs_pb2.TierStatus) -> TierInfo:
    state = TierState(jobs_pb2.TierState.Name(status.state).removeprefix("TIER_STATE_").lower())
    # Seconds are 0 while it is not there; a metric of 0 is a metric like any other.
    reached, delivered = status.reached_seconds > 0, status.delivered_seconds > 0
    return TierInfo(
        number=status.number,
        target=status.tier.target,
        value=status.tier.value,
        deadline_seconds=status.tier.deadline_seconds or None,
        state=state,
        reached_value=status.reached_value if reached else None,
        delivered_value=status.delivered_value if delivered else None,
        reached_seconds=status.reached_seconds if reached else None,
        delivered_seconds=status.delivered_seconds if delivered else None,
        version=status.version or None,
        reason=status.reason,
    )


def _job_state(state: jobs_pb2.JobState.ValueType) -> JobState:
    return JobState(jobs_pb2.JobState.Name(state).removeprefix("JOB_STATE_").lower())


def share_from_wire(share: common_pb2.Share) -> Share:
    """A share as the broker tells it."""
    held = tuple(
        AcceleratorShare(each.id, each.fraction, each.memory_bytes, each.cap or None) for each in share.accelerators
    )
    return Share(share.cpu_weight, share.cpu_cap_cores or None, share.reason, held)


def _time(at: Timestamp) -> datetime:
    return at.ToDatetime(tzinfo=UTC)
