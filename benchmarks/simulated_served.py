"""How good the answers are that applications get while training goes on beside them, in the simulator.

``python -m benchmarks.simulated_served [--seeds 20]``: on each node an endpoint with a poor version that a job makes
better, more jobs beside it, and requests that want 30 to 110 % of the nodes' CPU, constant, as a wave or in bursts. In
other simulations each job has an endpoint of its own that is asked from its first version on.
Served quality is the accuracy of each answer, summed over those that came within 100 ms; figures are against ``fair``
in the same simulation, and ours against each other policy.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from benchmarks.bars import keep_result
from benchmarks.results import KEEP_HELP, Bar
from benchmarks.simulated_policies import summarise
from benchmarks.simulated_workloads import FAIR_SLICES, past_runs, with_time_slices
from tiercel.broker.simulation import DrawnJobs, Result, Scenario, presets, simulate

COMMAND = "python -m benchmarks.simulated_served"
SEEDS = 20
JOBS, NODES = 24, 4
LOADS = (0.3, 0.5, 0.7, 0.9, 1.1)
"""CPU that requests want in the mean, as a part of what the nodes have."""

FIRST_VERSIONS = (0.3, 0.7)
"""The same once all endpoints have a version, where none has one at first."""

RIVALS = ("fair", FAIR_SLICES, "fifo", "las", "slaq", "flowcon", "tradl", "specon", "dqoes", "srpt")
OURS = ("utility", "utility, nothing known")
KNOWING = ("utility", "srpt")
"""Who knows earlier runs of every program."""

ABLATIONS: Mapping[str, Mapping[str, float]] = {
    "utility, no room kept for answers": {"answers_well": 100.0},
    "utility, who asks counts nothing": {"window_seconds": 0.0},
}
"""``utility`` with one of its rules for answers off."""

ARMS = {**{rival: rival for rival in RIVALS}, FAIR_SLICES: "fair", **dict.fromkeys((*OURS, *ABLATIONS), "utility")}

Json = dict[str, Any]
Served = tuple[float, float]
"""Served quality against what ``fair`` served, and the part of all requests that was answered within the objective."""


def scenario(load: float, arm: str, *, new: bool = False) -> Scenario:
    """What is simulated at a load for one of :data:`ARMS`; with ``new`` no endpoint has a version at first."""
    jobs = presets.mixed_jobs(JOBS, NODES)
    workloads = jobs.jobs.workloads if isinstance(jobs.jobs, DrawnJobs) else ()
    known = {workload.name: past_runs(workload) for workload in workloads} if arm in {*KNOWING, *ABLATIONS} else {}
    found = presets.with_endpoints(replace(jobs, history=known), load=load, new=JOBS if new else 0)
    return found if arm == "fair" else with_time_slices(found)


def measure(task: tuple[float, int, bool]) -> dict[str, Served]:
    """Every policy with one seed at one load, and with new endpoints or those that have a version."""
    load, seed, new = task
    results = {
        arm: simulate(scenario(load, arm, new=new), policy, seed, ABLATIONS.get(arm, {}))
        for arm, policy in ARMS.items()
    }
    base = results["fair"].served_quality
    return {arm: (result.served_quality / base, in_objective(result)) for arm, result in results.items()}


def in_objective(result: Result) -> float:
    """The part of all requests that was answered within the objective."""
    requests = sum(endpoint.requests for endpoint in result.endpoints)
    return sum(endpoint.in_objective for endpoint in result.endpoints) / requests if requests else 1.0


def table_of(found: Sequence[Mapping[str, Served]]) -> Json:
    """Every policy at one load, summarised over seeds; ours also against each other policy in the same simulations."""
    return {
        arm: {
            "served_quality": summarise([each[arm][0] for each in found]),
            "in_objective": statistics.fmean(each[arm][1] for each in found),
        }
        | ({"against": _against(arm, found)} if arm in OURS else {})
        for arm in found[0]
    }


def _against(arm: str, found: Sequence[Mapping[str, Served]]) -> Json:
    return {rival: summarise([each[arm][0] / each[rival][0] for each in found]) for rival in RIVALS}


def tables_of(figures: Mapping[str, Any]) -> dict[str, Json]:
    """The tables by what each is of: the load, and whether no endpoint has a version at first."""
    found = {f"{float(load):.0%}": rows for load, rows in figures["loads"].items()}
    new = figures.get("first_versions", {})
    return found | {f"{float(load):.0%}, no version at first": rows for load, rows in new.items()}


def bars_of(figures: Json) -> list[Bar]:
    """Ours has to be above every other policy at every load; what an older file does not compare was not measured."""
    bars = []
    for what, rows in tables_of(figures).items():
        rivals = (rival for rival in RIVALS if rival in rows)
        best = max(rivals, key=lambda rival: float(rows[rival]["served_quality"]["mean"]))
        for arm in OURS:
            above = rows[arm]["against"][best] if "against" in rows[arm] else None
            name = f"load {what}: served quality, {arm} above the best other ({best})"
            bars.append(Bar(name, above and 100 * (above["median"] - 1), "> 0", "%"))
            least = above and 100 * (above["interval"][0] - 1)
            bars.append(Bar(f"{name}: lower end of the interval", least, "> 0", "%"))
    return bars


def main() -> None:
    """Simulate, print, and keep the result."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--keep", action="store_true", help=KEEP_HELP)
    chosen = parser.parse_args()
    figures: Json = {"seeds": chosen.seeds, "jobs": JOBS, "nodes": NODES, "loads": {}, "first_versions": {}}
    for part, load in [*(("loads", load) for load in LOADS), *(("first_versions", load) for load in FIRST_VERSIONS)]:
        with multiprocessing.Pool(chosen.processes) as pool:
            tasks = [(load, seed, part == "first_versions") for seed in range(1, chosen.seeds + 1)]
            found = pool.map(measure, tasks, chunksize=1)
        rows = figures[part][f"{load:.1f}"] = table_of(found)
        shown = (f"{arm} {row['served_quality']['mean']:.3f}" for arm, row in rows.items())
        print(f"{part.replace('_', ' ')} {load:.0%}: {', '.join(shown)}", flush=True)
    keep_result("simulated-served", command=COMMAND, figures=figures, keep=chosen.keep)


if __name__ == "__main__":
    main()
