"""How many endpoints meet their delay objectives under each policy, in the simulator.

``python -m benchmarks.simulated_endpoints [--seeds 20]``: the experiments of DQoES (Mao et al., 2020) with services of
equal work that answer one batch after the other: 10 on one node and 40 on four, which come at once, every 50 s, or at
random within 300 s. Satisfied is who answers within 10 % of its objective, neither slower nor faster; in time is who is
no slower than that. Every figure is a mean over the last 40 % of a run, for as many seeds as are asked for; objectives,
random arrivals and the noise of what is measured (2 %) change with the seed and are the same for all policies.
"""

from __future__ import annotations

import argparse
import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.bars import keep_result
from benchmarks.results import KEEP_HELP, Bar, Json
from tiercel.broker.simulation import Result, Scenario, equal_nodes, simulate
from tiercel.broker.simulation.endpoints import EndpointTraffic

PER_NODE = 10
BATCH_CPU_SECONDS = 3.0
"""Of a node with one core: 30 s a batch where ten services share it equally."""

DURATION_SECONDS = 1000.0
SETTLED_PART = 0.6
SEEDS = 20
COMMAND = "python -m benchmarks.simulated_endpoints"

POLICIES: dict[str, tuple[str, dict[str, str | float | bool]]] = {
    "fair": ("fair", {}),
    "dqoes": ("dqoes", {}),
    "dqoes, literal": ("dqoes", {"mode": "literal"}),
    "dqoes, absolute": ("dqoes", {"weights": "absolute"}),
    "utility": ("utility", {}),
}

Draw = Callable[[int, random.Random], list[float]]


def varied(count: int, chance: random.Random, load: float = 0.95) -> list[float]:
    """Objectives in seconds, up to ten times apart; to meet all of them exactly takes ``load`` of a node."""
    raw = [10 ** chance.uniform(0.0, 1.0) for _ in range(count)]
    scale = sum(BATCH_CPU_SECONDS / objective for objective in raw) / load
    return [objective * scale for objective in raw]


OBJECTIVES: dict[str, Draw] = {
    "varied": varied,
    "identical, within reach": lambda count, _: [40.0] * count,
    "identical, out of reach": lambda count, _: [20.0] * count,
}
ARRIVALS: dict[str, Draw] = {
    "burst": lambda count, _: [0.0] * count,
    "fixed": lambda count, _: [50.0 * number for number in range(count)],
    "random": lambda count, chance: [chance.uniform(0.0, 300.0) for _ in range(count)],
}


@dataclass(frozen=True, slots=True)
class Case:
    """What is compared."""

    nodes: int  # how many, with ten services each
    objectives: str  # a name in :data:`OBJECTIVES`
    arrivals: str  # a name in :data:`ARRIVALS`; each node has its own

    @property
    def name(self) -> str:
        """As tables have it."""
        return f"{self.nodes * PER_NODE} on {self.nodes}, {self.objectives}, {self.arrivals}"

    def scenario(self, seed: int) -> Scenario:
        """What is simulated for a seed."""
        cluster = equal_nodes(self.nodes, 1.0)
        loads = []
        for node in cluster:
            chance = random.Random(f"{self.name}/{node.id}/{seed}")
            objectives = OBJECTIVES[self.objectives](PER_NODE, chance)
            arrivals = ARRIVALS[self.arrivals](PER_NODE, chance)
            loads += [
                EndpointTraffic(
                    name=f"{node.id}-{number}",
                    work_cpu_seconds=BATCH_CPU_SECONDS,
                    clients=1,
                    objective_seconds=objective,
                    node_id=node.id,
                    quality=1.0,
                    opens_at=opens_at,
                    give_up_seconds=DURATION_SECONDS,
                )
                for number, (objective, opens_at) in enumerate(zip(objectives, arrivals, strict=True))
            ]
        return Scenario(
            name=self.name, nodes=cluster, endpoints=tuple(loads), duration_seconds=DURATION_SECONDS, step_seconds=5.0
        )


CASES = (
    *(Case(nodes, "varied", arrivals) for nodes in (1, 4) for arrivals in ARRIVALS),
    Case(1, "identical, within reach", "burst"),
    Case(1, "identical, out of reach", "burst"),
)


def in_time(result: Result) -> float:
    """Services that were no slower than their objective allows for, in the mean of the last part of the run."""
    counts = result.class_counts[int(len(result.class_counts) * SETTLED_PART) :]
    return statistics.fmean(count.over + count.satisfied for count in counts)


def measure(case: Case, policy: str, seeds: Sequence[int]) -> dict[str, list[float]]:
    """Services satisfied and in time, a figure for each seed."""
    name, options = POLICIES[policy]
    results = [simulate(case.scenario(seed), name, seed, options) for seed in seeds]
    return {
        "satisfied": [result.mean_satisfied(from_part=SETTLED_PART) for result in results],
        "in_time": [in_time(result) for result in results],
    }


def summarise(figures: Sequence[float]) -> dict[str, float]:
    """Mean, median and quartiles."""
    low, middle, high = statistics.quantiles(figures, n=4, method="inclusive")
    return {"mean": statistics.fmean(figures), "low": low, "median": middle, "high": high}


def over_time(case: Case, policy: str, seed: int) -> list[tuple[float, int, int, int]]:
    """Time in seconds and services that are faster, satisfied and slower, for a plot; every 25 s."""
    name, options = POLICIES[policy]
    counts = simulate(case.scenario(seed), name, seed, options).class_counts
    return [(count.at, count.over, count.satisfied, count.under) for count in counts[::5]]


def compare(seeds: Sequence[int]) -> Json:
    """All cases under all policies."""
    cases = {}
    for case in CASES:
        found = {policy: measure(case, policy, seeds) for policy in POLICIES}
        cases[case.name] = {
            policy: {what: summarise(values) for what, values in by_measure.items()}
            for policy, by_measure in found.items()
        }
    over = {policy: over_time(CASES[3], policy, seeds[0]) for policy in POLICIES}
    return {"seeds": len(seeds), "cases": cases, "over_time": over}


def bars_of(figures: Json) -> list[Bar]:
    """The paper's claim for ``dqoes`` where objectives vary, and ``utility`` by the same measure: those satisfied."""
    bars = []
    for case in CASES:
        if case.objectives != "varied":
            continue
        means = {policy: row["satisfied"]["mean"] for policy, row in figures["cases"][case.name].items()}
        for policy in ("dqoes", "utility"):
            ratio = means[policy] / means["fair"] if means["fair"] else 1e6
            bars.append(Bar(f"{case.name}: satisfied, {policy} over fair", ratio, ">= 8"))
        bars.append(Bar(f"{case.name}: satisfied, utility over dqoes", means["utility"] / means["dqoes"], ">= 1"))
    return bars


def tell(figures: Json) -> None:
    """Print tables."""
    for case, by_policy in figures["cases"].items():
        print(f"{case}: satisfied (in time), median [quartiles] over {figures['seeds']} seeds")
        for policy, line in by_policy.items():
            satisfied, timely = line["satisfied"], line["in_time"]
            print(
                f"  {policy:16} {satisfied['median']:5.1f} [{satisfied['low']:.1f} … {satisfied['high']:.1f}]"
                f"   ({timely['median']:.1f} [{timely['low']:.1f} … {timely['high']:.1f}])"
            )


def main() -> None:
    """Compare, print and keep."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=SEEDS, help="how many runs of each case, at least 2")
    parser.add_argument("--keep", action="store_true", help=KEEP_HELP)
    arguments = parser.parse_args()
    figures = compare(range(1, arguments.seeds + 1))
    tell(figures)
    command = COMMAND if arguments.seeds == SEEDS else f"{COMMAND} --seeds {arguments.seeds}"
    keep_result("simulated-endpoints", command=command, figures=figures, keep=arguments.keep)


if __name__ == "__main__":
    main()
