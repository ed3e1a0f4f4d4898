"""Ready-made scenarios: jobs like those measured live, alike, mixed or heavy-tailed, with or without endpoints.

Presets are what benchmarks start from; each is a plain :class:`.Scenario`, to be changed with ``dataclasses.replace``.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import replace

from tiercel.broker.simulation.arrivals import Arrivals, Poisson
from tiercel.broker.simulation.cluster import Colocation
from tiercel.broker.simulation.curves import Family, FamilyCurve
from tiercel.broker.simulation.endpoints import EndpointTraffic
from tiercel.broker.simulation.randomness import stream
from tiercel.broker.simulation.requests import BurstyRate, ConstantRate, SinusoidalRate
from tiercel.broker.simulation.scenario import MachineSettings, Scenario, equal_nodes
from tiercel.broker.simulation.workload import DrawnJobs, Workload
from tiercel.core.jobs import Tier

# Parts of the way from start to plateau at which the tiers are.
TIER_GAINS = (0.88, 0.985)
_START, _PLATEAU = 0.1, 0.98
_REPORTS = 16
_HEAVY_TAILED = 24
# Shape of the Pareto distribution; the smaller, the heavier the tail.
_TAIL = 1.1


def workload(
    name: str,
    family: Family,
    first_tier_work: float,
    *,
    second_tier_work: float | None = None,
    speed_spread: float = 0.1,
    hopeless: bool = False,
    trains_on: bool = False,
) -> Workload:
    """A workload with two tiers whose curve is at tier 1 after so much work.

    Args:
        name: See :class:`.Workload`.
        family: Its curve's shape.
        first_tier_work: CPU seconds of training to tier 1.
        second_tier_work: The same to tier 2, 2 to 9 times the first; for the power family, whose exponent it gives.
        speed_spread: See :class:`.Workload`.
        hopeless: Whether tier 2 is beyond the plateau.
        trains_on: Whether it trains on after tier 2, for a fifth of its budget.
    """
    unit = FamilyCurve(family, _START, _PLATEAU, scale=1.0)
    if second_tier_work is not None:
        unit = replace(unit, exponent=_exponent_for(second_tier_work / first_tier_work))
    targets = tuple(_START + gain * (_PLATEAU - _START) for gain in TIER_GAINS)
    units = [unit.work_to(target) or 1.0 for target in targets]
    scale = first_tier_work / units[0]
    reachable = (targets[0], _PLATEAU + 0.015) if hopeless else targets
    return Workload(
        name=name,
        curve=replace(unit, scale=scale),
        tiers=tuple(Tier(target) for target in reachable),
        startup_cpu_seconds=2.0,
        epoch_cpu_seconds=units[1] * scale / _REPORTS,
        # The slowest run still gets there: the spread is in CPU per report, not in the number of reports.
        max_epochs=round(1.25 * _REPORTS),
        continue_after_last_tier=trains_on,
        noise=0.003,
        speed_spread=speed_spread,
    )


def _exponent_for(ratio: float) -> float:
    """The exponent of a power curve that takes ``ratio`` times the work to tier 2 that it takes to tier 1."""

    def ratio_of(exponent: float) -> float:
        first, second = ((1 - gain) ** (-1 / exponent) - 1 for gain in TIER_GAINS)
        return float(second / first)

    low, high = 0.5, 500.0  # the ratio falls as the exponent grows
    if not ratio_of(high) <= ratio <= ratio_of(low):
        raise ValueError(f"no curve takes {ratio:g} times the work to tier 2 that it takes to tier 1")
    for _ in range(60):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if ratio_of(middle) > ratio else (low, middle)
    return low


def measured_kinds(*, hopeless: int = 0, trains_on: bool = False) -> tuple[Workload, ...]:
    """Seven kinds with the works to both tiers and the spreads measured live (means of three seeds).

    Args:
        hopeless: So many of them come a second time with a tier 2 beyond their plateau.
        trains_on: Whether they train on after tier 2, as they did live.
    """
    kinds = (
        ("logreg", 0.54, 4.33, 0.01),
        ("dmlp", 1.31, 3.07, 0.06),
        ("mlp", 1.86, 5.13, 0.04),
        ("gru", 3.15, 8.33, 0.21),
        ("vae", 3.62, 7.27, 0.12),
        ("scnn", 4.34, 10.67, 0.03),
        ("lcnn", 8.0, 18.27, 0.11),
    )
    good = [
        workload(name, Family.POWER, first, second_tier_work=second, speed_spread=spread, trains_on=trains_on)
        for name, first, second, spread in kinds
    ]
    bad = [
        workload(f"{name}-hopeless", Family.POWER, first, second_tier_work=second, speed_spread=spread, hopeless=True)
        for name, first, second, spread in kinds[3 : 3 + hopeless]
    ]
    return (*good, *bad)


def heavy_tailed_kinds() -> tuple[Workload, ...]:
    """Kinds whose work to tier 1 is Pareto-distributed: a few hold most of the work, as in traces of real clusters."""
    source = stream(0, "heavy-tailed kinds")
    families = (Family.EXPONENTIAL, Family.HYPERBOLIC, Family.SIGMOID)
    works = [min(source.paretovariate(_TAIL), 100.0) for _ in range(_HEAVY_TAILED)]
    return tuple(workload(f"heavy{number}", families[number % 3], work) for number, work in enumerate(works))


def alike_kinds() -> tuple[Workload, ...]:
    """One kind: jobs that only chance tells apart."""
    return (workload("alike", Family.EXPONENTIAL, 4.0),)


def mean_work(workloads: Sequence[Workload]) -> float:
    """CPU seconds that a job of these needs in the mean, alone: start-up and training to the last tier or the end."""
    return statistics.fmean(_work(each) for each in workloads)


def _work(each: Workload) -> float:
    budget = each.max_epochs * each.epoch_cpu_seconds
    curve = each.curve
    if each.continue_after_last_tier or not isinstance(curve, FamilyCurve):
        return each.startup_cpu_seconds + budget
    needed = curve.work_to(each.tiers[-1].target)
    return each.startup_cpu_seconds + (budget if needed is None else min(needed, budget))


def training(
    workloads: Sequence[Workload],
    jobs: int,
    nodes: int,
    *,
    cores: float = 2.0,
    load: float = 1.0,
    arrivals: Arrivals | None = None,
    penalty: float = Colocation().penalty,
    name: str = "training",
) -> Scenario:
    """Jobs drawn from workloads on equal nodes.

    Args:
        workloads: What the jobs are drawn from.
        jobs: How many.
        nodes: How many.
        cores: Of each node.
        load: CPU time that arrives, as a part of what the nodes have; for the default arrivals.
        arrivals: When they come; None: a Poisson process with that load.
        penalty: Of co-location (measured live: 0.28; with scheduler slices of 100 ms about 0.06).
        name: Of the scenario.
    """
    rate = load * nodes * cores / mean_work(workloads)
    return Scenario(
        name=name,
        nodes=equal_nodes(nodes, cores),
        jobs=DrawnJobs(tuple(workloads), jobs, arrivals or Poisson(rate)),
        machines=MachineSettings(colocation=Colocation(penalty)),
    )


def mixed_jobs(jobs: int, nodes: int) -> Scenario:
    """Jobs of the kinds that were measured live, some of them hopeless."""
    return training(measured_kinds(hopeless=1), jobs, nodes, name="mixed")


def with_endpoints(scenario: Scenario, *, load: float = 0.3, duration_seconds: float = 300.0, new: int = 0) -> Scenario:
    """The same jobs, and on every node an endpoint with a poor version, which the first jobs to arrive make better.

    Args:
        scenario: What else there is; drawn jobs feed the endpoints, one each.
        load: CPU time that requests want in the mean, as a part of what the nodes have.
        duration_seconds: How long requests come.
        new: Instead of them, so many endpoints that have no version and are asked once they have one.
    """
    nodes, work = scenario.nodes, 0.02
    mean = load * nodes[0].cpu_cores / work * (len(nodes) / new if new else 1.0)
    rates = (
        ConstantRate(mean),
        SinusoidalRate(mean, 0.6 * mean, duration_seconds / 3),
        BurstyRate(0.6 * mean, 2.2 * mean, 0.25),
    )
    endpoints = tuple(
        EndpointTraffic(
            name=f"endpoint{number}",
            work_cpu_seconds=work,
            rate=rates[number % len(rates)],
            threads=node.cpu_cores,
            objective_seconds=0.1,
            node_id="" if new else node.id,
            quality=None if new else 0.5,
        )
        for number, node in enumerate(itertools.islice(itertools.cycle(nodes), new or len(nodes)))
    )
    jobs = scenario.jobs
    if isinstance(jobs, DrawnJobs):
        jobs = replace(jobs, feeds=tuple(endpoint.name for endpoint in endpoints))
    name = f"{scenario.name}+endpoints"
    return replace(scenario, jobs=jobs, endpoints=endpoints, duration_seconds=duration_seconds, name=name)
