"""``python -m benchmarks.qoe train`` trains the learned scheduler, ``run`` compares all of them."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

from benchmarks.bars import keep_result, tell_bars
from benchmarks.qoe import compare
from benchmarks.qoe.bars import bars_of, behind_at
from benchmarks.qoe.learned import LearnedScheduler, PolicyRefusedError, kept_policy
from benchmarks.qoe.tables import SECTION, draw, make_section
from benchmarks.qoe.variants import kept_variants, measured_profiles
from benchmarks.results import KEEP_HELP, KEPT
from benchmarks.sections import write_section
from tiercel.serving.scheduling.aimd import AimdScheduler
from tiercel.serving.scheduling.heuristic import HeuristicScheduler
from tiercel.serving.scheduling.interface import Profile
from tiercel.serving.scheduling.static import StaticScheduler
from tiercel.serving.scheduling.table import TableScheduler

LOADS: tuple[float, ...] = (0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.3)
QUICK_LOADS: tuple[float, ...] = (0.2, 0.8, 1.3)

_ROOT = Path(__file__).parents[2]
_KEPT = _ROOT / "build" / "qoe-variants"
_DOCUMENT = _ROOT / "docs" / "results.md"
_PLOT = _ROOT / "docs" / "plots" / "qoe.png"

# As much slack as three rows of the slowest variant and 20 of the fastest need.
_OBJECTIVE_RUNS = (4.0, 20.0)


def objective_of(profiles: tuple[Profile, ...]) -> float:
    """Seconds that make the choice between the variants matter."""
    slow, fast = _OBJECTIVE_RUNS
    return max(slow * profiles[0].seconds[0], fast * profiles[-1].seconds[0])


def schedulers(profiles: tuple[Profile, ...]) -> dict[str, compare.Make]:
    """All of them by name; the learned one only if its policy is fit to be used."""
    table = TableScheduler()
    makers: dict[str, compare.Make] = {"heuristic": HeuristicScheduler, "aimd": AimdScheduler, "table": lambda: table}
    for profile in profiles:
        makers[f"static {profile.name}"] = lambda name=profile.name: StaticScheduler(name)  # type: ignore[misc]
    try:
        policy = kept_policy()
    except PolicyRefusedError as error:
        print(f"no learned scheduler: {error}", file=sys.stderr)
    else:
        makers["learned"] = lambda: LearnedScheduler(policy)
    return makers


def run(arguments: argparse.Namespace) -> None:
    """Compare; without ``--quick`` write the result file, the table in ``docs/results.md`` and its plot."""
    began = time.process_time()
    seeds, requests, cases, loads = arguments.seeds, arguments.requests, arguments.cases, LOADS
    if arguments.quick:
        seeds, requests, cases, loads = 3, 400, 6, QUICK_LOADS
    profiles = measured_profiles(kept_variants(_KEPT))
    objective = objective_of(profiles)
    _say(began, f"profiles measured; objective {1e3 * objective:.3f} ms")
    makers = schedulers(profiles)
    points = compare.sweep(profiles, makers, objective, loads, seeds, requests, lambda text: _say(began, text))
    small = {name: make for name, make in makers.items() if not name.startswith("static ")}
    shares = compare.of_optimum(profiles, small, objective, cases)
    _say(began, "compared with the optimum")
    figures = {
        "profiles": [
            {"name": each.name, "accuracy": round(each.accuracy, 4), "seconds": [round(one, 7) for one in each.seconds]}
            for each in profiles
        ],
        "objective_seconds": objective,
        "workers": 2,
        "seeds": seeds,
        "requests": requests,
        "points": [point.to_json() | {"over_rival_together": behind_at(point, len(points))} for point in points],
        "part_of_optimum": {
            name: {"mean": round(mean, 4), "half_width_95": round(half, 4)} for name, (mean, half) in shares.items()
        },
    }
    if arguments.quick:
        tell_bars("qoe", bars_of(figures))
        return
    keep_result("qoe", command="python -m benchmarks.qoe run", figures=figures, keep=arguments.keep)
    if not arguments.keep:
        return
    draw(figures["points"], _PLOT)
    result = json.loads((KEPT / "qoe.json").read_text(encoding="utf-8"))
    write_section(_DOCUMENT, SECTION, make_section(result, _PLOT.relative_to(_DOCUMENT.parent).as_posix()))
    _say(began, "written")


def _say(began: float, text: str) -> None:
    print(f"[{time.process_time() - began:5.1f} s of CPU] {text}", flush=True)


def train(arguments: argparse.Namespace) -> None:
    """Train the policy that is kept."""
    from benchmarks.qoe.train import Recipe, train_and_keep

    # On random pools alone, so that the measured ones of `run` are held out.
    train_and_keep(Recipe(seed=arguments.seed), None)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.qoe", description=__doc__)
    commands = parser.add_subparsers(required=True)
    compared = commands.add_parser("run", help="compare the schedulers")
    compared.add_argument("--seeds", type=int, default=40, help="arrival sequences at each point")
    compared.add_argument("--requests", type=int, default=1500, help="about how many in each")
    compared.add_argument("--cases", type=int, default=40, help="small cases for each utility")
    compared.add_argument("--quick", action="store_true", help="a glance at it; nothing is written")
    compared.add_argument("--keep", action="store_true", help=KEEP_HELP)
    compared.set_defaults(call=run)
    trained = commands.add_parser("train", help="train the learned scheduler (extra `research`)")
    trained.add_argument("--seed", type=int, default=7)
    trained.set_defaults(call=train)
    arguments = parser.parse_args()
    arguments.call(arguments)


if __name__ == "__main__":
    main()
