"""The tables of ``simulated-principle`` in ``docs/results.md``; written by :mod:`benchmarks.simulated_report`."""

from __future__ import annotations

from benchmarks.results import Json
from benchmarks.sections import table

_OURS = ("utility", "utility, nothing known")


def section(figures: Json) -> str:
    """Every policy on every kind of work, and what each rule of ``utility`` buys."""
    kinds = figures["kinds"]
    arms = list(next(iter(kinds.values()))["against_fair"])
    firsts = [
        [_name(arm), *(_with_interval(found["against_fair"][arm]["time_to_tier_1"]) for found in kinds.values())]
        for arm in arms
    ]
    costs = [[_name(arm), *(_cost(found["against_fair"][arm]) for found in kinds.values())] for arm in arms]
    parts = [
        table(["time to tier 1 against `fair`", *kinds], firsts),
        table(["mean finish, makespan, worst finish", *kinds], costs),
    ]
    if figures["ablation"]:
        rows = [[_name(rule), *(_without(row) for row in by.values())] for rule, by in figures["ablation"].items()]
        parts.append(
            table(["without it against with it: tier 1 answers, mean finish, makespan, worst finish", *kinds], rows)
        )
    return "\n\n".join(parts)


def _name(arm: str) -> str:
    policy, comma, rest = arm.partition(",")
    name = f"`{policy}`{comma}{rest}"
    return f"**{name}**" if arm in _OURS else name


def _with_interval(cell: Json) -> str:
    low, high = cell["interval"]
    return f"{cell['mean']:.3f} ({low:.2f} … {high:.2f})"


def _cost(row: Json) -> str:
    return f"{row['mean_finish']['mean']:.2f}, {row['makespan']['mean']:.2f}, {row['worst_finish']['median']:.1f}"


def _without(row: Json) -> str:
    return ", ".join(
        f"{row[name]['mean']:.2f}" for name in ("time_to_answer_1", "mean_finish", "makespan", "worst_finish")
    )
