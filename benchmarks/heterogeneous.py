"""Workers of several kinds: what is left to gain over the heuristic, ``make bench-heterogeneous``; two minutes of CPU.

Every case is drawn from its seed: variants, two to four kinds of workers (at most four workers), objective, utility,
shape of arrivals and load. None of these seeds was looked at while the heuristic was changed. Two questions:

* Small cases, eight requests: what part of the exact optimum of one who knows all arrivals? Beside it one who knows how
  often requests come and how many are left, but not when: it tries each decision on a few draws of what may come, going
  on with the heuristic. What it has over the heuristic can be had without knowing the future; it is too slow to ship.
* Long cases: how much more than the same rule that never leaves a free worker idle for a better one ("at once"), which
  is as near to Fang et al. (CIKM 2017) as can be told from their abstract, and more than the best variant alone?

Beside the heuristic, the policy that ``python -m benchmarks.qoe train`` trained on other draws of such pools
("learned").

Utilities are over that of a most accurate answer at no delay. Intervals are 95 % (Student's t, paired over cases).
"""

from __future__ import annotations

import functools
import math
import random
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import typer

from benchmarks.bars import keep_result
from benchmarks.qoe.compare import paired
from benchmarks.qoe.learned import LearnedScheduler, Policy, kept_policy
from benchmarks.qoe.scenarios import mixed_pool
from benchmarks.results import KEEP_HELP, ROOT, Bar, Json
from benchmarks.sections import bars_table, table, write_section
from testing.pool.arrivals import SHAPES, Shape, arrivals
from testing.pool.optimum import optimum
from testing.pool.simulation import Pool, PoolSimulation, simulate
from tiercel.serving.scheduling.heuristic import HeuristicScheduler
from tiercel.serving.scheduling.interface import Choice, Ended, Scheduler, View
from tiercel.serving.scheduling.static import StaticScheduler

KINDS = (2, 3, 4)
SMALL, LONG = 8, 120  # requests
CASES = 35  # of each number of kinds
DRAWS = 8
FIRST_SEED = 50_000
DOCUMENT = ROOT / "docs" / "results.md"


@dataclass(frozen=True, slots=True)
class Case:
    """What is compared on."""

    kinds: int  # of workers
    pool: Pool  # without jitter
    shape: Shape  # of the arrivals
    rate: float  # requests per second, in the mean
    times: list[float]  # of their arrival, seconds

    def part(self, earned: float) -> float:
        """Utility per request over that of a most accurate answer."""
        return earned / len(self.times) / self.pool.kinds[0].profiles[0].accuracy


def drawn(seed: int, kinds: int, requests: int) -> Case:
    """The case of a seed."""
    rng = random.Random(f"heterogeneous {seed}")
    pool = mixed_pool(rng, kinds)
    shape, rate = rng.choice(SHAPES), rng.uniform(0.1, 1.3) * pool.capacity
    period = rng.uniform(5.0, 40.0) * pool.objective
    return Case(kinds, pool, shape, rate, arrivals(shape, rate, 3.0 * requests / rate, period, rng)[:requests])


class AtOnce:
    """The heuristic, where a worker that is free is never left idle for one that is not."""

    def __init__(self) -> None:
        self._heuristic = HeuristicScheduler()

    def decide(self, view: View) -> Choice | None:
        """See :meth:`Scheduler.decide`."""
        never = [kind if kind.idle else replace(kind, busy=(math.inf,) * len(kind.busy)) for kind in view.kinds]
        return self._heuristic.decide(replace(view, kinds=tuple(never)))

    def ended(self, run: Ended) -> None:
        """Changes nothing."""


def looked_ahead(case: Case) -> float:
    """What is earned by trying each decision on draws of what may come, with the heuristic after it."""
    run, rng = PoolSimulation(case.pool, case.times), random.Random(1)
    waited: object = None
    while (view := run.next_view()) is not None:
        state = (view.count, tuple(kind.idle for kind in view.kinds))
        tried = decisions(view, may_wait=state != waited)
        left = len(case.times) - run.arrived
        worth = [0.0] * len(tried)
        for _ in range(DRAWS):
            then = [run.now]
            for _ in range(left):
                then.append(then[-1] + rng.expovariate(case.rate))
            for index, decision in enumerate(tried):
                branch, scheduler = run.branch(run.now, then[1:]), HeuristicScheduler()
                branch.apply(decision)
                while (later := branch.next_view()) is not None:
                    branch.apply(scheduler.decide(later))
                worth[index] += branch.score.utility
        decision = tried[worth.index(max(worth))]
        waited = state if decision is None else None
        run.apply(decision)
    return run.score.utility


def decisions(view: View, *, may_wait: bool) -> list[Choice | None]:
    """The heuristic's first, then all that make a difference."""
    found: list[Choice | None] = [HeuristicScheduler().decide(view)]
    for number, kind in enumerate(view.kinds):
        for variant, profile in enumerate(kind.profiles if kind.idle else ()):
            batches = [batch for batch in profile.batches if batch < 2 * view.count]
            found += [Choice(variant, batch, number) for batch in batches]
    return [*found, None] if may_wait else [each for each in found if each is not None] or [None]


def small_case(case: Case) -> Json:
    """What is earned of a few requests."""
    earned = {name: simulate(case.pool, case.times, make()).utility for name, make in RIVALS.items()}
    earned["look-ahead"] = looked_ahead(case)
    earned["optimum"] = optimum(case.pool, case.times, SMALL, max(0.0, *earned.values()))
    return _told(case, earned)


def long_case(case: Case) -> Json:
    """What is earned of many."""
    earned = {name: simulate(case.pool, case.times, make()).utility for name, make in RIVALS.items()}
    alone = [StaticScheduler(each.name) for each in case.pool.kinds[0].profiles]
    earned["best variant alone"] = max(simulate(case.pool, case.times, each).utility for each in alone)
    return _told(case, earned)


@functools.cache
def _policy() -> Policy:
    return kept_policy()


RIVALS: Mapping[str, Callable[[], Scheduler]] = {
    "heuristic": HeuristicScheduler,
    "at once": AtOnce,
    "learned": lambda: LearnedScheduler(_policy()),
}


def _told(case: Case, earned: Mapping[str, float]) -> Json:
    parts = {name: round(case.part(value), 6) for name, value in earned.items()}
    return {"kinds": case.kinds, "utility": case.pool.utility.form, "arrivals": case.shape, "earned": parts}


def difference(cases: Sequence[Json], one: str, other: str) -> tuple[float, float]:
    """By how much one earns more, in the mean, and half of the width of its interval."""
    return paired([each["earned"][one] for each in cases], [each["earned"][other] for each in cases])


def bars_of(figures: Json) -> list[Bar]:
    """What has to hold over all cases together."""
    bars = []
    for rival in ("at once", "best variant alone"):
        mean, half = difference(figures["long"], "heuristic", rival)
        bars.append(Bar(f"heuristic over {rival}, lower end", round(mean - half, 5), ">= 0"))
    return bars


def groups(cases: Sequence[Json]) -> Iterable[tuple[str, list[Json]]]:
    """All cases, and parts of them by what they have in common."""
    yield "all", list(cases)
    for field in ("kinds", "utility", "arrivals"):
        for value in sorted({each[field] for each in cases}, key=str):
            yield f"{value} kinds" if field == "kinds" else str(value), [each for each in cases if each[field] == value]


def section_of(figures: Json, bars: Iterable[Bar], command: str) -> str:
    """What the documentation says of it."""

    def means(cases: Sequence[Json], names: Iterable[str]) -> list[str]:
        return [f"{statistics.fmean(each['earned'][name] for each in cases):.3f}" for name in names]

    def over(cases: Sequence[Json], one: str, other: str) -> str:
        mean, half = difference(cases, one, other)
        return f"{mean:+.4f} ± {half:.4f}"

    names = ("optimum", "look-ahead", "learned", "heuristic", "at once")
    small = [
        (name, str(len(cases)), *means(cases, names), *(over(cases, one, "heuristic") for one in names[:3]))
        for name, cases in groups(figures["small"])
    ]
    rivals = ("at once", "best variant alone")
    shown = ("learned", "heuristic", *rivals)
    long = [
        (
            name,
            str(len(cases)),
            *means(cases, shown),
            over(cases, "learned", "heuristic"),
            *(over(cases, "heuristic", one) for one in rivals),
        )
        for name, cases in groups(figures["long"])
    ]
    return f"""## Workers of several kinds

Simulated on random pools; utility per request over that of a most accurate answer at no delay, ± 95 %
over cases. `{command}`

{bars_table("bar", bars)}

Small cases, {SMALL} requests. *optimum*: exact, of one who knows all arrivals; *look-ahead*: knows how often requests
come and how many are left, not when, and is too slow to ship; *learned*: trained on other pools:

{table(("cases", "", *names, *(f"{each} - heuristic" for each in names[:3])), small)}

Long ones, {LONG} requests. *at once*: the heuristic where no free worker is left idle for a better one:

{table(("cases", "", *shown, "learned - heuristic", *(f"heuristic - {each}" for each in rivals)), long)}"""


def main(
    cases: Annotated[int, typer.Option(min=2, help="Cases of each number of kinds, small and long.")] = CASES,
    *,
    keep: Annotated[bool, typer.Option("--keep", help=KEEP_HELP)] = False,
) -> None:
    """Compare, print, and write ``heterogeneous.json``."""
    seeds = [(FIRST_SEED + number, kinds) for kinds in KINDS for number in range(cases)]
    figures: Json = {
        "small": [small_case(drawn(seed, kinds, SMALL)) for seed, kinds in seeds],
        "long": [long_case(drawn(seed, kinds, LONG)) for seed, kinds in seeds],
    }
    command = f"python -m benchmarks.heterogeneous{'' if cases == CASES else f' --cases {cases}'}"
    result = keep_result("heterogeneous", command=command, figures=figures, keep=keep)
    text = section_of(figures, result.bars, command)
    print(text)
    if keep:
        write_section(DOCUMENT, "heterogeneous", text)


if __name__ == "__main__":
    typer.run(main)
