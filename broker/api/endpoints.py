"""What tenants and nodes are told of endpoints, and what nodes tell of them; decides nothing."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from types import MappingProxyType
from typing import TYPE_CHECKING

from tiercel.broker.actors.node_messages import ServedStatus, ServingReported
from tiercel.broker.lifecycle.pulls import holders
from tiercel.broker.lifecycle.versions import kept
from tiercel.core.drift import MOST_FEATURES_TOLD
from tiercel.core.endpoint_views import EndpointInfo, ReplicaInfo, VariantInfo, VersionInfo
from tiercel.core.endpoints import DelayWindow, EndpointUsage, Signature, Tensor
from tiercel.core.feedback import AccuracyInUse
from tiercel.core.wire import from_proto, to_proto
from tiercel.v1 import common_pb2, jobs_pb2, nodes_pb2

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from tiercel.broker.actors.node_messages import EndpointSharesDeclared
    from tiercel.broker.actors.service import BrokerService
    from tiercel.broker.lifecycle.drift import Asked
    from tiercel.broker.lifecycle.serving_node import ServingNode
    from tiercel.broker.lifecycle.versions import WantedModel
    from tiercel.core.drift import InputDrift
    from tiercel.core.endpoints import Endpoint, EndpointLoad, Version
    from tiercel.core.feedback import VersionFeedback
    from tiercel.core.nodes import Node
    from tiercel.core.shares import Share

# What an agent reads of a model is far below; it is stored with each version.
MAX_SIGNATURE_BYTES = 64 * 1024
# Of an endpoint's versions that a node tells what applications said of them.
MAX_FEEDBACK = 128
# Of an endpoint's versions that answer at a node, those on trial counted, of which it tells what they are asked.
MAX_ASKED = 32
_MOST_NAME = 64
# What nobody can have used since the last heartbeat; what is told is added up for as long as the broker lives.
_MOST_SECONDS = 1e9


@dataclass(frozen=True, slots=True)
class Seen:
    """What is known of an endpoint beside what it is itself."""

    share: Share | None = None  # what it may use on its node, if it is limited
    load: EndpointLoad | None = None  # what was measured of it last, if anything was
    served: Mapping[str, ServedStatus] = field(default_factory=dict)  # what its node says of it, by variant
    serving: Mapping[str, ServingNode] = field(default_factory=dict)  # what nodes are to it, by name
    replicas_reason: str = ""  # why it answers on as many nodes as it does, where the broker says that
    # What applications said of its versions, by number.
    feedback: Mapping[int, VersionFeedback] = field(default_factory=dict)
    retraining: str = ""  # what is done about it being less often right, or why nothing is
    inputs: Asked = field(default_factory=dict)  # what its nodes know of what its versions are asked, by number
    awaited: tuple[str, ...] = ()  # what versions that are to answer wait for


_NOTHING = Seen()


def endpoint_told(service: BrokerService, endpoint: Endpoint, nodes: Mapping[str, Node]) -> jobs_pb2.Endpoint:
    """An endpoint as its tenant sees it now.

    Args:
        service: Knows what is measured of it.
        endpoint: The endpoint.
        nodes: All nodes, by id.
    """
    name, endpoints = endpoint.name, service.endpoints
    seen = Seen(
        share=endpoints.share(name),
        load=endpoints.load(name),
        served=endpoints.served(name),
        serving=endpoints.replicas(name),
        replicas_reason=endpoints.replicas_reason(name),
        feedback=endpoints.feedback(name),
        retraining=service.retrainings.words.get(name, ""),
        inputs=endpoints.inputs(endpoint),
        awaited=endpoints.awaited(name),
    )
    return endpoint_to_proto(endpoint, nodes, seen)


def endpoint_to_proto(
    endpoint: Endpoint, nodes: Mapping[str, Node] = MappingProxyType({}), seen: Seen = _NOTHING
) -> jobs_pb2.Endpoint:
    """An endpoint as its tenant sees it.

    Args:
        endpoint: The endpoint.
        nodes: All nodes, by id.
        seen: What else is known of it.
    """
    node, load = nodes.get(endpoint.node_id), seen.load
    plain = seen.served.get("", ServedStatus())
    info = EndpointInfo(
        name=endpoint.name,
        tenant=endpoint.tenant,
        live_version=endpoint.live_version,
        versions=_version_infos(endpoint, seen),
        node_id=endpoint.node_id,
        serving_http=node.serving_http if node is not None else "",
        serving_grpc=node.serving_grpc if node is not None else "",
        objective_seconds=endpoint.objective_seconds,
        share=seen.share,
        variants=tuple(_variant_infos(endpoint, load, seen.served)),
        answering_version=plain.version or None,
        problem=plain.problem,
        pinned="" in endpoint.pinned,
        access=endpoint.access,
        replicas=endpoint.replicas,
        auto_replicas=endpoint.auto_replicas,
        replicas_reason=seen.replicas_reason,
        places=places_of(endpoint, nodes, seen.serving),
        keep=endpoint.keep,
        retraining=seen.retraining,
        awaited=seen.awaited,
    )
    message = to_proto(info, jobs_pb2.Endpoint)
    if load is not None:
        message.load.CopyFrom(to_proto(load, jobs_pb2.EndpointLoad))
    return message


def _version_infos(endpoint: Endpoint, seen: Seen) -> tuple[VersionInfo, ...]:
    """What is told of each version that an endpoint has or had."""
    live = {version.version for version in endpoint.live}
    there = {version.version for version in kept(endpoint)}
    now = seen.load.windows[0] if seen.load is not None and seen.load.windows else DelayWindow(0.0)
    return tuple(
        VersionInfo(
            version=version.version,
            job_id=version.job_id,
            tier=version.tier,
            metric=version.metric,
            value=version.value,
            delivered_at=datetime.fromtimestamp(version.delivered_at, UTC),
            sha256=version.sha256,
            variant=version.variant,
            live=version.version in live,
            held=version.held,
            kept=version.version in there,
            endpoint=endpoint.name,
            target=version.target,
            size_bytes=version.size_bytes,
            nodes=holders(endpoint, version, seen.serving) if version.version in there else (),
            pinned=version.version in live and version.variant in endpoint.pinned,
            p50_seconds=now.p50_seconds if version.version in live and not version.variant else version.p50_seconds,
            p95_seconds=now.p95_seconds if version.version in live and not version.variant else version.p95_seconds,
            deployed_by=version.deployed_by,
            file=version.file,
            in_use=AccuracyInUse.of(said) if (said := seen.feedback.get(version.version)) is not None else None,
            cheap_variants=version.cheap_variants,
            inputs=seen.inputs.get(version.version, ()),
        )
        for version in endpoint.versions
    )


def places_of(
    endpoint: Endpoint, nodes: Mapping[str, Node], serving: Mapping[str, ServingNode]
) -> tuple[ReplicaInfo, ...]:
    """The nodes that shall answer for an endpoint, its home first; none of one with variants, or while nothing does."""
    live = endpoint.live_of("")
    if live is None or not endpoint.node_id:
        return ()
    return tuple(
        _replica_info(live.version, nodes[name], serving[name])
        for name in (endpoint.node_id, *endpoint.replica_nodes)
        if name in nodes and name in serving
    )


def _replica_info(live: int, node: Node, serving: ServingNode) -> ReplicaInfo:
    if not node.online:
        return ReplicaInfo(node.id, problem="the node is offline")
    is_left = serving.leaving and not serving.answering
    awaited = "the node is drained, and others answer in its place" if is_left else "it is on its way there"
    problem = "" if serving.answering == live else serving.failed.get(live, awaited)
    return ReplicaInfo(node.id, serving.answering or None, node.serving_http, node.serving_grpc, problem)


def _variant_infos(
    endpoint: Endpoint, load: EndpointLoad | None, served: Mapping[str, ServedStatus]
) -> Iterator[VariantInfo]:
    for version in endpoint.live:
        if version.variant:
            yield _variant_info(endpoint, version, load, served.get(version.variant, ServedStatus()))


def _variant_info(endpoint: Endpoint, live: Version, load: EndpointLoad | None, served: ServedStatus) -> VariantInfo:
    return VariantInfo(
        name=live.variant,
        live_version=live.version,
        accuracy=live.value or 0.0,  # one that nobody measured is no variant
        # One that is not named gave none, if there were any.
        answered_part=load.answered_parts.get(live.variant, 0.0) if load and load.answered_parts else None,
        answering_version=served.version or None,
        problem=served.problem,
        pinned=live.variant in endpoint.pinned,
    )


def wanted_models(models: Iterable[WantedModel]) -> list[nodes_pb2.WantedModel]:
    """What a node is told of the versions that it has."""
    return [
        nodes_pb2.WantedModel(
            endpoint=model.endpoint,
            variant=model.variant,
            version=model.version,
            kept_versions=model.kept,
            copies=[to_proto(each, nodes_pb2.VersionFiles) for each in model.copies],
            sends=[to_proto(each, nodes_pb2.VersionFiles) for each in model.sends],
            paced=model.paced,
        )
        for model in models
    ]


def serving_of(status: nodes_pb2.ServingStatus) -> ServingReported:
    """What a node says of its inference server."""
    answering = {(each.endpoint, each.variant): each.version for each in status.versions}
    problems = {(each.endpoint, each.variant): each.reason for each in status.problems}
    served = {
        place: ServedStatus(answering.get(place, 0), problems.get(place, "")) for place in (*answering, *problems)
    }
    return ServingReported(
        status.http,
        status.grpc,
        served,
        status.local_http,
        status.local_grpc,
        copies={(each.endpoint, each.version): each.sha256 for each in status.copies if not each.reason},
        failed={(each.endpoint, each.version): each.reason for each in status.copies if each.reason},
        routes_number=status.routes_number,
    )


def signature_of(delivery: nodes_pb2.DeliveryStatus) -> Signature | None:
    """What a model takes and gives, or None where the node does not say, or says more than is worth keeping."""
    inputs, outputs = delivery.signature.inputs, delivery.signature.outputs
    if not delivery.HasField("signature") or delivery.signature.ByteSize() > MAX_SIGNATURE_BYTES:
        return None
    return Signature(tuple(map(_tensor_from_wire, inputs)), tuple(map(_tensor_from_wire, outputs)))


def _tensor_from_wire(tensor: nodes_pb2.TensorSpec) -> Tensor:
    return Tensor(tensor.name, tensor.datatype, None if tensor.any_shape else tuple(tensor.shape))


def wanted_endpoints(declared: EndpointSharesDeclared) -> list[nodes_pb2.WantedEndpoint]:
    """What a node is told of its endpoints, by name."""
    shares, objectives = dict(declared.shares), dict(declared.objectives)
    return [
        nodes_pb2.WantedEndpoint(
            endpoint=name,
            share=to_proto(shares[name], common_pb2.Share) if name in shares else None,
            objective_seconds=objectives.get(name, 0.0),
        )
        for name in sorted({*shares, *objectives})
    ]


def usages_of(heartbeat: nodes_pb2.Heartbeat) -> tuple[EndpointUsage, ...]:
    """What an inference server counted; what makes no sense is left out, since policies reckon with it."""
    told = (from_proto(EndpointUsage, usage) for usage in heartbeat.endpoints)
    return tuple(
        replace(
            usage,
            windows=tuple(filter(_makes_sense, usage.windows)),
            feedback=tuple(
                each for each in usage.feedback[:MAX_FEEDBACK] if 0 < each.rows < 2**31 > each.right <= each.rows
            ),
            inputs=tuple(filter(_is_drift, usage.inputs[:MAX_ASKED])),
        )
        for usage in told
        if math.isfinite(usage.seconds + usage.delay_seconds + usage.cpu_seconds)
        and usage.seconds > 0
        and min(usage.delay_seconds, usage.cpu_seconds) >= 0
        and max(usage.seconds, usage.delay_seconds, usage.cpu_seconds) <= _MOST_SECONDS
    )


def lag_of(heartbeat: nodes_pb2.Heartbeat) -> float | None:
    """By how much an inference server's event loop came late, seconds, or None where nobody says."""
    lag = heartbeat.serving_lag_seconds
    return lag if heartbeat.HasField("serving_lag_seconds") and math.isfinite(lag) and lag >= 0 else None


def _is_drift(said: InputDrift) -> bool:
    """Whether a node's word on what a version is asked makes sense, and is as short as that may be."""
    names = [each.name for each in said.farthest]
    parts = (said.bound, *(each.distance for each in said.farthest))
    is_short = len(names) <= MOST_FEATURES_TOLD and max(map(len, names), default=0) <= _MOST_NAME
    return is_short and all(0.0 <= part <= 1.0 for part in parts) and (not said.rows or bool(names))


def _makes_sense(window: DelayWindow) -> bool:
    numbers = (window.seconds, window.p50_seconds or 0.0, window.p95_seconds or 0.0, window.p99_seconds or 0.0)
    return all(math.isfinite(number) and number >= 0 for number in numbers) and 0 <= (window.in_objective or 0.0) <= 1
