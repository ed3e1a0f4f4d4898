"""Which node is asked: one of those there are, the one that is expected soonest; and one that failed is tried again."""

from __future__ import annotations

import random
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tiercel.serving.routing import choosing
from tiercel.serving.routing.choosing import Candidate, Load

seconds = st.floats(0, 100)
loads = st.builds(Load, st.integers(0, 1000), st.floats(0.0001, 60), st.none() | seconds)
candidates = st.lists(st.builds(Candidate, loads, st.booleans()), min_size=1, max_size=20)


@given(candidates, seconds, st.integers())
def test_who_stays_is_asked_before_who_goes_and_the_soonest_of_them(
    found: list[Candidate], now: float, seed: int
) -> None:
    index = choosing.choose(found, now, random.Random(seed).randrange)
    staying = [each for each in found if not each.draining]
    assert found[index].draining is not bool(staying)
    group = staying or found
    expected = choosing.least_delay(group)
    assert choosing.cost(found[index].load, now, expected) == min(
        choosing.cost(each.load, now, expected) for each in group
    )


@given(st.lists(st.tuples(st.booleans(), st.floats(0, 60), st.floats(0, 5)), max_size=50), st.floats(0, 1000))
def test_what_is_measured_stays_within_what_was_seen_and_fades(
    steps: list[tuple[bool, float, float]], silence: float
) -> None:
    load, now, largest = Load(), 0.0, choosing.EXPECTED_SECONDS
    for works, took, passed in steps:
        now += passed
        before = choosing.delay_now(load, now)
        load = choosing.answered(load, took, now) if works else choosing.failed(load, took, now)
        largest = max(largest, took)
        assert 0 <= load.delay_seconds <= largest * 1.000001
        if not works:
            assert load.delay_seconds >= max(took, before)
    later = choosing.delay_now(load, now + silence)
    expected = choosing.EXPECTED_SECONDS
    assert min(load.delay_seconds, expected) <= later + 1e-9
    assert abs(later - expected) <= abs(load.delay_seconds - expected) + 1e-9


def test_two_nodes_share_by_their_speed_and_one_that_failed_is_tried_again() -> None:
    draw = random.Random(1).randrange
    fast, slow = Load(delay_seconds=0.001, measured_at=0.0), choosing.failed(Load(), 30.0, 0.0)
    asked = [choosing.choose([Candidate(fast), Candidate(slow)], 0.0, draw) for _ in range(100)]
    assert set(asked) == {0}
    busy = Load(in_flight=3, delay_seconds=0.001, measured_at=60.0)
    assert choosing.choose([Candidate(busy), Candidate(slow)], 60.0, draw) == 1


@given(st.floats(0.0001, 10), st.integers(1, 200), st.integers(0, 99))
def test_one_of_which_nothing_is_known_gets_its_part_and_is_not_flooded(delay: float, requests: int, seed: int) -> None:
    draw = random.Random(seed).randrange
    known, new = Load(0, delay, 0.0), Load()
    for _ in range(requests):  # none of them is answered meanwhile
        if choosing.choose([Candidate(known), Candidate(new)], 0.0, draw):
            new = replace(new, in_flight=new.in_flight + 1)
        else:
            known = replace(known, in_flight=known.in_flight + 1)
    assert abs(known.in_flight - new.in_flight) <= 1


def test_the_first_answer_is_all_that_is_known_of_a_node() -> None:
    assert choosing.answered(Load(), 0.1, 5.0).delay_seconds == 0.1
