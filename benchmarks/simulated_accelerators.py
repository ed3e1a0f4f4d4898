"""Mixed CPU and GPU jobs on nodes with accelerators, in the simulator: ``python -m benchmarks.simulated_accelerators``.

Nodes of 8 cores with 1 to 4 accelerators of 16 GiB. Half of the programs work on the CPU alone; the others use an
accelerator, a third of them so little that they are held up by the CPU, a third about as much as a core, a third so
much that they are held up by the device. Jobs come as a Poisson process that brings work twice as fast as the scarcer
of the two resources can do it: at half of that rate hardly any two jobs meet. For one seed every policy meets the same
jobs, arrivals and noise; times are means over a simulation's jobs against those of ``fair``, utilisation is that of the
devices from the first arrival to the last end, and intervals are 95 % bootstrap intervals of the mean over seeds. No
setting was tuned; the policy was made while looking at seeds 1 to 3, and figures are of others.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.bars import keep_result
from benchmarks.results import KEEP_HELP, Bar, Json
from benchmarks.simulated_policies import summarise
from benchmarks.simulated_workloads import FAIR_SLICES, past_runs, program, with_time_slices
from tiercel.broker.simulation import DrawnJobs, Scenario, Workload, equal_nodes, simulate
from tiercel.broker.simulation.accelerated import accelerated, equipped
from tiercel.broker.simulation.arrivals import Poisson
from tiercel.broker.simulation.curves import Family
from tiercel.broker.simulation.scenario import GIB

COMMAND = "python -m benchmarks.simulated_accelerators"
SEEDS, FIRST_SEED = 20, 101
DEVICES = (1, 2, 3, 4)
UNKNOWING = "utility, nothing known"
POLICIES = {
    "fair": "fair",
    FAIR_SLICES: "fair",
    "fifo": "fifo",
    "tradl": "tradl",
    "srpt": "srpt",
    "utility": "utility",
    UNKNOWING: "utility",
}
RIVALS = ("fifo", "tradl", "srpt")
KNOWING = ("utility", "srpt")
"""Who knows earlier runs of every program."""
NODES, CORES, JOBS, PROGRAMS = 2, 8.0, 40, 24
LOAD = 2.0
# Device seconds per CPU second of work: held up by the CPU, by neither, by the device.
INTENSITIES = (0.3, 1.0, 4.0)
SIZES = (GIB, 2 * GIB, 3 * GIB)


@dataclass(frozen=True, slots=True)
class Figures:
    """What one simulation came to: mean seconds, and the part of the time that devices were busy."""

    first: float
    second: float
    finish: float
    utilisation: float
    missed: int


def programs() -> tuple[Workload, ...]:
    """Half of them use the CPU alone; their work differs by an order of magnitude and more."""
    source = random.Random("programs with accelerators")
    families = (Family.EXPONENTIAL, Family.HYPERBOLIC)
    found = []
    for number in range(PROGRAMS):
        each = program(f"program{number}", families[number // 2 % 2], source.lognormvariate(2.5, 0.9), 0.1)
        if number % 2:
            which = number // 2 % 3
            each = accelerated(each, INTENSITIES[which], memory_bytes=SIZES[number // 6 % 3])
        found.append(each)
    return tuple(found)


def scenario(devices: int, *, history: bool) -> Scenario:
    """What is simulated with so many devices a node."""
    workloads = programs()
    works = [each.startup_cpu_seconds + each.max_epochs * each.epoch_cpu_seconds for each in workloads]
    cpu = statistics.fmean(works) / (NODES * CORES)
    busy = [work * each.accelerator_intensity for work, each in zip(works, workloads, strict=True)]
    device = statistics.fmean(busy) / (NODES * devices)
    return Scenario(
        name=f"{devices} devices a node",
        nodes=tuple(equipped(node, devices) for node in equal_nodes(NODES, CORES)),
        jobs=DrawnJobs(workloads, JOBS, Poisson(LOAD / max(cpu, device))),
        history={each.name: past_runs(each) for each in workloads} if history else {},
    )


def measure(task: tuple[int, str, int]) -> Figures:
    """Simulate so many devices a node under a policy with a seed; who knows earlier runs is in :data:`KNOWING`."""
    devices, arm, seed = task
    found = scenario(devices, history=arm in KNOWING)
    result = simulate(found if arm == "fair" else with_time_slices(found), POLICIES[arm], seed)
    return Figures(
        first=result.mean_time_to_tier(1),
        second=result.mean_time_to_tier(2),
        finish=result.mean_completion,
        utilisation=result.accelerator_utilisation,
        missed=result.missed_tiers(),
    )


def table(runs: Mapping[str, Sequence[Figures]]) -> Json:
    """Figures by policy; times against ``fair`` in the same simulation."""
    fair = runs["fair"]
    return {
        policy: {
            "time_to_tier_1": summarise([mine.first / other.first for mine, other in zip(found, fair, strict=True)]),
            "time_to_tier_2": summarise([mine.second / other.second for mine, other in zip(found, fair, strict=True)]),
            "mean_finish": summarise([mine.finish / other.finish for mine, other in zip(found, fair, strict=True)]),
            "utilisation": summarise([mine.utilisation for mine in found]),
            "seconds_to_tier_1": statistics.fmean(mine.first for mine in found),
            "missed_tiers": sum(mine.missed for mine in found),
        }
        for policy, found in runs.items()
    }


def bars_of(figures: Json) -> list[Bar]:
    """What ``utility`` has to show with any number of devices."""
    found = []
    for devices, rows in figures["tables"].items():
        ours, fair = rows["utility"], rows["fair"]
        below = 100 * (1 - ours["time_to_tier_1"]["mean"])
        found.append(Bar(f"{devices} devices a node: utility below fair in time to tier 1", below, "> 0", "%"))
        least = 100 * (1 - ours["time_to_tier_1"]["interval"][1])
        found.append(Bar(f"{devices} devices a node: lower end of the interval of that", least, "> 0", "%"))
        kept = ours["utilisation"]["mean"] / fair["utilisation"]["mean"]
        found.append(Bar(f"{devices} devices a node: device utilisation, utility against fair", kept, ">= 0.95"))
        finish = ours["mean_finish"]["mean"]
        found.append(Bar(f"{devices} devices a node: mean finish against fair", finish, "<= 1.0"))
        rivals = [policy for policy in RIVALS if policy in rows]
        names = ", ".join(rivals)
        best = min(rows[policy]["time_to_tier_1"]["mean"] for policy in rivals)
        rival = ours["time_to_tier_1"]["mean"] / best
        found.append(Bar(f"{devices} devices a node: time to tier 1 against the best of {names}", rival, "<= 1"))
    return found


def main() -> None:
    """Simulate, print, and write ``simulated-accelerators.json``."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=SEEDS, help="how many")
    parser.add_argument("--first-seed", type=int, default=FIRST_SEED)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--keep", action="store_true", help=KEEP_HELP)
    chosen = parser.parse_args()
    seeds = range(chosen.first_seed, chosen.first_seed + chosen.seeds)
    tables: dict[int, Json] = {}
    with multiprocessing.Pool(chosen.processes) as pool:
        for devices in DEVICES:
            tasks = [(devices, policy, seed) for policy in POLICIES for seed in seeds]
            found = pool.map(measure, tasks, chunksize=1)
            runs = {
                policy: found[index * len(seeds) : (index + 1) * len(seeds)] for index, policy in enumerate(POLICIES)
            }
            tables[devices] = table(runs)
            print(_lines(devices, tables[devices]), flush=True)
    figures = {
        "seeds": chosen.seeds,
        "nodes": NODES,
        "cores": CORES,
        "jobs": JOBS,
        "programs": PROGRAMS,
        "load": LOAD,
        "intensities": list(INTENSITIES),
        "tables": {str(devices): rows for devices, rows in tables.items()},
    }
    keep_result("simulated-accelerators", command=COMMAND, figures=figures, keep=chosen.keep)


def _lines(devices: int, rows: Json) -> str:
    lines = [f"{devices} devices a node", f"  {'':24}{'tier 1':>9}{'tier 2':>9}{'finish':>9}{'busy':>9}"]
    for policy, row in rows.items():
        names = ("time_to_tier_1", "time_to_tier_2", "mean_finish", "utilisation")
        lines.append(f"  {policy:24}" + "".join(f"{row[name]['mean']:9.3f}" for name in names))
    return "\n".join(lines)


if __name__ == "__main__":
    main()
