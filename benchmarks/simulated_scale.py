"""How the simulator and the policies grow: ``python -m benchmarks.simulated_scale``.

50 jobs on 4 nodes, 1,000 on 100 and 10,000 on 1,000 under each policy asked for, and 100,000 on 1,000 under ``fair``.
Jobs arrive by a Poisson process that wants 120 % of the CPU, so that there is something to decide, and 80 % with
100,000 jobs, so that they do not pile up. From 1,000 jobs on, the scheduler gathers events for a second, and policies
see every other report and usage every five seconds, as a broker of that size would be set up; tiers are exact.

Everything runs in one thread, so CPU time is what a quiet machine takes; it is what is held against the bar.
"""

from __future__ import annotations

import dataclasses
import time
from typing import Annotated

import typer

from benchmarks.bars import keep_result
from benchmarks.results import KEEP_HELP, Bar, Json
from tiercel.broker.scheduling.loop import LoopSettings
from tiercel.broker.simulation import Result, Scenario, simulate
from tiercel.broker.simulation.bounds import against_srpt
from tiercel.broker.simulation.presets import measured_kinds, training

LOAD = 1.2
CORES = 2.0
SIZES = ((50, 4), (1_000, 100), (10_000, 1_000))
LARGEST = (100_000, 1_000)
LARGEST_LOAD = 0.8
LARGEST_POLICY = "fair"
LARGEST_SECONDS = 300.0
POLICIES = ("fair", "fifo", "utility")
SEED = 1


def scenario(jobs: int, nodes: int, load: float) -> Scenario:
    """Jobs of the kinds that were measured live, on nodes of two cores."""
    planned = training(measured_kinds(hopeless=1), jobs, nodes, cores=CORES, load=load, name=f"{jobs} x {nodes}")
    if jobs < 1_000:
        return planned
    gathering = LoopSettings(interval_seconds=2.0, gather_seconds=1.0)
    machines = dataclasses.replace(planned.machines, usage_seconds=5.0)
    return dataclasses.replace(planned, loop=gathering, machines=machines, reports_every=2)


def measure(jobs: int, nodes: int, policy: str, load: float = LOAD) -> Json:
    """Simulate one size under one policy."""
    planned = scenario(jobs, nodes, load)
    began, began_cpu = time.perf_counter(), time.process_time()
    result = simulate(planned, policy, SEED)
    cpu, wall = time.process_time() - began_cpu, time.perf_counter() - began
    return figures_of(result, nodes, load, cpu, wall)


def figures_of(result: Result, nodes: int, load: float, cpu: float, wall: float) -> Json:
    """What one simulation gave, and what it took."""
    decisions = result.decision_seconds()
    srpt, _ = against_srpt(result, 1, nodes * CORES)
    return {
        "jobs": len(result.jobs),
        "nodes": nodes,
        "policy": result.policy,
        "load": load,
        "cpu_seconds": round(cpu, 2),
        "wall_seconds": round(wall, 2),
        "cpu_ms_per_job": round(1e3 * cpu / len(result.jobs), 3),
        "simulated_seconds": round(result.ended_at, 1),
        "passes": len(decisions),
        "most_active_jobs": max(decision.jobs for decision in result.decisions),
        "mean_active_jobs": round(sum(decision.jobs for decision in result.decisions) / len(decisions), 1),
        "median_decision_ms": round(1e3 * decisions[len(decisions) // 2], 3),
        "p99_decision_ms": round(1e3 * decisions[int(0.99 * (len(decisions) - 1))], 3),
        "mean_time_to_tier_1_seconds": round(result.mean_time_to_tier(1), 3),
        "tier_1_against_srpt": round(srpt, 3),
        "worst_slowdown": round(max(job.slowdown for job in result.jobs), 2),
        "makespan_seconds": round(result.makespan, 1),
        "missed_tiers": result.missed_tiers(),
        "migrations": result.migrations,
    }


def report(row: Json) -> None:
    """Print one line."""
    print(
        f"{row['jobs']:7d} x {row['nodes']:5d}  {row['policy']:12s} {row['cpu_seconds']:8.1f} s CPU "
        f"({row['cpu_ms_per_job']:.2f} ms a job)  {row['passes']:6d} passes over {row['mean_active_jobs']:7.1f} jobs, "
        f"median {row['median_decision_ms']:7.2f} ms, p99 {row['p99_decision_ms']:7.2f} ms  "
        f"tier 1 {row['mean_time_to_tier_1_seconds']:6.2f} s = {row['tier_1_against_srpt']:.2f} x SRPT",
        flush=True,
    )


def main(
    policy: Annotated[list[str] | None, typer.Option(help="Of the smaller sizes.")] = None,
    largest: Annotated[bool, typer.Option(help="Simulate 100,000 jobs as well.")] = True,
    keep: Annotated[bool, typer.Option("--keep", help=KEEP_HELP)] = False,
) -> None:
    """Simulate every size, print a line for each, and write ``simulated-scale.json``."""
    rows = []
    for name in policy or POLICIES:
        for jobs, nodes in SIZES:
            rows.append(measure(jobs, nodes, name))
            report(rows[-1])
    if largest:
        rows.append(measure(*LARGEST, LARGEST_POLICY, LARGEST_LOAD))
        report(rows[-1])
    keep_result("simulated-scale", command="python -m benchmarks.simulated_scale", figures={"sizes": rows}, keep=keep)


def bars_of(figures: Json) -> list[Bar]:
    """Nothing may be missed, and the largest size has to be simulated in time."""
    rows = figures["sizes"]
    took = next((row["cpu_seconds"] for row in rows if row["jobs"] == LARGEST[0]), None)
    return [
        Bar("tiers missed that a run would have reached", sum(row["missed_tiers"] for row in rows), "== 0"),
        Bar("CPU time of 100,000 simulated jobs", took, f"<= {LARGEST_SECONDS:g}", "s"),
    ]


if __name__ == "__main__":
    typer.run(main)
