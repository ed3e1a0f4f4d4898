"""``python -m benchmarks.principle``: every policy on programs that are drawn anew, some of them real.

Means over seeds and draws; intervals by bootstrap over draws, since another set of programs differs by more than other
noise. What was simulated is kept in ``build/``: interrupted, it goes on where it was. ``--ablation 4`` adds
``utility`` without each of its rules, with so many seeds.
"""

from __future__ import annotations

import argparse
import time

from benchmarks.bars import keep_result
from benchmarks.principle.arms import ABLATIONS, ARMS
from benchmarks.principle.runs import Runs, Trial
from benchmarks.principle.tables import ablation_lines, ablation_of, figures_of, lines
from benchmarks.principle.work import kinds
from benchmarks.results import KEEP_HELP
from benchmarks.simulated_policies import Arm, Figures

COMMAND = "make bench-principle"
DRAWS, SEEDS = 5, 4
_TELL_EVERY_SECONDS = 30.0


def main() -> None:
    """Simulate what is missing, print, and keep the result."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--draws", type=int, default=DRAWS, help="sets of programs")
    parser.add_argument("--first-draw", type=int, default=1, help="settings are chosen on others than reported ones")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="simulations of each kind of work and set of programs")
    parser.add_argument("--processes", type=int, default=1)
    names = [kind.name for kind in kinds(0)]
    parser.add_argument("--kind", action="append", choices=names, help="only this; keeps no result; repeatable")
    parser.add_argument("--arm", action="append", help="only what begins like this, beside fair; keeps no result")
    parser.add_argument(
        "--ablation", type=int, default=0, metavar="SEEDS", help="utility without each of its rules, too"
    )
    parser.add_argument("--keep", action="store_true", help=KEEP_HELP)
    chosen = parser.parse_args()
    ablations = [arm for arm in ABLATIONS if chosen.ablation and _is_chosen(arm, chosen.arm)]
    arms = [arm for arm in ARMS if _is_chosen(arm, chosen.arm)]
    only, runs = chosen.kind or names, Runs()
    draws = range(chosen.first_draw, chosen.first_draw + chosen.draws)

    def trials(kind: str, arm: Arm, seeds: int) -> list[list[Trial]]:
        return [[Trial(kind, draw, arm, seed) for seed in range(1, seeds + 1)] for draw in draws]

    def found_of(among: list[Arm], seeds: int) -> dict[str, dict[str, list[list[Figures]]]]:
        return {
            kind: {arm.name: [[runs.of(each) for each in group] for group in trials(kind, arm, seeds)] for arm in among}
            for kind in only
        }

    counts = [(arm, chosen.seeds) for arm in arms] + [(arm, chosen.ablation) for arm in ablations]
    wanted = [trials(kind, arm, seeds) for kind in only for arm, seeds in counts]
    _simulate(runs, [trial for by_draw in wanted for group in by_draw for trial in group], chosen.processes)
    found = found_of(arms, chosen.seeds)
    print("\n".join(lines(kind, arms_found) for kind, arms_found in found.items()))
    ablation = ablation_of(found_of([*arms, *ablations], chosen.ablation), ablations) if ablations else {}
    print(ablation_lines(ablation))
    if not chosen.kind and not chosen.arm:
        counted = {"draws": chosen.draws, "seeds": chosen.seeds, "ablation_seeds": chosen.ablation}
        figures = {**counted, "kinds": figures_of(found), "ablation": ablation}
        keep_result("simulated-principle", command=COMMAND, figures=figures, keep=chosen.keep)


def _simulate(runs: Runs, trials: list[Trial], processes: int) -> None:
    """Do what is missing, and tell now and then how far it is."""
    told_at = time.monotonic()
    for done, trial in enumerate(runs.do(trials, processes), start=1):
        if time.monotonic() - told_at > _TELL_EVERY_SECONDS:
            told_at = time.monotonic()
            print(f"{done} of at most {len(trials)}: {trial.kind}, {trial.arm.name}", flush=True)


def _is_chosen(arm: Arm, wanted: list[str] | None) -> bool:
    """Whether an arm takes part; those that others are held against always do."""
    always = {"fair", "utility", "utility, nothing known"}
    return wanted is None or arm.name in always or any(arm.name.startswith(start) for start in wanted)


if __name__ == "__main__":
    main()
