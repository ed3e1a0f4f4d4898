"""Which jobs are submitted when: seeded, so that every policy sees the same work at the same times."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from benchmarks.scheduling.kinds import KINDS, Kind

TRAINING_SEEDS = 3
"""Repetition ``r`` trains with seed ``r`` modulo this: recordings of so many seeds tell every curve in advance."""

OBJECTIVE_SECONDS = 0.05
"""The delay that the application wants (its QoE objective); an answer that comes later is worth nothing."""


@dataclass(frozen=True, slots=True)
class ScheduledJob:
    """A job of a schedule."""

    name: str  # unique in its schedule; also its endpoint's name
    kind: str  # name of what it trains, see :data:`benchmarks.scheduling.kinds.KINDS`
    training_seed: int  # of weights and order of the data
    at_seconds: float  # when it is submitted, since the schedule's beginning


@dataclass(frozen=True, slots=True)
class Schedule:
    """Jobs with their times, and requests beside them."""

    name: str  # what it is like
    repetition: int  # counts the schedules of the same name; each has other arrivals, jobs and training seeds
    jobs: tuple[ScheduledJob, ...]  # by time of submission
    requests_per_second: float = 0.0  # sent to the endpoints that have a version, in total; 0 for none
    nodes: int = 1  # how many there are, 1 or 2; together they have the machine's cores

    @property
    def objective_seconds(self) -> float | None:
        """Delay that is wanted from the endpoints (QoE objective); None when nobody asks them."""
        return OBJECTIVE_SECONDS if self.requests_per_second else None

    @property
    def block(self) -> str:
        """Names the schedule among all: ``NAME-REPETITION``."""
        return f"{self.name}-{self.repetition}"


def make_schedule(name: str, repetition: int, seed: int = 0) -> Schedule:
    """The schedule of a name and a repetition.

    Args:
        name: One of :data:`SCHEDULES`.
        repetition: 0 or more.
        seed: Another one gives other schedules throughout.

    Raises:
        ValueError: There is no such schedule.
    """
    recipe = SCHEDULES.get(name)
    if recipe is None:
        raise ValueError(f"there is no schedule {name!r}; choose of {', '.join(SCHEDULES)}")
    # Text seeds are hashed by their content: the same on every machine and in every process.
    generator = random.Random(f"{seed}/{name}/{repetition}")
    kinds, times = recipe.draw(generator)
    training_seed = repetition % TRAINING_SEEDS
    jobs = [
        ScheduledJob(f"{kind}-{number}", kind, training_seed, round(at, 2))
        for number, (kind, at) in enumerate(zip(kinds, times, strict=True), 1)
    ]
    return Schedule(name, repetition, tuple(jobs), recipe.requests_per_second, recipe.nodes)


@dataclass(frozen=True, slots=True)
class Recipe:
    """How schedules of a name are drawn."""

    about: str  # what it is like, for people
    # From a generator of random numbers to kinds and times in seconds; times never fall.
    draw: Callable[[random.Random], tuple[list[str], list[float]]]
    requests_per_second: float = 0.0  # of the application beside it
    nodes: int = 1  # how many there are, 1 or 2


def draw_kinds(generator: random.Random, count: int, among: Mapping[str, Kind] = KINDS) -> list[str]:
    """Kinds in random order, each once before any comes again."""
    drawn: list[str] = []
    while len(drawn) < count:
        names = sorted(among)
        generator.shuffle(names)
        drawn += names
    return drawn[:count]


def _fixed(generator: random.Random) -> tuple[list[str], list[float]]:
    kinds = ["vae-wide", "cnn-wide", "mlp-wide", "mlp-small"]
    # The first is the long one, as in FlowCon's and TRADL's fixed schedules; the others take turns.
    rest = kinds[1:]
    generator.shuffle(rest)
    return [kinds[0], *rest], [0.0, 3.0, 6.0, 9.0]


def _at_once(count: int) -> Callable[[random.Random], tuple[list[str], list[float]]]:
    return lambda generator: (draw_kinds(generator, count), [0.0] * count)


def _uniform(count: int, seconds: float) -> Callable[[random.Random], tuple[list[str], list[float]]]:
    def draw(generator: random.Random) -> tuple[list[str], list[float]]:
        return draw_kinds(generator, count), sorted(generator.uniform(0.0, seconds) for _ in range(count))

    return draw


def _mixed(generator: random.Random) -> tuple[list[str], list[float]]:
    # Only classifiers: the accuracy of what is served adds up over endpoints.
    classifiers = {name: kind for name, kind in KINDS.items() if kind.metric == "accuracy"}
    return draw_kinds(generator, 6, classifiers), [0.0, 0.0, 0.0, *sorted(generator.uniform(2, 12) for _ in range(3))]


def _small(generator: random.Random) -> tuple[list[str], list[float]]:
    kinds = ["mlp-small", "gru-small", "cnn-small"]
    generator.shuffle(kinds)
    return kinds, [0.0, 0.0, 0.0]


SCHEDULES: Mapping[str, Recipe] = MappingProxyType(
    {
        "at-once": Recipe("6 jobs at the same time", _at_once(6)),
        "random": Recipe("6 jobs, uniform in 0-15 s", _uniform(6, 15.0)),
        "ten": Recipe("10 jobs, uniform in 0-25 s", _uniform(10, 25.0)),
        "mixed": Recipe("6 classifiers in 0-12 s, their endpoints under 60 requests a second", _mixed, 60.0),
        "two-nodes": Recipe(
            "8 jobs, uniform in 0-8 s, on two nodes of half the machine each", _uniform(8, 8.0), nodes=2
        ),
        "fixed": Recipe("4 jobs, 3 s apart, the longest first (FlowCon's and TRADL's, scaled to seconds)", _fixed),
        "fifteen": Recipe("15 jobs, uniform in 0-30 s", _uniform(15, 30.0)),
        "small": Recipe("3 jobs at the same time; for trying things out", _small),
    }
)
"""How to draw schedules, by name; the order is that of a full run."""
