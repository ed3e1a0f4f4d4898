"""The life of an endpoint and of its deliveries, as pure steps.

A delivery goes requested → exporting → loading → delivered | failed. Nodes repeat themselves, and stages may be
skipped in what is heard of them; a delivery never goes back and never ends twice. Once a node has said what the model
is, it is judged whether it may answer (:mod:`.versions`); the node lets it, or keeps it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tiercel.broker.lifecycle.versions import held_words, why_held, with_version
from tiercel.core.endpoints import (
    Delivery,
    DeliveryState,
    Endpoint,
    Signature,
    Verdict,
    Version,
    delivery_id,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tiercel.broker.lifecycle.retraining import Terms
    from tiercel.core.cheap_variants import CheapVariant
    from tiercel.core.jobs import Direction

_ORDER = (
    DeliveryState.REQUESTED,
    DeliveryState.EXPORTING,
    DeliveryState.LOADING,
    DeliveryState.DELIVERED,
    DeliveryState.FAILED,
)


@dataclass(frozen=True, slots=True)
class DeliveryReport:
    """What a node says of a delivery."""

    state: DeliveryState  # the stage it is at
    value: float | None = None  # once it is loading, the metric re-measured on the exported model
    sha256: str = ""  # once it is loading, of the ONNX file
    delivered_at: float | None = None  # once delivered, when the version began to answer, seconds since the Unix epoch
    reason: str = ""  # once failed, plain words
    signature: Signature | None = None  # once it is loading, what the model takes and gives; None where nobody says
    size_bytes: int = 0  # once it is loading, of the ONNX file; 0 where nobody says
    cheap_variants: tuple[CheapVariant, ...] = ()  # once it is loading, what became of them; empty where none is wanted

    @property
    def is_measured(self) -> bool:
        """Whether it says how good the model is."""
        return self.value is not None and math.isfinite(self.value)


def request(
    endpoint: Endpoint,
    job_id: str,
    tier: int,
    target: float,
    now: float,
    *,
    variant: str = "",
    count: int = 0,
    served: int = 0,
) -> tuple[Endpoint, Delivery]:
    """Make the one delivery of this job and tier, and reserve its version number.

    Beyond the tiers no number is reserved before there is a model.

    Args:
        endpoint: The endpoint as it is.
        job_id: The job that reached the tier.
        tier: Number of the tier, from 1.
        target: The tier's target.
        now: Seconds since the Unix epoch.
        variant: The job's variant of the endpoint, or empty.
        count: Tells it from earlier ones; see :func:`.delivery_id`.
        served: The highest version of the endpoint that answers anywhere, which a new broker may not know.
    """
    endpoint = replace(endpoint, next_version=max(endpoint.next_version, served + 1))
    delivery = Delivery(
        id=delivery_id(job_id, tier, count),
        job_id=job_id,
        tier=tier,
        target=target,
        endpoint=endpoint.name,
        version=0,
        state=DeliveryState.REQUESTED,
        requested_at=now,
        variant=variant,
    )
    return _numbered(endpoint, delivery) if tier else (endpoint, delivery)


def progress(
    endpoint: Endpoint,
    delivery: Delivery,
    report: DeliveryReport,
    *,
    metric: str,
    node_id: str,
    now: float,
    direction: Direction | None = None,
    may_replace: bool = False,
    others: Iterable[Delivery] = (),
    terms: Terms | None = None,
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
        may_replace: Whether the job said that whatever it delivers shall answer.
        others: Deliveries of the endpoint, among them perhaps one of the same job with the same file.
        terms: How what its job delivers is trained again, or None.
    """
    if delivery.state.is_final:
        return endpoint, delivery
    is_later = _ORDER.index(report.state) > _ORDER.index(delivery.state)
    if report.state is DeliveryState.LOADING and report.is_measured and delivery.verdict is Verdict.OPEN:
        known = replace(
            delivery,
            state=DeliveryState.LOADING,
            value=report.value,
            sha256=report.sha256,
            signature=report.signature,
            size_bytes=report.size_bytes,
            cheap_variants=report.cheap_variants,
        )
        twin = _twin_of(known, others)
        if twin is None:
            endpoint, known = _numbered(endpoint, known)
            return endpoint, _judged(endpoint, known, metric, direction, may_replace=may_replace)
        if twin.state is DeliveryState.DELIVERED:
            return _settled_with(endpoint, known, twin)
        return endpoint, delivery if known == delivery else known  # until it is known what became of the other one
    if not is_later:
        return endpoint, delivery
    if report.state is not DeliveryState.DELIVERED:
        return endpoint, replace(delivery, state=report.state, reason=report.reason)
    endpoint, delivery = _numbered(endpoint, _delivered(delivery, report, now))
    version = version_of(delivery, metric, direction, node_id)
    if terms is not None:
        version = replace(version, retrain=terms.of_version(version.value, version.target))
    endpoint, held = with_version(endpoint, version, may_replace=may_replace)
    words = held_words(endpoint, delivery.version, held) if held else ""
    return endpoint, replace(delivery, verdict=Verdict.HELD if held else Verdict.LIVE, reason=words)


def facts_of(delivery: Delivery) -> DeliveryReport:
    """What a node has said of the model of a delivery, said again."""
    return DeliveryReport(
        DeliveryState.LOADING,
        value=delivery.value,
        sha256=delivery.sha256,
        signature=delivery.signature,
        size_bytes=delivery.size_bytes,
        cheap_variants=delivery.cheap_variants,
    )


def answers(endpoint: Endpoint, delivery: Delivery) -> bool:
    """Whether the version of a delivery that has not ended is one of the endpoint's already."""
    return any((each.version, each.sha256) == (delivery.version, delivery.sha256) for each in endpoint.versions)


def forget_verdict(delivery: Delivery) -> Delivery:
    """Another node is asked for the model, which will be another one: it is judged anew."""
    return delivery if delivery.state.is_final else replace(delivery, verdict=Verdict.OPEN, sha256="")


def _numbered(endpoint: Endpoint, delivery: Delivery) -> tuple[Endpoint, Delivery]:
    if delivery.version:
        return endpoint, delivery
    number = endpoint.next_version
    return replace(endpoint, next_version=number + 1), replace(delivery, version=number)


def _judged(
    endpoint: Endpoint, delivery: Delivery, metric: str, direction: Direction | None, *, may_replace: bool
) -> Delivery:
    version = version_of(delivery, metric, direction, endpoint.node_id)
    held = why_held(endpoint, version, may_replace=may_replace)
    return replace(delivery, verdict=Verdict.HELD if held else Verdict.LIVE)


def _twin_of(delivery: Delivery, others: Iterable[Delivery]) -> Delivery | None:
    """Another delivery of the same job with the same file, under way or delivered."""
    return next(
        (
            other
            for other in others
            if (other.job_id, other.variant, other.sha256) == (delivery.job_id, delivery.variant, delivery.sha256)
            and other.id != delivery.id
            and other.sha256
            and (
                other.state is DeliveryState.DELIVERED
                or (not other.state.is_final and other.verdict is not Verdict.OPEN)
            )
        ),
        None,
    )


def _settled_with(endpoint: Endpoint, delivery: Delivery, twin: Delivery) -> tuple[Endpoint, Delivery]:
    """Two tiers that one model reaches are one version; its number is given again if nobody had a later one."""
    if delivery.version and endpoint.next_version == delivery.version + 1:
        endpoint = replace(endpoint, next_version=delivery.version)
    settled = replace(
        delivery,
        state=DeliveryState.DELIVERED,
        version=twin.version,
        verdict=twin.verdict,
        reason=twin.reason,
        delivered_at=twin.delivered_at,
    )
    return endpoint, settled


def _delivered(delivery: Delivery, report: DeliveryReport, now: float) -> Delivery:
    at = now if report.delivered_at is None else min(report.delivered_at, now)
    delivery = replace(delivery, state=DeliveryState.DELIVERED, delivered_at=at)
    if delivery.is_deployment:  # what it is was known before any node had it, but which cheap variants are shipped
        return replace(delivery, cheap_variants=report.cheap_variants)
    return replace(
        delivery,
        value=report.value if report.is_measured else delivery.target,
        sha256=report.sha256,
        signature=report.signature,
        size_bytes=report.size_bytes,
        cheap_variants=report.cheap_variants,
    )


def version_of(delivery: Delivery, metric: str, direction: Direction | None, node_id: str) -> Version:
    """What a delivery makes, or is about to make."""
    return Version(
        version=delivery.version,
        job_id=delivery.job_id,
        tier=delivery.tier,
        metric=metric,
        value=delivery.target if delivery.value is None and not delivery.is_deployment else delivery.value,
        delivered_at=delivery.delivered_at or 0.0,
        sha256=delivery.sha256,
        direction=direction,
        variant=delivery.variant,
        node_id=node_id,
        signature=delivery.signature,
        target=delivery.target if delivery.tier else None,
        size_bytes=delivery.size_bytes,
        deployed_by=delivery.deployed_by,
        file=delivery.file,
        cheap_variants=delivery.cheap_variants,
    )
