"""From simulations to figures: means over seeds, intervals over draws of programs, and the bars that follow."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence

from benchmarks.averages import bootstrap_interval
from benchmarks.results import Bar, Json
from benchmarks.simulated_policies import Arm, Figures

Found = Mapping[str, Sequence[Sequence[Figures]]]
"""By arm and draw, one for each seed."""

MEASURES: Mapping[str, Callable[[Figures, Figures], float]] = {
    "time_to_tier_1": lambda mine, other: mine.first / other.first,
    "time_to_answer_1": lambda mine, other: mine.answer / other.answer,
    "time_to_tier_2": lambda mine, other: mine.second / other.second,
    "mean_finish": lambda mine, other: mine.finish / other.finish,
    "makespan": lambda mine, other: mine.makespan / other.makespan,
    "worst_finish": lambda mine, other: max(a / b for a, b in zip(mine.completions, other.completions, strict=True)),
}
RIVALS = ("srpt", "fifo", "las")
_KNOWN, _UNKNOWN = "utility", "utility, nothing known"


def table(found: Found) -> Json:
    """By arm and measure: against ``fair`` in the same simulations."""
    return {name: against(found, name, "fair") for name in found}


def against(found: Found, arm: str, other: str) -> Json:
    """By measure, an arm's part of another's figures in the same simulations."""
    return {
        measure: summary(
            [
                [of(mine, theirs) for mine, theirs in zip(ours, others, strict=True)]
                for ours, others in zip(found[arm], found[other], strict=True)
            ]
        )
        for measure, of in MEASURES.items()
    }


def summary(by_draw: Sequence[Sequence[float]]) -> Json:
    """Mean and median of all, with the 95 % bootstrap interval of the mean over draws of programs."""
    every = [value for values in by_draw for value in values]
    means = [statistics.fmean(values) for values in by_draw]
    return {
        "mean": statistics.fmean(every),
        "interval": list(bootstrap_interval(means, samples=2000, seed=len(means))),
        "median": statistics.median(every),
        "most": max(every),
    }


def figures_of(found: Mapping[str, Found]) -> Json:
    """What a result file keeps, by kind of work."""
    return {
        kind: {
            "against_fair": table(arms),
            "against_rivals": {
                ours: {rival: against(arms, ours, rival) for rival in RIVALS if rival in arms}
                for ours in (_KNOWN, _UNKNOWN)
                if ours in arms
            },
        }
        for kind, arms in found.items()
    }


def ablation_of(found: Mapping[str, Found], ablations: Sequence[Arm]) -> Json:
    """By rule and kind of work: ``utility`` without it against ``utility`` with it."""
    return {
        arm.name: {kind: against(arms, arm.name, _KNOWN if arm.history else _UNKNOWN) for kind, arms in found.items()}
        for arm in ablations
    }


def bars_of(figures: Json) -> list[Bar]:
    """What one principle has to show on each kind of work."""
    return [bar for kind, found in figures["kinds"].items() for bar in _bars_of(kind, found)]


def _bars_of(kind: str, found: Json) -> list[Bar]:
    rows, rivals = found["against_fair"], found["against_rivals"]
    known, unknown = rivals[_KNOWN]["srpt"], rivals[_UNKNOWN]
    return [
        Bar(f"{kind}: time to tier 1 against srpt, which knows as much", known["time_to_tier_1"]["mean"], "<= 1.03"),
        Bar(f"{kind}: mean finish against srpt", known["mean_finish"]["mean"], "< 1"),
        Bar(f"{kind}: makespan against srpt", known["makespan"]["mean"], "<= 1"),
        Bar(f"{kind}: mean finish against fair", rows[_KNOWN]["mean_finish"]["mean"], "< 1"),
        Bar(f"{kind}: makespan against fair", rows[_KNOWN]["makespan"]["mean"], "<= 1"),
        Bar(f"{kind}: worst finish against fair", rows[_KNOWN]["worst_finish"]["median"], "<= 1.5"),
        Bar(
            f"{kind}: nothing known: time to tier 1 against the better of fifo and las",
            max(unknown[rival]["time_to_tier_1"]["mean"] for rival in ("fifo", "las")),
            "<= 1",
        ),
        Bar(f"{kind}: nothing known: mean finish against fair", rows[_UNKNOWN]["mean_finish"]["mean"], "<= 1"),
    ]


def lines(kind: str, found: Found) -> str:
    """A kind's table as text."""
    told = [f"{kind:38}" + "".join(f"{name:>16}" for name in MEASURES)]
    for arm, row in table(found).items():
        told.append(f"  {arm:36}" + "".join(f"{row[name]['mean']:16.3f}" for name in MEASURES))
    return "\n".join(told)


def ablation_lines(ablation: Json) -> str:
    """What each rule buys, as text: time to tier 1, mean finish and the worst finish without it over those with it."""
    told = []
    for rule, by_kind in ablation.items():
        told.append(rule)
        for kind, row in by_kind.items():
            cells = "".join(
                f"{name:>16} {row[name]['mean']:.3f} [{row[name]['interval'][0]:.3f}, {row[name]['interval'][1]:.3f}]"
                for name in ("time_to_tier_1", "time_to_answer_1", "mean_finish", "makespan", "worst_finish")
            )
            told.append(f"  {kind:18}{cells}")
    return "\n".join(told)
