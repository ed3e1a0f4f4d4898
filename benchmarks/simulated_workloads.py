"""Scenarios in which all policies are compared in the simulator: four kinds of work, with and without a past.

Every workload is a curve of a family that meets its tiers after a given work. Tier 1 is met after 88 % of the way from
start to plateau, tier 2 after 95 %; a fifth of the training remains after that, as in the live trial.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter

from tiercel.broker.scheduling.interface import CurvePoint, PastRun
from tiercel.broker.simulation import DrawnJobs, Scenario, Workload, equal_nodes
from tiercel.broker.simulation.arrivals import AllAtOnce, Arrivals, Fixed, Poisson, Uniform
from tiercel.broker.simulation.cluster import SLICED
from tiercel.broker.simulation.curves import Family, FamilyCurve
from tiercel.core.jobs import Tier

STARTUP_CPU_SECONDS = 2.0
PAST_RUNS = 4
FAIR_SLICES = "fair, 100 ms slices"
"""What tables call equal weights with long time slices: a stronger baseline than what Docker does by default."""

WAYS = (0.88, 0.95)
"""Parts of the way from start to plateau at which the tiers are."""

_START, _PLATEAU, _NOISE = 0.1, 0.95, 0.003
_REPORTS_TO_FIRST_TIER = 12

# CPU seconds of training to tier 1 and how much runs differ, of the seven programs of the live trial.
_LIVE_PROGRAMS = (
    ("logreg", Family.HYPERBOLIC, 0.54, 0.01),
    ("dmlp", Family.EXPONENTIAL, 1.3, 0.06),
    ("mlp", Family.HYPERBOLIC, 1.9, 0.04),
    ("gru", Family.HYPERBOLIC, 3.1, 0.21),
    ("vae", Family.EXPONENTIAL, 3.6, 0.12),
    ("scnn", Family.HYPERBOLIC, 4.3, 0.03),
    ("lcnn", Family.EXPONENTIAL, 8.0, 0.12),
)


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of work."""

    name: str  # what tables call it
    workloads: tuple[Workload, ...]  # its programs
    jobs: int  # jobs of one simulation
    arrivals: tuple[Arrivals, ...]  # when they come; seeds take turns
    nodes: int  # nodes of the cluster
    cores: float  # cores of a node
    repeats: int = 1  # simulations for each seed that is asked for: small ones differ more and cost less
    # What is known of programs where that is asked for; of others runs are made up.
    past: Mapping[str, tuple[PastRun, ...]] = field(default_factory=dict)

    def scenario(self, seed: int, *, history: bool) -> Scenario:
        """What is simulated for a seed."""
        arrivals = self.arrivals[seed % len(self.arrivals)]
        return Scenario(
            name=f"{self.name}{'-known' if history else ''}",
            nodes=equal_nodes(self.nodes, self.cores),
            jobs=DrawnJobs(self.workloads, self.jobs, arrivals),
            history={each.name: self.past.get(each.name) or past_runs(each) for each in self.workloads}
            if history
            else {},
        )


def with_time_slices(scenario: Scenario) -> Scenario:
    """The same where processes ask for time slices of 100 ms, so that sharing cores costs less."""
    colocation = min(scenario.machines.colocation, SLICED, key=attrgetter("penalty"))
    return replace(scenario, machines=replace(scenario.machines, colocation=colocation))


def past_runs(workload: Workload, count: int = PAST_RUNS) -> tuple[PastRun, ...]:
    """Earlier runs of a program, each alone on a node; drawn apart from those that are simulated."""
    source = random.Random(f"past of {workload.name}")
    runs = []
    for _ in range(count):
        trajectory = workload.run(source)
        best, points = trajectory.values[0], list[CurvePoint]()
        for work, value in zip(trajectory.work, trajectory.values, strict=True):
            if not points or not workload.direction.reaches(best, value):
                best = value
                points.append(CurvePoint(workload.startup_cpu_seconds + work, value))
        points.append(CurvePoint(workload.startup_cpu_seconds + trajectory.work[-1], best))
        runs.append(PastRun(tuple(points)))
    return tuple(runs)


def program(name: str, family: Family, first_tier_seconds: float, spread: float, *, hopeless: bool = False) -> Workload:
    """A program that needs so much training (CPU seconds, start-up excluded) to its first tier.

    Args:
        name: Its name.
        family: Shape of its curve.
        first_tier_seconds: CPU seconds of training to tier 1; for a hopeless one, to where tier 1 would be if its
            plateau were not lower.
        spread: How much runs differ: standard deviation of the logarithm of their work.
        hopeless: Its plateau is below its first tier.
    """
    unit = FamilyCurve(family, _START, _PLATEAU, 1.0, exponent=0.6 if family is Family.STRETCHED else 1.0)
    targets = [_START + way * (_PLATEAU - _START) for way in WAYS]
    scale = first_tier_seconds / (unit.work_to(targets[0]) or 1.0)
    curve = replace(unit, scale=scale, plateau=0.7 if hopeless else _PLATEAU)
    epoch = first_tier_seconds / _REPORTS_TO_FIRST_TIER
    last = (unit.work_to(targets[-1]) or 1.0) * scale
    return Workload(
        name=name,
        curve=curve,
        tiers=tuple(Tier(target) for target in targets),
        startup_cpu_seconds=STARTUP_CPU_SECONDS,
        epoch_cpu_seconds=epoch,
        max_epochs=math.ceil(1.2 * last / epoch),
        continue_after_last_tier=True,
        noise=_NOISE,
        speed_spread=spread,
    )


def _drawn_programs(name: str, works: Sequence[float], hopeless: int = 0) -> tuple[Workload, ...]:
    families = (Family.EXPONENTIAL, Family.HYPERBOLIC, Family.POWER)
    return tuple(
        program(f"{name}{number}", families[number % 3], work, 0.1, hopeless=number < hopeless)
        for number, work in enumerate(works)
    )


def log_normal(count: int, middle: float, spread: float, seed: str) -> list[float]:
    """So many CPU seconds, with a median and the standard deviation of their logarithm."""
    source = random.Random(seed)
    return [middle * math.exp(source.gauss(0.0, spread)) for _ in range(count)]


def pareto(count: int, least: float, shape: float, most: float, seed: str) -> list[float]:
    """So many CPU seconds, of which few are most of the sum; within bounds."""
    source = random.Random(seed)
    return [min(least * source.paretovariate(shape), most) for _ in range(count)]


def kinds(draw: str) -> tuple[Kind, ...]:
    """The kinds of work.

    Args:
        draw: Chooses the programs of the mixed kinds: figures are reported on other programs than settings were
            tuned on.
    """
    trial = tuple(program(name, family, work, spread) for name, family, work, spread in _LIVE_PROGRAMS)
    live = (AllAtOnce(), Fixed(4.0), Uniform(30.0))
    mixed = _drawn_programs("mixed", log_normal(24, 8.0, 1.0, f"mixed {draw}"))
    heavy = _drawn_programs("heavy", pareto(24, 6.0, 1.1, 600.0, f"heavy {draw}"))
    hopeless = _drawn_programs("doubtful", log_normal(16, 8.0, 0.8, f"hopeless {draw}"), hopeless=4)
    return (
        Kind("alike", trial, 7, live, 1, 2.0, repeats=6),
        Kind("mixed", mixed, 72, (AllAtOnce(), Poisson(0.4), Uniform(120.0)), 3, 2.0),
        Kind("heavy-tailed", heavy, 72, (AllAtOnce(), Poisson(0.4), Uniform(120.0)), 3, 2.0),
        Kind("hopeless", hopeless, 24, (AllAtOnce(), Poisson(0.3), Uniform(60.0)), 2, 2.0),
    )
