"""What the wire tells otherwise than field by field (:mod:`tiercel.core.wire`), as what tenants are told."""

from __future__ import annotations

from datetime import UTC, datetime

from tiercel.core import events
from tiercel.core.endpoint_views import EndpointExplanation, EndpointInfo
from tiercel.core.endpoints import EndpointLoad
from tiercel.core.jobs import JobSpec
from tiercel.core.views import (
    DecisionInfo,
    JobEvent,
    NodeInfo,
    PriorityEvent,
    ProgressEvent,
    ShareEvent,
    StateEvent,
    TierEvent,
)
from tiercel.core.wire import from_proto, to_proto
from tiercel.v1 import common_pb2, jobs_pb2


def spec_to_proto(spec: JobSpec) -> common_pb2.JobSpec:
    """The spec as it is sent.

    Raises:
        InvalidSpecError: The broker would refuse it; names the field.
    """
    from tiercel.core.validation import validate_spec  # a command that lists does without

    validate_spec(spec)
    return to_proto(spec, common_pb2.JobSpec)


def event_from_proto(message: jobs_pb2.JobEvent) -> JobEvent | None:
    """An event, or None for a kind that this client is too old to know."""
    return event_of(from_proto(events.JobEvent, message)) if message.WhichOneof("event") is not None else None


def event_of(event: events.JobEvent) -> JobEvent:
    """An event as tenants are told of it."""
    about = (event.sequence, event.job_id, event.tenant, datetime.fromtimestamp(event.at, UTC))
    match event.change:
        case events.StateChanged(state, reason):
            return StateEvent(*about, state, reason)
        case events.ProgressMade(epoch, value, metrics, cpu_seconds, accelerator_seconds):
            return ProgressEvent(*about, epoch, value, metrics, cpu_seconds, accelerator_seconds)
        case events.TierChanged(tier):
            return TierEvent(*about, tier)
        case events.ShareChanged(node_id, share):
            return ShareEvent(*about, node_id, share)
        case events.PriorityChanged(priority):
            return PriorityEvent(*about, priority)


def node_from_proto(message: jobs_pb2.Node) -> NodeInfo:
    """A node as the broker tells it."""
    return from_proto(NodeInfo, message, online=message.state == jobs_pb2.NODE_STATE_ONLINE)


def endpoint_from_proto(message: jobs_pb2.Endpoint) -> EndpointInfo:
    """An endpoint as the broker tells it."""
    if not message.HasField("load"):
        return from_proto(EndpointInfo, message)
    load = from_proto(EndpointLoad, message.load)
    return from_proto(
        EndpointInfo,
        message,
        requests_per_second=load.requests_per_second,
        delay_seconds=load.delay_seconds,
        cpu_cores=load.cpu_cores,
        in_objective=load.in_objective,
        windows=load.windows,
        lag_seconds=load.lag_seconds,
    )


def endpoint_explanation_from_proto(message: jobs_pb2.ExplainEndpointResponse) -> EndpointExplanation:
    """Why an endpoint has its share."""
    decisions = tuple(from_proto(DecisionInfo, decision) for decision in message.decisions)
    return EndpointExplanation(endpoint_from_proto(message.endpoint), decisions)
