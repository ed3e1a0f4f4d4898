"""The rule by which a copy is chosen, against others, where some copies are faster and several servers hand on."""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from tiercel.serving.routing import choosing
from tiercel.serving.routing.choosing import Candidate, Load

Rule = Callable[[Sequence[Candidate], float, Callable[[int], int]], int]
MEAN_SECONDS = 0.01


def two_choices(candidates: Sequence[Candidate], now: float, draw: Callable[[int], int]) -> int:
    """Of two drawn the one that is expected sooner."""
    first, second = draw(len(candidates)), draw(len(candidates) - 1)
    second += second >= first
    expected = choosing.least_delay(candidates)
    return min((first, second), key=lambda index: choosing.cost(candidates[index].load, now, expected))


def in_turns() -> Rule:
    """One after the other."""
    turn = -1

    def choose(candidates: Sequence[Candidate], now: float, draw: Callable[[int], int]) -> int:
        nonlocal turn
        turn += 1
        return turn % len(candidates)

    return choose


def p99(rule: Rule, speeds: Sequence[float], *, senders: int, part: float, requests: int = 4000) -> float:
    """The 99th percentile of delays, seconds, where so much of what all copies can do is asked of them."""
    chance = random.Random(7)
    loads = [[Load() for _ in speeds] for _ in range(senders)]
    queues: list[deque[tuple[float, int]]] = [deque() for _ in speeds]
    events: list[tuple[float, int, int]] = [(0.0, 0, -1)]  # when, which in order, the copy that is done or -1
    pause = MEAN_SECONDS / (part * sum(speeds))
    order, delays = 0, []

    def push(at: float, copy: int) -> None:
        nonlocal order
        order += 1
        heapq.heappush(events, (at, order, copy))

    def begin(copy: int, now: float) -> None:
        took = MEAN_SECONDS / 2 + chance.expovariate(2 / MEAN_SECONDS)
        push(now + took / speeds[copy], copy)

    arrived = 0
    while events:
        now, _, copy = heapq.heappop(events)
        if copy < 0:
            arrived += 1
            if arrived < requests:
                push(now + chance.expovariate(1 / pause), -1)
            sender = chance.randrange(senders)
            copy = rule([Candidate(load) for load in loads[sender]], now, chance.randrange)
            load = loads[sender][copy]
            loads[sender][copy] = replace(load, in_flight=load.in_flight + 1)
            queues[copy].append((now, sender))
            if len(queues[copy]) == 1:
                begin(copy, now)
        else:
            came, sender = queues[copy].popleft()
            load = loads[sender][copy]
            loads[sender][copy] = choosing.answered(replace(load, in_flight=load.in_flight - 1), now - came, now)
            delays.append(now - came)
            if queues[copy]:
                begin(copy, now)
    return sorted(delays[requests // 10 :])[-requests // 100]


@pytest.mark.parametrize("senders", [1, 8])
def test_copies_of_which_some_are_slower_answer_sooner_than_in_turns_or_by_two_choices(senders: int) -> None:
    speeds = (1.0, 1.0, 0.5, 0.25)
    found = p99(choosing.choose, speeds, senders=senders, part=0.8)
    assert found < 0.2 * p99(in_turns(), speeds, senders=senders, part=0.8), "the slow ones are not flooded"
    assert found < p99(two_choices, speeds, senders=senders, part=0.8)


def test_copies_that_are_alike_are_asked_alike() -> None:
    found = p99(choosing.choose, (1.0, 1.0, 1.0), senders=3, part=0.7)
    assert found < 1.1 * p99(in_turns(), (1.0, 1.0, 1.0), senders=3, part=0.7)
