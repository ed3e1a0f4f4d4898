from __future__ import annotations

import itertools
import random

import pytest

from testing.pool.arrivals import SHAPES, Shape, arrivals
from testing.pool.optimum import optimum
from testing.pool.simulation import Pool, alike, simulate
from tiercel.serving.scheduling.heuristic import HeuristicScheduler
from tiercel.serving.scheduling.interface import BATCHES, Choice, Ended, Profile, View, WorkerKind
from tiercel.serving.scheduling.static import StaticScheduler
from tiercel.serving.scheduling.utility import FORMS, Form, utility

SLOW = Profile("slow", 0.9, tuple(0.2 + 0.1 * batch for batch in BATCHES))
FAST = Profile("fast", 0.6, tuple(0.05 + 0.01 * batch for batch in BATCHES))
POOL = Pool(alike((SLOW, FAST), 1), 1.0, utility("deadline"))


def test_a_run_by_hand() -> None:
    # 0.0 starts at once and ends at 0.3; the next two wait for it and end at 0.7; 5.0 ends at 5.3.
    score = simulate(POOL, [0.0, 0.1, 0.2, 5.0], StaticScheduler("slow"))
    assert score.delays == pytest.approx([0.3, 0.6, 0.5, 0.3])
    assert score.utility == pytest.approx(4 * 0.9)
    assert (score.answered, score.dropped, score.decisions, score.rows) == (4, 0, 3, {"slow": 4})


def test_what_cannot_be_answered_in_time_is_given_up_where_that_is_all_that_counts() -> None:
    pool = Pool(alike((Profile("only", 0.9, (0.6,)),), 1), 1.0, utility("deadline"))
    score = simulate(pool, [0.0, 0.01, 0.02, 0.3], StaticScheduler())
    assert (score.answered, score.dropped) == (2, 2)
    assert score.mean == pytest.approx(0.45)


def test_a_scheduler_that_waits_is_asked_again_at_the_next_arrival_or_after_a_tenth_of_the_objective() -> None:
    class Waits:
        def __init__(self) -> None:
            self.asked: list[tuple[int, float]] = []

        def decide(self, view: View) -> Choice | None:
            self.asked.append((view.count, round(view.oldest, 6)))
            return Choice(1, 8) if view.count == 3 or len(self.asked) > 6 else None

        def ended(self, run: Ended) -> None:
            pass

    scheduler = Waits()
    score = simulate(POOL, [0.0, 0.05, 0.17, 9.0], scheduler)
    assert scheduler.asked[:4] == [(1, 0.0), (2, 0.05), (2, 0.15), (3, 0.17)]
    assert score.waits == 5
    assert score.answered == 4


@pytest.mark.parametrize("shape", SHAPES)
def test_arrivals_are_sorted_have_the_mean_rate_and_come_from_the_seed(shape: Shape) -> None:
    times = arrivals(shape, 200.0, 100.0, 0.5, random.Random(3))
    assert times == sorted(times)
    assert len(times) == pytest.approx(20_000, rel=0.1)
    assert times == arrivals(shape, 200.0, 100.0, 0.5, random.Random(3))
    assert times != arrivals(shape, 200.0, 100.0, 0.5, random.Random(4))


def test_bursts_vary_more_than_chance() -> None:
    def spread(shape: Shape) -> float:
        times = arrivals(shape, 200.0, 100.0, 4.0, random.Random(3))
        counts = [sum(1 for _ in group) for _, group in itertools.groupby(times, key=int)]
        mean = sum(counts) / len(counts)
        return sum((count - mean) ** 2 for count in counts) / len(counts) / mean

    assert spread("constant") < 2 < spread("bursty")


def test_the_optimum_of_a_case_by_hand() -> None:
    # Alone the first gets the accurate answer at 0.3. Both of the others want it together: 0.1 + 0.4 s later.
    assert optimum(POOL, [0.0, 0.6, 0.7]) == pytest.approx(2.7)
    tight = Pool(alike((SLOW, FAST), 1), 0.35, utility("deadline"))
    # Accurate answers to both come too late, and after one there is no time for a fast one unless it comes later.
    assert optimum(tight, [0.0, 0.0]) == pytest.approx(1.2)
    assert optimum(tight, [0.0, 0.05]) == pytest.approx(1.5)


QUICK = Profile("slow", 0.9, tuple(0.1 + 0.02 * batch for batch in BATCHES))
QUICKER = Profile("fast", 0.6, tuple(0.04 + 0.002 * batch for batch in BATCHES))
KINDS = (WorkerKind((SLOW, FAST), (0.0,)), WorkerKind((QUICK, QUICKER), (0.2,)))


@pytest.mark.parametrize("kinds", [alike((SLOW, FAST), 1), alike((SLOW, FAST), 2), KINDS])
@pytest.mark.parametrize("form", FORMS)
def test_the_optimum_equals_trying_everything(kinds: tuple[WorkerKind, ...], form: Form) -> None:
    pool = Pool(kinds, 0.45, utility(form))
    rng = random.Random(5)
    for _ in range(3):
        times = sorted(rng.uniform(0.0, 0.6) for _ in range(4))
        free = tuple((kind.profiles, at) for kind in kinds for at in kind.busy)
        assert optimum(pool, times) == pytest.approx(tried_out(pool, times, free))


def tried_out(pool: Pool, times: list[float], free: tuple[tuple[tuple[Profile, ...], float], ...]) -> float:
    """The best of all ways: any requests next, in whatever order, on any worker."""
    best = 0.0
    for size in range(1, len(times) + 1):
        for taken in itertools.combinations(times, size):
            left = [at for at in times if at not in taken]
            for index, (profiles, at) in enumerate(free):
                for profile in profiles:
                    end = max(at, taken[-1]) + profile.seconds_for(size)
                    gain = sum(pool.utility.value(profile.accuracy, end - each, pool.objective) for each in taken)
                    if gain > 0.0:
                        then = (*free[:index], (profiles, end), *free[index + 1 :])
                        best = max(best, gain + tried_out(pool, left, then))
    return best


def test_an_optimum_of_no_less_than_somebody_earned_is_the_same() -> None:
    pool = Pool(KINDS, 0.45, utility("soft"))
    times = [0.0, 0.1, 0.11, 0.3, 0.32, 0.33]
    earned = simulate(pool, times, HeuristicScheduler()).utility
    assert earned <= optimum(pool, times, at_least=earned) == pytest.approx(optimum(pool, times))


def test_no_scheduler_beats_the_optimum() -> None:
    times = arrivals("constant", 4.0, 6.0, 1.0, random.Random(1))
    for scheduler in (HeuristicScheduler(), StaticScheduler("fast"), StaticScheduler("slow")):
        assert simulate(POOL, times, scheduler).utility <= optimum(POOL, times) + 1e-9


def test_the_optimum_is_for_pools_without_jitter() -> None:
    with pytest.raises(ValueError, match="without jitter"):
        optimum(Pool(alike((SLOW,), 2), 1.0, utility("soft"), 0.1), [0.0])


def test_a_scheduler_that_waits_is_asked_again_when_another_worker_is_free() -> None:
    class TakesTheQuick:
        def decide(self, view: View) -> Choice | None:
            return Choice(0, 1, 1) if view.kinds[1].idle else None

        def ended(self, run: Ended) -> None:
            pass

    score = simulate(Pool(KINDS, 5.0, utility("soft")), [0.0, 0.01], TakesTheQuick())
    assert score.delays == pytest.approx([0.32, 0.43]), "free at 0.2, then each takes 0.12"
