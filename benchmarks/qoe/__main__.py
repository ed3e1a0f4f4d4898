"""``python -m benchmarks.qoe train`` trains the learned scheduler, ``run`` compares all of them."""

from __future__ import annotations

import argparse
import operator
import sys
from collections.abc import Sequence

from benchmarks.qoe import compare
from benchmarks.qoe.variants import measured_profiles, train_variants
from benchmarks.results import Bar, write_result
from tiercel.serving.scheduling.aimd import AimdScheduler
from tiercel.serving.scheduling.heuristic import HeuristicScheduler
from tiercel.serving.scheduling.interface import Profile
from tiercel.serving.scheduling.learned import LearnedScheduler, PolicyRefusedError, shipped_policy
from tiercel.serving.scheduling.static import StaticScheduler
from tiercel.serving.scheduling.table import TableScheduler

LOADS = (0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.3)
# As much slack as three rows of the slowest variant and 40 of the fastest need.
_OBJECTIVE_RUNS = (4.0, 40.0)


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
        policy = shipped_policy()
    except PolicyRefusedError as error:
        print(f"no learned scheduler: {error}", file=sys.stderr)
    else:
        makers["learned"] = lambda: LearnedScheduler(policy)
    return makers


def bars(points: Sequence[compare.Point], shares: dict[str, tuple[float, float]]) -> list[Bar]:
    """What the issue asks for: the mean, and in the name how far chance may have moved it."""
    found: list[Bar] = []
    pairs = [("heuristic", None)] + ([("learned", "heuristic")] if "learned" in shares else [])
    for name, rival in pairs:
        worst, point = min(
            ((sum(each.difference(name, rival or each.best_static())), each) for each in points),
            key=operator.itemgetter(0),
        )
        mean, half = point.difference(name, rival or point.best_static())
        where = f"{point.form}, {point.shape}, load {point.load:g}; {mean:+.4f} ± {half:.4f}"
        found.append(Bar(f"{name} over {rival or 'the best variant alone'}, worst point ({where})", worst, ">= 0"))
    for name, (share, half) in shares.items():
        if name == "learned":
            found.append(Bar(f"{name}, part of the offline optimum on small cases (± {half:.4f})", share, ">= 0.95"))
    return found


def run(arguments: argparse.Namespace) -> None:
    """Compare, print a table, and write the result file."""
    profiles = measured_profiles(train_variants())
    objective = objective_of(profiles)
    makers = schedulers(profiles)
    points = compare.sweep(profiles, makers, objective, LOADS, arguments.seeds, arguments.requests)
    small = {name: make for name, make in makers.items() if name in {"heuristic", "learned", "table", "aimd"}}
    shares = compare.of_optimum(profiles, small, objective, arguments.cases)
    print(f"| utility | arrivals | load | {' | '.join(makers)} |")
    print(f"| --- | --- | --- | {' | '.join('---' for _ in makers)} |")
    for point in points:
        cells = " | ".join(f"{point.mean(name):.4f}" for name in makers)
        print(f"| {point.form} | {point.shape} | {point.load:g} | {cells} |")
    found = bars(points, shares)
    for bar in found:
        print(f"{'holds' if bar.holds else 'MISSED'}: {bar.name}: {bar.value:.4f} {bar.goal}")
    figures = {
        "profiles": [
            {"name": each.name, "accuracy": round(each.accuracy, 4), "seconds": [round(one, 7) for one in each.seconds]}
            for each in profiles
        ],
        "objective_seconds": objective,
        "workers": 2,
        "seeds": arguments.seeds,
        "requests": arguments.requests,
        "points": [point.to_json() for point in points],
        "part_of_optimum": {name: {"mean": mean, "half_width_95": half} for name, (mean, half) in shares.items()},
    }
    command = f"python -m benchmarks.qoe run --seeds {arguments.seeds} --requests {arguments.requests}"
    write_result("qoe", command=command, figures=figures, bars=found)


def train(arguments: argparse.Namespace) -> None:
    """Train the policy that ships."""
    from benchmarks.qoe.train import Recipe, train_and_ship

    # On random pools alone, so that the measured ones of `run` are held out.
    train_and_ship(Recipe(seed=arguments.seed), None)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.qoe", description=__doc__)
    commands = parser.add_subparsers(required=True)
    compared = commands.add_parser("run", help="compare the schedulers")
    compared.add_argument("--seeds", type=int, default=10, help="arrival sequences at each point")
    compared.add_argument("--requests", type=int, default=1500, help="about how many in each")
    compared.add_argument("--cases", type=int, default=40, help="small cases for each utility")
    compared.set_defaults(call=run)
    trained = commands.add_parser("train", help="train the learned scheduler (extra `research`)")
    trained.add_argument("--seed", type=int, default=7)
    trained.set_defaults(call=train)
    arguments = parser.parse_args()
    arguments.call(arguments)


if __name__ == "__main__":
    main()
