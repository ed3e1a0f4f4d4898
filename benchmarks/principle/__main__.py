"""``python -m benchmarks.principle``: every policy on programs that are drawn anew, some of them real.

Means over seeds and draws; intervals by bootstrap over draws, since another set of programs differs by more than other
noise. What was simulated is kept in ``build/``: interrupted, it goes on where it was. ``--ablation`` adds ``utility``
without each of its rules.
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
from benchmarks.simulated_policies import Arm

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
    parser.add_argument("--ablation", action="store_true", help="utility without each of its rules as well")
    parser.add_argument("--keep", action="store_true", help=KEEP_HELP)
    chosen = parser.parse_args()
    ablations = [arm for arm in ABLATIONS if chosen.ablation and _is_chosen(arm, chosen.arm)]
    arms = [arm for arm in ARMS if _is_chosen(arm, chosen.arm)] + ablations
    only, runs = chosen.kind or names, Runs()
    draws = range(chosen.first_draw, chosen.first_draw + chosen.draws)
    trials = {
        (kind, arm.name, draw): [Trial(kind, draw, arm, seed) for seed in range(1, chosen.seeds + 1)]
        for kind in only
        for draw in draws
        for arm in arms
    }
    told_at = time.monotonic()
    every = [trial for group in trials.values() for trial in group]
    for done, trial in enumerate(runs.do(every, chosen.processes), start=1):
        if time.monotonic() - told_at > _TELL_EVERY_SECONDS:
            told_at = time.monotonic()
            print(f"{done} of at most {len(every)}: {trial.kind}, {trial.arm.name}", flush=True)
    found = {
        kind: {arm.name: [[runs.of(trial) for trial in trials[kind, arm.name, draw]] for draw in draws] for arm in arms}
        for kind in only
    }
    print("\n".join(lines(kind, arms_found) for kind, arms_found in found.items()))
    ablation = ablation_of(found, ablations)
    print(ablation_lines(ablation))
    if not chosen.kind and not chosen.arm:
        figures = {"draws": chosen.draws, "seeds": chosen.seeds, "kinds": figures_of(found), "ablation": ablation}
        keep_result("simulated-principle", command=COMMAND, figures=figures, keep=chosen.keep)


def _is_chosen(arm: Arm, wanted: list[str] | None) -> bool:
    """Whether an arm takes part; those that others are held against always do."""
    always = {"fair", "utility", "utility, nothing known"}
    return wanted is None or arm.name in always or any(arm.name.startswith(start) for start in wanted)


if __name__ == "__main__":
    main()
