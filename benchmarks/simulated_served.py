"""How good the answers are that applications get while training goes on beside them, in the simulator.

``python -m benchmarks.simulated_served [--seeds 20]``: on each node an endpoint with a poor version that a job makes
better, more jobs beside it, and requests that want 30 to 110 % of the nodes' CPU, constant, as a wave or in bursts.
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

from benchmarks.results import Bar, write_result
from benchmarks.simulated_policies import summarise
from benchmarks.simulated_workloads import FAIR_SLICES, past_runs, with_time_slices
from tiercel.broker.simulation import DrawnJobs, Result, Scenario, presets, simulate

COMMAND = "python -m benchmarks.simulated_served"
SEEDS = 20
JOBS, NODES = 24, 4
LOADS = (0.3, 0.5, 0.7, 0.9, 1.1)
"""CPU that requests want in the mean, as a part of what the nodes have."""

RIVALS = ("fair", FAIR_SLICES, "fifo", "las", "slaq", "flowcon", "tradl", "specon", "dqoes")
OURS = ("utility", "utility, nothing known")
KNOWING = ("utility",)
"""Who knows earlier runs of every program."""

ARMS = {**{rival: rival for rival in RIVALS}, FAIR_SLICES: "fair", **dict.fromkeys(OURS, "utility")}

Json = dict[str, Any]
Served = tuple[float, float]
"""Served quality against what ``fair`` served, and the part of all requests that was answered within the objective."""


def scenario(load: float, arm: str) -> Scenario:
    """What is simulated at a load for one of :data:`ARMS`."""
    jobs = presets.mixed_jobs(JOBS, NODES)
    workloads = jobs.jobs.workloads if isinstance(jobs.jobs, DrawnJobs) else ()
    known = {workload.name: past_runs(workload) for workload in workloads} if arm in KNOWING else {}
    found = presets.with_endpoints(replace(jobs, history=known), load=load)
    return with_time_slices(found) if arm == FAIR_SLICES else found


def measure(task: tuple[float, int]) -> dict[str, Served]:
    """Every policy with one seed at one load."""
    load, seed = task
    results = {arm: simulate(scenario(load, arm), policy, seed) for arm, policy in ARMS.items()}
    base = results["fair"].served_quality
    return {arm: (result.served_quality / base, in_objective(result)) for arm, result in results.items()}


def in_objective(result: Result) -> float:
    """The part of all requests that was answered within the objective."""
    requests = sum(endpoint.requests for endpoint in result.endpoints)
    return sum(endpoint.in_objective for endpoint in result.endpoints) / requests if requests else 1.0


def table_of(found: Sequence[Mapping[str, Served]]) -> Json:
    """Every policy at one load, summarised over seeds."""
    return {
        arm: {
            "served_quality": summarise([each[arm][0] for each in found]),
            "in_objective": statistics.fmean(each[arm][1] for each in found),
        }
        for arm in found[0]
    }


def bars_of(load: float, found: Sequence[Mapping[str, Served]]) -> list[Bar]:
    """Ours has to be above every other policy."""
    means = {rival: statistics.fmean(each[rival][0] for each in found) for rival in RIVALS}
    best = max(RIVALS, key=means.__getitem__)
    bars = []
    for arm in OURS:
        above = summarise([100 * (each[arm][0] / each[best][0] - 1) for each in found])
        name = f"load {load:.0%}: served quality, {arm} above the best other ({best})"
        bars.append(Bar(name, above["mean"], "> 0", "%"))
        bars.append(Bar(f"{name}: lower end of the interval", above["interval"][0], "> 0", "%"))
    return bars


def main() -> None:
    """Simulate, print, and keep the result."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--processes", type=int, default=2)
    chosen = parser.parse_args()
    tables, reached = {}, list[Bar]()
    for load in LOADS:
        with multiprocessing.Pool(chosen.processes) as pool:
            found = pool.map(measure, [(load, seed) for seed in range(1, chosen.seeds + 1)], chunksize=1)
        tables[f"{load:.1f}"] = table_of(found)
        reached += bars_of(load, found)
        shown = (f"{arm} {row['served_quality']['mean']:.3f}" for arm, row in tables[f"{load:.1f}"].items())
        print(f"load {load:.0%}: {', '.join(shown)}", flush=True)
    for bar in reached:
        print(f"{'holds ' if bar.holds else 'MISSED'}  {bar.name}: {bar.value:.3g} {bar.unit} (goal {bar.goal})")
    if chosen.seeds == SEEDS:
        figures = {"seeds": chosen.seeds, "jobs": JOBS, "nodes": NODES, "loads": tables}
        write_result("simulated-served", command=COMMAND, figures=figures, bars=reached)


if __name__ == "__main__":
    main()
