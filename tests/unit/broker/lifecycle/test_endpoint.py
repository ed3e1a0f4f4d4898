"""The life of an endpoint's deliveries."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest

from tiercel.broker.lifecycle import endpoint as machine
from tiercel.broker.lifecycle.endpoint import DeliveryReport
from tiercel.core import storage
from tiercel.core.cheap_variants import CheapVariant, VariantKind
from tiercel.core.endpoints import Delivery, DeliveryState, Endpoint

AT = 1_000.0
DONE = DeliveryReport(DeliveryState.DELIVERED, 0.91, "ab", AT + 1)


def hear(endpoint: Endpoint, delivery: Delivery, report: DeliveryReport) -> tuple[Endpoint, Delivery]:
    return machine.progress(endpoint, delivery, report, metric="accuracy", node_id="n1", now=AT + 5)


def requested(endpoint: Endpoint | None = None, tier: int = 1) -> tuple[Endpoint, Delivery]:
    return machine.request(endpoint or Endpoint("digits", "alice"), "j1", tier, 0.9, AT)


def test_a_delivery_gets_its_version_before_anything_happens() -> None:
    endpoint, first = requested()
    endpoint, second = requested(endpoint, tier=2)
    assert (first.id, first.version, first.state) == ("j1-tier-1", 1, DeliveryState.REQUESTED)
    assert (second.version, endpoint.next_version, endpoint.live_version) == (2, 3, None)


def test_delivered_makes_a_live_version() -> None:
    endpoint, delivery = hear(*requested(), DONE)
    (version,) = endpoint.versions
    assert (version.version, version.job_id, version.tier, version.metric) == (1, "j1", 1, "accuracy")
    assert (version.value, version.sha256, version.delivered_at) == (0.91, "ab", AT + 1)
    assert (endpoint.live_version, endpoint.node_id) == (1, "n1")
    assert (delivery.state, delivery.value) == (DeliveryState.DELIVERED, 0.91)


@pytest.mark.parametrize("value", [None, math.nan, math.inf])
def test_a_value_that_was_not_measured_is_the_target(value: float | None) -> None:
    endpoint, _ = hear(*requested(), DeliveryReport(DeliveryState.DELIVERED, value))
    assert endpoint.versions[0].value == 0.9


def test_nothing_is_delivered_in_the_future() -> None:
    _, delivery = hear(*requested(), DeliveryReport(DeliveryState.DELIVERED, 0.9, "", AT + 1e6))
    assert delivery.delivered_at == AT + 5
    _, undated = hear(*requested(), DeliveryReport(DeliveryState.DELIVERED, 0.9))
    assert undated.delivered_at == AT + 5


@pytest.mark.parametrize(("first", "second"), list(itertools.product(DeliveryState, DeliveryState)))
def test_a_delivery_never_goes_back_and_ends_once(first: DeliveryState, second: DeliveryState) -> None:
    endpoint, delivery = hear(*requested(), DeliveryReport(first, 0.9, reason="why"))
    later_endpoint, later = hear(endpoint, delivery, DeliveryReport(second, 0.1, reason="again"))
    order = list(DeliveryState)
    if delivery.state.is_final or order.index(second) <= order.index(first):
        assert later is delivery
        assert later_endpoint is endpoint
    else:
        assert later.state is second


def test_a_failure_leaves_the_live_version_alone() -> None:
    endpoint, _ = hear(*requested(), DONE)
    endpoint, second = requested(endpoint, tier=2)
    later, failed = hear(endpoint, second, DeliveryReport(DeliveryState.FAILED, reason="does not match"))
    assert (failed.state, failed.reason) == (DeliveryState.FAILED, "does not match")
    assert later == endpoint


def test_two_deliveries_that_end_in_either_order_leave_the_newer_live() -> None:
    endpoint, first = requested()
    endpoint, second = requested(endpoint, tier=2)
    endpoint, _ = hear(endpoint, second, DONE)
    endpoint, _ = hear(endpoint, first, DONE)
    assert [version.version for version in endpoint.versions] == [1, 2]
    assert endpoint.live_version == 2


def test_a_version_belongs_to_the_variant_that_it_was_asked_for() -> None:
    endpoint = Endpoint("digits", "alice")
    for number, variant in ((1, "small"), (2, "large"), (3, "small")):
        endpoint, delivery = machine.request(endpoint, f"j{number}", 1, 0.9, AT, variant=variant)
        assert (delivery.variant, delivery.version) == (variant, number)
        if number != 2:
            endpoint, _ = hear(endpoint, delivery, DONE)
        else:
            late = delivery
    assert [(version.variant, version.version) for version in endpoint.live] == [("small", 3)]
    endpoint, _ = hear(endpoint, late, DONE)
    assert [(version.variant, version.version) for version in endpoint.live] == [("large", 2), ("small", 3)]
    assert endpoint.live_version == 3


def test_without_variants_the_newest_version_is_live() -> None:
    endpoint, first = requested()
    endpoint, second = requested(endpoint, tier=2)
    for delivery in (second, first):
        endpoint, _ = hear(endpoint, delivery, DONE)
    assert [version.version for version in endpoint.live] == [endpoint.live_version] == [2]
    assert Endpoint("new", "alice").live == ()


def test_what_became_of_cheap_variants_stays_with_the_version() -> None:
    refused = CheapVariant(VariantKind.FP16, reason="it is not faster where it was made", value=0.9)
    variants = (CheapVariant(VariantKind.INT8, shipped=True, value=0.9), refused)
    loading = DeliveryReport(DeliveryState.LOADING, 0.91, "ab", cheap_variants=variants)
    endpoint, delivery = hear(*requested(), loading)
    assert machine.facts_of(delivery).cheap_variants == variants
    endpoint, delivery = hear(endpoint, delivery, replace(DONE, cheap_variants=variants))
    assert (delivery.cheap_variants, endpoint.versions[0].cheap_variants) == (variants, variants)
    assert storage.from_json(Endpoint, storage.to_json(endpoint)) == endpoint
    _, twin = hear(*requested(tier=2), loading)
    assert twin.cheap_variants == variants
