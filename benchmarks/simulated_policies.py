"""Every policy on the same simulated work: how soon tiers are reached and their models answer, and at whose cost.

``python -m benchmarks.simulated_policies [--seeds 20]``: four kinds of work (see ``simulated_workloads``), the same
jobs, arrivals and noise for each policy. Figures are means over a simulation against those of ``fair`` in the same
simulation, then means over seeds with 95 % bootstrap intervals. All but ``fair``, which is what a container engine
does by itself, have the time slices of the product. What was tuned was tuned on other programs and seeds.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

from benchmarks.averages import bootstrap_interval
from benchmarks.bars import keep_result, tell_bars
from benchmarks.results import KEEP_HELP, Bar, judged
from benchmarks.simulated_workloads import FAIR_SLICES, Kind, kinds, with_time_slices
from tiercel.broker.simulation import simulate

COMMAND = "make bench-simulated"
SEEDS = 20
DRAW = "reported"
"""Chooses the programs; settings were tuned on those of another draw."""

TUNING = {
    "utility": "some 120 variants, on 3 to 18 seeds of the draw 'tuning'; and as many looks at single runs as it took "
    "to find what was wrong with it",
    "all others": "their defaults; what their authors tried is in their own benchmarks",
}
"""How much was tried, since effort is a part of any comparison."""

Json = dict[str, Any]
Option = str | float | bool


@dataclass(frozen=True, slots=True)
class Arm:
    """A policy with its options."""

    name: str  # what tables call it
    policy: str  # its name in the registry
    options: Mapping[str, Option]  # for it
    history: bool = False  # whether earlier runs of every program are known to it
    # Whether processes ask for time slices of 100 ms; else they have the kernel's.
    slices: bool = True
    # Constants that have another value meanwhile, by module and name in the scheduling package: a rule left out.
    constants: Mapping[str, object] = field(default_factory=dict)


ARMS = (
    Arm("fair", "fair", {}, slices=False),
    Arm(FAIR_SLICES, "fair", {}),
    Arm("fifo", "fifo", {}),
    Arm("random-order", "random-order", {}),
    Arm("las", "las", {}),
    Arm("slaq", "slaq", {}),
    Arm("flowcon", "flowcon", {}),
    Arm("tradl", "tradl", {}),
    Arm("specon", "specon", {}),
    Arm("utility", "utility", {}, history=True),
    Arm("utility, unguarded", "utility", {"guard_ratio": 0.0}, history=True),
    Arm("utility, nothing known", "utility", {}),
    Arm("utility, nothing known, unguarded", "utility", {"guard_ratio": 0.0}),
    Arm("srpt", "srpt", {}, history=True),
    Arm("srpt-oracle", "srpt-oracle", {}),
)
RIVALS = ("fifo", "las", "slaq", "tradl", "srpt")
OURS = ("utility", "utility, unguarded")


@dataclass(frozen=True, slots=True)
class Figures:
    """What one simulation came to; seconds, except counts."""

    first: float
    answer: float
    second: float
    finish: float
    makespan: float
    completions: tuple[float, ...]
    firsts: tuple[float | None, ...]
    migrations: int
    missed: int


Runs = dict[str, list[Figures]]


@contextlib.contextmanager
def otherwise(constants: Mapping[str, object]) -> Iterator[None]:
    """Constants of the scheduling package with other values; each has to stand where it is looked up."""
    with contextlib.ExitStack() as stack:
        for name, value in constants.items():
            stack.enter_context(mock.patch(f"tiercel.broker.scheduling.{name}", value))
        yield


def measure(task: tuple[Kind, Arm, int]) -> Figures:
    """Simulate one arm with one seed."""
    kind, arm, seed = task
    scenario = kind.scenario(seed, history=arm.history)
    with otherwise(arm.constants):
        result = simulate(with_time_slices(scenario) if arm.slices else scenario, arm.policy, seed, arm.options)
    return Figures(
        first=result.mean_time_to_tier(1),
        answer=result.mean_time_to_answer(1),
        second=result.mean_time_to_tier(2),
        finish=result.mean_completion,
        makespan=result.makespan,
        completions=tuple(job.completion_seconds for job in result.jobs),
        firsts=tuple(job.time_to_tier(1) for job in result.jobs),
        migrations=result.migrations,
        missed=result.missed_tiers(),
    )


def run(kind: Kind, arms: Sequence[Arm], seeds: Sequence[int], processes: int) -> Runs:
    """Simulate every arm with every seed."""
    tasks = [(kind, arm, seed) for arm in arms for seed in seeds]
    with multiprocessing.Pool(processes) as pool:
        found = pool.map(measure, tasks, chunksize=1)
    return {arm.name: found[index * len(seeds) : (index + 1) * len(seeds)] for index, arm in enumerate(arms)}


def ratios(runs: Runs, arm: str, baseline: str, of: Callable[[Figures], float]) -> list[float]:
    """A figure of an arm against the baseline's in the same simulation, one for each seed."""
    return [of(mine) / of(other) for mine, other in zip(runs[arm], runs[baseline], strict=True)]


def worst_finishes(runs: Runs, arm: str, *, with_hopeless: bool = True) -> list[float]:
    """The largest of the jobs' completion times against those under ``fair``, one for each seed."""
    return [
        max(
            mine / other
            for mine, other, first in zip(ours.completions, fair.completions, fair.firsts, strict=True)
            if with_hopeless or first is not None
        )
        for ours, fair in zip(runs[arm], runs["fair"], strict=True)
    ]


def worst_firsts(runs: Runs, arm: str) -> list[float]:
    """The largest of the jobs' times to tier 1 against those under ``fair``, one for each seed."""
    return [
        max(a / b for a, b in zip(ours.firsts, fair.firsts, strict=True) if a is not None and b is not None)
        for ours, fair in zip(runs[arm], runs["fair"], strict=True)
    ]


def summarise(values: Sequence[float]) -> Json:
    """Mean with its 95 % bootstrap interval, median and extremes."""
    return {
        "mean": statistics.fmean(values),
        "interval": list(bootstrap_interval(values, samples=2000, seed=len(values))),
        "median": statistics.median(values),
        "least": min(values),
        "most": max(values),
    }


def table(runs: Runs) -> Json:
    """All figures of a kind of work, by arm; ratios to ``fair`` in the same simulation."""
    return {
        arm: {
            "time_to_tier_1": summarise(ratios(runs, arm, "fair", lambda figures: figures.first)),
            "time_to_answer_1": summarise(ratios(runs, arm, "fair", lambda figures: figures.answer)),
            "time_to_tier_2": summarise(ratios(runs, arm, "fair", lambda figures: figures.second)),
            "mean_finish": summarise(ratios(runs, arm, "fair", lambda figures: figures.finish)),
            "makespan": summarise(ratios(runs, arm, "fair", lambda figures: figures.makespan)),
            "worst_finish": summarise(worst_finishes(runs, arm)),
            "worst_finish_within_reach": summarise(worst_finishes(runs, arm, with_hopeless=False)),
            "worst_time_to_tier_1": summarise(worst_firsts(runs, arm)),
            "seconds_to_tier_1": statistics.fmean(figures.first for figures in found),
            "migrations": statistics.fmean(figures.migrations for figures in found),
            "missed_tiers": sum(figures.missed for figures in found),
        }
        for arm, found in runs.items()
    }


def comparisons(runs: Runs) -> Json:
    """How ours do against others in the same simulations, by arm, rival and measure: ratios."""
    return {
        arm: {
            rival: {name: summarise(ratios(runs, arm, rival, of)) for name, of in COMPARED.items()}
            for rival in (*RIVALS, "specon", "srpt-oracle", "utility, unguarded")
            if rival != arm
        }
        for arm in OURS
    }


COMPARED: Mapping[str, Callable[[Figures], float]] = {
    "time_to_tier_1": lambda figures: figures.first,
    "time_to_answer_1": lambda figures: figures.answer,
    "makespan": lambda figures: figures.makespan,
}
TIMES = {"time_to_tier_1": "mean time to tier 1", "time_to_answer_1": "mean time until tier 1 answers"}


def bars_of(figures: Json) -> list[Bar]:
    """What ``utility`` has to show on each kind of work; what an older file does not compare was not measured."""
    compared = figures.get("comparisons", {})
    return [bar for kind, rows in figures["tables"].items() for bar in _bars_of(kind, rows, compared.get(kind))]


def _bars_of(kind: str, rows: Json, compared: Json | None) -> Iterable[Bar]:
    ours = rows["utility"]
    for measure, name in TIMES.items():
        yield from _bars_of_time(kind, rows, compared, measure, name)
    worst = ours["worst_finish_within_reach"]["median"]
    yield Bar(f"{kind}: worst finish against fair, of jobs with a tier within reach", worst, "<= 1.5")
    if kind == "hopeless":
        yield Bar("hopeless: worst finish against fair, of all jobs", ours["worst_finish"]["median"], "<= 1.5")
    yield Bar(f"{kind}: mean finish against fair", ours["mean_finish"]["median"], "<= 1.0")
    yield Bar(f"{kind}: makespan against fair", ours["makespan"]["median"], "<= 1.0")
    specon = compared["utility"]["specon"]["makespan"]["median"] if compared else None
    yield Bar(f"{kind}: makespan against specon", specon, "<= 1.0")
    cost = compared["utility"]["utility, unguarded"]["time_to_tier_1"]["median"] if compared else None
    yield Bar(f"{kind}: what the guard costs in time to tier 1, a factor", cost, "<= 1.15")


def _bars_of_time(kind: str, rows: Json, compared: Json | None, measure: str, name: str) -> Iterable[Bar]:
    """How ``utility`` does by one of the times that a tenant waits for."""
    for arm in OURS:
        against = compared[arm]["srpt-oracle"][measure]["median"] if compared else None
        yield Bar(f"{kind}: {arm}: {name} against the clairvoyant order", against, "<= 1.10")
        if kind == "alike":
            ratio = compared[arm]["fifo"][measure] if compared else None
            below = 100 * (1 - ratio["mean"]) if ratio else None
            yield Bar(f"alike: {arm}: {name} below tier-aware fifo's", below, ">= 5", "%")
            least = 100 * (1 - ratio["interval"][1]) if ratio else None
            yield Bar(f"alike: {arm}: {name}: lower end of the interval of that", least, "> 0", "%")
    if kind in {"mixed", "heavy-tailed"}:
        rivals = [rival for rival in RIVALS if rival in rows]
        best = min(rivals, key=lambda rival: float(rows[rival][measure]["mean"]))
        below = 100 * (1 - rows["utility"][measure]["mean"] / rows[best][measure]["mean"])
        yield Bar(f"{kind}: utility: {name} below the best of {', '.join(rivals)} ({best})", below, ">= 20", "%")


def main() -> None:
    """Simulate, print, and keep the result."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--kind", action="append", help="only this kind of work; prints, and writes nothing")
    parser.add_argument("--keep", action="store_true", help=KEEP_HELP)
    chosen = parser.parse_args()
    runs_of = {}
    for kind in kinds(DRAW):
        if chosen.kind and kind.name not in chosen.kind:
            continue
        seeds = range(chosen.first_seed, chosen.first_seed + chosen.seeds * kind.repeats)
        runs_of[kind.name] = run(kind, ARMS, seeds, chosen.processes)
        print(_lines(kind, runs_of[kind.name]), flush=True)
    figures = {
        "seeds": chosen.seeds,
        "tuning": TUNING,
        "kinds": {
            kind.name: {
                "simulations": chosen.seeds * kind.repeats,
                "jobs": kind.jobs,
                "programs": len(kind.workloads),
                "nodes": kind.nodes,
                "cores": kind.cores,
            }
            for kind in kinds(DRAW)
        },
        "tables": {name: table(runs) for name, runs in runs_of.items()},
        "comparisons": {name: comparisons(runs) for name, runs in runs_of.items()},
    }
    if chosen.kind:
        tell_bars("simulated-policies", judged("simulated-policies", figures))
    else:
        keep_result("simulated-policies", command=COMMAND, figures=figures, keep=chosen.keep)


def _lines(kind: Kind, runs: Runs) -> str:
    """A kind's table as text: means over seeds of ratios to ``fair``."""
    lines = [
        f"{kind.name}: {kind.jobs} jobs of {len(kind.workloads)} programs, {kind.nodes} nodes of {kind.cores:g} cores",
        f"{'':36}{'tier 1':>8}{'answer':>8}{'tier 2':>8}{'finish':>8}{'makesp.':>8}{'worst':>8}{'moves':>8}",
    ]
    for arm, row in table(runs).items():
        names = ("time_to_tier_1", "time_to_answer_1", "time_to_tier_2", "mean_finish", "makespan", "worst_finish")
        shown = "".join(f"{row[name]['mean']:8.3f}" for name in names)
        lines.append(f"  {arm:34}{shown}{row['migrations']:8.1f}")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
