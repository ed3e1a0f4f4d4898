"""What holds for every scheduler and every pool."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testing.pool.arrivals import SHAPES, arrivals
from testing.pool.simulation import Pool, PoolSimulation, simulate
from tiercel.serving.scheduling.aimd import AimdScheduler
from tiercel.serving.scheduling.heuristic import HeuristicScheduler
from tiercel.serving.scheduling.interface import BATCHES, Profile, Scheduler, WorkerKind
from tiercel.serving.scheduling.static import StaticScheduler
from tiercel.serving.scheduling.utility import FORMS, utility

MAKERS = [StaticScheduler, HeuristicScheduler, AimdScheduler]


@st.composite
def pools(draw: st.DrawFn) -> Pool:
    profiles: list[Profile] = []
    for index in range(draw(st.integers(1, 5))):
        fixed, per_row = draw(st.floats(1e-4, 0.05)), draw(st.floats(0.0, 0.02))
        batches = BATCHES[: draw(st.integers(1, len(BATCHES)))]
        seconds = tuple(fixed + per_row * batch for batch in batches)
        profiles.append(Profile(f"v{index}", draw(st.floats(0.1, 1.0)), seconds))
    profiles.sort(key=lambda profile: -profile.accuracy)
    kinds = []
    for _ in range(draw(st.integers(1, 3))):
        speeds = [draw(st.floats(0.1, 10.0)) for _ in profiles]
        there = tuple(
            Profile(each.name, each.accuracy, tuple(one / speed for one in each.seconds))
            for each, speed in zip(profiles, speeds, strict=True)
        )
        kinds.append(WorkerKind(there, (0.0,) * draw(st.integers(1, 3))))
    return Pool(tuple(kinds), draw(st.floats(0.005, 0.5)), utility(draw(st.sampled_from(FORMS))))


@st.composite
def runs(draw: st.DrawFn) -> tuple[Pool, list[float]]:
    pool = draw(pools())
    rate = pool.capacity * draw(st.floats(0.1, 2.0))
    rng = random.Random(draw(st.integers(0, 2**32)))
    return pool, arrivals(draw(st.sampled_from(SHAPES)), rate, 60 / rate, 10 / rate, rng)


@pytest.mark.parametrize("make", MAKERS)
@settings(max_examples=40, deadline=None)
@given(run=runs())
def test_decisions_are_feasible_and_every_request_is_answered_or_given_up_once(
    make: type[HeuristicScheduler], run: tuple[Pool, list[float]]
) -> None:
    pool, times = run
    scheduler: Scheduler = make()
    simulation = PoolSimulation(pool, times)
    while (view := simulation.next_view()) is not None:
        assert view.count >= 1
        assert view.oldest >= view.p90 >= view.median >= 0.0
        assert any(kind.idle for kind in view.kinds)
        decision = scheduler.decide(view)
        if decision is not None:
            assert view.kinds[decision.kind].idle
            assert decision.batch in view.kinds[decision.kind].profiles[decision.variant].batches
        before = simulation.score.answered
        simulation.apply(decision)
        taken = simulation.score.answered - before
        assert taken <= view.count
        assert taken <= decision.batch if decision is not None else taken == 0
        assert simulation.score.decisions < 50 * len(times)
    score = simulation.score
    assert score.answered + score.dropped == len(times) == len(score.delays) + score.dropped


@pytest.mark.parametrize("make", MAKERS)
@settings(max_examples=10, deadline=None)
@given(run=runs())
def test_the_same_requests_give_the_same_run(make: type[HeuristicScheduler], run: tuple[Pool, list[float]]) -> None:
    pool, times = run
    assert simulate(pool, times, make()) == simulate(pool, times, make())


@settings(max_examples=20, deadline=None)
@given(run=runs(), steps=st.integers(0, 30))
def test_a_branch_goes_on_like_the_run_it_came_from_and_leaves_it_alone(
    run: tuple[Pool, list[float]], steps: int
) -> None:
    pool, times = run
    simulation, scheduler = PoolSimulation(pool, times), HeuristicScheduler()
    for _ in range(steps):
        view = simulation.next_view()
        if view is None:
            return
        simulation.apply(scheduler.decide(view))
    before = simulation.score.utility
    branch = simulation.branch(float("inf"))
    for each in (branch, simulation):
        while (view := each.next_view()) is not None:
            each.apply(scheduler.decide(view))
    assert before + branch.score.utility == pytest.approx(simulation.score.utility)
