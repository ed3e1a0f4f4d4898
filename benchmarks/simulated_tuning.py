"""The same tuning effort for every policy: ``python -m benchmarks.simulated_tuning [--tries 44]``.

Each policy gets its defaults and so many settings drawn from ranges around them. All are tried on the programs of the
draw ``tuning``; the setting with the lowest mean time to tier 1 there (geometric mean over the kinds of work, against
``fair`` in the same simulation) is then reported on other programs and seeds, beside the defaults. ``utility`` takes
part like the others, with earlier runs known and with its guard on; its defaults were found with 44 tries by hand.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.bars import keep_result
from benchmarks.results import KEEP_HELP, KEPT, Bar
from benchmarks.simulated_policies import summarise
from benchmarks.simulated_workloads import Kind, kinds, with_time_slices
from tiercel.broker.simulation import simulate

NAME = "simulated-tuning"
COMMAND = "python -m benchmarks.simulated_tuning"
TRIES = 44
TUNING_SEEDS = range(100, 102)
REPORT_SEEDS = range(10)
NEEDS_HISTORY = ("utility",)

Json = dict[str, Any]
Option = str | float | bool
Options = Mapping[str, Option]
Draw = Callable[[random.Random], Option]


def _ratio(low: float, high: float) -> Draw:
    return lambda source: round(math.exp(source.uniform(math.log(low), math.log(high))), 5)


def _whole(low: int, high: int) -> Draw:
    return lambda source: source.randint(low, high)


def _one_of(*options: Option) -> Draw:
    return lambda source: source.choice(options)


def _thresholds(source: random.Random) -> str:
    first, factor = _ratio(0.5, 16.0)(source), source.uniform(2.0, 6.0)
    return "/".join(f"{float(first) * factor**level:.4g}" for level in range(source.randint(1, 5)))


RANGES: Mapping[str, Mapping[str, Draw]] = {
    "fifo": {"floor": _ratio(0.003, 0.2), "tier_first": _one_of(True, False)},
    "las": {"floor": _ratio(0.003, 0.2), "tier_first": _one_of(True, False), "thresholds": _thresholds},
    "slaq": {
        "floor": _ratio(0.003, 0.2),
        "tier_first": _one_of(True, False),
        "horizon": _ratio(1.0, 100.0),
        "recent": _whole(5, 60),
    },
    "tradl": {
        "weights": _one_of("eta", "growth", "gap"),
        "window": _whole(1, 8),
        "beta": _ratio(1.05, 20.0),
        "min_reports": _whole(6, 20),
    },
    "flowcon": {
        "alpha": _ratio(0.002, 0.5),
        "beta": _ratio(1.05, 20.0),
        "interval": _ratio(1.0, 60.0),
        "scale_free": _one_of(True, False),
        "rule": _one_of("direct", "multiplicative"),
    },
    "specon": {
        "alpha": _ratio(0.01, 0.5),
        "interval": _ratio(1.0, 30.0),
        "round_seconds": _ratio(3.0, 60.0),
        "cooldown_seconds": _ratio(5.0, 240.0),
        "max_migrations": _whole(1, 3),
        "least_difference": _whole(1, 3),
        "migration_seconds": _one_of(2.0),
    },
    "utility": {
        "floor": _ratio(0.003, 0.2),
        "later_tiers": _ratio(0.01, 0.5),
        "finishing": _ratio(0.001, 0.2),
    },
}
"""What is tried of each policy; everything else stays as it is by default."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One policy with one setting in one simulation."""

    kind: Kind
    policy: str
    options: tuple[tuple[str, Option], ...]
    seed: int


def measure(trial: Trial) -> float:
    """Mean seconds to tier 1."""
    history = trial.policy in NEEDS_HISTORY
    scenario = trial.kind.scenario(trial.seed, history=history)
    sliced = scenario if trial.policy == "fair" else with_time_slices(scenario)
    return simulate(sliced, trial.policy, trial.seed, dict(trial.options)).mean_time_to_tier(1)


def draw_settings(policy: str, tries: int) -> list[Options]:
    """The defaults, and settings drawn from the policy's ranges; the same ones each time."""
    source = random.Random(f"settings of {policy}")
    drawn = [{name: draw(source) for name, draw in RANGES[policy].items()} for _ in range(tries)]
    return [{}, *drawn]


def against_fair(
    pool: multiprocessing.pool.Pool,
    among: Sequence[Kind],
    policies: Sequence[tuple[str, Options]],
    seeds: Sequence[int],
) -> list[dict[str, list[float]]]:
    """For each policy with its options and each kind of work: time to tier 1 over fair's, one for each seed."""
    arms = [("fair", {}), *policies]
    trials = [
        Trial(kind, policy, tuple(options.items()), seed)
        for policy, options in arms
        for kind in among
        for seed in _seeds(kind, seeds)
    ]
    seconds = iter(pool.map(measure, trials, chunksize=4))
    found = [{kind.name: [next(seconds) for _ in _seeds(kind, seeds)] for kind in among} for _ in arms]
    fair = found[0]
    return [
        {name: [mine / other for mine, other in zip(values, fair[name], strict=True)] for name, values in each.items()}
        for each in found[1:]
    ]


def _seeds(kind: Kind, seeds: Sequence[int]) -> range:
    return range(seeds[0] * kind.repeats, seeds[0] * kind.repeats + len(seeds) * kind.repeats)


def score(found: Mapping[str, Sequence[float]]) -> float:
    """Geometric mean over the kinds of work of the mean ratio; less is better."""
    return statistics.geometric_mean([statistics.fmean(values) for values in found.values()])


def tune(pool: multiprocessing.pool.Pool, policy: str, tries: int) -> Json:
    """Try a policy's settings, choose, and report the choice and the defaults on what was not tuned on."""
    settings = draw_settings(policy, tries)
    tried = against_fair(pool, kinds("tuning"), [(policy, each) for each in settings], TUNING_SEEDS)
    scores = [score(each) for each in tried]
    best = scores.index(min(scores))
    arms = [(policy, settings[0]), (policy, settings[best])]
    default, tuned = against_fair(pool, kinds("reported"), arms, REPORT_SEEDS)
    print(
        f"{policy:8s} tuning: default {scores[0]:.3f}, best of {len(scores)} {scores[best]:.3f}; "
        f"other programs: default {score(default):.3f}, tuned {score(tuned):.3f}  {dict(settings[best])}",
        flush=True,
    )
    return {
        "tries": len(scores),
        "tuning_score_of_defaults": scores[0],
        "tuning_score_of_best": scores[best],
        "best": dict(settings[best]),
        "default": {name: summarise(values) for name, values in default.items()},
        "tuned": {name: summarise(values) for name, values in tuned.items()},
        "score_of_defaults": score(default),
        "score_of_tuned": score(tuned),
    }


def main() -> None:
    """Tune all policies alike and write ``simulated-tuning.json``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tries", type=int, default=TRIES, help="settings drawn for each policy")
    only = "only this one, beside what is kept of the others; repeatable"
    parser.add_argument("--policy", action="append", choices=sorted(RANGES), help=only)
    parser.add_argument("--processes", type=int, default=multiprocessing.cpu_count())
    parser.add_argument("--keep", action="store_true", help=KEEP_HELP)
    arguments = parser.parse_args()
    found = {} if arguments.policy is None else _kept()
    with multiprocessing.Pool(arguments.processes) as pool:
        for policy in arguments.policy or RANGES:
            found[policy] = tune(pool, policy, arguments.tries)
    if found.keys() == RANGES.keys():
        keep_result(NAME, command=COMMAND, figures=found, keep=arguments.keep)


def _kept() -> dict[str, Json]:
    """What earlier runs found, for one that tunes some of the policies again."""
    path = KEPT / f"{NAME}.json"
    figures: dict[str, Json] = json.loads(path.read_text(encoding="utf-8"))["figures"] if path.exists() else {}
    return {policy: figures[policy] for policy in RANGES if policy in figures}


def bars_of(found: Mapping[str, Json]) -> list[Bar]:
    """``utility``, tuned like everybody else, against the best of the others."""
    bars = []
    for kind in found["utility"]["tuned"]:
        rivals = {policy: float(each["tuned"][kind]["mean"]) for policy, each in found.items()}
        ours = rivals.pop("utility")
        best = min(rivals, key=rivals.__getitem__)
        goal = ">= 20" if kind in {"mixed", "heavy-tailed"} else ">= 0"
        bars.append(
            Bar(
                f"{kind}: utility below the best of the others, all tuned ({best})",
                100 * (1 - ours / rivals[best]),
                goal,
                "%",
            )
        )
    return bars


if __name__ == "__main__":
    main()
