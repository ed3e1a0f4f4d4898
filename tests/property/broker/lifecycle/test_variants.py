"""Whatever jobs reach and nodes repeat: version numbers are given once, and each variant answers with its newest."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tiercel.broker.lifecycle import endpoint as machine
from tiercel.broker.lifecycle.endpoint import DeliveryReport
from tiercel.core.endpoints import Delivery, DeliveryState, Endpoint
from tiercel.core.storage import from_json, to_json

VARIANTS = ("small", "large", "huge")
STATES = st.sampled_from(DeliveryState)
# Either a tier is reached for a variant, or something is heard of one of the deliveries so far.
STEPS = st.lists(st.one_of(st.sampled_from(VARIANTS), st.tuples(st.integers(0, 30), STATES)), max_size=60)


@given(STEPS)
def test_numbers_are_given_once_and_the_newest_of_each_variant_is_live(
    steps: list[str | tuple[int, DeliveryState]],
) -> None:
    endpoint = Endpoint("digits", "alice")
    deliveries: list[Delivery] = []
    for at, step in enumerate(steps, start=1):
        if isinstance(step, str):
            endpoint, delivery = machine.request(endpoint, f"j{at}", 1, 0.9, float(at), variant=step)
            deliveries.append(delivery)
        elif deliveries:
            index, state = step[0] % len(deliveries), step[1]
            endpoint, deliveries[index] = machine.progress(
                endpoint, deliveries[index], DeliveryReport(state, 0.9), metric="accuracy", node_id="n1", now=float(at)
            )
        endpoint = from_json(Endpoint, to_json(endpoint))  # the broker is killed at any moment
    assert [delivery.version for delivery in deliveries] == list(range(1, len(deliveries) + 1))
    assert endpoint.next_version == len(deliveries) + 1
    arrived = [delivery for delivery in deliveries if delivery.state is DeliveryState.DELIVERED]
    assert {(version.version, version.variant) for version in endpoint.versions} == {
        (delivery.version, delivery.variant) for delivery in arrived
    }
    newest = {delivery.variant: delivery.version for delivery in arrived}
    assert {version.variant: version.version for version in endpoint.live} == newest
    assert endpoint.live_version == max(newest.values(), default=None)
