"""The experiments of FlowCon, TRADL and SpeCon for the simulator: their schedules, with made-up programs like theirs.

Arrivals, numbers of jobs and of nodes are the papers'. The papers do not say what their
programs need, so these are made up: seven that train alone on a node of eight cores for half a minute to three minutes,
each with a curve that soon flattens, which is what all three papers live on.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from benchmarks.simulated_workloads import past_runs
from tiercel.broker.simulation import (
    DrawnJobs,
    ListedJobs,
    MachineSettings,
    PlannedJob,
    Scenario,
    Workload,
    equal_nodes,
)
from tiercel.broker.simulation.arrivals import Uniform
from tiercel.broker.simulation.curves import Family, FamilyCurve
from tiercel.broker.simulation.workload import JobSource
from tiercel.core.jobs import Direction, Resources, Tier

CORES = 8.0
STARTUP_CPU_SECONDS = 2.0
NOISE, SPREAD = 0.0005, 0.1
"""Of each report, and of the work of a run: its logarithm's standard deviation."""

# Seconds that a program trains alone on a node, and seconds after which it has e^-1 (or half) of its way left.
_PROGRAMS = (
    ("vae-pytorch", Family.EXPONENTIAL, 180, 40.0),
    ("mnist-pytorch", Family.EXPONENTIAL, 90, 25.0),
    ("mnist-tensorflow", Family.EXPONENTIAL, 30, 8.0),
    ("lstm-cfc", Family.HYPERBOLIC, 60, 10.0),
    ("lstm-crf", Family.EXPONENTIAL, 120, 20.0),
    ("bidirectional-rnn", Family.EXPONENTIAL, 45, 12.0),
    ("gru", Family.HYPERBOLIC, 75, 12.0),
)
_ACCURACIES = (0.1, 0.95)
_WAYS_TO_TIER_1 = (0.70, 0.85)
_TIER_2_ABOVE = 0.10
_SPARE_BUDGET = 1.3
SPECON_MIGRATION_SECONDS = 12.0


@dataclass(frozen=True, slots=True)
class Schedule:
    """One experiment of a paper."""

    name: str  # what tables call it
    jobs: JobSource  # which of the programs come, and when
    programs: tuple[Workload, ...]  # all programs: earlier runs of these may be known
    nodes: int = 1  # nodes of eight cores
    machines: MachineSettings = field(default_factory=MachineSettings)  # how they behave
    random_placement: bool = False  # see :class:`.Scenario`: the same initial placement for every policy

    def scenario(self, *, history: bool) -> Scenario:
        """What is simulated; with ``history`` four earlier runs of every program are known."""
        return Scenario(
            name=f"{self.name}{', known' if history else ''}",
            nodes=equal_nodes(self.nodes, CORES),
            jobs=self.jobs,
            machines=self.machines,
            random_placement=self.random_placement,
            history={workload.name: past_runs(workload) for workload in self.programs} if history else {},
        )


def untiered_programs() -> tuple[Workload, ...]:
    """Losses from 1 towards 0.1; a job ends where a run of ordinary speed is after the program's time alone."""
    return tuple(
        _program(name, FamilyCurve(family, 1.0, 0.1, scale * CORES), seconds, Direction.MIN)
        for name, family, seconds, scale in _PROGRAMS
    )


def tiered_programs() -> tuple[Workload, ...]:
    """Accuracies with a tier at 70 to 85 % of the plateau and one 10 points above; all train on to the end."""
    programs = []
    for name, family, seconds, scale in _PROGRAMS:
        start, plateau = _ACCURACIES
        first = random.Random(f"tier of {name}").uniform(*_WAYS_TO_TIER_1) * plateau
        workload = _program(name, FamilyCurve(family, start, plateau, scale * CORES), seconds, Direction.MAX)
        tiers = (Tier(first), Tier(min(first + _TIER_2_ABOVE, workload.tiers[0].target)))
        programs.append(replace(workload, tiers=tiers, max_epochs=seconds, continue_after_last_tier=True))
    return tuple(programs)


def _program(name: str, curve: FamilyCurve, seconds: int, direction: Direction) -> Workload:
    """A report for each second alone; it ends where that curve is after so many seconds."""
    return Workload(
        name=name,
        curve=curve,
        tiers=(Tier(curve.value(seconds * CORES)),),
        direction=direction,
        startup_cpu_seconds=STARTUP_CPU_SECONDS,
        epoch_cpu_seconds=CORES,
        max_epochs=round(seconds * _SPARE_BUDGET),
        noise=NOISE,
        speed_spread=SPREAD,
        resources=Resources(cpu_cores=CORES),
    )


def _one_after_the_other(programs: Sequence[Workload], every_seconds: float) -> JobSource:
    return ListedJobs(tuple(PlannedJob(every_seconds * index, each) for index, each in enumerate(programs)))


def _at_random(programs: tuple[Workload, ...], count: int, within_seconds: float) -> JobSource:
    """Programs drawn with replacement."""
    return DrawnJobs(programs, count, Uniform(within_seconds), each_equally=False)


def _each_once(programs: tuple[Workload, ...], within_seconds: float) -> JobSource:
    return DrawnJobs(programs, len(programs), Uniform(within_seconds))


def flowcon_schedules() -> tuple[Schedule, ...]:
    """Three jobs 40 s apart, five different ones within 200 s, ten and fifteen within 200 s (Zheng et al., 2019)."""
    programs = untiered_programs()
    return (
        Schedule("3 jobs, 40 s apart", _one_after_the_other(programs[:3], 40.0), programs),
        Schedule("5 different jobs in 200 s", _each_once(programs[:5], 200.0), programs),
        Schedule("10 jobs in 200 s", _at_random(programs, 10, 200.0), programs),
        Schedule("15 jobs in 200 s", _at_random(programs, 15, 200.0), programs),
    )


def tradl_schedules() -> tuple[Schedule, ...]:
    """Four jobs 50 s apart, five, ten and fifteen within 200 s (TRADL; a reconstruction)."""
    programs = tiered_programs()
    return (
        Schedule("4 jobs, 50 s apart", _one_after_the_other(programs[:4], 50.0), programs),
        Schedule("5 different jobs in 200 s", _each_once(programs[:5], 200.0), programs),
        Schedule("10 jobs in 200 s", _at_random(programs, 10, 200.0), programs),
        Schedule("15 jobs in 200 s", _at_random(programs, 15, 200.0), programs),
    )


def specon_schedules() -> tuple[Schedule, ...]:
    """Fifty jobs within 500 s on four nodes, from nodes drawn by lot; a migration takes 12 s (Mao et al., 2021)."""
    startup_seconds = STARTUP_CPU_SECONDS / CORES
    machines = MachineSettings(checkpoint_seconds=SPECON_MIGRATION_SECONDS - startup_seconds)
    programs = untiered_programs()
    return (
        Schedule(
            "50 jobs in 500 s, 4 nodes", _at_random(programs, 50, 500.0), programs, 4, machines, random_placement=True
        ),
        Schedule(
            "25 jobs in 450 s, 4 nodes", _at_random(programs, 25, 450.0), programs, 4, machines, random_placement=True
        ),
    )
