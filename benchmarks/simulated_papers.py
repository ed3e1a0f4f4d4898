"""Each paper's scheduler on its paper's own experiments and by its own measure, beside ``fair`` and ``utility``.

``python -m benchmarks.simulated_papers [--seeds 20]``: FlowCon by the completion that it shortens most, TRADL by the
time to tier 1 of the job that gains most and in the mean, SpeCon by the makespan (DQoES by satisfied endpoints:
``benchmarks.simulated_endpoints``). Every figure is a part by which a policy is below ``fair`` in the same simulation;
means over seeds with 95 % bootstrap intervals. Programs are made up; schedules are the papers' (``paper_schedules``).

The papers' schedulers get every setting that is listed here and are shown, in each measure, with the one that does best
by it *on the very simulations that are reported*; ``utility`` runs at its defaults, with and without knowing four
earlier runs; ``srpt`` is a rival that knows them as well. What sharing cores costs is that of real training processes;
``--penalty 0`` is a machine where it costs nothing.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.bars import keep_result, tell_bars
from benchmarks.paper_schedules import Schedule, flowcon_schedules, specon_schedules, tradl_schedules
from benchmarks.results import KEEP_HELP, Bar
from benchmarks.simulated_policies import summarise
from benchmarks.simulated_workloads import FAIR_SLICES, with_time_slices
from tiercel.broker.simulation import Result, Scenario, simulate
from tiercel.broker.simulation.cluster import Colocation

COMMAND = "python -m benchmarks.simulated_papers"
SEEDS = 20

Option = str | float | bool
Options = Mapping[str, Option]
Json = dict[str, Any]
Gains = Mapping[str, float]
"""What a simulation gained, by measure: parts of what ``fair`` took."""


@dataclass(frozen=True, slots=True)
class Setting:
    """A policy with options, whether it knows earlier runs, and whether processes have the product's time slices."""

    policy: str
    options: tuple[tuple[str, Option], ...] = ()
    history: bool = False
    slices: bool = True

    @property
    def words(self) -> str:
        """Its options as text."""
        return ", ".join(f"{name}={value}" for name, value in self.options) or "defaults"


def settings_of(policy: str, *grids: Mapping[str, Sequence[Option]]) -> tuple[Setting, ...]:
    """The defaults of a policy and every combination of each grid."""
    combinations = (zip(grid, chosen, strict=True) for grid in grids for chosen in itertools.product(*grid.values()))
    return (Setting(policy), *(Setting(policy, tuple(options)) for options in combinations))


OURS = {"utility": Setting("utility", history=True), "utility, nothing known": Setting("utility")}
BASELINES = {
    FAIR_SLICES: Setting("fair"),
    "fifo": Setting("fifo"),
    "srpt, earlier runs known": Setting("srpt", history=True),
}
RIVALS = {
    "flowcon": settings_of(
        "flowcon",
        {"alpha": (0.001, 0.01, 0.03), "interval": (10.0, 20.0, 30.0), "mode": ("conserving", "literal")},
        {"alpha": (0.05,), "interval": (20.0,), "scale_free": (True,)},
    ),
    "tradl": settings_of(
        "tradl",
        {"weights": ("eta", "growth", "gap")},
        {"weights": ("eta",), "window": (4,), "beta": (15.0,), "min_reports": (15,)},
    ),
    "specon": settings_of(
        "specon",
        {"rule": ("growth", "load"), "round_seconds": (10.0, 30.0), "cooldown_seconds": (30.0, 120.0)},
        {"growth": ("flowcon",)},
    ),
}


@dataclass(frozen=True, slots=True)
class Paper:
    """A paper's experiments."""

    policy: str  # its scheduler
    headline: str  # what it reports, in words
    measure: str  # the measure of that, one of those that :func:`gains` gives
    schedules: tuple[Schedule, ...]  # what is simulated


PAPERS = (
    Paper("flowcon", "up to 42.06 % shorter completion of one job", "best_finish", flowcon_schedules()),
    Paper("tradl", "up to 48.2 % shorter time to target of one job", "best_tier_1", tradl_schedules()),
    Paper("specon", "24.7 % shorter makespan, 41.5 % for one job", "makespan", specon_schedules()),
)


def gains(ours: Result, fair: Result) -> Gains:
    """What a policy gained over ``fair`` with the same jobs: parts by which it is below, 0.4 for 40 % less."""
    finishes = [
        1 - mine.completion_seconds / other.completion_seconds for mine, other in zip(ours.jobs, fair.jobs, strict=True)
    ]
    firsts = [
        1 - mine / other
        for mine, other in (
            (mine.time_to_tier(1), other.time_to_tier(1)) for mine, other in zip(ours.jobs, fair.jobs, strict=True)
        )
        if mine is not None and other is not None
    ]
    return {
        "best_finish": max(finishes),
        "worst_finish": min(finishes),
        "mean_finish": 1 - ours.mean_completion / fair.mean_completion,
        "best_tier_1": max(firsts),
        "mean_tier_1": 1 - ours.mean_time_to_tier(1) / fair.mean_time_to_tier(1),
        "makespan": 1 - ours.makespan / fair.makespan,
        "migrations": ours.migrations,
        "missed": ours.missed_tiers(),
    }


def measure(task: tuple[Schedule, Sequence[Setting], int]) -> list[Gains]:
    """All settings with one seed, against ``fair`` with the same."""
    schedule, settings, seed = task
    fair = simulate(schedule.scenario(history=False), "fair", seed)
    return [
        gains(simulate(_scenario(schedule, each), each.policy, seed, dict(each.options)), fair) for each in settings
    ]


def _scenario(schedule: Schedule, setting: Setting) -> Scenario:
    scenario = schedule.scenario(history=setting.history)
    return with_time_slices(scenario) if setting.slices else scenario


Found = dict[Setting, list[Gains]]


def run(schedule: Schedule, settings: Sequence[Setting], seeds: Sequence[int], processes: int) -> Found:
    """Simulate all settings with all seeds; gains by setting, one for each seed."""
    with multiprocessing.Pool(processes) as pool:
        by_seed = pool.map(measure, [(schedule, settings, seed) for seed in seeds], chunksize=1)
    return {setting: [found[index] for found in by_seed] for index, setting in enumerate(settings)}


def best_setting(found: Found, policy: str, by: str) -> Setting:
    """The setting of a policy that gains most in the mean."""
    return max((each for each in found if each.policy == policy), key=lambda each: _mean(found[each], by))


def best_rows(found: Found, policy: str) -> Json:
    """Every measure of a policy, each with the setting that does best by it; what is only counted, with the first's."""
    best = {name: best_setting(found, policy, name) for name in SHOWN_BY}
    rows = {name: row(found[setting])[name] for name, setting in best.items()}
    first = row(next(iter(found.values())))
    return {**first, **rows, "settings": {name: setting.words for name, setting in best.items()}}


SHOWN_BY = ("best_finish", "worst_finish", "mean_finish", "best_tier_1", "mean_tier_1", "makespan")
"""Measures that are shown, by each of which a rival is given the setting that does best."""


def row(found: Sequence[Gains]) -> Json:
    """Every measure of a setting, summarised over seeds."""
    return {name: summarise([gain[name] for gain in found]) for name in found[0]}


def bars_of(figures: Json) -> list[Bar]:
    """``utility`` has to be ahead of each paper's scheduler by the paper's own measure, and nobody much later."""
    return [
        bar
        for policy, paper in figures.items()
        if policy in RIVALS
        for schedule, rows in paper["schedules"].items()
        for bar in _bars_of(policy, paper["measure"], schedule, rows)
    ]


def _bars_of(policy: str, measure: str, schedule: str, rows: Mapping[str, Json]) -> list[Bar]:
    rival = rows[policy][measure]["mean"]
    where = f"{policy}'s {schedule}"
    bars = []
    for arm in OURS:
        mine = rows[arm]
        ahead = 100 * (mine[measure]["mean"] - rival)
        bars.append(Bar(f"{where}: {measure}: {arm} ahead of {policy}", ahead, ">= 0", "points"))
        bars.append(Bar(f"{where}: makespan: {arm} below fair", 100 * mine["makespan"]["mean"], ">= -2", "%"))
        worst = 1 - mine["worst_finish"]["median"]
        bars.append(Bar(f"{where}: worst finish of a job, {arm} against fair", worst, "<= 1.5"))
    return bars


def with_penalty(paper: Paper, penalty: float) -> Paper:
    """The same experiments on machines where sharing cores costs that much; see :class:`.Colocation`."""
    schedules = (
        replace(schedule, machines=replace(schedule.machines, colocation=Colocation(penalty)))
        for schedule in paper.schedules
    )
    return replace(paper, schedules=tuple(schedules))


def compare(paper: Paper, seeds: Sequence[int], processes: int) -> Json:
    """All experiments of a paper."""
    tables = {}
    for schedule in paper.schedules:
        settings = (*RIVALS[paper.policy], *OURS.values(), *BASELINES.values())
        found = run(schedule, settings, seeds, processes)
        rows = {
            paper.policy: best_rows(found, paper.policy),
            f"{paper.policy}, defaults": row(found[Setting(paper.policy)]),
            **{arm: row(found[setting]) for arm, setting in (OURS | BASELINES).items()},
        }
        tables[schedule.name] = rows
        print(_lines(f"{paper.policy}: {schedule.name}", rows), flush=True)
    return {"headline": paper.headline, "measure": paper.measure, "schedules": tables}


def main() -> None:
    """Simulate, print, and keep the result."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--paper", choices=[paper.policy for paper in PAPERS], help="only this one; writes nothing")
    parser.add_argument("--penalty", type=float, help="of co-location, instead of the measured one; writes nothing")
    parser.add_argument("--keep", action="store_true", help=KEEP_HELP)
    chosen = parser.parse_args()
    figures: Json = {"seeds": chosen.seeds}
    for paper in PAPERS:
        if chosen.paper in {None, paper.policy}:
            swept = paper if chosen.penalty is None else with_penalty(paper, chosen.penalty)
            figures[paper.policy] = compare(swept, range(1, chosen.seeds + 1), chosen.processes)
    if chosen.paper is None and chosen.penalty is None:
        keep_result("simulated-papers", command=COMMAND, figures=figures, keep=chosen.keep)
    else:
        tell_bars("simulated-papers", bars_of(figures))


SHOWN: Mapping[str, Callable[[Json], float]] = {
    "best job": lambda row: float(row["best_finish"]["mean"]),
    "its best": lambda row: float(row["best_finish"]["most"]),
    "worst": lambda row: float(row["worst_finish"]["mean"]),
    "mean": lambda row: float(row["mean_finish"]["mean"]),
    "tier 1": lambda row: float(row["mean_tier_1"]["mean"]),
    "best t1": lambda row: float(row["best_tier_1"]["mean"]),
    "makespan": lambda row: float(row["makespan"]["mean"]),
}


def _lines(title: str, rows: Mapping[str, Json]) -> str:
    """A table as text: per cent below ``fair``."""
    lines = [title, f"{'':26}" + "".join(f"{name:>10}" for name in SHOWN)]
    for arm, shown in rows.items():
        lines.append(f"  {arm:24}" + "".join(f"{100 * figure(shown):9.1f}%" for figure in SHOWN.values()))
    return "\n".join(lines)


def _mean(found: Sequence[Gains], by: str) -> float:
    return statistics.fmean(gain[by] for gain in found)


if __name__ == "__main__":
    main()
