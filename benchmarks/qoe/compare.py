"""Schedulers on the same arrivals: loads, shapes of arrivals, utilities; differences are paired over seeds."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import scipy

from benchmarks.qoe.scenarios import JITTER
from testing.pool.arrivals import SHAPES, Shape, arrivals
from testing.pool.optimum import optimum
from testing.pool.simulation import Pool, Score, alike, simulate
from tiercel.serving.scheduling.interface import Profile, Scheduler
from tiercel.serving.scheduling.utility import FORMS, Form, utility

Make = Callable[[], Scheduler]

# Arrival seeds from here on are for comparing; training has others.
_SEED = 90_000
_TICK = 0.001


@dataclass(frozen=True, slots=True)
class Point:
    """One cell of the sweep."""

    form: Form  # of the utility
    shape: Shape  # of the arrivals
    load: float  # over the capacity of the fastest variant
    means: Mapping[str, Sequence[float]]  # mean utility per request by scheduler, one for each seed
    decisions: Mapping[str, float]  # decisions per answered request by scheduler, mean over the seeds
    ticks: float  # the same of a scheduler that decides every millisecond

    def mean(self, name: str) -> float:
        """Mean over the seeds."""
        return sum(self.means[name]) / len(self.means[name])

    def best_static(self) -> str:
        """Name of the best variant alone."""
        return max((name for name in self.means if name.startswith("static ")), key=self.mean)

    def difference(self, name: str, other: str, confidence: float = 0.95) -> tuple[float, float]:
        """Mean of the paired differences, and half of the width of its confidence interval."""
        return paired(self.means[name], self.means[other], confidence)

    def to_json(self) -> dict[str, Any]:
        """As it stands in the result file."""
        return {
            "utility": self.form,
            "arrivals": self.shape,
            "load": self.load,
            "mean_utility": {name: round(self.mean(name), 5) for name in self.means},
            "over_best_static": {
                name: {"best": self.best_static(), "mean": round(mean, 5), "half_width_95": round(half, 5)}
                for name in self.means
                if not name.startswith("static ")
                for mean, half in (self.difference(name, self.best_static()),)
            },
            "decisions_per_answer": {name: round(value, 4) for name, value in self.decisions.items()},
            "clock_stepped_decisions_per_answer": round(self.ticks, 4),
        }


def paired(one: Sequence[float], other: Sequence[float], confidence: float = 0.95) -> tuple[float, float]:
    """Mean of the differences, and half of the width of its confidence interval (Student's t)."""
    differences = [a - b for a, b in zip(one, other, strict=True)]
    mean = sum(differences) / len(differences)
    variance = sum((each - mean) ** 2 for each in differences) / max(1, len(differences) - 1)
    quantile = float(scipy.stats.t.ppf((1.0 + confidence) / 2.0, max(1, len(differences) - 1)))
    return mean, quantile * math.sqrt(variance / len(differences))


def sweep(
    profiles: tuple[Profile, ...],
    schedulers: Mapping[str, Make],
    objective: float,
    loads: Sequence[float],
    seeds: int,
    requests: int,
    say: Callable[[str], None],
) -> list[Point]:
    """All schedulers at every load, for each shape of arrivals and each utility, on two workers; says how far it is."""
    points = []
    for form in FORMS:
        pool = Pool(alike(profiles, 2), objective, utility(form), JITTER)
        for shape in SHAPES:
            points += [_point(pool, form, shape, load, schedulers, seeds, requests) for load in loads]
            say(f"{form}, {shape}: {len(loads)} loads compared")
    return points


def _point(
    pool: Pool, form: Form, shape: Shape, load: float, schedulers: Mapping[str, Make], seeds: int, requests: int
) -> Point:
    rate = load * pool.capacity
    warm_up = 8.0 * pool.objective
    duration = warm_up + max(requests / rate, 12.0 * pool.objective)
    means: dict[str, list[float]] = {name: [] for name in schedulers}
    decisions: dict[str, float] = {}
    ticks = 0.0
    for seed in range(_SEED, _SEED + seeds):
        times = arrivals(shape, rate, duration, 20.0 * pool.objective, random.Random(seed))
        for name, make in schedulers.items():
            score: Score = simulate(pool, times, make(), random.Random(seed), warm_up)
            means[name].append(score.mean)
            decisions[name] = decisions.get(name, 0.0) + score.decisions / max(1, score.answered) / seeds
        ticks += duration / _TICK / max(1, len(times)) / seeds
    return Point(form, shape, load, means, decisions, ticks)


def of_optimum(
    profiles: tuple[Profile, ...], schedulers: Mapping[str, Make], objective: float, cases: int, requests: int = 24
) -> dict[str, tuple[float, float]]:
    """What part of the best that one who knows the future can earn: mean over small cases, and its 95 % half-width."""
    shares: dict[str, list[float]] = {name: [] for name in schedulers}
    for form in FORMS:
        pool = Pool(alike(profiles, 1), objective, utility(form))
        for case in range(cases):
            rng = random.Random(_SEED + case)
            rate = rng.uniform(0.1, 0.8) * profiles[-1].capacity(8)
            times = arrivals(SHAPES[case % len(SHAPES)], rate, requests / rate, 20.0 * objective, rng)[:requests]
            best = optimum(pool, times, 8) if times else 0.0
            if best > 0.0:
                for name, make in schedulers.items():
                    shares[name].append(simulate(pool, times, make()).utility / best)
    return {name: paired(each, [0.0] * len(each)) for name, each in shares.items()}
