"""The sanity grid: the heuristic against each variant alone, over loads and utilities, on seeded arrivals."""

from __future__ import annotations

import math
import random
import statistics

import pytest

from testing.pool.arrivals import arrivals
from testing.pool.simulation import Pool, alike, simulate
from tiercel.serving.scheduling.heuristic import HeuristicScheduler
from tiercel.serving.scheduling.interface import BATCHES, Profile, Scheduler
from tiercel.serving.scheduling.static import StaticScheduler
from tiercel.serving.scheduling.utility import FORMS, Form, utility

PROFILES = tuple(
    Profile(name, accuracy, tuple(fixed + per_row * batch for batch in BATCHES))
    for name, accuracy, fixed, per_row in (
        ("big", 0.985, 0.002, 0.006),
        ("mid", 0.96, 0.001, 0.0012),
        ("small", 0.90, 0.0004, 0.0002),
    )
)
_SEEDS = range(1, 6)
# Of the t distribution with four degrees of freedom: 95 % in the middle.
_T = 2.776


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("load", [0.1, 0.4, 0.8, 1.2])
def test_the_heuristic_is_never_worse_than_the_best_variant_alone(form: Form, load: float) -> None:
    pool = Pool(alike(PROFILES, 2), 0.05, utility(form), jitter=0.1)
    rate = load * pool.capacity
    # Long enough for the queue to grow to where an overload holds it; what was decided before the rate was known does
    # not count.
    warm_up, duration = 20 * pool.objective, max(1_500 / rate, 30 * pool.objective)
    runs = {seed: arrivals("constant", rate, duration, 2.0, random.Random(seed)) for seed in _SEEDS}

    def means(scheduler: type[HeuristicScheduler] | str) -> list[float]:
        def made() -> Scheduler:
            return StaticScheduler(scheduler) if isinstance(scheduler, str) else scheduler()

        return [simulate(pool, times, made(), random.Random(seed), warm_up).mean for seed, times in runs.items()]

    best = max((means(profile.name) for profile in PROFILES), key=statistics.mean)
    gains = [one - other for one, other in zip(means(HeuristicScheduler), best, strict=True)]
    half_width = _T * statistics.stdev(gains) / math.sqrt(len(gains))
    print(f"{form} load {load}: {statistics.mean(gains):+.5f} ± {half_width:.5f}")
    assert statistics.mean(gains) + half_width >= 0.0
    assert statistics.mean(gains) >= -0.002
