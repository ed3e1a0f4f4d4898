"""Whatever is asked of an endpoint: as many nodes as that takes, never to and fro, and always within bounds."""

from __future__ import annotations

import itertools
import random

from hypothesis import given
from hypothesis import strategies as st

from tiercel.broker.lifecycle.replica_count import LOOK_SECONDS, SHRINK_SECONDS, Reading, Trend, decide
from tiercel.core.validation import MAX_REPLICAS

parts = st.floats(0, 1)
rates = st.floats(0, 1e6)


@given(
    count=st.integers(1, MAX_REPLICAS),
    looks=st.lists(
        st.none()
        | st.builds(
            Reading,
            answering=st.integers(0, MAX_REPLICAS),
            able=st.integers(0, 20),
            whole=st.booleans(),
            ended=st.integers(0, 10**6),
            requests_per_second=rates,
            answers_per_second=rates,
            late=parts,
            lagging=st.booleans(),
            under_way=rates,
            busy=parts,
        ),
        max_size=40,
    ),
    seconds=st.sampled_from([LOOK_SECONDS, 60.0, 400.0]),
)
def test_any_readings_leave_it_within_bounds_and_it_is_always_said_why(
    count: int, looks: list[Reading | None], seconds: float
) -> None:
    trend, now = Trend(), 0.0
    for reading in looks:
        now += seconds
        decision = decide(count, reading, trend, now)
        assert 1 <= decision.count <= MAX_REPLICAS
        if decision.count > count:
            assert reading is not None
            assert decision.count <= reading.able
        assert decision.count >= count - 1
        assert decision.reason
        count, trend = decision.count, decision.trend


class World:
    """Nodes of which each answers so much a second, those that wait at each as in a queue with one place.

    Args:
        capacity: Requests a second that a node answers.
        on_cpu: Whether its CPU is what does it; else an accelerator.
        nodes: How many there are.
        seed: Of the chance by which few requests differ from the rule.
    """

    def __init__(self, capacity: float, *, on_cpu: bool, nodes: int, seed: int = 0) -> None:
        self.capacity, self.on_cpu, self.nodes = capacity, on_cpu, nodes
        self.chance = random.Random(seed)

    def reading(self, rate: float, count: int) -> Reading:
        count = min(count, self.nodes)
        load = rate / count / self.capacity
        waiting = load / (1 - load) if load < 0.99 else 100.0
        late = max(0.0, load - 0.6) ** 2 if load < 0.99 else 1.0  # more, the fuller it is
        ended = round(min(rate, self.capacity * count) * LOOK_SECONDS)
        unlucky = sum(self.chance.random() < late for _ in range(min(ended, 60)))
        return Reading(
            count,
            self.nodes,
            ended=min(ended, 60),
            requests_per_second=rate,
            answers_per_second=min(rate, self.capacity * count),
            late=unlucky / min(ended, 60) if ended else 0.0,
            under_way=waiting * count,
            busy=min(load, 1.0) if self.on_cpu else 0.02,
        )

    def counts(self, rate: float, count: int, seconds: float) -> list[int]:
        """How many there are, look by look, while as much is asked."""
        found, trend = [count], Trend()
        for look in range(int(seconds / LOOK_SECONDS)):
            decision = decide(count, self.reading(rate, count), trend, look * LOOK_SECONDS)
            count, trend = decision.count, decision.trend
            found.append(count)
        return found


@given(
    load=st.floats(0, 12),
    start=st.integers(1, MAX_REPLICAS),
    nodes=st.integers(1, 10),
    on_cpu=st.booleans(),
    seed=st.integers(0, 99),
)
def test_where_as_much_is_asked_all_the_time_it_settles_and_stays(
    load: float, start: int, nodes: int, on_cpu: bool, seed: int
) -> None:
    world = World(20.0, on_cpu=on_cpu, nodes=nodes, seed=seed)
    counts = world.counts(load * 20.0, start, 3600)
    turns = [after - before for before, after in itertools.pairwise(counts) if after != before]
    downs = [turn for turn in turns if turn < 0]
    ups = turns[len(downs) :]
    assert turns == downs + ups, f"to and fro: {counts}"
    assert not (downs and ups) or len(ups) == 1, f"more than one step too far: {counts}"
    settled = counts[-1]
    most = min(nodes, MAX_REPLICAS)
    assert settled >= most or load / settled < 0.99, "requests pile up while there are nodes"
    if load == 0:
        assert settled == 1


@given(load=st.floats(1.0, 6), on_cpu=st.booleans())
def test_a_flood_has_its_nodes_within_two_minutes(load: float, on_cpu: bool) -> None:
    counts = World(20.0, on_cpu=on_cpu, nodes=10).counts(load * 20.0, 1, 120)
    assert load / counts[-1] < 0.99


@given(peak=st.floats(0.5, 6), pause=st.floats(10, SHRINK_SECONDS - 2 * LOOK_SECONDS))
def test_pauses_that_are_shorter_than_five_minutes_take_nothing_away(peak: float, pause: float) -> None:
    world = World(20.0, on_cpu=True, nodes=10)
    count, trend, highest = 1, Trend(), 1
    for look in range(400):
        now = look * LOOK_SECONDS
        rate = peak * 20.0 if now % (pause + 60) < 60 else 0.0
        decision = decide(count, world.reading(rate, count), trend, now)
        count, trend = decision.count, decision.trend
        highest = max(highest, count)
        if peak > 0.45:
            assert count == highest
