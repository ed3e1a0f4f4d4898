"""What each rule of ``utility`` for endpoints buys where they do not all fit on their nodes, in the simulator.

``python -m benchmarks.simulated_contest [--seeds 6]``: three endpoints a node with versions of different quality, whose
requests together want 90 to 140 % of the nodes' CPU beside jobs that make one of them better, and the services of
:mod:`benchmarks.simulated_endpoints` whose objectives vary. Each rule is left out, or has another constant, in turn;
figures are against ``utility`` as it is in the same simulations. No constant was chosen on the contests.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from benchmarks.bars import keep_result
from benchmarks.results import KEEP_HELP, Bar, Json
from benchmarks.sections import table
from benchmarks.simulated_endpoints import CASES, SETTLED_PART
from benchmarks.simulated_policies import Option, otherwise, summarise
from benchmarks.simulated_served import scenario as one_a_node
from tiercel.broker.simulation import Scenario, simulate

COMMAND = "python -m benchmarks.simulated_contest"
SEEDS = 6
LOADS = (0.9, 1.1, 1.4)
QUALITIES = (0.5, 0.8, 0.9)
"""Of the version that each of the endpoints of a node begins with; jobs make the first one better."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule that is left out, or has another constant."""

    options: Mapping[str, Option] = field(default_factory=dict)  # of the policy
    constants: Mapping[str, object] = field(default_factory=dict)  # see :class:`.Arm`


_SERVING = "utility.serving"
RULES: Mapping[str, Rule] = {
    "endpoints are full at 80 % (`_FULL`)": Rule(constants={f"{_SERVING}._FULL": 0.8}),
    "endpoints are full at 100 % (`_FULL`)": Rule(constants={f"{_SERVING}._FULL": 1.0}),
    "late is only who answers half in time (`_IN_TIME`)": Rule(constants={f"{_SERVING}._IN_TIME": 0.5}),
    "one measurement says who waits for answers (`_OPEN_AFTER`)": Rule(constants={f"{_SERVING}._OPEN_AFTER": 1}),
    "who is served changes at any gain (`_STAYS`)": Rule(constants={f"{_SERVING}._STAYS": 1.0}),
    "a least part of a tenth (`LEAST`)": Rule(constants={f"{_SERVING}.LEAST": 0.1}),
    "an answer is worth ten times as much (`answers_per_value`)": Rule({"answers_per_value": 10.0}),
    "no room kept for answers (`answers_well`)": Rule({"answers_well": 100.0}),
    "who asks counts nothing (`window_seconds`)": Rule({"window_seconds": 0.0}),
}


def scenario(load: float) -> Scenario:
    """Three endpoints a node, which share the requests of one."""
    ones = one_a_node(load / len(QUALITIES), "utility").endpoints
    endpoints = tuple(
        # Waves and bursts come to another one of a node at a time.
        replace(
            one,
            name=one.name if position == 0 else f"{one.name}-{position}",
            rate=ones[(position + number) % len(ones)].rate,
            quality=quality,
        )
        for position, quality in enumerate(QUALITIES)
        for number, one in enumerate(ones)
    )
    return replace(one_a_node(load, "utility"), endpoints=endpoints)


def contest(load: float, rule: Rule, seed: int) -> tuple[float, float]:
    """Served quality, and mean seconds to a first tier."""
    with otherwise(rule.constants):
        result = simulate(scenario(load), "utility", seed, rule.options)
    return result.served_quality, result.mean_time_to_tier(1)


def satisfied(rule: Rule, seeds: Sequence[int]) -> float:
    """Services of ten that answer within a tenth of objectives that vary, in the mean of the latter part of a run."""
    with otherwise(rule.constants):
        return statistics.fmean(
            simulate(case.scenario(seed), "utility", seed, rule.options).mean_satisfied(from_part=SETTLED_PART)
            for case in CASES
            if case.nodes == 1
            for seed in seeds
        )


def compare(seeds: Sequence[int]) -> Json:
    """Every rule at every load against ``utility`` as it is."""
    usual = Rule()
    as_it_is = {load: [contest(load, usual, seed) for seed in seeds] for load in LOADS}
    rows = {}
    for name, rule in RULES.items():
        loads = {}
        for load in LOADS:
            found = [contest(load, rule, seed) for seed in seeds]
            loads[f"{load:.1f}"] = {
                "served_quality": summarise([a[0] / b[0] for a, b in zip(found, as_it_is[load], strict=True)]),
                "time_to_tier_1": summarise([a[1] / b[1] for a, b in zip(found, as_it_is[load], strict=True)]),
            }
        rows[name] = {"loads": loads, "satisfied": satisfied(rule, seeds)}
        print(section({"rules": {name: rows[name]}, "satisfied": 0.0}).splitlines()[-1], flush=True)
    return {"seeds": len(seeds), "rules": rows, "satisfied": satisfied(usual, seeds)}


def section(figures: Json) -> str:
    """The table of ``docs/results.md``; written by :mod:`benchmarks.simulated_report`."""
    heads = [f"wanted {load:.0%}: served quality, first tier" for load in LOADS]
    rows = [["as it is", *("1, 1" for _ in LOADS), f"{figures['satisfied']:.1f}"]]
    rows += [
        [name, *(_cell(found) for found in row["loads"].values()), f"{row['satisfied']:.1f}"]
        for name, row in figures["rules"].items()
    ]
    return table(["without it against with it", *heads, "services of 10 satisfied"], rows)


def bars_of(_figures: Json) -> list[Bar]:
    """None: what a rule buys is for whoever thinks of leaving it out."""
    return []


def _cell(found: Json) -> str:
    quality, first = found["served_quality"], found["time_to_tier_1"]
    low, high = quality["interval"]
    return f"{quality['mean']:.2f} ({low:.2f} … {high:.2f}), {first['mean']:.2f}"


def main() -> None:
    """Simulate, print, and keep the result."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--keep", action="store_true", help=KEEP_HELP)
    chosen = parser.parse_args()
    figures = compare(range(1, chosen.seeds + 1))
    keep_result("simulated-contest", command=COMMAND, figures=figures, keep=chosen.keep)


if __name__ == "__main__":
    main()
