"""``python -m tiercel.broker.simulation``: simulate a scenario under one policy or several, and compare."""

from __future__ import annotations

import dataclasses
import enum
import json
import math
import time
from pathlib import Path
from typing import Any

import click

from tiercel.broker.simulation import presets
from tiercel.broker.simulation.accelerated import with_accelerators
from tiercel.broker.simulation.arrivals import AllAtOnce, Arrivals, Bursty, Fixed, Poisson, Uniform
from tiercel.broker.simulation.bounds import against_srpt
from tiercel.broker.simulation.cluster import Colocation
from tiercel.broker.simulation.result import Result
from tiercel.broker.simulation.scenario import Scenario, SimulationError
from tiercel.broker.simulation.simulation import simulate
from tiercel.broker.simulation.trace import TraceError, read_trace
from tiercel.broker.simulation.workload import DrawnJobs, Workload
from tiercel.core.errors import InvalidSpecError

Json = dict[str, Any]


class Kind(enum.Enum):
    """What kind of jobs."""

    MIXED = "mixed"
    ALIKE = "alike"
    HEAVY_TAILED = "heavy-tailed"


class When(enum.Enum):
    """How jobs arrive."""

    POISSON = "poisson"
    AT_ONCE = "at-once"
    FIXED = "fixed"
    UNIFORM = "uniform"
    BURSTY = "bursty"


@click.command(context_settings={"show_default": True})
@click.option("--policy", multiple=True, help="A policy; may be given several times.", show_default="fair")
@click.option("--option", multiple=True, help="An option of the policy: NAME=VALUE.")
@click.option("--jobs", type=click.IntRange(min=1), default=50, help="How many jobs.")
@click.option("--nodes", type=click.IntRange(min=1), default=4, help="How many nodes.")
@click.option("--cores", type=click.FloatRange(min=0.1), default=2.0, help="Cores of each node.")
@click.option("--seed", type=int, default=0, help="Chooses jobs, arrivals and noise.")
@click.option("--kind", type=click.Choice([each.value for each in Kind]), default="mixed", help="What kind of jobs.")
@click.option(
    "--arrivals", type=click.Choice([each.value for each in When]), default="poisson", help="How they arrive."
)
@click.option(
    "--load", type=click.FloatRange(min=0.01), default=1.0, help="CPU time that arrives, as a part of what there is."
)
@click.option("--penalty", type=click.FloatRange(min=0), default=Colocation().penalty, help="Co-location penalty.")
@click.option(
    "--endpoints", type=click.FloatRange(min=0), default=0.0, help="CPU that requests want, as a part of the nodes."
)
@click.option("--accelerators", type=click.IntRange(min=0), default=0, help="Accelerators of each node.")
@click.option(
    "--accelerated",
    type=click.FloatRange(min=0, max=1),
    default=0.5,
    help="Part of the kinds of jobs that use one.",
)
@click.option(
    "--intensity",
    type=click.FloatRange(min=0.001),
    default=2.0,
    help="Their accelerator seconds per CPU second of work.",
)
@click.option("--trace", type=click.Path(path_type=Path), help="Jobs from a CSV file instead.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def main(
    *,
    policy: tuple[str, ...],
    option: tuple[str, ...],
    jobs: int,
    nodes: int,
    cores: float,
    seed: int,
    kind: str,
    arrivals: str,
    load: float,
    penalty: float,
    endpoints: float,
    accelerators: int,
    accelerated: float,
    intensity: float,
    trace: Path | None,
    as_json: bool,
) -> None:
    """Simulate jobs on nodes under policies of the broker and compare what became of them."""
    try:
        scenario = _scenario(Kind(kind), When(arrivals), jobs, nodes, cores, load, penalty)
        if trace is not None:
            scenario = dataclasses.replace(scenario, name=trace.stem, jobs=read_trace(trace))
        if endpoints > 0:
            scenario = presets.with_endpoints(scenario, load=endpoints)
        if accelerators > 0:
            scenario = with_accelerators(scenario, accelerators, part=accelerated, intensity=intensity)
        summaries = [_summary(scenario, name, seed, _options(option)) for name in policy or ("fair",)]
    except (SimulationError, TraceError, InvalidSpecError, ValueError) as error:
        click.echo(f"tiercel simulation: {error}", err=True)
        raise click.exceptions.Exit(2) from error
    if as_json:
        click.echo(json.dumps(summaries if len(summaries) > 1 else summaries[0], indent=2, allow_nan=False))
    else:
        _print_table(scenario, seed, summaries)


def _scenario(kind: Kind, when: When, jobs: int, nodes: int, cores: float, load: float, penalty: float) -> Scenario:
    workloads = _workloads(kind)
    rate = load * nodes * cores / presets.mean_work(workloads)
    scenario = presets.training(
        workloads, jobs, nodes, cores=cores, arrivals=_arrivals(when, rate, jobs), penalty=penalty, name=kind.value
    )
    # Jobs of a mix come in equal numbers, those of a heavy tail as they come.
    drawn = DrawnJobs(workloads, jobs, _arrivals(when, rate, jobs), each_equally=kind is not Kind.HEAVY_TAILED)
    return dataclasses.replace(scenario, jobs=drawn)


def _workloads(kind: Kind) -> tuple[Workload, ...]:
    if kind is Kind.MIXED:
        return presets.measured_kinds(hopeless=1)
    if kind is Kind.ALIKE:
        return presets.alike_kinds()
    return presets.heavy_tailed_kinds()


def _arrivals(when: When, rate: float, jobs: int) -> Arrivals:
    if when is When.AT_ONCE:
        return AllAtOnce()
    if when is When.FIXED:
        return Fixed(1 / rate)
    if when is When.UNIFORM:
        return Uniform(jobs / rate)
    if when is When.BURSTY:  # the same mean: calm for three quarters of the time
        return Bursty(0.4 * rate, 2.8 * rate, 30 / rate, 10 / rate)
    return Poisson(rate)


def _options(texts: tuple[str, ...]) -> dict[str, str]:
    pairs = (text.partition("=") for text in texts)
    return {name.strip(): value.strip() for name, _, value in pairs}


def _summary(scenario: Scenario, policy: str, seed: int, options: dict[str, str]) -> Json:
    begin = time.perf_counter()
    result = simulate(scenario, policy, seed, options)
    return summary_of(result, sum(node.cpu_cores for node in scenario.nodes), time.perf_counter() - begin)


def summary_of(result: Result, cores: float, wall_seconds: float) -> Json:
    """The figures of a result that matter most, as JSON; NaN and infinity become None.

    Args:
        result: What a simulation found.
        cores: Of all nodes together.
        wall_seconds: How long the simulation took.
    """
    decisions = result.decision_seconds()
    srpt, pooled = against_srpt(result, 1, cores) if result.jobs else (math.nan, math.nan)
    figures: Json = {
        "scenario": result.scenario,
        "policy": result.policy,
        "seed": result.seed,
        "jobs": len(result.jobs),
        "mean_time_to_tier_1_seconds": result.mean_time_to_tier(1),
        "mean_time_to_tier_2_seconds": result.mean_time_to_tier(2),
        "mean_completion_seconds": result.mean_completion,
        "makespan_seconds": result.makespan,
        "worst_slowdown": max((job.slowdown for job in result.jobs), default=math.nan),
        "missed_tiers": result.missed_tiers(),
        "tier_1_against_srpt": srpt,
        "tier_1_against_pooled_srpt": pooled,
        "migrations": result.migrations,
        "accelerator_utilisation": result.accelerator_utilisation,
        "served_quality": result.served_quality,
        "mean_satisfied_endpoints": result.mean_satisfied(),
        "passes": len(result.decisions),
        "median_decision_seconds": decisions[len(decisions) // 2] if decisions else math.nan,
        "longest_decision_seconds": decisions[-1] if decisions else math.nan,
        "wall_seconds": wall_seconds,
    }
    return {name: _finite(value) for name, value in figures.items()}


def _finite(value: object) -> object:
    return None if isinstance(value, float) and not math.isfinite(value) else value


_PLAIN_WIDTH = 160
_COLUMNS = (
    ("POLICY", "policy", ""),
    ("TIER 1", "mean_time_to_tier_1_seconds", ".1f"),
    ("TIER 2", "mean_time_to_tier_2_seconds", ".1f"),
    ("COMPLETION", "mean_completion_seconds", ".1f"),
    ("MAKESPAN", "makespan_seconds", ".1f"),
    ("WORST SLOWDOWN", "worst_slowdown", ".1f"),
    ("TIER 1/SRPT", "tier_1_against_srpt", ".2f"),
    ("MOVES", "migrations", "d"),
    ("ACCELERATORS BUSY", "accelerator_utilisation", ".0%"),
    ("QUALITY", "served_quality", ".0f"),
    ("PASSES", "passes", "d"),
    ("PASS MS", "median_decision_seconds", "ms"),
    ("TOOK S", "wall_seconds", ".1f"),
)


def _print_table(scenario: Scenario, seed: int, summaries: list[Json]) -> None:
    from rich.console import Console
    from rich.table import Table

    jobs = summaries[0]["jobs"]
    title = f"{scenario.name}: {jobs} jobs, {len(scenario.nodes)} nodes, seed {seed}; seconds, means over jobs"
    table = Table(title=title, box=None, pad_edge=False, title_justify="left")
    for heading, _, form in _COLUMNS:
        table.add_column(heading, justify="right" if form else "left")
    for summary in summaries:
        table.add_row(*(_cell(summary[name], form) for _, name, form in _COLUMNS))
    console = Console()
    if not console.is_terminal:  # a file or a pipe has no width that would be worth cutting columns for
        console = Console(width=_PLAIN_WIDTH)
    console.print(table)


def _cell(value: Any, form: str) -> str:
    if value is None:
        return "-"
    return f"{1e3 * value:.2f}" if form == "ms" else format(value, form)
