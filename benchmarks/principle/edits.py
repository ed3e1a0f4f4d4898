"""``python -m benchmarks.principle.edits``: what one edit of every program costs those who go by earlier runs.

Of the same programs, arrivals and noise, earlier runs are known, known of the program before the edit, or not at all.
An edit changes the work of a program by a factor whose logarithm has a standard deviation of ``--differs``.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, replace
from random import Random

from benchmarks.principle.work import kinds
from benchmarks.sections import table
from benchmarks.simulated_workloads import Kind, past_runs, with_time_slices
from tiercel.broker.scheduling.history import DIFFERS
from tiercel.broker.scheduling.interface import PastRun
from tiercel.broker.simulation import Workload, simulate
from tiercel.broker.simulation.curves import Curve, Trajectory
from tiercel.broker.simulation.workload import DrawnJobs

POLICIES = ("srpt", "utility")
KINDS = ("mixed", "heavy-tailed", "hopeless", "cluster arrivals")
KNOWN, EDITED, OTHER_ARGUMENTS, NOTHING = "known", "edited", "other arguments", "nothing known"


@dataclass(frozen=True, slots=True)
class Edited:
    """A curve whose work is another one by a factor."""

    before: Curve
    factor: float

    def trajectory(
        self, reports: int, work_per_report: float, startup_cpu_seconds: float, noise: float, source: Random
    ) -> Trajectory:
        """The curve's, at another speed; see :class:`.Curve`."""
        found = self.before.trajectory(reports, work_per_report, startup_cpu_seconds, noise, source)
        return replace(found, work=tuple(self.factor * work for work in found.work))


def edited(program: Workload, differs: float, draw: int) -> Workload:
    """A program after an edit, which is like the one before."""
    factor = Random(f"edit {draw} of {program.name}").lognormvariate(0.0, differs)
    name = f"{program.name} edited"
    return replace(program, name=name, curve=Edited(program.curve, factor), similar=(program.name,))


@dataclass(frozen=True, slots=True)
class Task:
    """One simulation: a kind of work, a draw of its programs, a seed, a policy, and what is known."""

    kind: str
    draw: int
    seed: int
    policy: str
    known: str
    differs: float


def mean_time_to_tier_1(task: Task) -> float:
    """Simulate; seconds."""
    kind = next(each for each in kinds(task.draw) if each.name == task.kind)
    after = tuple(edited(each, task.differs, task.draw) for each in kind.workloads)
    scenario = with_time_slices(kind.scenario(task.seed, history=False))
    scenario = replace(scenario, jobs=DrawnJobs(after, kind.jobs, kind.arrivals[task.seed % len(kind.arrivals)]))
    if task.known == KNOWN:
        scenario = replace(scenario, history={each.name: past_runs(each) for each in after})
    elif task.known in {EDITED, OTHER_ARGUMENTS}:
        differs = DIFFERS[(EDITED, OTHER_ARGUMENTS).index(task.known)]
        scenario = replace(scenario, similar=_past_of(kind, differs))
    return simulate(scenario, task.policy, task.seed, {}).mean_time_to_tier(1)


def _past_of(kind: Kind, differs: float) -> Mapping[str, tuple[PastRun, ...]]:
    return {each.name: tuple(replace(run, differs=differs) for run in past_runs(each)) for each in kind.workloads}


def main() -> None:
    """Simulate all and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--differs", type=float, default=0.2)
    parser.add_argument("--processes", type=int, default=1)
    chosen = parser.parse_args()
    arms = (KNOWN, EDITED, OTHER_ARGUMENTS, NOTHING)
    cases = [(draw, seed) for draw in range(1, chosen.draws + 1) for seed in range(1, chosen.seeds + 1)]
    rows = []
    with multiprocessing.Pool(chosen.processes) as pool:
        for kind in KINDS:
            for policy in POLICIES:
                tasks = [Task(kind, *case, policy, arm, chosen.differs) for arm in arms for case in cases]
                found = pool.map(mean_time_to_tier_1, tasks, chunksize=1)
                by_arm = [found[index * len(cases) : (index + 1) * len(cases)] for index in range(len(arms))]
                *means, nothing = (statistics.fmean(each) for each in by_arm)
                rows.append([kind, f"`{policy}`", *(f"{each / nothing:.3f}" for each in means)])
                print(*rows[-1], flush=True)
    print(table(["time to tier 1 against nothing known", "policy", *arms[:-1]], rows))


if __name__ == "__main__":
    main()
