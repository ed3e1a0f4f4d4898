"""The life of an endpoint and of its deliveries, as pure steps.

A delivery goes requested → exporting → loading → delivered | failed. Nodes repeat themselves, and stages may be
skipped in what is heard of them; a delivery never goes back and never ends twice.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from tiercel.broker.domain.endpoints import Delivery, DeliveryState, Endpoint, Version, delivery_id
from tiercel.broker.domain.jobs import Direction

_ORDER = (
    DeliveryState.REQUESTED,
    DeliveryState.EXPORTING,
    DeliveryState.LOADING,
    DeliveryState.DELIVERED,
    DeliveryState.FAILED,
)


@dataclass(frozen=True, slots=True)
class DeliveryReport:
    """What a node says of a delivery.

    Attributes:
        state: The stage it is at.
        value: Once delivered, the metric re-measured on the exported model.
        sha256: Once delivered, of the ONNX file.
        delivered_at: Once delivered, when the version began to answer, seconds since the Unix epoch.
        reason: Once failed, plain words.
    """

    state: DeliveryState
    value: float | None = None
    sha256: str = ""
    delivered_at: float | None = None
    reason: str = ""


def request(
    endpoint: Endpoint,
    job_id: str,
    tier: int,
    target: float,
    now: float,
    *,
    variant: str = "",
    failed_before: int = 0,
) -> tuple[Endpoint, Delivery]:
    """Make the one delivery of this job and tier, and reserve its version number.

    Args:
        endpoint: The endpoint as it is.
        job_id: The job that reached the tier.
        tier: Number of the tier, from 1.
        target: The tier's target.
        now: Seconds since the Unix epoch.
        variant: The job's variant of the endpoint, or empty.
        failed_before: How many deliveries of this tier failed before the job was resumed.
    """
    delivery = Delivery(
        id=delivery_id(job_id, tier, failed_before),
        job_id=job_id,
        tier=tier,
        target=target,
        endpoint=endpoint.name,
        version=endpoint.next_version,
        state=DeliveryState.REQUESTED,
        requested_at=now,
        variant=variant,
    )
    return replace(endpoint, next_version=endpoint.next_version + 1), delivery


def progress(
    endpoint: Endpoint,
    delivery: Delivery,
    report: DeliveryReport,
    *,
    metric: str,
    node_id: str,
    now: float,
    direction: Direction | None = None,
) -> tuple[Endpoint, Delivery]:
    """Take in what a node says of a delivery; returns the same objects when that changes nothing.

    Args:
        endpoint: The endpoint as it is.
        delivery: The delivery as it is.
        report: What the node says.
        metric: Name of the job's metric.
        node_id: The node.
        now: Seconds since the Unix epoch.
        direction: Whether a larger or a smaller metric is better, where that is known.
    """
    if delivery.state.is_final or _ORDER.index(report.state) <= _ORDER.index(delivery.state):
        return endpoint, delivery
    delivery = replace(delivery, state=report.state, reason=report.reason)
    if report.state is not DeliveryState.DELIVERED:
        return endpoint, delivery
    delivered_at = min(report.delivered_at, now) if report.delivered_at is not None else now
    measured = report.value is not None and math.isfinite(report.value)
    value = report.value if report.value is not None and measured else delivery.target
    delivery = replace(delivery, value=value, sha256=report.sha256, delivered_at=delivered_at)
    version = Version(
        version=delivery.version,
        job_id=delivery.job_id,
        tier=delivery.tier,
        metric=metric,
        value=value,
        delivered_at=delivered_at,
        sha256=report.sha256,
        direction=direction,
        variant=delivery.variant,
    )
    versions = tuple(sorted((*endpoint.versions, version), key=lambda known: known.version))
    # Two tiers reached at once may end in either order; the inference server keeps the newest.
    live = max(version.version, endpoint.live_version or 0)
    return replace(endpoint, versions=versions, live_version=live, node_id=node_id), delivery
